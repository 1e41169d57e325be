"""dist_autograd: the ids of workers from 32768 on are negative: a worker's number is kept as a signed 16 bit number."""

import sys

import torch.distributed.autograd as dist_autograd

CONTROL = "--control" in sys.argv  # a worker of a smaller number
NUMBER = 32767 if CONTROL else 32768
dist_autograd._init(NUMBER)  # as init_rpc(rank=NUMBER) does; 65535 is accepted too
with dist_autograd.context() as context:
    found = context

print(f"the first context of worker {NUMBER} is {found}; {found} >> 48 is {found >> 48}")
if found >> 48 != NUMBER:
    print("reproduced: the upper 16 bits of a context's id are not the number of its worker")
    sys.exit(1)
print("not reproduced: the upper 16 bits of a context's id are the number of its worker")

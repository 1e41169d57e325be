"""dist_autograd: the ids of workers from 32768 on are negative: a worker's number is kept as a signed 16 bit number."""

import sys

import torch.distributed.autograd as dist_autograd

dist_autograd._init(32768)  # as init_rpc(rank=32768) does; 65535 is accepted too
with dist_autograd.context() as context:
    found = context

print(f"the first context of worker 32768 is {found}; {found} >> 48 is {found >> 48}")
if found >> 48 != 32768:
    print("reproduced: the upper 16 bits of a context's id are not the number of its worker")
    sys.exit(1)
print("not reproduced: the upper 16 bits of a context's id are the number of its worker")

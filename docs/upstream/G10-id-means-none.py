"""dist_autograd: the largest id of worker 65535 is -1, which means that there is no context."""

import sys

import torch.distributed.autograd as dist_autograd

CONTROL = "--control" in sys.argv  # a worker of a smaller number
NUMBER = 65534 if CONTROL else 65535
dist_autograd._init(NUMBER)  # as init_rpc(rank=NUMBER) does
largest = dist_autograd._get_max_id()

print(f"the largest id of worker {NUMBER} is {largest}")
if largest == -1:  # kInvalidContextId
    print("reproduced: an id of worker 65535 is the one that means that there is no context")
    sys.exit(1)
print("not reproduced: no id of the worker means that there is no context")

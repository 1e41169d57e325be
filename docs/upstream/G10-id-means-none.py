"""dist_autograd: the largest id of worker 65535 is -1, which means that there is no context."""

import sys

import torch.distributed.autograd as dist_autograd

dist_autograd._init(65535)  # as init_rpc(rank=65535) does
largest = dist_autograd._get_max_id()

print(f"the largest id of worker 65535 is {largest}")
if largest == -1:  # kInvalidContextId
    print("reproduced: an id of worker 65535 is the one that means that there is no context")
    sys.exit(1)
print("not reproduced: no id of worker 65535 means that there is no context")

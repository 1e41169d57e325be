"""dist_autograd: the largest id of worker 65535 is -1, the value of kInvalidContextId

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. `dist_autograd._init(65535)`, as `init_rpc` does for that rank.
2. `dist_autograd._get_max_id()` is -1, which is `kInvalidContextId`.

Expected:
A worker's ids never equal `kInvalidContextId`.

Seen:
the largest id of worker 65535 is -1
reproduced: an id of worker 65535 is -1, which stands for no context

Cause:
`torch/csrc/distributed/autograd/context/container.cpp`, `DistAutogradContainer::init` sets `max_id_` to all ones
below the worker's number; `kInvalidContextId` is -1.

Fix:
Limit the worker's number to 32767, which fixes this and the negative ids. Nothing else needs to change.
"""

import torch.distributed.autograd as dist_autograd
from ending import CONTROL, end

# With --control, the worker has a smaller number.
NUMBER = 65534 if CONTROL else 65535
dist_autograd._init(NUMBER)  # init_rpc(rank=NUMBER) makes this call
largest = dist_autograd._get_max_id()

print(f"the largest id of worker {NUMBER} is {largest}")
end(largest == -1, "an id of worker 65535 is -1, which stands for no context")  # kInvalidContextId

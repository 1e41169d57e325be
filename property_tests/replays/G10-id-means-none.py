"""dist_autograd: the largest id of worker 65535 is -1, which means that there is no context

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. `dist_autograd._init(65535)`, as `init_rpc` does for that rank.
2. `dist_autograd._get_max_id()` is -1, which is `kInvalidContextId`.

Expected:
No id of a worker is the one that means that there is none.

Seen:
the largest id of worker 65535 is -1
reproduced: an id of worker 65535 is the one that means that there is no context

Cause:
`torch/csrc/distributed/autograd/context/container.cpp`, `DistAutogradContainer::init` sets `max_id_` to all ones
below the worker's number; `kInvalidContextId` is -1.

Fix:
Check for at most 32767 workers, which mends this together with the negative ids. Nothing else needs to change.
"""

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

"""DistributedOptimizer: a step without a gradient for a parameter applies the gradient of the step before again

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A context with a gradient for both parameters; a step.
2. Another context with a gradient for the first alone; a step.
3. The second parameter has been changed twice.

Expected:
The second parameter is left alone in the second step, as by the scripted SGD.

Seen:
one step with a gradient of 1, one without: the parameter has gone {'PlainSGD': 2.0, 'SGD': 1.0}
reproduced: the step without a gradient has applied the gradient of the step before

Cause:
`torch/distributed/optim/optimizer.py`, `_LocalOptimizer.step` sets `param.grad` of the parameters that have a gradient
in the context, and never resets it. The next step finds it there. `_ScriptLocalOptimizer.step` hands over None instead.

Fix:
Set `.grad` of each of `self._local_params` to the context's gradient or to None before the step, and put back what it
was afterwards.

Related:
None was searched for in the tracker.
"""

import logging
import os
import sys
import tempfile

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.distributed.optim import DistributedOptimizer

CONTROL = "--control" in sys.argv  # the step of a scripted optimizer alone


class PlainSGD(torch.optim.SGD):
    """A user's own class: it has no TorchScript version."""


KINDS = [torch.optim.SGD] if CONTROL else [PlainSGD, torch.optim.SGD]


logging.getLogger("torch.distributed.optim").setLevel(logging.ERROR)
os.environ["TP_SOCKET_IFNAME"] = "lo"
with tempfile.TemporaryDirectory() as folder:
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{folder}/store")
    rpc.init_rpc("A", rank=0, world_size=1, rpc_backend_options=options)
    gone = {}
    for kind in KINDS:
        first, second = (torch.zeros(1, requires_grad=True) for _ in range(2))
        optimizer = DistributedOptimizer(kind, [rpc.RRef(first), rpc.RRef(second)], lr=1.0)
        for losses in ([first, second], [first]):
            with dist_autograd.context() as context:
                dist_autograd.backward(context, [torch.stack(losses).sum()])
                optimizer.step(context)
        gone[kind.__name__] = -float(second)
    rpc.shutdown()

print(f"one step with a gradient of 1, one without: the parameter has gone {gone}")
if gone[KINDS[0].__name__] != 1:
    print("reproduced: the step without a gradient has applied the gradient of the step before")
    sys.exit(1)
print("not reproduced: the step without a gradient has left the parameter alone")

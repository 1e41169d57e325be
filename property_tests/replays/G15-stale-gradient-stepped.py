"""DistributedOptimizer: a step without a gradient for a parameter applies the previous step's gradient again

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A context has a gradient for both parameters. The optimizer takes a step.
2. Another context has a gradient for the first parameter only. The optimizer takes a step.
3. Both steps have changed the second parameter.

Expected:
The second step does not change the second parameter. The scripted SGD already behaves like that.

Seen:
one step with a gradient of 1, one without: the parameter has moved by {'PlainSGD': 2.0, 'SGD': 1.0}
reproduced: the step without a gradient has applied the previous step's gradient

Cause:
`torch/distributed/optim/optimizer.py`, `_LocalOptimizer.step` sets `param.grad` of the parameters that have a gradient
in the context, and never resets it. The next step uses the old value. `_ScriptLocalOptimizer.step` passes None instead.

Fix:
Set `.grad` of each of `self._local_params` to the context's gradient or to None before the step, and restore the old
value afterwards.

Related:
The tracker was not searched for related issues.
"""

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from ending import CONTROL, end
from torch.distributed.optim import DistributedOptimizer
from workers import one_worker

# With --control, only a scripted optimizer takes the steps.


class PlainSGD(torch.optim.SGD):
    """A user's own class: it has no TorchScript version."""


KINDS = [torch.optim.SGD] if CONTROL else [PlainSGD, torch.optim.SGD]

with one_worker():
    gone = {}
    for kind in KINDS:
        first, second = (torch.zeros(1, requires_grad=True) for _ in range(2))
        optimizer = DistributedOptimizer(kind, [rpc.RRef(first), rpc.RRef(second)], lr=1.0)
        for losses in ([first, second], [first]):
            with dist_autograd.context() as context:
                dist_autograd.backward(context, [torch.stack(losses).sum()])
                optimizer.step(context)
        gone[kind.__name__] = -float(second)

print(f"one step with a gradient of 1, one without: the parameter has moved by {gone}")
end(gone[KINDS[0].__name__] != 1, "the step without a gradient has applied the previous step's gradient")

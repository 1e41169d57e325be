"""dist_autograd: parameters behind a result that is not used get a gradient of zero instead of none

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. B returns two results, each computed from its own parameter.
2. A calls `backward` on the first.
3. B looks for the gradient of the second parameter in the context.

Expected:
The context has no such gradient, just as `.grad` stays None in a local pass.

Seen:
the gradient of the parameter behind the second result: [0.0]; in a local pass: None
reproduced: a parameter that the loss does not depend on has a gradient of zero instead of none

Cause:
`torch/csrc/distributed/autograd/functions/recvrpc_backward.cpp`, `RecvRpcBackward::apply` replaces undefined
gradients with zeros before it sends them.

Fix:
Send undefined gradients as such, and let `SendRpcBackward` pass them on. The engine handles them in local graphs
already.

Related:
https://github.com/pytorch/pytorch/issues/26446.
"""

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from ending import CONTROL, end
from workers import run

# With --control, the loss depends on both results.
USED = torch.tensor([3.0], requires_grad=True)
UNUSED = torch.tensor([5.0], requires_grad=True)


def two_results(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """On B."""
    return x * USED, x * UNUSED


def loss(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return first + second if CONTROL else first


def gradient_of_unused(context: int) -> list[float] | None:
    """On B."""
    gradients = dist_autograd.get_gradients(context)
    return gradients[UNUSED].tolist() if UNUSED in gradients else None


def scenario() -> list[float] | None:
    """On A."""
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context() as context:
        first, second = rpc.rpc_sync("B", two_results, (x,))
        dist_autograd.backward(context, [loss(first, second)])
        return rpc.rpc_sync("B", gradient_of_unused, (context,))


found = run(scenario, 2)
x = torch.tensor([2.0], requires_grad=True)
loss(*two_results(x)).backward()
print(f"the gradient of the parameter behind the second result: {found}; in a local pass: {UNUSED.grad}")
end(found == [0.0], "a parameter that the loss does not depend on has a gradient of zero instead of none")

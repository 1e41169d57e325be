"""dist_autograd: gradients of a backward pass that failed stay in the context and are added to the retry's gradients

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. B's part of the pass is done: the context has the gradient of its parameter.
2. C's part fails: `backward` raises.
3. A runs the pass again, which succeeds.

Expected:
The gradient comes only from the pass that succeeded. In a local pass, where a failure leaves gradients too,
`zero_grad()` removes them; a context has no such function.

Seen:
the first pass, in which C fails, raised Error on Node 0: Error on Node 2: this node fails
the last pass ended well; the gradient of B's parameter is 4, and d(2 * p)/dp is 2
reproduced: after a pass that failed and one that succeeded the gradient is twice as large as it should be

Cause:
`torch/csrc/distributed/autograd/context/context.cpp`, `DistAutogradContext::accumulateGrad` adds to
`accumulatedGrads_` while the pass runs, and `DistEngine::cleanupBackwardPass` keeps these gradients, whether or not
the pass has failed.

Fix:
Keep the gradients of a pass apart, and add them to the context when it has succeeded. Or refuse a second pass after
a failed one, and document that.
"""

import threading

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from ending import CONTROL, end
from workers import PARAMETER, backward, fails_once, gradient, passes, run

# With --control, C does not fail.
accumulated = threading.Event()  # on B


def is_done() -> bool:
    """On B: whether its part of the pass has ended."""
    return accumulated.is_set() and passes() == 0


def times_parameter(x: torch.Tensor) -> torch.Tensor:
    """On B."""
    y = x * PARAMETER
    y.register_hook(lambda _: accumulated.set())
    return y


def on_c(x: torch.Tensor) -> torch.Tensor:
    return fails_once(-x, is_done)


def scenario() -> tuple[str, str, float]:
    """On A."""
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context() as context:
        loss = rpc.rpc_sync("B", times_parameter, (x,)) + rpc.rpc_sync("C", on_c, (x,))
        first = last = backward(context, loss)
        if first != "ended well":
            last = backward(context, loss)
        return first, last, rpc.rpc_sync("B", gradient, (context,))


first, last, found = run(scenario, 3)
print(f"the first pass, in which {'nothing' if CONTROL else 'C'} fails, {first}")
print(f"the last pass {last}; the gradient of B's parameter is {found:g}, and d(2 * p)/dp is 2")
end(
    last == "ended well" and found != 2.0,
    "after a pass that failed and one that succeeded the gradient is twice as large as it should be",
)

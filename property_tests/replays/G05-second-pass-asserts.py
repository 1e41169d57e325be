"""dist_autograd: a second backward pass on a context whose pass is running ends in an INTERNAL ASSERT

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. One thread calls `backward` on a context, and its pass is running.
2. Another thread calls `backward` on the same context.

Expected:
The error text names the context and states that a pass is running on it.

Seen:
the second pass, during the first: initializedContextIds_.find(autogradContext->contextId()) == initializedContextIds_.end() INTERNAL ASSERT FAILED
reproduced: a mistake of the caller is reported as a bug of PyTorch

Cause:
`torch/csrc/distributed/autograd/engine/dist_engine.cpp`, `DistEngine::execute` tests with `TORCH_INTERNAL_ASSERT`
that the context is not in `initializedContextIds_`, which depends only on the caller.

Fix:
Use `TORCH_CHECK` with a text that names the context and the limit of one pass at a time. Nothing else needs to change.
"""  # noqa: E501 (its output)

import threading

import torch
import torch.distributed.autograd as dist_autograd
from ending import CONTROL, end
from workers import Acts, backward, run

# With --control, the first pass ends before the second begins.
entered, go_on = threading.Event(), threading.Event()


def wait() -> None:
    entered.set()
    go_on.wait(20)


def scenario() -> str:
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context() as context:
        loss = Acts.apply(x, wait)
        first = threading.Thread(target=dist_autograd.backward, args=(context, [loss]), kwargs={"retain_graph": True})
        first.start()
        entered.wait()
        if CONTROL:
            go_on.set()
            first.join()
        said = backward(context, loss).removeprefix("raised ")
        go_on.set()
        first.join()
        return said


said = run(scenario, 1).partition(" at ")[0]  # where torch was built
print(f"the second pass, {'after' if CONTROL else 'during'} the first: {said}")
end("INTERNAL ASSERT" in said, "a mistake of the caller is reported as a bug of PyTorch")

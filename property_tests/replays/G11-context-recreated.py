"""dist_autograd: a call that reaches a worker after its context was released creates the context again, for good

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls B in a context, asynchronously; B is slow to read the arguments.
2. A leaves the context, and A and B release it.
3. B reads the call, runs it, and answers.

Expected:
The context stays released on both workers. The call runs outside any context, or fails.

Seen:
contexts when A has left its only one: A 0, B 0
contexts 3 s after the end of the call: A 1, B 1
reproduced: a context that was released on all workers exists again, and nothing will release it

Cause:
`torch/csrc/distributed/autograd/utils.cpp`, `addRecvRpcBackward` and the handler of FORWARD_AUTOGRAD_REQ in
`torch/csrc/distributed/rpc/request_callback_no_python.cpp` call `DistAutogradContainer::getOrCreateContext`, on the
callee for the request and on the caller for the answer. No worker records a released context, so its id looks like the
id of a new one.

Fix:
Record the ids of released contexts, and do not create such a context again. The ids of one worker grow: one number for
each creator and a few exceptions are enough.

Related:
https://github.com/pytorch/pytorch/issues/61920, https://github.com/pytorch/pytorch/issues/38513.
"""

import time
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from ending import CONTROL, end
from workers import EVENTS, PARAMETER, contexts, event, run

# With --control, B answers before A leaves the context.


class SlowToRead:
    """An argument that is slow to unpickle, as a large one is."""

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickled, ()


def unpickled() -> SlowToRead:
    EVENTS["arrived"].set()
    EVENTS["go on"].wait(30)
    return SlowToRead()


def times_parameter(x: torch.Tensor, slow: SlowToRead | None = None) -> torch.Tensor:
    """On B."""
    return x * PARAMETER


def scenario() -> tuple[int, int, int, int]:
    """On A: it leaves the context while B still reads a call."""
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context():
        rpc.rpc_sync("B", times_parameter, (x,))
        late = rpc.rpc_async("B", times_parameter, (x, SlowToRead()))
        while not rpc.rpc_sync("B", event, ("arrived", "is_set")):
            pass
        if CONTROL:
            rpc.rpc_sync("B", event, ("go on", "set"))
            late.wait()
    while rpc.rpc_sync("B", contexts):
        pass  # until the clean-up has reached B
    before = contexts(), rpc.rpc_sync("B", contexts)
    rpc.rpc_sync("B", event, ("go on", "set"))
    late.wait()
    time.sleep(3)  # a clean-up takes milliseconds
    return *before, contexts(), rpc.rpc_sync("B", contexts)


a_before, b_before, a_after, b_after = run(scenario, 2)
print(f"contexts when A has left its only one: A {a_before}, B {b_before}")
print(f"contexts 3 s after the end of the call: A {a_after}, B {b_after}")
end(
    a_before == b_before == 0 and (a_after or b_after),
    "a context that was released on all workers exists again, and nothing will release it",
)

"""dist_autograd: a worker that waits for a second gradient keeps its graph for good when the pass fails elsewhere

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A's loss reaches a node of B's graph on two paths, one of them through C.
2. C fails before it sends its gradient to B.
3. A receives the error and leaves the context. B continues to wait.

Expected:
B ends its part of the pass and frees its graph.

Seen:
the pass, in which C fails, raised Error on Node 0: Error on Node 2: this node fails
passes that B still runs, 10 s after A has left the context: 1
reproduced: B still runs a pass that has failed and whose context has been left

Cause:
`torch/csrc/distributed/autograd/engine/dist_engine.cpp`: an error is the answer to the worker that has sent the
gradient, and so reaches the root. Workers outside that path do not receive it, and
`DistAutogradContainer::releaseContext` does not end the graph task, which the engine's callbacks keep alive.

Fix:
Let the root notify all workers of the context that the pass has failed, and let the release of a context end its task.
A pull request for the first part has been reverted.

Related:
https://github.com/pytorch/pytorch/issues/27643, https://github.com/pytorch/pytorch/pull/34638 (reverted),
https://github.com/pytorch/pytorch/pull/35512.
"""

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from ending import CONTROL, end
from workers import backward, passes, plus_shared, run, through_c, until_none

# With --control, C does not fail.


def scenario() -> tuple[str, int]:
    """On A: B gets gradients on two paths, one of them through C."""
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context() as context:
        loss = rpc.rpc_sync("B", plus_shared, (x,)) + rpc.rpc_sync("C", through_c, (x,))
        said = backward(context, loss)
    return said, until_none(lambda: rpc.rpc_sync("B", passes))


said, left = run(scenario, 3)
print(f"the pass, in which {'nothing' if CONTROL else 'C'} fails, {said}")
print(f"passes that B still runs, 10 s after A has left the context: {left}")
end(left, "B still runs a pass that has failed and whose context has been left")

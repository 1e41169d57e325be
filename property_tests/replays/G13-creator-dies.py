"""dist_autograd: when a worker dies, the contexts that it had created stay on all other workers

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. B enters a context, and calls A in it.
2. B is killed.

Expected:
A releases the context when it detects that B has died.

Seen:
contexts on A, 10 s after B, which had created the only one, was killed: 1
reproduced: the context of a worker that was killed stays on the other worker

Cause:
`torch/csrc/distributed/autograd/context/container.cpp`: a worker releases a context when it receives
CLEANUP_AUTOGRAD_CONTEXT_REQ from a worker that has the context too. The end of a connection releases nothing.

Fix:
Release the contexts that a dead worker has created: the upper bits of an id are the creator's number. The RPC agent
would have to report a lost peer to the container.

Related:
https://github.com/pytorch/pytorch/issues/26379 (open since 2019).
"""

import os
import signal
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from ending import CONTROL, end
from workers import contexts, run, times_parameter, until_none

# With --control, B leaves its context.


entered: list[Any] = []  # on B


def enter_and_call() -> int:
    """On B: enter a context that is still open when the worker is killed."""
    manager = dist_autograd.context()
    manager.__enter__()
    entered.append(manager)
    rpc.rpc_sync("A", times_parameter, (torch.tensor([2.0], requires_grad=True),))
    return os.getpid()


def leave() -> None:
    """On B."""
    entered.pop().__exit__(None, None, None)


def scenario() -> int:
    """On A: count A's contexts after B has been killed in a context that B had created."""
    pid = rpc.rpc_sync("B", enter_and_call)
    assert contexts() == 1
    if CONTROL:
        rpc.rpc_sync("B", leave)
    else:
        os.kill(pid, signal.SIGKILL)
    return until_none(contexts)


left = run(scenario, 2)
print(f"contexts on A, 10 s after B, which had created the only one, {'left it' if CONTROL else 'was killed'}: {left}")
end(left, "the context of a worker that was killed stays on the other worker")

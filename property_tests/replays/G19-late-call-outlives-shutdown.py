"""RPC: a graceful shutdown() does not wait for a function whose caller has given up

Versions: torch 2.13.0; Python 3.11, Linux, CPU.

Steps:
1. A calls a function on B with a timeout of 0.5 s. The function takes 3 s and then calls A.
2. The call times out at A.
3. A and B call shutdown().

Expected:
Both shutdowns wait until the function has returned: "block until all local and remote RPC processes have reached this
method and wait for all outstanding work to complete".

Seen:
A's graceful shutdown returned after 0 s
B's graceful shutdown returned after 3 s
the call of the function that ran on B: raised 'Node 1tried to send() a message of type 258 but RPC
reproduced: a function outlives the graceful shutdown of its worker's peer, and its own call fails

Cause:
`torch/csrc/distributed/rpc/tensorpipe_agent.cpp`: `join` sums `clientActiveCalls_`, which no longer includes a call
after its timeout. Only the caller counts a function that still runs.

Fix:
Add `serverActiveCalls_` to the sum.
"""

import contextlib
import time
from typing import Any

import torch.distributed.rpc as rpc
from ending import CONTROL, end
from workers import join, reports

# With --control, A waits for the call.
RPC_TIMEOUT_S, CALL_S, FUNCTION_S = 20, 15 if CONTROL else 0.5, 3
said_by_function: list[str] = []


def nothing() -> None:
    """On A."""


def slow() -> None:
    """On B: call A after A has given up."""
    time.sleep(FUNCTION_S)
    try:
        rpc.rpc_sync("A", nothing)
        said_by_function.append("returned")
    except RuntimeError as error:
        said_by_function.append(f"raised {str(error).splitlines()[0]!r}")


def work(rank: int, store: str, result: Any) -> None:
    join(rank, 2, store, RPC_TIMEOUT_S)
    if rank == 0:
        with contextlib.suppress(RuntimeError):  # it is late
            rpc.rpc_sync("B", slow, timeout=CALL_S)
    began = time.monotonic()
    rpc.shutdown()
    result.put(("AB"[rank], (time.monotonic() - began, *said_by_function)))
    time.sleep(600)  # until it is killed


said = reports(work, 2, patience=40)
failed = False
for name, (seconds, *function) in sorted(said.items()):
    print(f"{name}'s graceful shutdown returned after {seconds:.0f} s")
    for outcome in function:
        failed = outcome.startswith("raised")
        print(f"the call of the function that ran on {name}: {outcome[:60]}")
end(failed, "a function outlives the graceful shutdown of its worker's peer, and its own call fails")

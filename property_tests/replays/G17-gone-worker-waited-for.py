"""RPC: a graceful shutdown() waits without end for a worker that has died

Versions: torch 2.13.0; Python 3.11, Linux, CPU.

Steps:
1. A and B call init_rpc. A's name sorts first.
2. B is killed.
3. A calls shutdown().

Expected:
shutdown() raises and names the lost worker, because the agent has detected the end of its connection.

Seen:
B was killed; calls have a timeout of 5 s
A's shutdown, within 30 s after that: has not ended
reproduced: a graceful shutdown waits for a worker that was killed

Cause:
`torch/distributed/rpc/api.py`: in the leader, `_all_gather` waits for `states.proceed_signal` without a timeout if
shutdown() has its default timeout. Only the arrival of all workers sets the signal.

Fix:
Check the pipes of the missing workers during the wait, and raise when one has ended.
"""

import os
import signal
from typing import Any

import torch.distributed.rpc as rpc
from ending import CONTROL, end
from workers import join, reports

# With --control, B calls shutdown too.
RPC_TIMEOUT_S, PATIENCE_S = 5, 30


def work(rank: int, store: str, result: Any) -> None:
    join(rank, 2, store, RPC_TIMEOUT_S)
    if rank == 1 and not CONTROL:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        rpc.shutdown()
        result.put(("AB"[rank], "returned"))
    except RuntimeError as error:
        result.put(("AB"[rank], f"raised {error}"))


said = reports(work, 2 if CONTROL else 1, PATIENCE_S)
print(f"B {'called shutdown' if CONTROL else 'was killed'}; calls have a timeout of {RPC_TIMEOUT_S} s")
print(f"A's shutdown, within {PATIENCE_S} s after that: {said.get('A', 'has not ended')}")
end("A" not in said, "a graceful shutdown waits for a worker that was killed")

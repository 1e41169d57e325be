"""RPC: shutdown(timeout=1) continues to wait when its timeout has passed

Versions: torch 2.13.0; Python 3.11, Linux, CPU.

Steps:
1. A and B call init_rpc, with a timeout of 6 s for calls.
2. B continues to work.
3. A calls shutdown(timeout=1).

Expected:
shutdown() raises after a second and names B.

Seen:
A's shutdown(timeout=1) raised 'Wait timeout' after 8 s; calls have a timeout of 6 s
reproduced: a shutdown continues to wait when its timeout has passed

Cause:
`torch/distributed/rpc/api.py`: `_all_gather` ignores the result of `states.proceed_signal.wait(timeout=...)`. After a
timeout it continues as if all workers had arrived, and the leader sends all others the signal to proceed. Then
`TensorPipeAgent::join`, whose timeout parameter is unused, waits in the store until the store's own timeout.

Fix:
Raise when `wait` returns False, and name the workers that are missing in `states.gathered_objects`. Pass the
remaining time to `join`.
"""

import time
from typing import Any

import torch.distributed.rpc as rpc
from ending import CONTROL, end
from workers import join, reports

# With --control, B calls shutdown too, and A's timeout is long enough.
RPC_TIMEOUT_S, TIMEOUT_S, PATIENCE_S = 6, 10 if CONTROL else 1, 30


def work(rank: int, store: str, result: Any) -> None:
    join(rank, 2, store, RPC_TIMEOUT_S)
    if rank == 1 and not CONTROL:
        time.sleep(600)  # it continues to work until it is killed
    began = time.monotonic()
    try:
        rpc.shutdown(timeout=TIMEOUT_S)
        outcome = "returned"
    except RuntimeError as error:
        outcome = f"raised {str(error).splitlines()[0]!r}"
    result.put(("AB"[rank], (outcome, time.monotonic() - began)))


outcome, seconds = reports(work, 2 if CONTROL else 1, PATIENCE_S).get("A", ("has not ended", PATIENCE_S))
print(f"A's shutdown(timeout={TIMEOUT_S}) {outcome} after {seconds:.0f} s; calls have a timeout of {RPC_TIMEOUT_S} s")
end(seconds > 2 * TIMEOUT_S, "a shutdown continues to wait when its timeout has passed")

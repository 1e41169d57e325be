"""RPC: shutdown(timeout=1) goes on to wait when its timeout has passed

Versions: torch 2.13.0; Python 3.11, Linux, CPU.

Steps:
1. A and B call init_rpc, with a timeout of 6 s for calls.
2. B works on.
3. A calls shutdown(timeout=1).

Expected:
shutdown() raises after a second, and names B.

Seen:
A's shutdown(timeout=1) raised 'Wait timeout' after 8 s; calls have a timeout of 6 s
reproduced: a shutdown waits on when its timeout has passed

Cause:
`torch/distributed/rpc/api.py`: `_all_gather` does not look at what `states.proceed_signal.wait(timeout=...)` returns:
when the time is over it goes on as if all had come. The leader tells all others to proceed; then
`TensorPipeAgent::join`, whose timeout is an unused parameter, waits in the store for as long as the store does.

Fix:
Raise when `wait` returns False, and name the workers that are missing in `states.gathered_objects`; give `join` the
rest of the time.
"""

import contextlib
import os
import queue
import sys
import tempfile
import time
from typing import Any

import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

CONTROL = "--control" in sys.argv  # B calls shutdown too, and A has time enough
WORLD, RPC_TIMEOUT_S, TIMEOUT_S, PATIENCE_S, EXPECTED = 2, 6, 10 if CONTROL else 1, 30, 2 if CONTROL else 1


def work(rank: int, store: str, result: Any) -> None:
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}", rpc_timeout=RPC_TIMEOUT_S)
    rpc.init_rpc("AB"[rank], rank=rank, world_size=WORLD, rpc_backend_options=options)
    if rank == 1 and not CONTROL:
        time.sleep(600)  # it works on, and is ended from outside
    began = time.monotonic()
    try:
        rpc.shutdown(timeout=TIMEOUT_S)
        outcome = "returned"
    except RuntimeError as error:
        outcome = f"raised {str(error).splitlines()[0]!r}"
    result.put(("AB"[rank], (outcome, time.monotonic() - began)))


def run() -> dict[str, Any]:
    """The reports of the workers, until all have come or too much time has passed."""
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    context = mp.get_context("fork")
    result = context.Queue()
    said: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        workers = [context.Process(target=work, args=(rank, f"{folder}/store", result)) for rank in range(WORLD)]
        for worker in workers:
            worker.start()
        until = time.monotonic() + PATIENCE_S
        while len(said) < EXPECTED and time.monotonic() < until:
            with contextlib.suppress(queue.Empty):
                said.update([result.get(timeout=0.1)])
        for worker in workers:
            worker.kill()
    return said


outcome, seconds = run().get("A", ("has not ended", PATIENCE_S))
print(f"A's shutdown(timeout={TIMEOUT_S}) {outcome} after {seconds:.0f} s; calls have a timeout of {RPC_TIMEOUT_S} s")
if seconds > 2 * TIMEOUT_S:
    print("reproduced: a shutdown waits on when its timeout has passed")
    sys.exit(1)
print("not reproduced: the shutdown ended in time")

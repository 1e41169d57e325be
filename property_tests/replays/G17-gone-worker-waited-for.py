"""RPC: a graceful shutdown() waits without end for a worker that has died

Versions: torch 2.13.0; Python 3.11, Linux, CPU.

Steps:
1. A and B call init_rpc; A has the lesser name.
2. B is killed.
3. A calls shutdown().

Expected:
shutdown() raises, and names the worker that is lost: the agent has seen the end of its connection.

Seen:
B was killed; calls have a timeout of 5 s
A's shutdown, within 30 s after that: has not ended
reproduced: a graceful shutdown waits for a worker that was killed

Cause:
`torch/distributed/rpc/api.py`: `_all_gather` of the leader waits for `states.proceed_signal` without a timeout when
that of shutdown() is the default, and only the coming of all workers sets the signal.

Fix:
Look at the pipes of the workers that have not come while it waits, and raise when one has ended.
"""

import contextlib
import os
import queue
import signal
import sys
import tempfile
import time
from typing import Any

import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

CONTROL = "--control" in sys.argv  # B calls shutdown too
WORLD, RPC_TIMEOUT_S, PATIENCE_S = 2, 5, 30
EXPECTED = 2 if CONTROL else 1


def work(rank: int, store: str, result: Any) -> None:
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}", rpc_timeout=RPC_TIMEOUT_S)
    rpc.init_rpc("AB"[rank], rank=rank, world_size=WORLD, rpc_backend_options=options)
    if rank == 1 and not CONTROL:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        rpc.shutdown()
        result.put(("AB"[rank], "returned"))
    except RuntimeError as error:
        result.put(("AB"[rank], f"raised {error}"))


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


said = run()
print(f"B {'called shutdown' if CONTROL else 'was killed'}; calls have a timeout of {RPC_TIMEOUT_S} s")
print(f"A's shutdown, within {PATIENCE_S} s after that: {said.get('A', 'has not ended')}")
if "A" not in said:
    print("reproduced: a graceful shutdown waits for a worker that was killed")
    sys.exit(1)
print("not reproduced: the shutdown ended")

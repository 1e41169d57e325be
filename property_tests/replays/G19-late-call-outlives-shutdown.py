"""RPC: a graceful shutdown() does not wait for a function whose caller has given up

Versions: torch 2.13.0; Python 3.11, Linux, CPU.

Steps:
1. A calls a function of B, which takes 3 s and then calls A, with a timeout of 0.5 s.
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
`torch/csrc/distributed/rpc/tensorpipe_agent.cpp`: `join` adds up `clientActiveCalls_`, of which a call is taken out
when it times out. A function that still runs is counted only by its caller.

Fix:
Add `serverActiveCalls_` to the sum.
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

CONTROL = "--control" in sys.argv  # A waits for the call
WORLD, RPC_TIMEOUT_S, CALL_S, FUNCTION_S, PATIENCE_S, EXPECTED = 2, 20, 15 if CONTROL else 0.5, 3, 40, 2
said_by_function: list[str] = []


def nothing() -> None:
    """On A."""


def slow() -> None:
    """On B: it calls A when A has given up."""
    time.sleep(FUNCTION_S)
    try:
        rpc.rpc_sync("A", nothing)
        said_by_function.append("returned")
    except RuntimeError as error:
        said_by_function.append(f"raised {str(error).splitlines()[0]!r}")


def work(rank: int, store: str, result: Any) -> None:
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}", rpc_timeout=RPC_TIMEOUT_S)
    rpc.init_rpc("AB"[rank], rank=rank, world_size=WORLD, rpc_backend_options=options)
    if rank == 0:
        with contextlib.suppress(RuntimeError):  # it is late
            rpc.rpc_sync("B", slow, timeout=CALL_S)
    began = time.monotonic()
    rpc.shutdown()
    result.put(("AB"[rank], (time.monotonic() - began, *said_by_function)))
    time.sleep(600)  # ended from outside


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
failed = False
for name, (seconds, *function) in sorted(said.items()):
    print(f"{name}'s graceful shutdown returned after {seconds:.0f} s")
    for outcome in function:
        failed = outcome.startswith("raised")
        print(f"the call of the function that ran on {name}: {outcome[:60]}")
if failed:
    print("reproduced: a function outlives the graceful shutdown of its worker's peer, and its own call fails")
    sys.exit(1)
print("not reproduced: the function's own call returned")

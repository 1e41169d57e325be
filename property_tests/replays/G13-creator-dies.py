"""dist_autograd: the contexts that a worker had created stay on all others when it dies

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. B enters a context, and calls A in it.
2. B is killed.

Expected:
A releases the context when it finds that B is gone.

Seen:
contexts on A, 10 s after B, which had created the only one, was killed: 1
reproduced: the context of a worker that was killed stays on the other worker

Cause:
`torch/csrc/distributed/autograd/context/container.cpp`: a context ends by CLEANUP_AUTOGRAD_CONTEXT_REQ from a
worker that knows of it; the end of a connection releases nothing.

Fix:
Release the contexts whose id names a worker that is gone: the upper bits of the id say which. The RPC agent would
have to tell the container of a lost peer.

Related:
https://github.com/pytorch/pytorch/issues/26379 (open since 2019).
"""

import os
import signal
import sys
import tempfile
import time
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

CONTROL = "--control" in sys.argv  # B leaves its context
WORLD, RPC_TIMEOUT_S = 2, 60
PARAMETER = torch.tensor([3.0], requires_grad=True)


entered: list[Any] = []  # on B


def contexts() -> int:
    return int(dist_autograd._get_debug_info()["num_autograd_contexts"])


def times_parameter(x: torch.Tensor) -> torch.Tensor:
    """On A."""
    return x * PARAMETER


def enter_and_call() -> int:
    """On B: a context that is open when the worker is killed."""
    manager = dist_autograd.context()
    manager.__enter__()
    entered.append(manager)
    rpc.rpc_sync("A", times_parameter, (torch.tensor([2.0], requires_grad=True),))
    return os.getpid()


def leave() -> None:
    """On B."""
    entered.pop().__exit__(None, None, None)


def scenario() -> int:
    """On A, which looks at its own contexts when B has been killed in one of B's."""
    pid = rpc.rpc_sync("B", enter_and_call)
    assert contexts() == 1
    if CONTROL:
        rpc.rpc_sync("B", leave)
    else:
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while contexts() and time.monotonic() < until:
        time.sleep(0.1)
    return contexts()


def work(rank: int, store: str, result: Any) -> None:
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}", rpc_timeout=RPC_TIMEOUT_S)
    rpc.init_rpc("ABC"[rank], rank=rank, world_size=WORLD, rpc_backend_options=options)
    if rank == 0:
        result.put(scenario())
    time.sleep(600)  # ended from outside


def run() -> Any:
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    context = mp.get_context("fork")
    result = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        workers = [context.Process(target=work, args=(rank, f"{folder}/store", result)) for rank in range(WORLD)]
        for worker in workers:
            worker.start()
        try:
            return result.get(timeout=50)
        finally:
            for worker in workers:
                worker.kill()


left = run()
print(f"contexts on A, 10 s after B, which had created the only one, {'left it' if CONTROL else 'was killed'}: {left}")
if left:
    print("reproduced: the context of a worker that was killed stays on the other worker")
    sys.exit(1)
print("not reproduced: no context stays on A")

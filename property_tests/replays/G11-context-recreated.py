"""dist_autograd: a call that reaches a worker after its context was released creates the context again, for good

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls B in a context, asynchronously; B is slow to read the arguments.
2. A leaves the context: A and B have released it.
3. B reads the call, runs it, and answers.

Expected:
The context stays released on both workers; the call runs outside of any context, or fails.

Seen:
contexts when A has left its only one: A 0, B 0
contexts 3 s after the end of the call: A 1, B 1
reproduced: a context that was released on all workers exists again, and nothing will release it

Cause:
`torch/csrc/distributed/autograd/utils.cpp`, `addRecvRpcBackward` and the handler of FORWARD_AUTOGRAD_REQ in
`torch/csrc/distributed/rpc/request_callback_no_python.cpp` call `DistAutogradContainer::getOrCreateContext`, on the
callee for the request and on the caller for the answer. A released context is forgotten, and looks like a new one.

Fix:
Remember the ids of released contexts, and do not create those again. Ids of one worker grow, so that one number for
each creator and a few exceptions suffice.

Related:
https://github.com/pytorch/pytorch/issues/61920, https://github.com/pytorch/pytorch/issues/38513.
"""

import os
import sys
import tempfile
import threading
import time
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

CONTROL = "--control" in sys.argv  # B answers before A leaves the context
WORLD, RPC_TIMEOUT_S = 2, 60
PARAMETER = torch.tensor([3.0], requires_grad=True)


def contexts() -> int:
    return int(dist_autograd._get_debug_info()["num_autograd_contexts"])


read = threading.Event()  # on B: the call has arrived
go_on = threading.Event()  # on B


class SlowToRead:
    """An argument that is slow to unpickle, as a large one is."""

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickled, ()


def unpickled() -> SlowToRead:
    read.set()
    go_on.wait(30)
    return SlowToRead()


def times_parameter(x: torch.Tensor, slow: SlowToRead | None = None) -> torch.Tensor:
    """On B."""
    return x * PARAMETER


def has_arrived() -> bool:
    return read.is_set()


def let_go_on() -> None:
    go_on.set()


def scenario() -> tuple[int, int, int, int]:
    """On A: it leaves the context while B still reads a call."""
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context():
        rpc.rpc_sync("B", times_parameter, (x,))
        late = rpc.rpc_async("B", times_parameter, (x, SlowToRead()))
        while not rpc.rpc_sync("B", has_arrived):
            pass
        if CONTROL:
            rpc.rpc_sync("B", let_go_on)
            late.wait()
    while rpc.rpc_sync("B", contexts):
        pass  # until the clean-up has reached B
    before = contexts(), rpc.rpc_sync("B", contexts)
    rpc.rpc_sync("B", let_go_on)
    late.wait()
    time.sleep(3)  # a clean-up takes milliseconds
    return *before, contexts(), rpc.rpc_sync("B", contexts)


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


a_before, b_before, a_after, b_after = run()
print(f"contexts when A has left its only one: A {a_before}, B {b_before}")
print(f"contexts 3 s after the end of the call: A {a_after}, B {b_after}")
if a_before == b_before == 0 and (a_after or b_after):
    print("reproduced: a context that was released on all workers exists again, and nothing will release it")
    sys.exit(1)
print("not reproduced: a context that was released stays so")

"""DistributedOptimizer: scripted optimizers take no lock, so that two steps over one parameter interleave

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. Two optimizers have the same parameter of five million elements.
2. Both step at the same time, with weight decay, so that a step reads the parameter and then changes it.
3. Elements differ from what two steps one after the other make.

Expected:
The note on distributed autograd says: "If multiple concurrent distributed optimizers are updating the same parameters
on a worker, these updates are serialized via a lock." A subclass of SGD, which is not scripted, keeps that.

Seen:
two steps from 0 lead to -0.75; the elements are {'PlainSGD': [-0.75], 'SGD': [-1.0, -0.75]}
reproduced: two steps of scripted optimizers have interleaved

Cause:
`torch/distributed/optim/optimizer.py`: `_LocalOptimizer.step` takes `global_lock`; `_ScriptLocalOptimizer.step` takes
no lock.

Fix:
Take a lock of the worker around `local_optim.step` in `_script_local_optimizer_step`, or say in the note that scripted
optimizers are not serialized.

Related:
None was searched for in the tracker.
"""

import logging
import os
import sys
import tempfile
import threading

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.distributed.optim import DistributedOptimizer

CONTROL = "--control" in sys.argv  # steps that take the lock alone
ELEMENTS, ROUNDS = 5_000_000, 40


class PlainSGD(torch.optim.SGD):
    """It has no TorchScript version: its steps take the lock."""


KINDS = [PlainSGD] if CONTROL else [PlainSGD, torch.optim.SGD]


def step_together(kind: type) -> list[float]:
    """Two steps from 0, until they lead elsewhere than one after the other: to -3/4."""
    parameter = torch.zeros(ELEMENTS, requires_grad=True)
    optimizers = [DistributedOptimizer(kind, [rpc.RRef(parameter)], lr=0.5, weight_decay=1.0) for _ in range(2)]
    together = threading.Barrier(2)

    def work(optimizer: DistributedOptimizer) -> None:
        with dist_autograd.context() as context:
            dist_autograd.backward(context, [parameter.sum()])
            together.wait()
            optimizer.step(context)

    values = [0.0]
    for _ in range(ROUNDS):
        with torch.no_grad():
            parameter.zero_()
        threads = [threading.Thread(target=work, args=(optimizer,)) for optimizer in optimizers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        values = parameter.detach().unique().tolist()
        if values != [-0.75]:
            break
    return values


logging.getLogger("torch.distributed.optim").setLevel(logging.ERROR)
os.environ["TP_SOCKET_IFNAME"] = "lo"
with tempfile.TemporaryDirectory() as folder:
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{folder}/store")
    rpc.init_rpc("A", rank=0, world_size=1, rpc_backend_options=options)
    found = {kind.__name__: step_together(kind) for kind in KINDS}
    rpc.shutdown()

print(f"two steps from 0 lead to -0.75; the elements are {found}")
if found[KINDS[-1].__name__] != [-0.75]:
    print("reproduced: two steps of scripted optimizers have interleaved")
    sys.exit(1)
print("not reproduced: the steps came one after the other")

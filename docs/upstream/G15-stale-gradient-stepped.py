"""DistributedOptimizer: a step without a gradient for a parameter applies the gradient of the step before again."""

import logging
import os
import sys
import tempfile

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.distributed.optim import DistributedOptimizer

CONTROL = "--control" in sys.argv  # the step of a scripted optimizer alone


class PlainSGD(torch.optim.SGD):
    """A user's own class: it has no TorchScript version."""


KINDS = [torch.optim.SGD] if CONTROL else [PlainSGD, torch.optim.SGD]


logging.getLogger("torch.distributed.optim").setLevel(logging.ERROR)
os.environ["TP_SOCKET_IFNAME"] = "lo"
with tempfile.TemporaryDirectory() as folder:
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{folder}/store")
    rpc.init_rpc("A", rank=0, world_size=1, rpc_backend_options=options)
    gone = {}
    for kind in KINDS:
        first, second = (torch.zeros(1, requires_grad=True) for _ in range(2))
        optimizer = DistributedOptimizer(kind, [rpc.RRef(first), rpc.RRef(second)], lr=1.0)
        for losses in ([first, second], [first]):
            with dist_autograd.context() as context:
                dist_autograd.backward(context, [torch.stack(losses).sum()])
                optimizer.step(context)
        gone[kind.__name__] = -float(second)
    rpc.shutdown()

print(f"one step with a gradient of 1, one without: the parameter has gone {gone}")
if gone[KINDS[0].__name__] != 1:
    print("reproduced: the step without a gradient has applied the gradient of the step before")
    sys.exit(1)
print("not reproduced: the step without a gradient has left the parameter alone")

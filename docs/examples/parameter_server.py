"""A parameter server: trainers use a model that is on one worker, each in contexts of its own, at the same time.

    python docs/examples/parameter_server.py [--steps N]

Gradients of one trainer's pass never mix with another's, since each is kept in its context; steps take turns.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import cache

import torch
import torch.multiprocessing as processes
from torch import Tensor, nn
from trystate.impl import autograd, rpc

TRAINERS = 2


@cache
def model() -> nn.Module:
    """The server's only one."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def parameters() -> list[rpc.RRef[Tensor]]:
    return [rpc.RRef(parameter) for parameter in model().parameters()]


def predict(batch: Tensor) -> Tensor:
    """On the server, with copies of the parameters: another trainer's step must not change what this pass needs."""
    copies = {name: parameter.clone() for name, parameter in model().named_parameters()}
    made: Tensor = torch.func.functional_call(model(), copies, (batch,))
    return made


def train(rank: int, steps: int) -> list[float]:
    """Learn the sum of the inputs; the loss of each step."""
    optimizer = autograd.DistributedOptimizer(torch.optim.SGD, rpc.rpc_sync("server", parameters), lr=0.05)
    torch.manual_seed(rank)
    losses = []
    for _ in range(steps):
        with autograd.context() as context_id:
            batch = torch.rand(32, 8)
            loss = nn.functional.mse_loss(rpc.rpc_sync("server", predict, (batch,)), batch.sum(-1, keepdim=True))
            autograd.backward(context_id, [loss])
            optimizer.step(context_id)
            losses.append(loss.item())
    return losses


def run(rank: int, folder: str, steps: int) -> None:
    name = f"trainer{rank}" if rank < TRAINERS else "server"
    rpc.init_rpc(name, rank=rank, world_size=TRAINERS + 1, init_method=f"file://{folder}/meeting")
    if rank < TRAINERS:
        losses = train(rank, steps)
        print(f"{name}: the loss went from {losses[0]:.3f} to {losses[-1]:.3f} in {steps} steps", flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a model on a parameter server from two workers.")
    parser.add_argument("--steps", type=int, default=20)
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(run, args=(folder, parser.parse_args().steps), nprocs=TRAINERS + 1)

"""A parameter server: trainers use a model on one worker at the same time, each in its own contexts.

    python docs/examples/parameter_server.py [--steps N]

Gradients of different trainers never mix, because each context keeps its own gradients. Steps take turns.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import cache

import torch
import torch.multiprocessing as processes
from torch import Tensor, nn

from trystate import autograd, rpc

TRAINERS = 2


@cache
def model() -> tuple[Tensor, ...]:
    """The parameters of the server's only model: threads that share a module must not swap parameters in it."""
    torch.manual_seed(1)
    return tuple(nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 1)).parameters())


def parameters() -> list[rpc.RRef[Tensor]]:
    return [rpc.RRef(parameter) for parameter in model()]


def predict(batch: Tensor) -> Tensor:
    """Runs on the server with copies of the parameters, which another trainer's step must not change in this pass."""
    inner, inner_bias, outer, outer_bias = (parameter.clone() for parameter in model())
    hidden = torch.tanh(nn.functional.linear(batch, inner, inner_bias))
    return nn.functional.linear(hidden, outer, outer_bias)


def train(rank: int, steps: int) -> list[float]:
    """Learn the sum of the inputs; returns the loss of each step."""
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
    if name == "server":
        model()  # before two trainers request it at the same time
    rpc.init_rpc(name, rank=rank, world_size=TRAINERS + 1, init_method=f"file://{folder}/meeting")
    if rank < TRAINERS:
        losses = train(rank, steps)
        print(f"{name}: the loss went from {losses[0]:.3f} to {losses[-1]:.3f} in {steps} steps", flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a model on a parameter server from two workers.")
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    torch.optim.SGD([torch.zeros(1)])  # loads the modules that optimizers need once for all processes
    with tempfile.TemporaryDirectory() as folder:
        processes.start_processes(run, args=(folder, steps), nprocs=TRAINERS + 1, start_method="fork")

"""A model in two stages on two workers, trained by a third: several micro-batches go through both at the same time.

    python docs/examples/pipeline.py [--steps N]

The stages keep their parameters. Activations go forward by RPC, and gradients return through the same calls.
"""

from __future__ import annotations

import argparse
import tempfile

import torch
import torch.multiprocessing as processes
from torch import Tensor, nn

from trystate import autograd, rpc

MICRO_BATCHES = 4
_stage: list[nn.Module] = []  # this process's stage, if it has one


def build(number: int) -> list[rpc.RRef[Tensor]]:
    """Create this worker's stage; returns references to its parameters."""
    torch.manual_seed(number)
    layers = [nn.Linear(8, 32), nn.Tanh()] if number == 0 else [nn.Linear(32, 1)]
    _stage[:] = [nn.Sequential(*layers)]
    return [rpc.RRef(parameter) for parameter in _stage[0].parameters()]


def forward(batch: Tensor) -> Tensor:
    """Apply this worker's stage."""
    made: Tensor = _stage[0](batch)
    return made


def through_both(batch: Tensor) -> Tensor:
    """Runs on the first stage's worker: applies its own layers, then the next stage's layers."""
    made: Tensor = rpc.rpc_sync("stage1", forward, (forward(batch),))
    return made


def train(steps: int) -> list[float]:
    """Learn the sum of the inputs; returns the loss of each step."""
    parameters = [ref for number in range(2) for ref in rpc.rpc_sync(f"stage{number}", build, (number,))]
    optimizer = autograd.DistributedOptimizer(torch.optim.SGD, parameters, lr=0.05)
    torch.manual_seed(0)
    losses = []
    for _ in range(steps):
        with autograd.context() as context_id:
            batches = torch.rand(MICRO_BATCHES, 16, 8)
            under_way = [rpc.rpc_async("stage0", through_both, (batch,)) for batch in batches]
            results = torch.stack([future.wait() for future in under_way])
            loss = nn.functional.mse_loss(results, batches.sum(-1, keepdim=True))
            autograd.backward(context_id, [loss])
            optimizer.step(context_id)
            losses.append(loss.item())
    return losses


def run(rank: int, folder: str, steps: int) -> None:
    name = ("trainer", "stage0", "stage1")[rank]
    rpc.init_rpc(name, rank=rank, world_size=3, init_method=f"file://{folder}/meeting")
    if name == "trainer":
        losses = train(steps)
        print(f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f} in {steps} steps")
    rpc.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a model whose two stages are on two workers.")
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    torch.optim.SGD([torch.zeros(1)])  # loads the modules that optimizers need once for all processes
    with tempfile.TemporaryDirectory() as folder:
        processes.start_processes(run, args=(folder, steps), nprocs=3, start_method="fork")

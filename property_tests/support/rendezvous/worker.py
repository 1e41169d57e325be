"""The worker that torchrun starts in these tests: it says once and again which group it is in, until it is stopped.

    python -m trystate.property_tests.support.rendezvous.worker FOLDER [train]

Each worker appends a line of JSON to FOLDER/PID.log for each step. A file `stop` there ends all workers well,
`stop-RANK` one of them; a file `fail-RANK` is taken by the worker of that rank, which fails. With `train` a step is
one of DDP over gloo, whose store is the round's; without, the worker does without torch, and starts in no time.
Rank 0 keeps in FOLDER/checkpoint what the next group begins with. A worker whose agent was killed ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEP_SECONDS = 0.05
STEPS_MAX = 1200  # a minute: whoever is forgotten ends by itself


def main(folder: Path, train: bool) -> None:
    rank, size, agent = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.getppid()
    first, weights = _checkpoint(folder)
    with contextlib.ExitStack() as stack, open(folder / f"{os.getpid()}.log", "a", encoding="utf-8") as log:
        if train:
            first, step_of = _training(stack, rank, first, weights)
        for step in range(first, first + STEPS_MAX):
            if os.getppid() != agent:
                break
            stop = any((folder / name).exists() for name in ("stop", f"stop-{rank}"))
            if train:
                stop, weights = step_of(stop)
            said = {
                "rank": rank, "size": size, "step": step, "pid": os.getpid(), "agent": agent,
                "master": f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", "at": time.monotonic(),
                "attempt": int(os.environ["TORCHELASTIC_RESTART_COUNT"]), "weights": weights,
            }  # fmt: skip
            log.write(json.dumps(said) + "\n")
            log.flush()
            if rank == 0:
                _keep(folder, step + 1, weights)
            if stop:
                break
            with contextlib.suppress(FileNotFoundError):
                (folder / f"fail-{rank}").unlink()
                sys.exit(f"rank {rank} fails, as planned")
            time.sleep(STEP_SECONDS)


def _checkpoint(folder: Path) -> tuple[int, list[float]]:
    """The step to begin with, and the weights before it."""
    try:
        first, *weights = json.loads((folder / "checkpoint").read_text())
    except FileNotFoundError:
        return 0, []
    return first, weights


def _keep(folder: Path, step: int, weights: list[float]) -> None:
    path = folder / "checkpoint.new"
    path.write_text(json.dumps([step, *weights]))
    path.rename(folder / "checkpoint")


def _training(
    stack: contextlib.ExitStack, rank: int, first: int, weights: list[float]
) -> tuple[int, Callable[[bool], tuple[bool, list[float]]]]:
    """Rank 0's first step, and a step of all ranks: whether rank 0 says that it is the last, and the weights then."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    stack.callback(dist.destroy_process_group)
    linear = nn.Linear(2, 1)
    if weights:
        linear.load_state_dict({"weight": torch.tensor([weights[:2]]), "bias": torch.tensor(weights[2:])})
    model = DistributedDataParallel(linear)  # all ranks begin with the weights of rank 0
    began = torch.tensor([first])
    dist.broadcast(began, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step_of(stop: bool) -> tuple[bool, list[float]]:
        optimizer.zero_grad()
        loss: Any = model(torch.full((1, 2), float(rank))).sum()
        loss.backward()
        optimizer.step()
        done = torch.tensor([int(stop and rank == 0)])
        dist.all_reduce(done)
        return bool(done.item()), [float(w) for p in model.parameters() for w in p.detach().flatten()]

    return int(began.item()), step_of


if __name__ == "__main__":
    main(Path(sys.argv[1]), "train" in sys.argv[2:])
    if "train" in sys.argv[2:]:
        # torch's threads can abort the interpreter as it ends (`terminate called without an active exception`), and
        # the agent rightly begins the group again. All is written and closed by now.
        os._exit(0)

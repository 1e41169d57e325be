"""The elastic agent: worker groups, the monitor loop, the exit barrier and the verdict of a job."""

from .ours import Ours
from .properties import Agents
from .seed import Seed
from .torch import Torch
from .vocabulary import Edition, Ending, Loop, Verdict, WorkerState

__all__ = ["Agents", "Edition", "Ending", "Loop", "Ours", "Seed", "Torch", "Verdict", "WorkerState"]

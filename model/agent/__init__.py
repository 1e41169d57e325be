"""The elastic agent: worker groups, the monitor loop, the exit barrier and the verdict of a job."""

from .ours import Ours
from .properties import Agents
from .seed import Seed
from .torch import Torch, Torch27
from .vocabulary import Edition, Ending, Loop, Pace, Stopping, Verdict, WorkerState

__all__ = [
    "Agents",
    "Edition",
    "Ending",
    "Loop",
    "Ours",
    "Pace",
    "Seed",
    "Stopping",
    "Torch",
    "Torch27",
    "Verdict",
    "WorkerState",
]

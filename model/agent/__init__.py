"""The elastic agent: worker groups, the monitor loop, the exit barrier and the verdict of a job."""

from .claims import Agents
from .vocabulary import Edition, Ending, Loop, Pace, Verdict, WorkerState

__all__ = ["Agents", "Edition", "Ending", "Loop", "Pace", "Verdict", "WorkerState"]

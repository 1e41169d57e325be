"""Queues: clients that pop, get and wait for both, others that push, and what is lost or found when they meet."""

from .ours import Ours
from .properties import Queues
from .torch import Torch

__all__ = ["Ours", "Queues", "Torch"]

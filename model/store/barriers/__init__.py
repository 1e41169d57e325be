"""Barriers: clients that are released together when world_size different clients have arrived."""

from .ours import Ours
from .properties import Barriers
from .torch import Torch

__all__ = ["Barriers", "Ours", "Torch"]

"""Barriers: clients that are released together when as many different ones as the world has are in."""

from .ours import Ours
from .properties import Barriers
from .torch import Torch

__all__ = ["Barriers", "Ours", "Torch"]

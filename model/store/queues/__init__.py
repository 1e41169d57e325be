"""Queues: clients that pop, get and wait for both, other clients that push, and the elements between them."""

from .ours import Ours
from .properties import Queues
from .torch import Torch

__all__ = ["Ours", "Queues", "Torch"]

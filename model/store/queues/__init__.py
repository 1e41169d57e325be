"""Queues: clients that pop, get and wait for both, other clients that push, and the elements between them."""

from .editions import Ours, Torch
from .properties import Queues

__all__ = ["Ours", "Queues", "Torch"]

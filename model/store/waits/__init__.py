"""Blocking waits: clients that wait for keys and get them, a server that others write to, timeouts and faults."""

from .ours import Ours
from .properties import Waits
from .seed import Seed
from .torch import Cancelling, Torch

__all__ = ["Cancelling", "Ours", "Seed", "Torch", "Waits"]

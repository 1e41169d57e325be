"""Blocking waits: clients that wait for keys and get them, a server that others write to, timeouts and faults."""

from .editions import Cancelling, Ours, Seed, Torch
from .properties import Waits

__all__ = ["Cancelling", "Ours", "Seed", "Torch", "Waits"]

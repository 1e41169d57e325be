"""Watches: clients that watch keys while they and other clients change them."""

from .editions import Ours, Seed
from .properties import Watches

__all__ = ["Ours", "Seed", "Watches"]

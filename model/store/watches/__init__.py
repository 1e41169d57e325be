"""Watches: clients that watch keys while they and other clients change them."""

from .ours import Ours
from .properties import Watches
from .seed import Seed

__all__ = ["Ours", "Seed", "Watches"]

"""A backward pass: torch's protocol, ours, and our mode SMART, with the same faults and properties."""

from .ours import Ours
from .properties import Backward
from .smart import Smart
from .torch import Torch

__all__ = ["Backward", "Ours", "Smart", "Torch"]

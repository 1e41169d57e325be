"""A backward pass: torch's protocol, ours, and our mode SMART, under the same faults and the same questions."""

from .ours import Ours
from .properties import Backward
from .smart import Smart
from .torch import Torch

__all__ = ["Backward", "Ours", "Smart", "Torch"]

"""One context on several workers: which have it, the calls that take it along, what uses it, and how it ends."""

from .ours import Ours
from .properties import Contexts
from .torch import Torch

__all__ = ["Contexts", "Ours", "Torch"]

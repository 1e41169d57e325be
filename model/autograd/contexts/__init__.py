"""One context on several workers: the workers that have it, the calls that carry it, its passes, and its release."""

from .ours import Ours
from .properties import Contexts
from .torch import Torch

__all__ = ["Contexts", "Ours", "Torch"]

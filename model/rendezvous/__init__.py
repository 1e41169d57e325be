"""The rendezvous of PyTorch: its machines, operators, systems, and known defects.

The systems are loaded when they are first used: the runtime imports the vocabulary alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .vocabulary import Edition

if TYPE_CHECKING:
    from .operators import OPERATORS
    from .ours import Ours
    from .properties import Rendezvous

__all__ = ["OPERATORS", "Edition", "Ours", "Rendezvous"]

_LATER = {"OPERATORS": "operators", "Ours": "ours", "Rendezvous": "ours"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "Rendezvous":
        import_module(".torch", __name__)  # its editions are classes: the class finds those that are loaded
    return getattr(import_module(f".{_LATER[name]}", __name__), name)

"""The front door: what this package offers to a program; `trystate --help` is the same for a terminal.

Rule: importing it loads nothing. A name is fetched from where it lives when it is first used, so that neither
numpy nor torch nor an engine is paid for by who does not use it. Declarations are written with the names of
`trystate.model.language`.
"""

from __future__ import annotations

import importlib
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

# In a clone the folder beside you is this one without the packages that stand next to it (`model`, ...):
# they are taken from where the package is installed.
__path__ = extend_path(__path__, __name__)

if TYPE_CHECKING:
    from trystate.model.checker.kernel import Limits
    from trystate.model.checker.verdicts import Counterexample, Report, Status, Verdict
    from trystate.model.errors import (
        DeclarationError,
        LimitReached,
        TrystateError,
        UnavailableError,
        UsageError,
    )
    from trystate.model.language.systems import System
    from trystate.model.language.tables import DecisionTable
    from trystate.model.rendezvous.claims import Rendezvous
    from trystate.model.rendezvous.holder import Holders
    from trystate.model.rendezvous.vocabulary import Edition

    from .machine import check

_HOMES = {
    "machine": ("check",),
    "model.checker.kernel": ("Limits",),
    "model.checker.verdicts": ("Counterexample", "Report", "Status", "Verdict"),
    "model.errors": ("DeclarationError", "LimitReached", "TrystateError", "UnavailableError", "UsageError"),
    "model.language.systems": ("System",),
    "model.language.tables": ("DecisionTable",),
    "model.rendezvous.claims": ("Rendezvous",),
    "model.rendezvous.holder": ("Holders",),
    "model.rendezvous.vocabulary": ("Edition",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Counterexample", "DecisionTable", "DeclarationError", "Edition", "Holders", "LimitReached", "Limits",
    "Rendezvous", "Report", "Status", "System", "TrystateError", "UnavailableError", "UsageError", "Verdict",
    "check",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("trystate")
    if name not in _HOME:
        raise AttributeError(f"module 'trystate' has no attribute {name!r}: it has {', '.join(__all__)}")
    value = globals()[name] = getattr(importlib.import_module(f"trystate.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})

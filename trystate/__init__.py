"""The distributed control plane of PyTorch as state machines, and a runtime that follows them.

| module | what a program finds there |
| --- | --- |
| `trystate.language` | what a system is declared with |
| `trystate.check` | which of its properties hold |
| `trystate.systems` | the protocols of PyTorch, declared |
| `trystate.testing` | test an implementation of your own |
| `trystate.diagrams` | draw systems, decision tables and runs |
| `trystate.store`, `trystate.rendezvous`, `trystate.agent`, `trystate.rpc`, `trystate.autograd` | the runtime |

docs/api.md lists their names and what is stable. This module has the exceptions that all of them share. Importing
any of them loads neither torch nor numpy: a name's module is loaded when the name is first used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if not os.path.isdir(os.path.join(os.path.dirname(__file__), "model")):  # an archive or a clone without its links
    raise ImportError(
        "trystate/model is not a folder: this copy of trystate was made without symbolic links. In a clone: "
        "git config core.symlinks true && git checkout -- trystate. Or install a wheel: pip install trystate"
    )
if TYPE_CHECKING:
    from trystate import diagrams
    from trystate.model.errors import DeclarationError, LimitReached, TrystateError, UnavailableError, UsageError

    from . import agent, autograd, check, language, rendezvous, rpc, store, systems, testing
    from .version import __version__
else:
    from .lazy import lazily

    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "DeclarationError", "LimitReached", "TrystateError", "UnavailableError", "UsageError", "__version__", "agent",
    "autograd", "check", "diagrams", "language", "rendezvous", "rpc", "store", "systems", "testing",
]  # fmt: skip

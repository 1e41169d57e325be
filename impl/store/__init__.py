"""The stores: a server and a client of TCPStore's protocol, and stores in memory and in a file.

Rule: importing this loads nothing: a name is fetched from where it lives when it is first used, so that a server
starts without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base import Event, Store, Watch
    from .errors import (
        ConnectionLost,
        CounterOverflow,
        FileLost,
        FileRefused,
        InvalidArgument,
        InvalidType,
        LimitExceeded,
        NotANumber,
        NotSupported,
        OutcomeUnknown,
        QueueEmpty,
        SecretRefused,
        StoreClosed,
        StoreError,
        StoreTimeout,
        WrongWorld,
    )
    from .file import FileStore
    from .hash import HashStore
    from .limits import Limits
    from .prefix import PrefixStore
    from .server import TCPStoreServer
    from .tcp import TCPStore

_HOMES = {
    "base": ("Event", "Store", "Watch"),
    "errors": (
        "ConnectionLost", "CounterOverflow", "FileLost", "FileRefused", "InvalidArgument", "InvalidType",
        "LimitExceeded", "NotANumber", "NotSupported", "OutcomeUnknown", "QueueEmpty", "SecretRefused", "StoreClosed",
        "StoreError", "StoreTimeout", "WrongWorld",
    ),
    "file": ("FileStore",),
    "hash": ("HashStore",),
    "limits": ("Limits",),
    "prefix": ("PrefixStore",),
    "server": ("TCPStoreServer",),
    "tcp": ("TCPStore",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ConnectionLost", "CounterOverflow", "Event", "FileLost", "FileRefused", "FileStore", "HashStore",
    "InvalidArgument", "InvalidType", "LimitExceeded", "Limits", "NotANumber", "NotSupported", "OutcomeUnknown",
    "PrefixStore", "QueueEmpty", "SecretRefused", "Store", "StoreClosed", "StoreError", "StoreTimeout", "TCPStore",
    "TCPStoreServer", "Watch", "WrongWorld",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: it has {', '.join(__all__)}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""The stores: a server and a client of `TCPStore`'s protocol, and stores in memory and below a prefix.

    from trystate.store import TCPStore, TCPStoreServer

    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as store:
        store.set("greeting", "hello")

`docs/store-use.md` describes how a program uses them, `docs/stores.md` how a server is run. The server needs no torch;
the stores derive from torch's `Store`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trystate.impl.host.tls import Tls
    from trystate.impl.store.base import Event, Store, Watch
    from trystate.impl.store.errors import *
    from trystate.impl.store.hash import HashStore
    from trystate.impl.store.limits import Limits
    from trystate.impl.store.prefix import PrefixStore
    from trystate.impl.store.tcp import TCPStore
    from trystate.impl.store.tcp_server import TCPStoreServer
    from trystate.model.store.vocabulary import Change
else:
    from .lazy import lazily

    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "AddressRefused", "Change", "ConnectionLost", "CounterOverflow", "Event", "FileRefused", "GroupsDiffer",
    "HashStore", "InvalidArgument", "InvalidType", "LimitExceeded", "Limits", "NotANumber", "NotSupported",
    "OutcomeUnknown", "PrefixStore", "QueueEmpty", "SecretRefused", "Store", "StoreClosed", "StoreError",
    "StoreTimeout", "TCPStore", "TCPStoreServer", "Tls", "TlsRefused", "Watch", "WrongWorld",
]  # fmt: skip

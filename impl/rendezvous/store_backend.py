"""The state of a rendezvous and the counters of its nodes, each in a key of any torch store, ours or torch's.

Rule: no request here waits in the store. The backend has its own connection and closes it after any failure; the next
operation opens a new one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from trystate.model.errors import TrystateError

from ..store.base import Store
from ..store.contents.rooms import FORMAT
from ..store.errors import SecretRefused, StoreClosed
from ..store.tcp import TCPStore
from .errors import RendezvousConnectionError, RendezvousError, RendezvousStateError
from .jobs import counter_key, others_that_wait
from .notifier import Notifier, listen, look
from .observer import Counter

OPERATION_SECONDS = 5.0  # after this an operation is repeated on a new connection: a state is a few kilobytes
CONNECT_SECONDS = 2.0


class StoreBackend:
    """The state `trystate/<run_id>/state` and the counters of a store, which the caller closes."""

    name = "trystate"

    def __init__(self, store: Any, run_id: str, owner: str = "") -> None:
        """`owner`: the job whose node serves the store, if it is another job."""
        self.store, self._run_id, self.owner = store, run_id, owner
        self._state_key, self._revision_key = f"trystate/{run_id}/state", f"trystate/{run_id}/news"
        self._lock = threading.Lock()  # protects the next two attributes from `interrupt`
        self._own: tuple[Any, Notifier] | None = None  # our connection and its notifier
        self._counted: set[str] = set()  # keys of counters that exist: a read of them does not wait
        self._ends = 0  # number of times that it was ended
        self._ended = threading.Event()

    def read(self) -> bytes | None:
        """The bytes of the state; None: the store has none. Raises RendezvousConnectionError."""
        with self._connected() as (store, _):
            return look(store, self._state_key)

    def write(self, data: bytes, over: bytes | None) -> bytes | None:
        """Replace `over` by `data` if the store still holds it; the bytes that it holds then.

        Raises RendezvousConnectionError, and RendezvousStateError: a room of the server has the rendezvous.
        """
        with self._connected() as (store, _):
            found = bytes(store.compare_set(self._state_key, over if over is not None else b"", data))
        if found == FORMAT:
            raise RendezvousStateError(
                f"rendezvous {self._run_id!r} at {describe(self.store)}: the server applies it itself, and this node "
                "has another client; give it a trystate.store.TCPStore, like the other nodes"
            )
        # An answer equal to `over` means that the key is absent: a store returns the expected value for an absent key.
        return None if over is not None and found == over else found

    def beat(self, token: str) -> None:
        """Add 1 to the counter of a node. Raises RendezvousConnectionError: it may have been added."""
        with self._connected() as (store, _):
            store.add(counter_key(self._run_id, token), 1)

    def counters(self, tokens: Sequence[str]) -> dict[str, Counter]:
        """The counters of some nodes. Never waits for one. Raises RendezvousConnectionError."""
        keys = [counter_key(self._run_id, token) for token in tokens]
        with self._connected() as (store, _):
            if keys and isinstance(store, Store) and self._counted.issuperset(keys):
                return dict(zip(tokens, store.multi_get(keys), strict=True))
            found = [look(store, key) for key in keys]
        self._counted = {key for key, value in zip(keys, found, strict=True) if value is not None}
        return dict(zip(tokens, found, strict=True))

    def wait(self, revision: int, seconds: float) -> None:
        """Block until a higher revision is notified, or for `seconds`; it may return earlier."""
        with self._connected() as (_, heard):
            heard.wait(revision, seconds)

    def notify(self, revision: int) -> None:
        """Wake every waiter that has seen only revisions below `revision`."""
        with self._connected() as (_, heard):
            heard.notify(revision)

    def others(self) -> str:
        """The sentence about other jobs of the store that wait; empty if none waits or the store cannot list them."""
        with self._connected() as (store, _):
            return others_that_wait(store, self._run_id)

    def interrupt(self) -> None:
        """End another thread's operation, which raises RendezvousConnectionError, and all later waits."""
        self._ended.set()
        self._disconnect()

    def resume(self) -> None:
        """Let `wait` wait again."""
        self._ended.clear()

    def clone(self) -> StoreBackend:
        """Another backend on the same state, with its own connection."""
        return StoreBackend(self.store, self._run_id, self.owner)

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self.interrupt()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[tuple[Any, Notifier]]:
        """Our connection; an error closes it and becomes a RendezvousConnectionError."""
        try:
            yield self._own or self._connect()
        except RendezvousError:
            raise
        except (dist.DistError, TrystateError, RuntimeError, ValueError, OSError) as error:
            self._disconnect()
            raise unreachable(error, self.store, self._run_id, self.owner) from error

    def _connect(self) -> tuple[Any, Notifier]:
        ends = self._ends
        store = connection(self.store)
        own = store, listen(store, self._revision_key, self._ended)
        with self._lock:
            if ends == self._ends:
                self._own = own
                return own
        self._let_go(store)  # no other thread has it
        raise StoreClosed("the connection was closed while it was being opened")

    def _disconnect(self) -> None:
        with self._lock:
            own, self._own, self._counted = self._own, None, set()
            self._ends += 1
        if own is not None:
            self._let_go(own[0])

    def _let_go(self, store: Any) -> None:
        while store is not None and store is not self.store:
            if hasattr(store, "close"):
                store.close()
                return
            store = getattr(store, "underlying_store", None)  # torch's PrefixStore keeps our store open


def unreachable(error: Exception, store: Any, run_id: str, owner: str) -> RendezvousConnectionError:
    """The error of a rendezvous whose store cannot be reached; `owner`: the job that serves it, if it is another."""
    remedy = "; see whether its server still runs"
    if owner:
        remedy = (f"; a node of the job {owner!r} served it, and may have ended: give this job its own endpoint, "
                  "or run `trystate store serve`")  # fmt: skip
    said = isinstance(error, SecretRefused) or (not owner and "the server still runs" in str(error))
    text = f"rendezvous {run_id!r} at {describe(store)}: {type(error).__name__}: {error}"
    return RendezvousConnectionError(text if said else text + remedy)


def connection(store: Any) -> Any:
    """Another connection to the same data, whose operations take at most OPERATION_SECONDS each.

    A client of a TCP server becomes a client of ours, which can be closed while it waits. It may reach a restarted
    server.
    """
    seconds = min(store.timeout, timedelta(seconds=OPERATION_SECONDS))
    if isinstance(store, TCPStore | dist.TCPStore):  # type: ignore[attr-defined]
        connect = min(seconds, timedelta(seconds=CONNECT_SECONDS))
        secret, tls = (store.secret, store.tls) if isinstance(store, TCPStore) else (None, None)
        own: Any = TCPStore(store.host, store.port, timeout=connect, secret=secret, tls=tls)
    else:
        try:
            own = store.clone()
        except (AttributeError, NotImplementedError):
            return store  # a user's own class: its threads share its connection
    own.set_timeout(seconds)
    return own


def describe(store: Any) -> str:
    """The address of a store, such as `127.0.0.1:29400`, or its class."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if hasattr(store, "host") and hasattr(store, "port"):
        return f"{store.host}:{store.port}"
    path = getattr(store, "path", None)
    return f"the {type(store).__name__}{f' {path}' if path is not None else ''}"

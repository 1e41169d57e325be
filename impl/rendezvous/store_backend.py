"""The state of a rendezvous in a key of any torch store, ours or torch's.

Rule: no request here waits in the store. The backend has its own connection and closes it after any failure; the next
operation opens a new one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from trystate.model.errors import TrystateError

from ..store.errors import SecretRefused, StoreClosed
from ..store.tcp import TCPStore
from .errors import RendezvousConnectionError, RendezvousError
from .jobs import others_that_wait
from .notifier import Notifier, listen, look

OPERATION_SECONDS = 5.0  # after this an operation is repeated on a new connection: a state is a few kilobytes
CONNECT_SECONDS = 2.0


class StoreBackend:
    """The state `trystate/<run_id>/state` of a store, which the caller closes."""

    name = "trystate"

    def __init__(self, store: Any, run_id: str, owner: str = "") -> None:
        """`owner`: the job whose node serves the store, if it is another job."""
        self._origin, self._run_id, self._owner = store, run_id, owner
        self._state_key, self._revision_key = f"trystate/{run_id}/state", f"trystate/{run_id}/news"
        self._lock = threading.Lock()  # protects the next two attributes from `interrupt`
        self._own: tuple[Any, Notifier] | None = None  # our connection and its notifier
        self._ends = 0  # number of times that it was ended
        self._ended = threading.Event()

    def read(self) -> bytes | None:
        """The bytes of the state; None: the store has none. Raises RendezvousConnectionError."""
        with self._connected() as (store, _):
            return look(store, self._state_key)

    def write(self, data: bytes, over: bytes | None) -> bytes | None:
        """Replace `over` by `data` if the store still holds it; the bytes that it holds then."""
        with self._connected() as (store, _):
            found = bytes(store.compare_set(self._state_key, over if over is not None else b"", data))
        # An answer equal to `over` means that the key is absent: a store returns the expected value for an absent key.
        return None if over is not None and found == over else found

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
        return StoreBackend(self._origin, self._run_id, self._owner)

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
            said = not self._owner and "the server still runs" in str(error)
            remedy = "" if said or isinstance(error, SecretRefused) else f"; {self._where_to_look()}"
            raise RendezvousConnectionError(
                f"rendezvous {self._run_id!r} at {describe(self._origin)}: {type(error).__name__}: {error}{remedy}"
            ) from error

    def _where_to_look(self) -> str:
        if not self._owner:
            return "see whether its server still runs"
        return (f"a node of the job {self._owner!r} served it, and may have ended: give this job its own endpoint, "
                "or run `trystate store serve`")  # fmt: skip

    def _connect(self) -> tuple[Any, Notifier]:
        ends = self._ends
        store = connection(self._origin)
        own = store, listen(store, self._revision_key, self._ended)
        with self._lock:
            if ends == self._ends:
                self._own = own
                return own
        self._let_go(store)  # no other thread has it
        raise StoreClosed("the connection was closed while it was being opened")

    def _disconnect(self) -> None:
        with self._lock:
            own, self._own = self._own, None
            self._ends += 1
        if own is not None:
            self._let_go(own[0])

    def _let_go(self, store: Any) -> None:
        while store is not None and store is not self._origin:
            if hasattr(store, "close"):
                store.close()
                return
            store = getattr(store, "underlying_store", None)  # torch's PrefixStore keeps our store open


def connection(store: Any) -> Any:
    """Another connection to the same data, whose operations take at most OPERATION_SECONDS each.

    A client of a TCP server becomes a client of ours, which can be closed while it waits. It may reach a restarted
    server.
    """
    seconds = min(store.timeout, timedelta(seconds=OPERATION_SECONDS))
    if isinstance(store, TCPStore | dist.TCPStore):  # type: ignore[attr-defined]
        connect = min(seconds, timedelta(seconds=CONNECT_SECONDS))
        secret = store.secret if isinstance(store, TCPStore) else None
        own: Any = TCPStore(store.host, store.port, timeout=connect, secret=secret)
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

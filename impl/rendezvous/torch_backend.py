"""An adapter: our engine uses a backend that was written for torch's dynamic rendezvous.

Rule: only `get_state` and `set_state` of the backend are called, by one thread at a time. Clones of the adapter share
the backend: while one thread waits in it, heartbeats wait too, and the lease ensures that no worker continues after its
node was expelled.

Such a backend has one value and no counters. So its value is the state, and after a line break the counters as JSON.
A write is repeated here when only counters have changed; a heartbeat is repeated when anything has.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousStateError as TorchStateError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend

from .errors import RendezvousConnectionError, RendezvousError, RendezvousStateError
from .notifier import PollingNotifier
from .observer import Counter

WRITES_MAX = 16  # attempts of one write or heartbeat


class TorchBackend:
    """The state that a `RendezvousBackend` of torch keeps, such as the one for etcd."""

    name = "trystate"

    def __init__(self, backend: RendezvousBackend, lock: threading.Lock | None = None) -> None:
        self._backend, self._lock = backend, lock or threading.Lock()
        self._data: bytes | None = None  # the bytes of the state that go with the token
        self._counters: dict[str, int] = {}  # likewise
        self._token: Any = None
        self._ended = threading.Event()
        self._notifier = PollingNotifier(self._ended)

    def read(self) -> bytes | None:
        """The bytes of the state; None: the store has none. Raises RendezvousConnectionError."""
        with self._alone():
            return self._take(self._backend.get_state())

    def write(self, data: bytes, over: bytes | None) -> bytes | None:
        """Replace `over` by `data` if the store still holds it; the bytes that it holds then."""
        if over != self._data:  # the token belongs to other bytes: the state was replaced
            return self.read()
        self._put(data, lambda counters: {name: n for name, n in counters.items() if name.encode() in data})
        return self._data

    def beat(self, token: str) -> None:
        """Add 1 to the counter of a node. Raises RendezvousConnectionError: it may have been added."""
        data = self.read()  # a value without this node is not touched: it may be another program's
        while data is not None and token.encode() in data:
            if self._put(data, lambda counters: counters | {token: counters.get(token, 0) + 1}):
                return
            data = self._data

    def counters(self, tokens: Sequence[str]) -> dict[str, Counter]:
        """The counters of some nodes, as the last request has read them."""
        return {token: str(self._counters.get(token, "")).encode() for token in tokens}

    def _put(self, data: bytes, change: Callable[[dict[str, int]], dict[str, int]]) -> bool:
        """Write a state over the one that was read last, with changed counters; False: another state is there now."""
        before = self._data
        for _ in range(WRITES_MAX):
            value = data + b"\n" + json.dumps(change(self._counters), separators=(",", ":")).encode()
            with self._alone():
                found = self._backend.set_state(value, self._token)
                self._take(found)
            if found is not None and bytes(found[0]) == value:
                return True
            if self._data != before:
                return False
        raise RendezvousConnectionError(f"the rendezvous backend {self._backend.name!r}: other nodes have won "
                                        f"{WRITES_MAX} writes in a row")  # fmt: skip

    def wait(self, revision: int, seconds: float) -> None:
        """Return after a pause, which doubles while the revision stays the same."""
        self._notifier.wait(revision, seconds)

    def notify(self, revision: int) -> None:
        """Do nothing: torch's backends cannot notify, so all nodes poll."""

    def interrupt(self) -> None:
        """End a `wait` of another thread, and all later ones."""
        self._ended.set()

    def resume(self) -> None:
        """Let `wait` wait again."""
        self._ended.clear()

    def clone(self) -> TorchBackend:
        """Another backend on the same state and the same connection: torch's backends cannot have two."""
        return TorchBackend(self._backend, self._lock)

    def close(self) -> None:
        """End the waits; the owner closes torch's backend."""
        self.interrupt()

    def _take(self, found: tuple[Any, ...] | None) -> bytes | None:
        value, self._token = (bytes(found[0]), found[1]) if found is not None else (None, None)
        data, _, counters = value.partition(b"\n") if value is not None else (None, b"", b"")
        try:
            self._data, self._counters = data, json.loads(counters or b"{}")
        except ValueError:  # another program's value, which the decoder of the state refuses
            self._data, self._counters = value, {}
        return self._data

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Translate each exception of the backend into one of ours."""
        with self._lock:
            try:
                yield
            except TorchStateError as error:
                raise RendezvousStateError(f"{self._backend.name}: {error}") from error
            except RendezvousError:
                raise
            except Exception as error:
                raise RendezvousConnectionError(
                    f"the rendezvous backend {self._backend.name!r} failed: {type(error).__name__}: {error}; "
                    "see whether the server behind it still runs"
                ) from error

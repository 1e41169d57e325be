"""An adapter: our engine uses a backend that was written for torch's dynamic rendezvous.

Rule: only `get_state` and `set_state` of the backend are called, by one thread at a time. Clones of the adapter share
the backend: while one thread waits in it, heartbeats wait too, and the lease ensures that no worker continues after its
node was expelled.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousStateError as TorchStateError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend

from .errors import RendezvousConnectionError, RendezvousError, RendezvousStateError
from .notifier import PollingNotifier


class TorchBackend:
    """The state that a `RendezvousBackend` of torch keeps, such as the one for etcd."""

    name = "trystate"

    def __init__(self, backend: RendezvousBackend, lock: threading.Lock | None = None) -> None:
        self._backend, self._lock = backend, lock or threading.Lock()
        self._data: bytes | None = None  # the bytes that go with the token
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
        with self._alone():
            return self._take(self._backend.set_state(data, self._token))

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
        self._data, self._token = (bytes(found[0]), found[1]) if found is not None else (None, None)
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

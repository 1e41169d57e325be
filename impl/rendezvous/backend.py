"""The store of a rendezvous, as the driver of an engine needs it: a value with compare-and-set, and counters.

Rule: a write is won if the store then holds exactly its bytes. The state carries its version and its writer, so no two
writes have the same bytes: a lost write is never taken for a won one, and a repeated write happens once.
An addition to a counter is never lost to another one. Correctness never depends on notifications; they only shorten the
wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from .observer import Counter


class Backend(Protocol):
    """The state of one rendezvous in one store. Each thread has its own `clone`: no operation waits for another's."""

    name: str

    def read(self) -> bytes | None:
        """The bytes of the state; None: the store has none. Raises RendezvousConnectionError."""

    def write(self, data: bytes, over: bytes | None) -> bytes | None:
        """Replace the bytes `over` (None: the store has no bytes) by `data`, if the store still holds them.

        Returns the bytes that the store holds then: `data` if the write was won. Raises RendezvousConnectionError.
        """

    def beat(self, token: str) -> None:
        """Add 1 to the counter of a node. Raises RendezvousConnectionError: it may have been added."""

    def counters(self, tokens: Sequence[str]) -> dict[str, Counter]:
        """The counters of some nodes. Never waits for one. Raises RendezvousConnectionError."""

    def wait(self, revision: int, seconds: float) -> None:
        """Block until `notify` was called with a higher revision, or for `seconds`; it may return earlier."""

    def notify(self, revision: int) -> None:
        """Wake every waiter that has seen only revisions below `revision`."""

    def interrupt(self) -> None:
        """End a `wait` of another thread, and all later ones."""

    def resume(self) -> None:
        """Let `wait` wait again."""

    def clone(self) -> Self:
        """Another backend on the same state, with its own connection."""

    def close(self) -> None:
        """Close the connection; may be called twice."""

"""Where the state of a rendezvous is kept: what an engine's driver needs of a store, and no more.

Rule: a write is won if the store then holds exactly these bytes. The state has its version and its writer in it, so
that no two writes are the same, and a lost one is never taken for a won one.
"""

from __future__ import annotations

from typing import Protocol, Self


class Backend(Protocol):
    """A place for one state. Each thread has one of its own (`clone`): no operation waits for that of another."""

    name: str

    def read(self) -> bytes | None:
        """What is there; None: nothing. Raises RendezvousConnectionError."""

    def write(self, data: bytes, over: bytes | None) -> bytes | None:
        """Write `data` if `over` is still there (None: nothing is); what is there then: `data`, if it was."""

    def wait(self, news: int, seconds: float) -> None:
        """Return when `tell` was called with more than `news`, or after `seconds`, or earlier."""

    def tell(self, news: int) -> None:
        """Wake whoever waits for more than fewer `news`."""

    def interrupt(self) -> None:
        """End a `wait` of another thread, and all later ones."""

    def resume(self) -> None:
        """Let `wait` wait again."""

    def clone(self) -> Self:
        """Another one on the same state, with a connection of its own."""

    def close(self) -> None:
        """Let go of the connection. May be called twice."""

"""What the protocol wants done. It does nothing itself: no lock, thread, clock or socket is known to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .records import Asker


class Request(NamedTuple):
    """Ask a worker, and call `done` with its answer or an error; never before this was returned."""

    to: int
    kind: int
    message: Any  # with pack()
    gradients: Sequence[Any | None]
    done: Callable[[bytes | BaseException], list[Effect]]
    deadline: float | None  # None: what the driver gives to messages that end something


class Answer(NamedTuple):
    """Answer who asked."""

    asker: Asker
    body: bytes


class Run(NamedTuple):
    """There is something to run for a part: exactly one thread calls `Part.next` until there is nothing more."""

    part: Any


class Watch(NamedTuple):
    """Call `Part.expire` if the part is not over at its deadline."""

    part: Any


class Over(NamedTuple):
    """The root's part is over: wake who waits for it."""

    part: Any


Effect = Request | Answer | Run | Watch | Over

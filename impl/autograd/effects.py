"""What the protocol wants done. It does nothing itself: no lock, thread, clock or socket is known to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .contexts import Asker

if TYPE_CHECKING:
    from .local_pass import LocalPass

Gradients = Sequence[Any | None]


class Hear(Protocol):
    """Takes an answer and the gradients that it carries, or why there is none."""

    def __call__(self, answer: bytes | BaseException, gradients: Gradients = (), /) -> list[Effect]: ...


class Request(NamedTuple):
    """Ask a worker, and call `done` with its answer or an error; never before this was returned."""

    to: int
    kind: int
    message: Any  # with pack()
    gradients: Gradients
    done: Hear
    deadline: float | None  # None: what the driver gives to messages that end something


class Answer(NamedTuple):
    """Answer who asked."""

    asker: Asker
    body: bytes
    gradients: Gradients = ()
    piggybacked: Any = None  # the request in the body, whose gradients they are


class Run(NamedTuple):
    """There is something to run for a part: exactly one thread calls `Part.next` until there is nothing more."""

    local_pass: LocalPass


class Watch(NamedTuple):
    """Call `Part.expire` if the part is not over at its deadline."""

    local_pass: LocalPass


class Over(NamedTuple):
    """The root's part is over: wake who waits for it."""

    local_pass: LocalPass


Effect = Request | Answer | Run | Watch | Over

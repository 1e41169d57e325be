"""Effects that `Container` and `LocalPass` return for the driver, or the simulator, to perform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .contexts import Asker

if TYPE_CHECKING:
    from .local_pass import LocalPass

Gradients = Sequence[Any | None]


class Hear(Protocol):
    """Takes an answer and the gradients of a message that is piggybacked on it, or an error instead."""

    def __call__(self, answer: bytes | BaseException, gradients: Gradients = (), /) -> list[Effect]: ...


class Request(NamedTuple):
    """Send a message to worker `to`, and call `done` with its answer or an error, under the lock."""

    to: int
    kind: int
    message: Any  # with pack()
    gradients: Gradients
    done: Hear
    deadline: float | None  # None: CANCEL_SECONDS from now, for messages that end something


class Answer(NamedTuple):
    """Answer a message of a peer."""

    asker: Asker
    body: bytes
    gradients: Gradients = ()
    piggybacked: Any = None  # the message in the body that the gradients belong to


class Run(NamedTuple):
    """There is something to run: exactly one thread calls `LocalPass.next` until it returns None."""

    local_pass: LocalPass


class Watch(NamedTuple):
    """Call `LocalPass.expire` at its deadline, unless it is over then."""

    local_pass: LocalPass


class Over(NamedTuple):
    """The local pass of the root is over: wake the thread in `backward()`."""

    local_pass: LocalPass


Effect = Request | Answer | Run | Watch | Over

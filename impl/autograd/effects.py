"""Effects that `Container` and `LocalPass` return for the driver, or the simulator, to perform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .local_pass import LocalPass

Gradients = Sequence[Any | None]


@dataclass(frozen=True, slots=True)
class Asker:
    """The worker that gets exactly one answer to its request, and the function that sends it."""

    peer: int
    answer: Callable[[bytes, Gradients], None]  # takes its bytes, and the gradients of a piggybacked message


class Request(NamedTuple):
    """Send a message to worker `to`, and call `done` with its answer or an error, under the lock."""

    to: int
    kind: int
    message: Any  # with pack()
    gradients: Gradients
    done: Callable[..., list[Effect]]  # takes an answer and piggybacked gradients, or an error
    deadline: float | None  # None: CANCEL_SECONDS from now, for messages that end something


class AnswerPeer(NamedTuple):
    """Answer a message of a peer."""

    asker: Asker
    body: bytes
    gradients: Gradients = ()
    piggybacked: Any = None  # the message in the body that the gradients belong to


class RunPass(NamedTuple):
    """Let exactly one thread call `LocalPass.next` until it returns None."""

    local_pass: LocalPass


class WatchDeadline(NamedTuple):
    """Call `LocalPass.expire` at the deadline, unless the pass is over then."""

    local_pass: LocalPass


class Over(NamedTuple):
    """Wake the thread in `backward()`: the local pass of the root is over."""

    local_pass: LocalPass


Effect = Request | AnswerPeer | RunPass | WatchDeadline | Over

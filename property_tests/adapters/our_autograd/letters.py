"""The base class of the subjects, and the messages between the workers of a model's pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trystate.impl.autograd import messages
from trystate.impl.autograd.container import Container
from trystate.impl.autograd.effects import AnswerPeer, Asker, Effect, Over, Request
from trystate.impl.autograd.errors import PassError
from trystate.impl.autograd.local_pass import LocalPass
from trystate.impl.autograd.messages import CANCEL, Backward, Done, Mark, unpack_outcome
from trystate.model.autograd.backward.fields import Call

from .. import steps

DEADLINE = 1000.0


def take(here: Container, kind: int, body: bytes, gradients: Sequence[Any], asker: Asker) -> list[Effect]:
    """A worker receives a request, as its driver gives it to the container."""
    return here.take(messages.KINDS[kind].unpack(body), gradients, asker, DEADLINE)


class Steps(steps.Steps):
    """A subject whose workers send and answer requests."""

    over: set[LocalPass]

    def __init__(self, model: Any) -> None:
        self.model = model
        self.reset()

    def reset(self) -> None:
        raise NotImplementedError

    def _do(self, worker: Any, effects: Iterable[Effect]) -> None:
        """Send the answers and requests of a worker, and record that a pass is over at its root."""
        for effect in effects:
            if isinstance(effect, AnswerPeer):
                effect.asker.answer(effect.body, effect.gradients)
            elif isinstance(effect, Request):
                self._send(worker, effect)
            elif isinstance(effect, Over):
                self.over.add(effect.local_pass)

    def _send(self, worker: Any, request: Request) -> None:
        raise NotImplementedError


@dataclass(eq=False, slots=True)
class Message:
    """A request of the model, and its state."""

    source: int
    kind: int
    body: bytes
    gradients: Sequence[Any]
    done: Callable[..., list[Effect]]
    state: Call = Call.OUT
    load: Any = 0
    carrier: int = 0
    delta: int = 0
    answer: bytes | BaseException = b""
    carries: Sequence[Any] = ()  # gradients
    carried: list[Message] = field(default_factory=list)

    def say(self, answer: bytes, gradients: Sequence[Any]) -> Backward | Mark | None:
        """The request that the answer carries, if any."""
        assert self.state is Call.HELD, "answered twice"
        self.answer, self.carries, self.state = answer, gradients, Call.DONE
        if self.kind == CANCEL:
            return None
        outcome = unpack_outcome(answer)
        if isinstance(outcome, PassError):
            self.state = Call.FAILED
            return None
        self.delta = outcome.change
        return outcome.piggybacked


class JoinedAnswer:
    """One answer for several requests of the model: it is given when all are answered, or when the first has failed.

    A request that one of the answers carries is processed at once.
    """

    def __init__(self, local_pass: LocalPass, count: int) -> None:
        self._local_pass, self._left, self._change = local_pass, count, 0

    def __call__(self, answer: bytes | BaseException, gradients: Sequence[Any] = (), /) -> list[Effect]:
        outcome = answer if isinstance(answer, BaseException) else unpack_outcome(answer)
        if isinstance(outcome, BaseException):
            self._left, told = -1, self._left > 0
            return self._local_pass.answered(answer) if told else []
        self._left -= 1
        self._change += outcome.change
        effects = [] if self._local_pass.is_over else self._local_pass._take_piggybacked(outcome.piggybacked, gradients)
        return effects + (self._local_pass.answered(Done(self._change).pack()) if self._left == 0 else [])

"""Messages between the workers of a model's pass, while the runtime performs its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trystate.impl.autograd.effects import Effect, Hear
from trystate.impl.autograd.errors import PassError
from trystate.impl.autograd.local_pass import LocalPass
from trystate.impl.autograd.messages import CANCEL, Backward, Done, Mark, unpack_outcome
from trystate.model.autograd.backward.fields import Call


@dataclass(eq=False, slots=True)
class Letter:
    """A request of the model, and how far it has come."""

    source: int
    kind: int
    body: bytes
    gradients: Sequence[Any]
    done: Hear
    state: Call = Call.OUT
    load: Any = 0
    carrier: int = 0
    delta: int = 0
    answer: bytes | BaseException = b""
    carries: Sequence[Any] = ()  # gradients
    carried: list[Letter] = field(default_factory=list)

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


class Together:
    """The one answer to a request that the model has as several: when all are answered, or the first has failed.

    A request that one of the answers carries is taken in at once.
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

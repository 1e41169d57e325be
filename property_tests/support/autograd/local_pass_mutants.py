"""Mutants of containers and parts, one by one: simulated passes, or the edges of the model, must find each."""

from __future__ import annotations

from typing import Any
from unittest import mock

from trystate.impl.autograd import container
from trystate.impl.autograd.container import Container
from trystate.impl.autograd.contexts import Asker
from trystate.impl.autograd.deficit import Deficit
from trystate.impl.autograd.effects import Answer, Effect, Gradients, Request
from trystate.impl.autograd.errors import PassError
from trystate.impl.autograd.local_pass import Arrived, LocalPass
from trystate.impl.autograd.messages import Done, unpack_outcome
from trystate.impl.autograd.tombstones import Tombstones


class FinishesOnArrival(LocalPass):
    """A source is discarded when its gradient arrives instead of after its work ran (S4)."""

    def arrive(self, message: int, gradients: Any, asker: Asker) -> list[Effect]:
        effects = super().arrive(message, gradients, asker)
        due, self.deficit.parent = self.deficit.parent, None
        if due is not None:
            effects.append(Answer(due, Done(self.deficit.report()).pack()))
            self.deficit.engaged = False
        return effects


class AnswersAtOnce(LocalPass):
    """A part is known before its completion can be told: the first gradient is answered like all others."""

    def _engage(self, asker: Asker) -> list[Effect]:
        return super()._engage(asker) or [Answer(asker, Done().pack())]


class IgnoresFailures(LocalPass):
    """An own request that fails does not fail the part (L2)."""

    def answered(
        self, answer: bytes | BaseException, gradients: Gradients = (), peer: int | None = None
    ) -> list[Effect]:
        failed = isinstance(answer, BaseException) or isinstance(unpack_outcome(answer), PassError)
        return super().answered(Done().pack() if failed else answer, gradients, peer)


class TakesTwice(LocalPass):
    """A gradient that comes twice is added twice (S8)."""

    def arrive(self, message: int, gradients: Any, asker: Asker) -> list[Effect]:
        if message in self.arrived and not self.is_over:
            send = self.counted[message]
            return [Answer(asker, Done().pack()), *self._put(Arrived(send, gradients))]
        return super().arrive(message, gradients, asker)


class KeepsGradients(LocalPass):
    """The gradients of a failed part stay (S7)."""

    def fail(self, error: PassError) -> list[Effect]:
        kept = self.gradients
        effects = super().fail(error)
        self.gradients = kept
        return effects


class TellsNobody(LocalPass):
    """The root cancels nothing (L3)."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._others = ()


class CountsOnlyItself(LocalPass):
    """The root asks whether its own sends have got gradients, and not how it is elsewhere."""

    def answered(
        self, answer: bytes | BaseException, gradients: Gradients = (), peer: int | None = None
    ) -> list[Effect]:
        told = unpack_outcome(answer) if isinstance(answer, bytes) else None
        if isinstance(told, Done):
            answer = told._replace(change=0).pack()
        return super().answered(answer, gradients, peer)


class AnswersTwiceAlike(LocalPass):
    """A repeated request is answered at once, though the answer is not due yet."""

    def arrive(self, message: int, gradients: Any, asker: Asker) -> list[Effect]:
        if message in self.arrived:
            return [Answer(asker, Done().pack())]
        return super().arrive(message, gradients, asker)


class DropsWhatAnAnswerCarries(LocalPass):
    """A gradient that comes with an answer is not taken in."""

    def _take_piggybacked(self, told: Any, gradients: Gradients) -> list[Effect]:
        return []


class DropsHeld(Deficit):
    def release(self) -> list[Request]:
        self.held = []
        return []


class HoldsForAnybody(Deficit):
    def is_parent(self, peer: int) -> bool:
        return self.parent is not None


class KeepsWhatItCannotCarry(LocalPass):
    """Messages that are held back, and do not fit into one signal, are dropped."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.deficit = DropsHeld(len(self.expected))


class KeepsForAnybody(LocalPass):
    """Messages to other peers than the parent are held back for the parent's signal, too."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.deficit = HoldsForAnybody(len(self.expected))


class MarksOnce(LocalPass):
    """A wave of marks ends at the first worker that it comes to (SMART)."""

    def spread(self, recvs: Any) -> list[Effect]:
        return super().spread(recvs) if self.roots is not None else []


class WaitsForAll(LocalPass):
    """SMART waits for all sends, as FAST does."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.counted = dict(self.context.sends)
        self.expected = dict(self.counted)
        self.deficit.unreported = len(self.expected)


class EndsBeforeTheyAnswer(LocalPass):
    """Another pass may begin while workers have not answered that this one has failed."""

    @property
    def is_settled(self) -> bool:
        return self.is_over


class MissesNobody(LocalPass):
    """A part does not care who is lost."""

    def lost(self, peer: int, reason: str) -> list[Effect]:
        return []


class MissesAnybody(LocalPass):
    """A part fails whoever is lost."""

    def lost(self, peer: int, reason: str) -> list[Effect]:
        return self.fail(PassError(reason))


class OwesNothing(LocalPass):
    """An answer does not tell what was missing below it."""

    def answered(
        self, answer: bytes | BaseException, gradients: Gradients = (), peer: int | None = None
    ) -> list[Effect]:
        told = unpack_outcome(answer) if isinstance(answer, bytes) else None
        if isinstance(told, Done):
            answer = told._replace(change=min(told.change, 0)).pack()
        return super().answered(answer, gradients, peer)


class KeepsUntilItRests(LocalPass):
    """A request that waits for the answer waits for other gradients to be run too: the parent could go on meanwhile."""

    def next(self) -> tuple[Any, list[Effect]]:
        if not self._inbox or self.is_over:
            return super().next()
        return self._inbox.popleft(), []


class NeverExpires(LocalPass):
    """A part that waits in vain is kept."""

    def expire(self) -> list[Effect]:
        return []


class Forgetful(Tombstones):
    def __contains__(self, context: int) -> bool:
        return False


class NoTombstones(Container):
    """A context that is over can be taken up again (S6)."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.dead = Forgetful()


class NoFence(Container):
    """A message of a pass that is over begins it anew (S1)."""

    def local_pass_for(self, number: int, context: int, *arguments: Any) -> Any:
        known = self.contexts.get(context)
        if known is not None:
            known.ended.clear()
            if known.local_pass is not None and known.local_pass.error:
                known.local_pass = None
        return super().local_pass_for(number, context, *arguments)


class CleansOnlyHere(Container):
    """A worker that hears that a context is over tells no other (L4)."""

    def clean(self, clean: Any, asker: Asker) -> list[Effect]:
        return super().clean(clean, asker)[:1]


def having(kind: type[LocalPass]) -> type[Container]:
    """A container whose passes are of this class."""

    class Having(Container):
        def _local_pass(self, *arguments: Any) -> LocalPass:
            with mock.patch.object(container, "LocalPass", kind):
                return super()._local_pass(*arguments)

    Having.__name__ = kind.__name__
    return Having


# Simulated passes are to find MUTANTS; the edges of the model find PARTS but AnswersTwiceAlike, UNSEEN and NoFence.
PARTS = [
    FinishesOnArrival, AnswersAtOnce, IgnoresFailures, TakesTwice, KeepsGradients, TellsNobody, CountsOnlyItself,
    AnswersTwiceAlike, MarksOnce, WaitsForAll, NeverExpires, DropsWhatAnAnswerCarries, KeepsWhatItCannotCarry,
    KeepsForAnybody,
]  # fmt: skip
UNSEEN = [EndsBeforeTheyAnswer, MissesNobody, MissesAnybody, OwesNothing, KeepsUntilItRests]
MUTANTS = [*map(having, PARTS), NoTombstones, NoFence, CleansOnlyHere]

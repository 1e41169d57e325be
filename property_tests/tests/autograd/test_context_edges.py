"""The runtime's containers and ids take every step of the models `Contexts`, `Tombstones` and `Ids`, and refuse others.

Each rule that they keep is broken once: a replay notices it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from trystate.impl.autograd.container import Container, _Telling
from trystate.impl.autograd.contexts import Asker, Context
from trystate.impl.autograd.dependencies import Edge
from trystate.impl.autograd.effects import Answer, Effect, Request
from trystate.impl.autograd.errors import IdsExhaustedError, PassError
from trystate.impl.autograd.ids import LAST_COUNT, Ids, worker_of
from trystate.impl.autograd.local_pass import LocalPass
from trystate.impl.autograd.messages import KEPT, Clean, Done, Kept
from trystate.impl.autograd.tombstones import Tombstones
from trystate.model.autograd.contexts import Contexts
from trystate.model.autograd.ids import Ids as IdsModel
from trystate.model.autograd.tombstones import Tombstones as TombstonesModel
from trystate.model.autograd.vocabulary import Edition
from trystate.model.checker.interpret import Interpreter
from trystate.model.language import System
from trystate.property_tests.adapters.our_autograd.context_edges import LONG, LOSSES, SLICES, Slice, contexts
from trystate.property_tests.adapters.our_autograd.tombstone_edges import Build, container
from trystate.property_tests.harness.paths import Replayed, explore_graph, replay_every_edge
from trystate.property_tests.support.marks import by_verify
from trystate.property_tests.support.nightly import NIGHTLY


def replay(one: Slice, *build: Build, stop_after: int = 5) -> Replayed:
    model = one.build()
    return replay_every_edge(model, one.subject(model, *build), refusals=True, repeats=False, stop_after=stop_after)


@by_verify
@pytest.mark.parametrize("one", SLICES, ids=str)
def test_the_runtime_does_what_the_model_says(one: Slice) -> None:
    found = replay(one)
    assert not found.disagreements
    assert found.edges > 1_000
    assert found.refusals > 1_000


@pytest.mark.skipif(not NIGHTLY, reason="200,000 edges: under HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize("one", LONG, ids=str)
def test_so_it_does_in_larger_ones(one: Slice) -> None:
    assert not replay(one).disagreements


def taken(one: Slice) -> set[str]:
    """The steps of the model that a slice takes."""
    model = one.build()
    instances = Interpreter(model).kernel.instances
    return {instances[number].transition.name for number in set(explore_graph(model).graph.number.tolist())}


@pytest.mark.parametrize("system", [Contexts, TombstonesModel, IdsModel])
def test_every_step_is_taken_in_some_slice(system: type[System]) -> None:
    faults = (*LOSSES, "error") if system is Contexts else ()
    steps = {t.name for t in system(edition=Edition.TRYSTATE, faults=faults).transitions}
    assert set().union(*(taken(one) for one in SLICES if one.system is system)) == steps


# ---- what would be noticed: contexts


class ForgetsThatItIsOver(Container):
    """A call has the context here again."""

    def heard(self, number: int, peer: int) -> Context | None:
        return super().heard(number, peer) or self._open(number)


class TakesCallsOfTheLost(Container):
    """A call in a context of a creator that is lost has it here."""

    def heard(self, number: int, peer: int) -> Context | None:
        return super().heard(number, peer) or (None if number in self.dead else self._open(number))


class RemembersWhatItHad(Container):
    """CLEAN that overtakes the call is not remembered."""

    def clean(self, clean: Clean, asker: Asker) -> list[Effect]:
        return super().clean(clean, asker) if clean.context in self.contexts else [Answer(asker, b"")]


class PassesNothingOn(Container):
    """Only who left it, or lost somebody, tells anybody."""

    def _tell(self, telling: _Telling, peers: Iterable[int]) -> list[Effect]:
        return super()._tell(telling, peers if telling.asker is None else ())


class AnswersAtOnce(Container):
    """CLEAN is answered before those that it is passed on to have answered."""

    def clean(self, clean: Clean, asker: Asker) -> list[Effect]:
        effects = super().clean(clean, Asker(asker.peer, lambda *_: None))
        return [*(e for e in effects if not isinstance(e, Answer)), Answer(asker, b"")]


class AnswersOnlyTheFirst(Container):
    """CLEAN from another is not answered for as long as some have not answered."""

    def clean(self, clean: Clean, asker: Asker) -> list[Effect]:
        known = clean.context in self._telling
        return [e for e in super().clean(clean, asker) if not (known and isinstance(e, Answer))]


class TellsNobodyElse(Container):
    """When one that was told is lost, nobody else is told."""

    def _cleaned(self, telling: _Telling, peer: int, answer: bytes | BaseException, *_: object) -> list[Effect]:
        return super()._cleaned(telling, peer, b"")


class TellsOnlyWhomItKnows(Container):
    """When one that knows the context is lost before it is left, nobody else is told."""

    def _bury(self, context: Context, told_by: Asker | None = None) -> list[Effect]:
        context.known -= self._gone
        return super()._bury(context, told_by)


class TellsAgain(Container):
    """When one that was told is lost, those are told again that have answered."""

    def _cleaned(self, telling: _Telling, peer: int, answer: bytes | BaseException, *_: object) -> list[Effect]:
        if isinstance(answer, BaseException):
            telling.told = {*telling.waits_for}
        return super()._cleaned(telling, peer, answer)


class TellsWhoToldIt(Container):
    """CLEAN also goes back to where it came from."""

    def _tell(self, telling: _Telling, peers: Iterable[int]) -> list[Effect]:
        asker, telling.asker = telling.asker, None
        effects = super()._tell(telling, peers)
        telling.asker = asker
        return effects


class TellsTheLost(Container):
    """CLEAN also goes to who is lost."""

    def _tell(self, telling: _Telling, peers: Iterable[int]) -> list[Effect]:
        gone, self._gone = self._gone, set()
        effects = super()._tell(telling, peers)
        self._gone = gone
        return effects


class KeepsContextsOfTheLost(Container):
    """The loss of a creator ends nothing."""

    def lost(self, peer: int, reason: str) -> list[Effect]:
        contexts, self.contexts = self.contexts, {}
        effects = super().lost(peer, reason)
        self.contexts = contexts
        return effects


class KeepsWhatIsOver(Container):
    """A context that is over stays here."""

    def _bury(self, context: Context, told_by: Asker | None = None) -> list[Effect]:
        effects = super()._bury(context, told_by)
        self.contexts[context.number] = context
        return effects


class NotesWhomItAnswers(Container):
    """A worker that is answered is told of the release, as by torch."""

    def sent(self, context: Context, peer: int, edges: Sequence[Edge], what: str, call: bool = True) -> int:
        return super().sent(context, peer, edges, what)


class NotesNobody(Container):
    """Whom a call has taken the context to is not remembered."""

    def sent(self, context: Context, peer: int, edges: Sequence[Edge], what: str, call: bool = True) -> int:
        return super().sent(context, peer, edges, what, call=False)


# ---- a pass in a context


class RunsOnInWhatIsOver(Container):
    """The release of a context does not end the pass that runs in it."""

    def _bury(self, context: Context, told_by: Asker | None = None) -> list[Effect]:
        part, context.local_pass = context.local_pass, None
        effects = super()._bury(context, told_by)
        context.local_pass = part
        return effects


class TakesGradientsOfTheOver(Container):
    """A gradient has the context here again."""

    def local_pass_for(self, number: int, context_number: int, *rest: Any) -> Any:
        if context_number not in self.contexts:
            self._open(context_number)
        return super().local_pass_for(number, context_number, *rest)


class BeginsBesideAnother(Container):
    """A pass begins although another runs in its context."""

    def begin(self, context: Context, *rest: Any) -> Any:
        context.local_pass = None
        return super().begin(context, *rest)


class OwnPart(Container):
    """Its parts of passes are of another class."""

    part: type[LocalPass]

    def _local_pass(self, *args: Any) -> LocalPass:
        part = super()._local_pass(*args)
        part.__class__ = self.part
        return part


class _FirstAnswer(LocalPass):
    __slots__ = ()

    def answered(self, answer: bytes | BaseException, gradients: Any = (), peer: int | None = None) -> list[Effect]:
        self.deficit.unsignalled = 1
        return super().answered(answer, gradients, peer)


class EndsAtTheFirstAnswer(OwnPart):
    """backward() returns when the first gradient is answered."""

    part = _FirstAnswer


class _Hides(LocalPass):
    __slots__ = ()

    def fail(self, error: PassError) -> list[Effect]:
        effects = super().fail(error)
        return [Answer(e.asker, Done().pack()) if isinstance(e, Answer) else e for e in effects]


class HidesFailures(OwnPart):
    """A part that fails is answered as if it had not."""

    part = _Hides


class _Silent(LocalPass):
    __slots__ = ()

    def fail(self, error: PassError) -> list[Effect]:
        return [effect for effect in super().fail(error) if not isinstance(effect, Answer)]


class AnswersNoFailures(OwnPart):
    """A part that fails is not answered."""

    part = _Silent


class _AtOnce(LocalPass):
    __slots__ = ()

    def arrive(self, message: int, gradients: Any, asker: Asker) -> list[Effect]:
        return [Answer(asker, Done().pack()), *super().arrive(message, gradients, Asker(asker.peer, lambda *_: None))]


class AnswersBeforeItHasRun(OwnPart):
    """The gradient that begins a part is answered when it comes."""

    part = _AtOnce


# ---- what is remembered of them


class TellsNobodyWhoLags(Container):
    """The mark is told only to those that know the context that was left."""

    def _behind(self, number: int, mark: int) -> set[int]:
        return set()


class TellsAllOfTheMark(Container):
    """The mark is told also to those that remember nothing above it."""

    def _behind(self, number: int, mark: int) -> set[int]:
        return {*self._last_told}


class MarksTheNext(Container):
    """The mark is the next context, whatever is open."""

    def _low_water(self, number: int) -> int:
        return self._context_ids.next if worker_of(number) == self.me else super()._low_water(number)


class HearsNoMark(Container):
    """The mark in CLEAN is ignored: older contexts are not over by it."""

    def clean(self, clean: Clean, asker: Asker) -> list[Effect]:
        return super().clean(clean._replace(low=0), asker)


class SendsNoKept(Container):
    """A worker that is reached through another does not tell the creator that it remembers something."""

    def clean(self, clean: Clean, asker: Asker) -> list[Effect]:
        return [e for e in super().clean(clean, asker) if not (isinstance(e, Request) and e.kind == KEPT)]


class KeepsNoKept(Container):
    """The creator does not remember that a worker does."""

    def kept(self, kept: Kept, asker: Asker) -> list[Effect]:
        before = {**self._last_told}
        effects = super().kept(kept, asker)
        self._last_told = before
        return effects


class SendsTheMarkLater(Container):
    """The mark is sent to who remembers something when it rises the next time."""

    def kept(self, kept: Kept, asker: Asker) -> list[Effect]:
        return [effect for effect in super().kept(kept, asker) if isinstance(effect, Answer)]


class RemembersNothing(Tombstones):
    """A context that is over above the mark is not remembered."""

    def bury(self, context: int) -> None:
        pass


class MarksNothing(Tombstones):
    """The mark is not remembered."""

    def below(self, context: int) -> None:
        pass


class BuriesTheMark(Tombstones):
    """The oldest context that is open is taken for over."""

    def below(self, context: int) -> None:
        super().below(context + 1)


# ---- ids


class GivesAnIdTwice(Ids):
    """The second id is the first one."""

    def take(self) -> int:
        number = super().take()
        return number - (self._next == LAST_COUNT - 1)


class KeepsTheLast(Ids):
    """The last id is not given out."""

    def take(self) -> int:
        if self._next == LAST_COUNT:
            raise IdsExhaustedError("none left")
        return super().take()


class GivesAnIdMore(Ids):
    """After the last id comes the first of the next worker."""

    def take(self) -> int:
        number, self._next = self.next, self._next + 1
        return number


class KeepsSigned(Ids):
    """The worker's number is one of 16 bits with a sign."""

    def take(self) -> int:
        number = super().take()
        return number - (1 << 64) if number >> 63 else number


# fmt: off
CRASH, IDS = contexts(3, 2, 0, "crash"), Slice(IdsModel)
STONES, CHAIN = Slice(TombstonesModel, {"peer": 1}), Slice(TombstonesModel, {"context": 2})
PASS, FAILING = contexts(2, 2, 1, passes=1), contexts(2, 2, 1, "error", passes=1)
MUTANTS: tuple[tuple[type[Any], Slice], ...] = (
    (ForgetsThatItIsOver, contexts(2, 2, 1)), (TakesCallsOfTheLost, contexts(3, 2, 0, "creator_crash")),
    (RemembersWhatItHad, contexts(2, 2, 1)), (PassesNothingOn, contexts(3, 2, 1)), (AnswersAtOnce, contexts(3, 2, 1)),
    (AnswersOnlyTheFirst, CRASH), (TellsNobodyElse, CRASH), (TellsOnlyWhomItKnows, CRASH),
    (TellsAgain, CRASH), (TellsWhoToldIt, contexts(3, 3, 1)), (TellsTheLost, CRASH),
    (KeepsContextsOfTheLost, contexts(2, 2, 0, "creator_crash")), (KeepsWhatIsOver, contexts(2, 2, 0)),
    (NotesWhomItAnswers, contexts(2, 2, 0)), (NotesNobody, contexts(2, 2, 0)),
    (RunsOnInWhatIsOver, PASS), (TakesGradientsOfTheOver, PASS), (BeginsBesideAnother, PASS),
    (EndsAtTheFirstAnswer, contexts(3, 2, 1, passes=1)), (HidesFailures, FAILING), (AnswersNoFailures, FAILING),
    (AnswersBeforeItHasRun, PASS),
    (TellsNobodyWhoLags, STONES), (TellsAllOfTheMark, STONES), (MarksTheNext, STONES), (HearsNoMark, STONES),
    (SendsNoKept, CHAIN), (KeepsNoKept, CHAIN), (SendsTheMarkLater, CHAIN),
    (RemembersNothing, STONES), (MarksNothing, STONES), (BuriesTheMark, STONES),
    (GivesAnIdTwice, IDS), (KeepsTheLast, IDS), (GivesAnIdMore, IDS), (KeepsSigned, IDS),
)
# fmt: on


@pytest.mark.parametrize(("broken", "one"), MUTANTS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_mutant_is_a_disagreement(broken: Any, one: Slice) -> None:
    def build(*args: int) -> Any:
        if issubclass(broken, Ids):
            return broken(*args)
        if issubclass(broken, Container):
            return broken(*args)
        made = container(*args)
        made.dead = broken()
        return made

    assert replay(one, build, stop_after=1).disagreements

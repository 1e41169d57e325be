"""The repairs of a backward pass, undone one by one: exactly the properties break that the repair is there for.

Some are the mistakes that were made before: a task that is over when its gradients have arrived, and not when they have
run; one that can be over before anybody knows whom to answer; a failed request that does not fail its sender.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trystate.model.autograd.backward import Backward, Ours, Smart, Torch
from trystate.model.autograd.backward.fields import UNANSWERED, Call, Each, Outcome
from trystate.model.autograd.examples import NUMBER
from trystate.model.autograd.vocabulary import Edition, Mode, NodeKind, Part
from trystate.model.language import Expr, SymbolicState, System, and_, ite, not_, or_, ord_, transition
from trystate.property_tests.support.nightly import a_third
from trystate.property_tests.support.pinned import Asked, bare, claims, report, violated

S = SymbolicState
TORCH, TRYSTATE, SMART = Edition.TORCH, Edition.TRYSTATE, Mode.SMART
RIGHT = bare(Backward)


# ---- nodes


class RunsOnTheFirstInput(Ours):
    """A node runs when it has been given anything."""

    def is_ready(self, s: S, k: int) -> Any:
        given = or_(s.fed[k] > 0, super().is_ready(s, k))
        return and_(self.lives(s, self.shape.nodes[k].worker), ~s.ran[k], self.reached(s, k), given)


class CountsFromTheRoot(Ours):
    """Dependencies are counted from the root alone, and not from the sends."""

    def waits_for(self, s: S, k: int) -> Any:
        feeders = [f for f in self.shape.feeders(k) if f in self.shape.local_reach(self.shape.root)]
        return len(feeders) or 1


class IsOverWhenGradientsHaveArrived(Ours):
    """A source is discarded when its gradient arrives, and not when its work has been done."""

    def is_at_rest(self, s: S, w: int) -> Any:
        return and_(self.missing(s, w) == 0, not_(self.is_unanswered(s, w)))


class AddsToTheContext(Ours):
    """A leaf adds to the context's gradients at once, as torch does."""

    def total(self, s: S, k: int) -> Any:
        return ite(s.ran[k], self.at_most(s.grads[k] + s.gradient[k]), s.grads[k])

    def clears(self, s: S, when: Each) -> None:
        for k in self.leaves():
            s.grads[k] = ite(when[self.shape.nodes[k].worker], self.total(s, k), s.grads[k])
        super().clears(s, when)


# ---- messages


class TakesCopies(Ours):
    """A gradient that arrives again is taken for a new one."""

    def recognises(self) -> bool:
        return False


class RunsCopies(TakesCopies):
    """And it is run again."""

    def copies(self, s: S, attempt: Expr, pair: Expr) -> None:
        Ours.take_copy.body(self, s, attempt, pair)
        for p, one in enumerate(self.shape.pairs):
            s.ran[one.send] = and_(s.ran[one.send], pair != p)

    take_copy = replace(Ours.take_copy, body=copies)


class AnswersCopies(Ours):
    """A gradient that arrives again is answered, although the first is not yet."""

    def copies(self, s: S, attempt: Expr, pair: Expr) -> None:
        Ours.take_copy.body(self, s, attempt, pair)
        s.call[attempt, pair] = ite(s.call[attempt, pair] == Call.HELD, Call.DONE, s.call[attempt, pair])

    take_copy = replace(Ours.take_copy, body=copies)


class AnswersTheSecondAtOnce(Ours):
    """Only the first gradient of a worker is answered when its part has come to rest, as in torch."""

    def takes_in(self, s: S, attempt: Expr, pair: Expr, known: Any = False) -> tuple[Any, Any]:
        been = self.at_taker(pair, [self.here(s, w, attempt) for w in self.workers()])
        refused, engaged = super().takes_in(s, attempt, pair, known)
        return refused, or_(engaged, been)


class KnowsTooLateWhomToAnswer(Ours):
    """A part runs, and may be over, before it is known whom to answer."""

    def takes_early(self, s: S, attempt: Expr, pair: Expr) -> None:
        s.when(not_(self.was_taken(s, attempt, pair)))
        Ours.take_gradient.body(self, s, attempt, pair)
        s.call[attempt, pair] = ite(s.call[attempt, pair] == Call.HELD, Call.OUT, s.call[attempt, pair])

    take_gradient = replace(Ours.take_gradient, body=takes_early)

    @transition(each=("attempt", "pair"))
    def note_whom_to_answer(self, s: S, attempt: Expr, pair: Expr) -> None:
        """Only now."""
        s.when(s.call[attempt, pair] == Call.OUT, self.was_taken(s, attempt, pair))
        s.call[attempt, pair] = Call.HELD


class GoesOnAfterAnError(Torch):
    """torch: a request that fails does not fail the task that sent it."""

    def gives_up(self, s: S, pair: Expr, when: Any) -> None:
        pass


class TakesErrorsForAnswers(Ours):
    """A request that fails is one that has been answered."""

    def hears(self, s: S, attempt: Expr, pair: Expr) -> Each:
        failed = s.call[attempt, pair] == Call.FAILED
        return [and_(live, not_(failed)) for live in super().hears(s, attempt, pair)]


class HearsOldAnswers(Ours):
    """An answer says nothing about its pass."""

    def hears(self, s: S, attempt: Expr, pair: Expr) -> Each:
        return [and_(self.comes_from(pair, w), s.phase[w] == Part.RUNNING) for w in self.workers()]


# ---- what an answer carries


class DropsWhatAnAnswerCarries(Ours):
    """A request that comes with an answer is not taken in."""

    def unloads(self, s: S, kind: str, attempt: Expr, pair: Expr) -> list[Any]:
        return [and_(came, False) for came in super().unloads(s, kind, attempt, pair)]


class KeepsForAnybody(Ours):
    """A worker that owes an answer keeps for it what goes to others too."""

    def returns(self, p: int) -> list[int]:
        return [q for q in self.pairs() if self.shape.ends(q)[1] == self.shape.ends(p)[0]]

    def unloads(self, s: S, kind: str, attempt: Expr, pair: Expr) -> list[Any]:
        came = super().unloads(s, kind, attempt, pair)
        return [and_(one, self.comes_from(pair, self.shape.ends(p)[1])) for p, one in enumerate(came)]


class AsksItsParentAndDoesNotWait(Ours):
    """A request to the parent goes by itself, and the answer does not wait for it: the answer may overtake it."""

    def keeps(self, s: S, kind: str, a: Any, p: int) -> Any:
        return False

    def is_unanswered(self, s: S, w: int) -> Any:
        waits = (
            and_(s.call[a, p].isin(UNANSWERED), s.current[w] == a + 1, not_(Ours.keeps(self, s, "call", a, p)))
            for a, p in self.calls_of(w)
        )
        return or_(*waits)


# ---- what is missing


class WaitsForTheMissing(Ours):
    """When gradients are missing, the root waits for them."""

    def is_at_rest(self, s: S, w: int) -> Any:
        waits = s.owed[w] != 0 if w == self.shape.home else False
        return and_(super().is_at_rest(s, w), not_(waits))


class SaysNothingOfTheMissing(Ours):
    """An answer does not say what is missing."""

    def rests(self, s: S, worker: Expr) -> None:
        s.owed[worker] = ite(worker == self.shape.home, s.owed[worker], 0)
        Ours.come_to_rest.body(self, s, worker)

    come_to_rest = replace(Ours.come_to_rest, body=rests)


# ---- failure


class TellsNobody(Ours):
    """A part that fails is dropped, and nobody is told, as in torch."""

    def tells(self, s: S, a: int, worker: Expr) -> Any:
        return or_(False)


class LeavesThemWaiting(TellsNobody):
    """And nobody looks at the clock."""

    expire = None  # type: ignore[assignment]


class TellsOnlyItsOwn(Ours):
    """The root tells whom it has sent a gradient, and they tell nobody."""

    def tells(self, s: S, a: int, worker: Expr) -> Any:
        shape = self.shape
        pairs = [[p for p in shape.sends(w) if shape.ends(p)[0] == shape.home] for w in self.workers()]
        return self.at(worker, [or_(*(self.concerns(s, shape.home, a, p) for p in of)) for of in pairs])


class RaisesBeforeTheyAnswer(Ours):
    """backward() raises when it has told everybody."""

    def is_telling(self, s: S) -> Any:
        return or_(False)


class TriesAgainUnsure(Ours):
    """Another pass begins although a CANCEL was given up."""

    def begins_now(self, s: S, attempt: Expr) -> None:
        Backward.begins_now(self, s, attempt)
        s.unused = False
        s.unsure = False


class ForgetsWhatIsOver(Ours):
    """A gradient of a pass that is over begins a part anew."""

    def is_over(self, s: S, w: int, attempt: Any) -> Any:
        return s.released[w]


class RefusesTheNext(Ours):
    """A pass that is over keeps the next out."""

    def is_over(self, s: S, w: int, attempt: Any) -> Any:
        return or_(super().is_over(s, w, attempt), and_(w != self.shape.home, s.ended[w] == self.number(attempt)))


class LetsTheSecondIn(Ours):
    """A call of backward() begins a pass, whether another runs or not."""

    def begins_beside(self, s: S, attempt: Expr) -> None:
        Backward.begin_beside.body(self, s, attempt)
        s.outcome[attempt] = Outcome.RUNNING
        self.opens(s, ord_(attempt), [w == self.shape.home for w in self.workers()])
        s.gradient[self.shape.root] = 1

    begin_beside = replace(Backward.begin_beside, body=begins_beside)


# ---- the wave


class CountsBeforeTheWaveEnds(Smart):
    """The root begins to count when it has sent its marks."""

    def is_marking(self, s: S, w: int) -> Any:
        return False if w == self.shape.home else super().is_marking(s, w)


class MarksEverything(Smart):
    """A worker that is marked marks all its sends."""

    def marks(self, s: S, attempt: Expr, pair: Expr) -> None:
        Smart.take_mark.body(self, s, attempt, pair)
        for w in self.workers():
            for p in self.shape.sends(w):
                s.marked[p] = or_(s.marked[p], self.goes_to(pair, w))

    take_mark = replace(Smart.take_mark, body=marks)


class ShipsWithoutMarks(Smart):
    """Only half of the marks are sent on."""

    def marks_from(self, s: S, attempt: Expr, node: int, when: Any) -> None:
        if self.shape.nodes[node].kind is NodeKind.ROOT:
            super().marks_from(s, attempt, node, when)


# fmt: off
ABLATIONS = (
    (RunsOnTheFirstInput, TRYSTATE, "shared", 1, (), "gradients_are_right nodes_run_on_whole_gradients"),
    (CountsFromTheRoot, TRYSTATE, "shared", 1, (),
     "a_part_is_done_when_all_has_run gradients_are_right inputs_are_counted nodes_run_on_whole_gradients"),
    (IsOverWhenGradientsHaveArrived, TRYSTATE, "note", 1, (),
     "a_part_is_done_when_all_has_run backward_ends deadlock_freedom gradients_are_right"),
    (AddsToTheContext, TRYSTATE, "note", 1, ("error",), "a_failed_pass_leaves_no_gradients"),
    (TakesCopies, TRYSTATE, "note", 1, ("copy",), "only_unused_calls_are_named the_missing_are_counted"),
    (RunsCopies, TRYSTATE, "shared", 1, ("copy",),
     "a_part_is_done_when_all_has_run a_send_runs_once inputs_are_counted nodes_run_on_whole_gradients "
     "only_unused_calls_are_named the_missing_are_counted"),
    (AnswersCopies, TRYSTATE, "note", 1, ("copy",),
     "no_error_is_swallowed only_unused_calls_are_named the_root_returns_last"),
    (AnswersTheSecondAtOnce, TRYSTATE, "shared", 1, (), "only_unused_calls_are_named the_missing_are_counted"),
    (KnowsTooLateWhomToAnswer, TRYSTATE, "chain-2", 1, (), "backward_ends deadlock_freedom"),
    (GoesOnAfterAnError, TORCH, "note", 1, ("error",), "backward_ends deadlock_freedom"),
    (TakesErrorsForAnswers, TRYSTATE, "chain-2", 1, ("error",), "gradients_are_right no_error_is_swallowed"),
    (HearsOldAnswers, TRYSTATE, "note", 2, ("late",),
     "a_retry_is_not_disturbed answers_concern_their_pass the_missing_are_counted"),
    (DropsWhatAnAnswerCarries, TRYSTATE, "note", 1, (), "only_unused_calls_are_named"),
    (DropsWhatAnAnswerCarries, SMART, "note", 1, (),
     "gradients_are_right gradients_come_for_the_marked reachable_means_marked"),
    (KeepsForAnybody, TRYSTATE, "chain-3", 1, (), "gradients_are_right"),
    (AsksItsParentAndDoesNotWait, TRYSTATE, "note", 1, (), "only_unused_calls_are_named the_root_returns_last"),
    (WaitsForTheMissing, TRYSTATE, "unused-alone", 1, (), "backward_ends deadlock_freedom unused_calls_are_named"),
    (SaysNothingOfTheMissing, TRYSTATE, "unused-output", 1, (),
     "gradients_are_right no_error_is_swallowed the_missing_are_counted the_root_returns_last "
     "unused_calls_are_an_error unused_calls_are_named"),
    (TellsNobody, TRYSTATE, "fetched", 1, ("late",),
     "a_failed_pass_leaves_no_gradients after_an_error_nothing_is_left"),
    (LeavesThemWaiting, TRYSTATE, "fetched", 1, ("late",),
     "a_failed_pass_leaves_no_gradients after_an_error_nothing_is_left errors_reach_everybody"),
    (TellsOnlyItsOwn, TRYSTATE, "chain-3", 1, ("late",),
     "a_failed_pass_leaves_no_gradients after_an_error_nothing_is_left"),
    (RaisesBeforeTheyAnswer, TRYSTATE, "note", 1, ("late",), "after_an_error_nothing_is_left"),
    (TriesAgainUnsure, TRYSTATE, "fetched", 2, ("late", "lose"),
     "a_failed_pass_leaves_no_gradients after_an_error_nothing_is_left"),
    (ForgetsWhatIsOver, TRYSTATE, "fetched", 1, ("late",),
     "a_failed_pass_leaves_no_gradients after_an_error_nothing_is_left backward_ends deadlock_freedom"),
    (RefusesTheNext, TRYSTATE, "chain-2", 2, ("error",), "a_retry_is_not_disturbed"),
    (LetsTheSecondIn, TRYSTATE, "chain-2", 2, ("again",), "backward_ends deadlock_freedom"),
    (CountsBeforeTheWaveEnds, SMART, "note", 1, (),
     "a_part_is_done_when_all_has_run gradients_are_right gradients_come_for_the_marked no_error_is_swallowed "
     "only_unused_calls_are_named reachable_means_marked the_missing_are_counted the_root_returns_last"),
    (MarksEverything, SMART, "unused-output", 1, (), "marked_means_reachable only_unused_calls_are_named"),
    (ShipsWithoutMarks, SMART, "note", 1, (),
     "gradients_are_right gradients_come_for_the_marked reachable_means_marked"),
)
# fmt: on


def asked(cls: type[System], edition: Edition | Mode, graph: str, attempts: int, faults: tuple[str, ...]) -> Asked:
    return Asked(cls, edition, f"graph={NUMBER[graph]} attempt={attempts}", 0, "", faults)


@pytest.mark.parametrize(
    ("cls", "edition", "graph", "attempts", "faults", "broken"),
    a_third(ABLATIONS),
    ids=lambda x: getattr(x, "__name__", None),
)
def test_an_ablation_breaks_what_the_repair_is_there_for(
    cls: type[System], edition: Edition | Mode, graph: str, attempts: int, faults: tuple[str, ...], broken: str
) -> None:
    right = violated(report(asked(RIGHT, edition, graph, attempts, faults)))
    wrong = violated(report(asked(bare(cls), edition, graph, attempts, faults)))
    assert not right or edition is TORCH
    assert wrong - right == set(broken.split())


def test_every_property_is_broken_by_an_ablation() -> None:
    ours = set[str]()
    for edition in (TRYSTATE, SMART):
        ours |= claims(Backward(edition=edition, faults=["late", "leave"]))
    assert ours == {name for *_, broken in ABLATIONS for name in broken.split()}

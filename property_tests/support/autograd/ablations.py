"""The repairs of a backward pass, undone one by one, each with the properties that break.

Some are mistakes of earlier versions: a task that is over when its gradients have arrived, and not when they have run;
a failed request that does not fail its sender.
"""

from __future__ import annotations

from trystate.model.autograd.backward import Ours, Smart
from trystate.model.autograd.backward.fields import UNANSWERED, Call
from trystate.model.autograd.vocabulary import Edition, Mode, Part
from trystate.model.language import and_, not_, or_

from ..mutants import altered, wrong

TRYSTATE, SMART = Edition.TRYSTATE, Mode.SMART


# A copy of a gradient is taken for a new gradient.
TakesCopies = wrong("TakesCopies", Ours, recognises=lambda self: False)
# A request that an answer carries is dropped.
DropsWhatAnAnswerCarries = altered(
    "DropsWhatAnAnswerCarries", Ours, "unloads", "return came", "return [and_(one, False) for one in came]"
)
# A part that fails is dropped, and the other workers get no CANCEL, as in torch.
TellsNobody = wrong("TellsNobody", Ours, tells=lambda self, s, a, worker: or_(False))


# fmt: off
ABLATIONS = (
    (altered("RunsOnTheFirstInput", Ours, "is_ready", "s.fed[k] == self.waits_for(s, k)",
             "or_(s.fed[k] > 0, s.fed[k] == self.waits_for(s, k))"), TRYSTATE, "shared", 1, (),
     "gradients_are_right nodes_run_on_whole_gradients"),
    (wrong("IsOverWhenGradientsHaveArrived", Ours,
     is_at_rest=lambda self, s, w: and_(self.missing(s, w) == 0, not_(self.is_unanswered(s, w)))), TRYSTATE, "note",
     1, (), "a_part_is_done_when_all_has_run backward_ends deadlock_freedom gradients_are_right"),
    (altered("AddsToTheContext",  # a leaf adds to the context's gradients at once, as in torch
             altered("Adds", Ours, "total", "and_(s.phase[self.shape.nodes[k].worker] == Part.DONE, s.ran[k])",
                     "s.ran[k]"),
             "clears", "for j in s.node:", "for k in self.leaves():\n"
             "        s.grads[k] = ite(when[self.shape.nodes[k].worker], self.total(s, k), s.grads[k])\n"
             "    for j in s.node:"), TRYSTATE, "note", 1, ("error",), "a_failed_pass_leaves_no_gradients"),
    (TakesCopies, TRYSTATE, "note", 1, ("copy",), "only_unused_calls_are_named the_missing_are_counted"),
    (altered("RunsCopies", TakesCopies, "take_copy", "known=self.recognises())", "known=False)\n"
             "    for p, one in enumerate(self.shape.pairs):\n"
             "        s.ran[one.send] = and_(s.ran[one.send], pair != p)"), TRYSTATE, "shared", 1, ("copy",),
     "a_part_is_done_when_all_has_run a_send_runs_once inputs_are_counted nodes_run_on_whole_gradients "
     "only_unused_calls_are_named the_missing_are_counted"),
    (wrong("TakesErrorsForAnswers", Ours, hears=lambda self, s, attempt, pair: [
        and_(live, not_(s.call[attempt, pair] == Call.FAILED)) for live in Ours.hears(self, s, attempt, pair)]),
     TRYSTATE, "chain-2", 1, ("error",), "gradients_are_right no_error_is_swallowed"),
    (wrong("HearsOldAnswers", Ours,
     hears=lambda self, s, attempt, pair: [and_(self.comes_from(pair, w), s.phase[w] == Part.RUNNING)
                                           for w in self.workers()]),
     TRYSTATE, "note", 2, ("late",), "a_retry_is_not_disturbed answers_concern_their_pass the_missing_are_counted"),
    (DropsWhatAnAnswerCarries, TRYSTATE, "note", 1, (), "only_unused_calls_are_named"),
    (DropsWhatAnAnswerCarries, SMART, "note", 1, (),
     "gradients_are_right gradients_come_for_the_marked reachable_means_marked"),
    (wrong("AsksItsParentAndDoesNotWait", Ours,  # a request to the parent is sent by itself: the answer may overtake it
     keeps=lambda self, s, kind, a, p: False,
     is_awaited=lambda self, s, a, p: and_(s.call[a, p].isin(UNANSWERED), not_(Ours.keeps(self, s, "call", a, p)))),
     TRYSTATE, "note", 1, (), "only_unused_calls_are_named the_root_returns_last"),
    (altered("SaysNothingOfTheMissing", Ours, "come_to_rest", "ite(held, s.owed[worker]", "ite(held, 0"),
     TRYSTATE, "unused-output", 1, (),
     "gradients_are_right no_error_is_swallowed the_missing_are_counted the_root_returns_last "
     "unused_calls_are_an_error unused_calls_are_named"),
    (wrong("LeavesThemWaiting", TellsNobody, expire=None), TRYSTATE, "fetched", 1, ("late",),
     "a_failed_pass_leaves_no_gradients after_an_error_nothing_is_left errors_reach_everybody"),
    (wrong("RaisesBeforeTheyAnswer", Ours, is_telling=lambda self, s: or_(False)), TRYSTATE, "note", 1, ("late",),
     "after_an_error_nothing_is_left"),
    (wrong("ForgetsWhatIsOver", Ours, is_over=lambda self, s, w, attempt: s.released[w]), TRYSTATE, "fetched", 1,
     ("late",), "a_failed_pass_leaves_no_gradients after_an_error_nothing_is_left backward_ends deadlock_freedom"),
    (wrong("CountsBeforeTheWaveEnds", Smart,
     is_marking=lambda self, s, w: False if w == self.shape.home else Smart.is_marking(self, s, w)), SMART, "note", 1,
     (),
     "a_part_is_done_when_all_has_run gradients_are_right gradients_come_for_the_marked no_error_is_swallowed "
     "only_unused_calls_are_named reachable_means_marked the_missing_are_counted the_root_returns_last"),
    (altered("MarksEverything", Smart,  # a worker that is marked marks all its sends
             "take_mark", "s.marked[pair] = or_(s.marked[pair], not_(refused))", "for w in self.workers():\n"
             "        for p in self.shape.sends(w):\n"
             "            s.marked[p] = or_(s.marked[p], self.goes_to(pair, w))"), SMART, "unused-output", 1, (),
     "marked_means_reachable only_unused_calls_are_named"),
)
# fmt: on

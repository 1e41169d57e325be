"""The properties of a backward pass, the same for each edition.

docs/language.md describes how to read a property; `../findings.py` lists the violations by edition.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...language import *
from ..vocabulary import Edition, Mode, Part
from .environment import Environment
from .fields import LIVE, UNANSWERED, Call, Outcome, S

FAST = (Edition.TORCH, Edition.TRYSTATE)
RAISED = (Outcome.UNUSED, Outcome.RAISED)
HEARD = ("hear_answer", "expire", "expire_early", "hear_marked")


class Backward(Environment):
    """Calls of backward() on one context of a distributed graph; its editions are `Torch`, `Ours` and `Smart`."""

    title = "A backward pass"
    held_by: ClassVar[tuple[Part, ...]] = (*LIVE, Part.DRAINING)  # a part in one of these keeps something of its pass
    Edition = (Edition.TORCH, Edition.TRYSTATE, Mode.SMART)  # SMART is a mode of ours, and FAST is the other

    # ---- states that can be reached

    @sometimes()
    def it_returns(self, s: S) -> Condition:
        """backward() returns."""
        return any_(s.outcome[a] == Outcome.RETURNED for a in self.attempts())

    @sometimes()
    def it_raises(self, s: S) -> Condition:
        """backward() raises."""
        return any_(s.outcome[a].isin(RAISED) for a in self.attempts())

    @sometimes()
    def a_retry_returns(self, s: S) -> Condition:
        """The last call of backward() returns, and all earlier calls have raised."""
        *before, last = self.attempts()
        return and_(s.outcome[last] == Outcome.RETURNED, *(s.outcome[a].isin(RAISED) for a in before))

    @sometimes()
    def a_worker_is_engaged(self, s: S) -> Condition:
        """A worker owes an answer to a gradient."""
        return any_(s.call[a, p] == Call.HELD for a in self.attempts() for p in self.pairs())

    # ---- gradients

    def none_runs(self, s: S) -> Condition:
        return and_(~self.is_unsure(s), *(s.outcome[a] != Outcome.RUNNING for a in self.attempts()))

    def gradients_are(self, s: S, passes: Any) -> Condition:
        """Each leaf has the gradients of `passes` passes, where its context still exists."""
        right = []
        for k in self.leaves():
            w, ways = self.shape.nodes[k].worker, self.shape.paths[k]
            wanted = (and_(passes == n, self.total(s, k) == n * ways) for n in range(self.sizes["attempt"] + 1))
            right.append(or_(~s.alive[w], s.released[w], *wanted))
        return and_(*right)

    def returned(self, s: S) -> Condition:
        return count(s.outcome[a] == Outcome.RETURNED for a in self.attempts())

    def raised(self, s: S) -> Condition:
        return count(s.outcome[a].isin(RAISED) for a in self.attempts())

    @always(witness="it_returns", cite="distributed-autograd-design: the gradients of each leaf")
    def gradients_are_right(self, s: S) -> Condition:
        """When backward() has returned, each leaf has a gradient over all paths to it."""
        asked = and_(self.none_runs(s), self.returned(s) > 0, self.raised(s) == 0)
        return implies(asked, self.gradients_are(s, self.returned(s)))

    @always(witness="it_raises")
    def a_failed_pass_leaves_no_gradients(self, s: S) -> Condition:
        """When a call of backward() has raised, each leaf has only the gradients of the calls that returned."""
        return implies(and_(self.none_runs(s), self.raised(s) > 0), self.gradients_are(s, self.returned(s)))

    @always(witness="a_worker_is_engaged")
    def nodes_run_on_whole_gradients(self, s: S) -> Condition:
        """A node runs on the gradients of all paths to it."""
        return all_(implies(s.ran[k], s.gradient[k] == ways) for k, ways in enumerate(self.shape.paths))

    @step(on=("run",), witness="a_worker_is_engaged")
    def inputs_are_counted(self, before: S, after: S, node: Expr) -> Condition:
        """A node is given no more inputs than it waits for."""
        fed = ((f, k) for k in self.nodes() for f in self.shape.feeders(k))
        return all_(implies(node == f, before.fed[k] < self.waits_for(before, k)) for f, k in fed)

    @step(witness="a_worker_is_engaged")
    def a_send_runs_once(self, before: S, after: S) -> Condition:
        """A node that has run in a pass does not run again in it."""
        again = (
            before.ran[k]
            & ~after.ran[k]
            & (before.phase[n.worker] == Part.RUNNING)
            & (after.phase[n.worker] == Part.RUNNING)
            for k, n in enumerate(self.shape.nodes)
        )
        return not_(any_(again))

    @always(witness="it_returns")
    def a_part_is_done_when_all_has_run(self, s: S) -> Condition:
        """A worker's part is over only when every node that is reached has run."""
        nodes = enumerate(self.shape.nodes)
        over = (Part.DRAINING, Part.DONE)
        return all_(implies(and_(s.phase[n.worker].isin(over), self.reached(s, k)), s.ran[k]) for k, n in nodes)

    # ---- the end

    def is_on_its_way(self, s: S, a: int) -> Condition:
        """Is a message of this attempt on its way, or not answered?"""
        lives = [(p, s.alive[self.shape.ends(p)[0]]) for p in self.pairs()]
        return or_(*(cells[a, p].isin(UNANSWERED[:-1]) & live for cells in self.requests(s) for p, live in lives))

    def is_left(self, s: S, a: int, *phases: Part) -> Condition:
        """Does a worker still keep this attempt?"""
        return or_(*(s.alive[w] & (s.current[w] == a + 1) & s.phase[w].isin(phases) for w in self.workers()))

    @always(witness="it_returns")
    def the_root_returns_last(self, s: S) -> Condition:
        """When backward() returns, nothing of the pass runs or is on its way."""
        busy = (or_(self.is_on_its_way(s, a), self.is_left(s, a, *LIVE, Part.DRAINING)) for a in self.attempts())
        return all_(
            implies(s.outcome[a] == Outcome.RETURNED, not_(b)) for a, b in zip(self.attempts(), busy, strict=True)
        )

    @always(witness="it_returns")
    def no_error_is_swallowed(self, s: S) -> Condition:
        """backward() returns only when no worker's part has failed."""
        failed = (
            and_(s.alive[w], ~s.released[w], s.current[w] == a + 1, s.phase[w].isin((Part.FAILED, Part.CANCELLED)))
            for a in self.attempts()
            for w in self.workers()
        )
        each = [a for a in self.attempts() for _ in self.workers()]
        return all_(implies(f, s.outcome[a] != Outcome.RETURNED) for a, f in zip(each, failed, strict=True))

    def is_pending(self, s: S, a: int) -> Condition:
        """May a message under way still have an effect?"""
        return self.is_on_its_way(s, a)

    @always(witness="it_raises")
    def after_an_error_nothing_is_left(self, s: S) -> Condition:
        """When backward() has raised, no worker has a part of the pass, and no message under way can begin one."""
        left = (or_(self.is_left(s, a, *self.held_by), self.is_pending(s, a)) for a in self.attempts())
        raised = (and_(s.outcome[a].isin(RAISED), ~self.is_unsure(s)) for a in self.attempts())
        return all_(implies(r, not_(x)) for r, x in zip(raised, left, strict=True))

    @leads_to()
    def errors_reach_everybody(self, s: S) -> tuple[Condition, Condition]:
        """When backward() has raised, no worker continues to wait for a gradient."""
        left = or_(
            *(and_(s.outcome[a].isin(RAISED), self.is_left(s, a, *LIVE, Part.DRAINING)) for a in self.attempts())
        )
        return left, not_(left)

    @leads_to()
    def backward_ends(self, s: S, attempt: Expr) -> tuple[Condition, Condition]:
        """backward() returns or raises."""
        runs = (s.outcome[attempt] == Outcome.RUNNING) & s.alive[self.shape.home]
        return runs, not_(runs)

    @always(witness="a_retry_returns")
    def a_retry_is_not_disturbed(self, s: S) -> Condition:
        """With at most one fault, no two calls of backward() raise one after the other."""
        if self.sizes["attempt"] < 2 or sum(self.faults.values()) > 1 or (self.shape.unused and self.waits_for_all):
            return or_(True)
        return not_(and_(s.outcome[0].isin(RAISED), s.outcome[1].isin(RAISED)))

    @step(on=HEARD, witness="a_worker_is_engaged")
    def answers_concern_their_pass(self, before: S, after: S, attempt: Expr, pair: Expr) -> Condition:
        """An answer to an older pass changes nothing in a later one."""
        callers = ((p, self.shape.ends(p)[0]) for p in self.pairs())
        return all_(
            implies(and_(pair == p, ~self.here(before, w, attempt)), before.phase[w] == after.phase[w])
            for p, w in callers
        )

    # ---- unused calls

    @always(witness="it_raises", editions=FAST)
    def unused_calls_are_an_error(self, s: S) -> Condition:
        """FAST does not return if a worker that takes part has a send without a gradient."""
        return or_(not self.shape.unused, self.returned(s) == 0)

    @leads_to(editions=FAST)
    def unused_calls_are_named(self, s: S) -> tuple[Condition, Condition]:
        """FAST over an unused call raises an error that names it, and waits for nothing else."""
        asked = bool(self.shape.unused) and not self.faults
        return and_(asked, s.outcome[0] == Outcome.RUNNING), s.outcome[0] == Outcome.UNUSED

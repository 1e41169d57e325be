"""Lemmas of the proof of the end of a backward pass, and the history fields that they use.

`trystate prove engagements` proves them together with the properties. Two fields are histories: steps write them but
do not read them, so they do not change the possible runs (Abadi and Lamport 1991). `above` has the workers that were
above a worker in the tree when it was engaged: the sender of the call that engaged it, and the workers above the
sender. With this field, no lemma needs to follow the tree up to the root, or to state that the tree has no cycle.
"""

from __future__ import annotations

from ..language import *
from .engagement import Call, Cancel, Condition, Deficits, Engagements, Pass, S, Send
from .gradients import Gradients


class Lemmas(Engagements):
    """The edition TRYSTATE, with the lemmas of its proof."""

    above = flag(per=("worker", "worker"), doc="history: the second was above the first when that was engaged")
    broke_off = flag(per="worker", doc="history: it failed while it was engaged")

    def engages(self, s: S, worker: Expr, call: Expr) -> None:
        for v in s.worker:
            higher = any_(s.sent_by[call, w] & ((v == w) | s.above[w, v]) for w in s.worker)
            s.above[worker, v] = ite(s.engaged[worker], s.above[worker, v], higher)
        super().engages(s, worker, call)

    def rests(self, s: S, worker: Expr) -> None:
        reset(s.above, at=worker)
        super().rests(s, worker)

    def drops(self, s: S, worker: Expr) -> None:
        s.broke_off[worker] = s.broke_off[worker] | s.engaged[worker]
        super().drops(s, worker)

    @always(witness="a_worker_is_engaged")
    def a_pass_has_one_root(self, s: S) -> Condition:
        """A pass that runs or has returned has one root; one that is not called has no root and engages no worker."""
        one = all_((v == w) | ~(s.root[v] & s.root[w]) for v in s.worker for w in s.worker)
        begun = any_(s.root) == s.outcome.isin((Pass.RUNNING, Pass.RETURNED))
        return one & begun & implies(s.outcome == Pass.AWAITED, self.is_quiet(s) & ~any_(s.broke_off))

    @always(witness="a_worker_is_engaged")
    def a_call_has_two_ends(self, s: S) -> Condition:
        """A call that is not free has one sender and one taker; a free call has neither."""
        return all_(self.has_one_end(s, c, s.sent_by) & self.has_one_end(s, c, s.sent_to) for c in s.call)

    def has_one_end(self, s: S, call: Expr, ends: Condition) -> Condition:
        one = all_((v == w) | ~(ends[call, v] & ends[call, w]) for v in s.worker for w in s.worker)
        return one & ((s.state[call] != Call.FREE) == any_(ends[call, w] for w in s.worker))

    @always(witness="a_worker_is_engaged")
    def the_failed_are_not_engaged(self, s: S) -> Condition:
        """A failed worker is not engaged; a worker that is neither failed nor engaged is not below any other."""
        below = all_(implies(s.above[w, v], s.engaged[w] | s.failed[w]) for w in s.worker for v in s.worker)
        return below & all_(ite(s.failed[w], ~s.engaged[w], ~s.broke_off[w]) for w in s.worker)

    @always(witness="a_worker_is_engaged")
    def the_root_is_above_all(self, s: S) -> Condition:
        """The root is above every other worker that is engaged, waits for an answer, or failed while engaged."""
        return all_(
            implies(s.root[r] & (s.engaged[w] | s.broke_off[w] | self.waits(s, w)), (w == r) | s.above[w, r])
            for w in s.worker
            for r in s.worker
        )

    @always(witness="a_worker_is_engaged")
    def those_above_wait(self, s: S) -> Condition:
        """A worker above another has failed, or waits for a call that leads to the other, has failed or is lost."""
        return all_(
            implies(s.above[w, v] & ~s.failed[v], any_(self.leads_to(s, c, v, w) for c in s.call))
            for w in s.worker
            for v in s.worker
        )

    def leads_to(self, s: S, call: Expr, sender: Expr, worker: Expr) -> Condition:
        """Does the sender wait for this call, which engages the worker or one above it, has failed or is lost?"""
        engages = any_(self.holds(s, call, u) & ((u == worker) | s.above[worker, u]) for u in s.worker)
        return s.sent_by[call, sender] & (engages | s.state[call].isin((Call.FAILED, Call.LOST)))

    @always(witness="it_returns")
    def no_failure_is_swallowed(self, s: S) -> Condition:
        """backward() does not return if a worker failed while it was engaged."""
        return implies(s.outcome == Pass.RETURNED, ~any_(s.broke_off))

    @always(witness="it_raises")
    def the_told_have_failed(self, s: S) -> Condition:
        """A worker that has answered CANCEL has failed, except perhaps in an unsure context."""
        told = (Cancel.DONE, Cancel.OVER)
        return s.unsure | all_(implies(s.cancel[w].isin(told), s.failed[w]) for w in s.worker)

    @always(witness="it_raises")
    def where_it_raised_all_have_failed(self, s: S) -> Condition:
        """When backward() has raised, all workers have failed, or the pass has not begun."""
        return implies((s.outcome == Pass.RAISED) & ~s.unsure, all_(s.failed) | self.is_quiet(s))


class DeficitLemmas(Lemmas, Deficits):
    """The deficits, with the lemmas of their proof."""

    @always(witness="a_gradient_is_missing")
    def all_parts_add_up(self, s: S) -> Condition:
        """While no worker has failed in the pass, all that is owed and carried adds up to the missing gradients."""
        return any_(s.broke_off) | (sum_(s.owed) + sum_(s.delta) == self.missing(s))

    @always(witness="a_worker_is_engaged")
    def only_the_engaged_owe(self, s: S) -> Condition:
        """A worker owes only while it is engaged; only an answer that all is done carries what is owed."""
        answers = (Call.DONE, Call.LOST)
        owing = all_(s.engaged[w] | (s.owed[w] == 0) for w in s.worker)
        return owing & all_((s.delta[c] == 0) | s.state[c].isin(answers) for c in s.call)

    @always(witness="a_worker_is_engaged")
    def who_waits_is_in_the_pass(self, s: S) -> Condition:
        """A worker that waits for an answer is engaged, or has failed in the pass."""
        return all_(implies(self.waits(s, w), s.engaged[w] | s.broke_off[w]) for w in s.worker)

    @always(witness="a_worker_is_engaged")
    def the_counted_are_known(self, s: S) -> Condition:
        """Each send of a worker that has counted is missing its gradient or has it."""
        return all_(
            implies(s.counted[w] & s.home[k, w], s.gradient[k] != Send.UNKNOWN) for k in s.send for w in s.worker
        )


class GradientLemmas(Gradients):
    """The gradients, with the lemmas of their proof."""

    @always(witness="a_node_has_two_ways")
    def the_graph_stays(self, s: S) -> Condition:
        """No step changes the graph."""
        return self.is_graph(s)

    @always(witness="a_node_has_two_ways")
    def ways_add_up(self, s: S) -> Condition:
        """The ways to a node are the ways to its feeders; no way leads to a node that is not counted."""
        known = all_(
            implies(s.placed[k], s.ways[k] == self.ways_to(s, k)) & (s.counted[k] | (s.ways[k] == 0)) for k in s.node
        )
        return known & all_(implies(s.feeds[j, k] & s.placed[k], s.placed[j]) for j in s.node for k in s.node)

    @always(witness="a_node_has_two_ways")
    def gradients_add_up(self, s: S) -> Condition:
        """The gradient of a node is the sum of the ways to the feeders whose gradients have arrived."""
        return all_(s.gradient[k] == as_int(s.root[k] & s.runs) + sum_(ite(s.came[j, k], s.ways[j], 0) for j in s.node)
                    for k in s.node)  # fmt: skip

    @always(witness="a_node_has_two_ways")
    def arrivals_are_counted(self, s: S) -> Condition:
        """`fed` counts the gradients that have arrived."""
        return all_(s.fed[k] == sum_(as_int(s.came[j, k]) for j in s.node) for k in s.node)

    @always(witness="a_node_has_two_ways")
    def only_feeders_arrive(self, s: S) -> Condition:
        """A gradient arrives from a feeder that has run, in a pass that has begun over a whole graph."""
        came = all_(implies(s.came[j, k], s.feeds[j, k] & s.ran[j]) for j in s.node for k in s.node)
        ran = all_(implies(s.ran[k], s.counted[k] & s.runs) & implies(s.runs, s.placed[k]) for k in s.node)
        return came & ran

    @always(witness="a_node_has_two_ways")
    def a_node_runs_after_its_feeders(self, s: S) -> Condition:
        """The gradients of all counted feeders of a node that has run have arrived."""
        return all_(implies(s.ran[k] & s.feeds[j, k] & s.counted[j], s.came[j, k]) for j in s.node for k in s.node)

    @always(witness="a_node_has_two_ways")
    def sent_gradients_are_whole(self, s: S) -> Condition:
        """The same as `nodes_run_on_whole_gradients`: the induction needs it, although it follows from the others."""
        return Gradients.nodes_run_on_whole_gradients.body(self, s)

    @always(witness="a_node_has_two_ways")
    def one_node_waits_first(self, s: S) -> Condition:
        """If a counted node has not run, there is a first one."""
        return ~any_(self.waits(s, k) for k in s.node) | any_(
            self.waits(s, k) & (count(self.waits(s, j) & (j < k) for j in s.node) == 0) for k in s.node
        )

    def waits(self, s: S, node: Expr) -> Condition:
        return s.counted[node] & ~s.ran[node]

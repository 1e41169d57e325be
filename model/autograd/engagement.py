"""The end of a backward pass over any graph: its root returns when no other worker is engaged and no call is under way.

Theory of operation. This is the diffusing computation of Dijkstra and Scholten (1980), with failures, as `Ours` of
`backward` has it, without nodes and gradients. A *call* is a request of one worker to another, and its answer. An
*engaged* worker may send calls, each to any worker: so the graph of a pass may be any. A worker that is not engaged is
engaged by the first call that comes, and holds it; it answers that call when it comes to rest, which it may when all
its own calls are answered. An engaged worker answers every other call at once. So the engaged workers are a tree below
the root, that begins engaged, and returns when all its calls are answered.

Failures. A worker may fail at any time, and die. One that has failed answers the call that it holds with an error, and
refuses all later ones; a dead one answers nothing. A worker whose call is answered with an error, or given up since it
is lost, fails as well: so an error goes up the tree to the root, which then does not return.

The system has no size of its own: `trystate prove engagements` proves its safety for any number of workers and calls,
with the lemmas in `lemmas`. `refinement` maps `Ours` of `backward` to it, and `trystate verify` looks for each step of
that map on graphs of the examples.

Abstractions. One pass: later passes on the same context have numbers of their own, and are other systems. A call that
is over is free to be another one, so that there may be any number of them in turn. A worker may come to rest as soon as
its calls are answered, whether it has work left or not. Calls overtake each other. That the root tells all workers when
a pass has failed is left out.
"""

from __future__ import annotations

import enum
from typing import Any

from ..language import (
    Expr,
    SymbolicState,
    System,
    all_,
    always,
    any_,
    arc,
    choice,
    flag,
    implies,
    index,
    ite,
    machine,
    sometimes,
    step,
    terminal,
    transition,
)
from .vocabulary import Edition

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any


class Call(enum.Enum):
    """A request of one worker to another, and its answer."""

    FREE = "not sent, or over"
    OUT = "on its way"
    HELD = "taken in, not answered: it has engaged its taker"
    DONE = "the answer that all is done is on its way"
    FAILED = "the answer that it failed is on its way"
    LOST = "nothing is on its way any more"


class Pass(enum.Enum):
    """The call of backward()."""

    AWAITED = "not called yet"
    RUNNING = "has not returned"
    RETURNED = "returned"
    RAISED = "raised"


class Engagements(System):
    """One backward pass over any graph: workers that are engaged by calls, and the root that returns last."""

    title = "The end of a backward pass over any graph"
    Edition = (Edition.TRYSTATE,)

    worker, call = index(2), index(2)

    outcome = choice(Pass)
    root = flag(per="worker", doc="backward() was called here, and has not raised")
    engaged = flag(per="worker")
    failed = flag(per="worker", doc="its part is dropped: it refuses what comes")
    state = choice(Call, per="call")
    sent_by = flag(per=("call", "worker"), doc="the worker that waits for the answer")
    sent_to = flag(per=("call", "worker"), doc="the worker that takes the call")

    @machine(Pass)
    def the_pass(self, s: S) -> Any:
        """The call of backward()."""
        return s.outcome

    @machine(Call, each="call")
    def call_state(self, s: S, call: Expr) -> Any:
        """A call of one worker to another."""
        return s.state[call]

    # ---- helpers

    def holds(self, s: S, call: Expr, worker: Expr) -> Condition:
        """Does the worker owe an answer to this call?"""
        return (s.state[call] == Call.HELD) & s.sent_to[call, worker]

    def waits_for(self, s: S, worker: Expr, call: Expr) -> Condition:
        """Is this call one of the worker's, and not answered?"""
        return (s.state[call] != Call.FREE) & s.sent_by[call, worker]

    def waits(self, s: S, worker: Expr) -> Condition:
        """Is a call of the worker not answered?"""
        return any_(self.waits_for(s, worker, c) for c in s.call)

    def answers(self, s: S, worker: Expr, answer: Call) -> None:
        """The call that the worker holds is answered."""
        for c in s.call:
            s.state[c] = ite(self.holds(s, c, worker), answer, s.state[c])

    def ends(self, s: S, call: Expr) -> None:
        """A call is over."""
        s.state[call] = Call.FREE
        for w in s.worker:
            s.sent_by[call, w] = False
            s.sent_to[call, w] = False

    def engages(self, s: S, worker: Expr, call: Expr) -> None:
        """The worker is engaged by this call, if it is not engaged yet."""
        s.engaged[worker] = True

    def rests(self, s: S, worker: Expr) -> None:
        """The worker has nothing left to do, and is not engaged any more."""
        s.engaged[worker] = False

    def drops(self, s: S, worker: Expr, answer: Call) -> None:
        """The worker fails, and the call that it holds has an error for an answer, or none."""
        self.answers(s, worker, answer)
        s.engaged[worker] = False
        s.failed[worker] = True

    # ---- the pass

    @transition(each="worker", moves=[arc(Pass.AWAITED, Pass.RUNNING)])
    def begin(self, s: S, worker: Expr) -> None:
        """backward() is called: this worker is the root."""
        s.when(s.outcome == Pass.AWAITED, ~s.failed[worker])
        s.outcome, s.root[worker], s.engaged[worker] = Pass.RUNNING, True, True

    @transition(moves=[arc(Pass.AWAITED, Pass.RAISED)])
    def refuse_pass(self, s: S) -> None:
        """backward() is called while another pass runs: it raises."""
        s.when(s.outcome == Pass.AWAITED)
        s.outcome = Pass.RAISED

    @transition(each="worker", moves=[arc(Pass.RUNNING, Pass.RETURNED)])
    def come_home(self, s: S, worker: Expr) -> None:
        """All calls of the root are answered: backward() returns."""
        s.when(s.root[worker], s.engaged[worker], ~self.waits(s, worker))
        s.outcome = Pass.RETURNED
        self.rests(s, worker)

    @transition(each="worker", moves=[arc(Pass.RUNNING, Pass.RAISED)])
    def give_up_pass(self, s: S, worker: Expr) -> None:
        """The root has failed: backward() raises."""
        s.when(s.outcome == Pass.RUNNING, s.root[worker], s.failed[worker])
        s.outcome, s.root[worker] = Pass.RAISED, False

    # ---- calls

    @transition(each=("call", "worker", "worker"), moves=[arc(Call.FREE, Call.OUT)])
    def ship(self, s: S, call: Expr, worker: Expr, other: Expr) -> None:
        """An engaged worker sends a call to another."""
        s.when(s.engaged[worker], s.state[call] == Call.FREE)
        s.state[call] = Call.OUT
        s.sent_by[call, worker], s.sent_to[call, other] = True, True

    @transition(each=("call", "worker"), moves=[arc(Call.OUT, Call.HELD), arc(Call.OUT, Call.DONE)])
    def take(self, s: S, call: Expr, worker: Expr) -> None:
        """A call arrives: the first engages its taker, which holds it; any other is answered at once."""
        s.when(s.state[call] == Call.OUT, s.sent_to[call, worker], ~s.failed[worker])
        s.state[call] = ite(s.engaged[worker], Call.DONE, Call.HELD)
        self.engages(s, worker, call)

    @transition(each=("call", "worker"), moves=[arc(Call.OUT, Call.FAILED)])
    def refuse(self, s: S, call: Expr, worker: Expr) -> None:
        """A call arrives where the pass is over."""
        s.when(s.state[call] == Call.OUT, s.sent_to[call, worker], s.failed[worker])
        s.state[call] = Call.FAILED

    @transition(each="worker", moves=[arc(Call.HELD, Call.DONE, of="others")])
    def come_to_rest(self, s: S, worker: Expr) -> None:
        """All calls of a worker are answered: it answers the call that engaged it."""
        s.when(s.engaged[worker], ~s.root[worker], ~self.waits(s, worker))
        self.answers(s, worker, Call.DONE)
        self.rests(s, worker)

    @transition(each="call", moves=[arc(Call.DONE, Call.FREE)])
    def hear(self, s: S, call: Expr) -> None:
        """The answer that all is done arrives."""
        s.when(s.state[call] == Call.DONE)
        self.ends(s, call)

    # ---- failures

    @transition(
        each=("call", "worker"),
        moves=[arc((Call.OUT, Call.FAILED, Call.LOST), Call.FREE), arc(Call.HELD, Call.FAILED, of="others")],
    )
    def hear_failed(self, s: S, call: Expr, worker: Expr) -> None:
        """A call has failed, is lost, or will not be taken in: the worker that waits for it fails."""
        gone = any_(s.sent_to[call, w] & s.failed[w] for w in s.worker)
        bad = s.state[call].isin((Call.FAILED, Call.LOST)) | ((s.state[call] == Call.OUT) & gone)
        s.when(bad, s.sent_by[call, worker])
        self.drops(s, worker, Call.FAILED)
        self.ends(s, call)

    @transition(each="worker", moves=[arc(Call.HELD, Call.FAILED, of="others")])
    def fail(self, s: S, worker: Expr) -> None:
        """A worker fails, is told that the pass has failed, or its time is over."""
        s.when(~s.failed[worker])
        self.drops(s, worker, Call.FAILED)

    @transition(each="worker", moves=[arc(Call.HELD, Call.LOST, of="others")])
    def die(self, s: S, worker: Expr) -> None:
        """A worker dies: what it holds is not answered."""
        s.when(~s.failed[worker])
        self.drops(s, worker, Call.LOST)

    @transition(each="call", moves=[arc((Call.OUT, Call.DONE, Call.FAILED), Call.LOST)])
    def lose(self, s: S, call: Expr) -> None:
        """A call is lost, or its answer."""
        s.when(s.state[call].isin((Call.OUT, Call.DONE, Call.FAILED)))
        s.state[call] = Call.LOST

    @terminal
    def at_rest(self, s: S) -> Condition:
        """backward() is not called, or has ended."""
        return s.outcome != Pass.RUNNING

    # ---- what can be seen

    @sometimes()
    def it_returns(self, s: S) -> Condition:
        """backward() returns."""
        return s.outcome == Pass.RETURNED

    @sometimes()
    def a_worker_is_engaged(self, s: S) -> Condition:
        """A worker owes an answer, and waits for one of its own."""
        return any_(s.engaged[w] & ~s.root[w] & self.waits(s, w) for w in s.worker)

    # ---- the end

    @always(witness="it_returns", cite="Dijkstra and Scholten 1980, Termination detection for diffusing computations")
    def the_root_returns_last(self, s: S) -> Condition:
        """When backward() has returned, no worker is engaged, and no call is under way or held."""
        quiet = ~any_(s.engaged) & all_(x == Call.FREE for x in s.state)
        return implies(s.outcome == Pass.RETURNED, quiet)

    @always(witness="a_worker_is_engaged")
    def the_engaged_owe_one_answer(self, s: S) -> Condition:
        """Each engaged worker but the root holds one call, and no other worker holds any."""
        one = all_(
            implies(s.engaged[w] & ~s.root[w], any_(self.holds(s, c, w) for c in s.call)) for w in s.worker
        ) & all_(
            (c == d) | ~(self.holds(s, c, w) & self.holds(s, d, w)) for w in s.worker for c in s.call for d in s.call
        )
        return one & all_(implies(self.holds(s, c, w), s.engaged[w] & ~s.root[w]) for w in s.worker for c in s.call)

    @always(witness="a_worker_is_engaged")
    def a_worker_at_rest_waits_for_nothing(self, s: S) -> Condition:
        """A worker that waits for an answer is engaged, or has failed."""
        return all_(implies(self.waits_for(s, w, c), s.engaged[w] | s.failed[w]) for w in s.worker for c in s.call)

    @step(witness="it_returns")
    def nothing_begins_after_the_end(self, before: S, after: S) -> Condition:
        """When backward() has returned, no worker is engaged again and no call is sent."""
        quiet = ~any_(after.engaged) & all_(x == Call.FREE for x in after.state)
        return implies(before.outcome == Pass.RETURNED, quiet & (after.outcome == Pass.RETURNED))

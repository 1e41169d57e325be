"""The end of a backward pass over any graph: the root returns last, and after an error nothing is left anywhere.

Theory of operation. This is the diffusing computation of Dijkstra and Scholten (1980), with failures, as `Ours` and
`Smart` of `backward` have it, without nodes and gradients. A *call* is a request of one worker to another, and its
answer. An *engaged* worker may send calls, each to any worker: so the graph of a pass may be any. A worker that is not
engaged is engaged by the first call that comes, and holds it; it answers that call when it comes to rest, which it may
when all its own calls are answered. An engaged worker answers every other call at once. So the engaged workers are a
tree below the root, which begins engaged, and returns when all its calls are answered.

Failures. A worker that fails answers the call that it holds with an error, and refuses all later ones; one that dies
answers nothing. A worker whose call is answered with an error, or given up since it is lost, fails as well: so an error
goes up the tree to the root. A root that fails sends CANCEL to all others, and raises when all have answered. If a
CANCEL is given up, some worker may hold on to the pass: the context is then `unsure`.

The proof is for any number of workers and calls (`trystate prove engagements`, with `lemmas`). `refinement` maps a pass
over one graph to this system, and `trystate verify` looks for each step of it here.

Abstractions. One pass: later ones on its context have numbers of their own, and are other systems. A call that is over
is free to be another one, so that there may be any number of them in turn. Calls may overtake each other. A worker may
come to rest as soon as its calls are answered, whether it has work left or not; which gradients are missing then, and
that the pass fails of it, is left out.
"""

from __future__ import annotations

import enum
from typing import Any

from ..language import *
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


class Cancel(enum.Enum):
    """The CANCEL from the root to a worker."""

    UNSENT = "not sent"
    OUT = "on its way"
    DONE = "the answer is on its way"
    LOST = "nothing is on its way any more"
    OVER = "answered, or given up"


class Pass(enum.Enum):
    """The call of backward()."""

    AWAITED = "not called yet"
    RUNNING = "has not returned"
    RETURNED = "returned"
    RAISED = "raised"


ENDED = (Pass.RETURNED, Pass.RAISED)
DROPPED = arc(Call.HELD, Call.FAILED, of="others")
TOLD = arc(Cancel.UNSENT, Cancel.OUT, of="others")


class Engagements(System):
    """One backward pass over any graph: workers that are engaged by calls, and the root that returns last."""

    title = "The end of a backward pass, over any graph"
    Edition = (Edition.TRYSTATE,)

    worker, call = index(2), index(2)

    outcome = choice(Pass)
    root = flag(per="worker", doc="backward() runs here, or has returned")
    engaged = flag(per="worker")
    failed = flag(per="worker", doc="its part is dropped, and it refuses what comes; or it is dead")
    state = choice(Call, per="call")
    sent_by = flag(per=("call", "worker"), doc="the worker waits for the answer to the call")
    sent_to = flag(per=("call", "worker"), doc="the worker takes the call")
    cancel = choice(Cancel, per="worker", doc="the CANCEL to this worker")
    unsure = flag(doc="a CANCEL was given up: a worker may hold on to the pass")

    def lifelines(self) -> Lifelines:
        """The calls are drawn at one lifeline: a call has a sender and a receiver only while it is under way."""
        return Lifelines("calls", here=("unsure",))

    @machine(Pass)
    def the_pass(self, s: S) -> Any:
        """The call of backward()."""
        return s.outcome

    @machine(Call, each="call")
    def call_state(self, s: S, call: Expr) -> Any:
        """A call of one worker to another."""
        return s.state[call]

    @machine(Cancel, each="worker")
    def cancel_state(self, s: S, worker: Expr) -> Any:
        """The CANCEL from the root to a worker."""
        return s.cancel[worker]

    # ---- helpers

    def holds(self, s: S, call: Expr, worker: Expr) -> Condition:
        """Does the worker owe an answer to this call?"""
        return (s.state[call] == Call.HELD) & s.sent_to[call, worker]

    def waits(self, s: S, worker: Expr) -> Condition:
        """Is a call of the worker not answered?"""
        return any_((s.state[c] != Call.FREE) & s.sent_by[c, worker] for c in s.call)

    def is_quiet(self, s: S) -> Condition:
        """Is no worker engaged, and no call under way or held?"""
        return ~any_(s.engaged) & all_(x == Call.FREE for x in s.state)

    def engages(self, s: S, worker: Expr, call: Expr) -> None:
        """A worker is engaged by a call, unless it is engaged already."""
        s.engaged[worker] = True

    def rests(self, s: S, worker: Expr) -> None:
        """A worker is not engaged any more: all that it sent is answered."""
        s.engaged[worker] = False

    def answers(self, s: S, worker: Expr, answer: Call) -> None:
        """The call that a worker holds has an answer, or is lost."""
        for c in s.call:
            s.state[c] = ite(self.holds(s, c, worker), answer, s.state[c])

    def fails(self, s: S, worker: Expr) -> None:
        """A worker's part is dropped; it answers what it holds, and the root tells all others."""
        tells = s.root[worker] & s.engaged[worker]
        for j in s.worker:
            s.cancel[j] = ite(tells & (j != worker), Cancel.OUT, s.cancel[j])
        self.answers(s, worker, Call.FAILED)
        self.drops(s, worker)

    def drops(self, s: S, worker: Expr) -> None:
        """A worker has failed."""
        s.engaged[worker], s.failed[worker] = False, True

    def ends(self, s: S, call: Expr) -> None:
        """A call is over."""
        s.state[call] = Call.FREE
        for w in s.worker:
            s.sent_by[call, w], s.sent_to[call, w] = False, False

    # ---- the pass

    @transition(each="worker", moves=[arc(Pass.AWAITED, Pass.RUNNING)])
    def begin(self, s: S, worker: Expr) -> None:
        """backward() is called: this worker is the root."""
        s.when(s.outcome == Pass.AWAITED, ~s.failed[worker])
        s.outcome, s.root[worker], s.engaged[worker] = Pass.RUNNING, True, True

    @transition(each="worker", moves=[arc(Pass.RUNNING, Pass.RETURNED)])
    def come_home(self, s: S, worker: Expr) -> None:
        """All calls of the root are answered: backward() returns."""
        s.when(s.root[worker], s.engaged[worker], ~self.waits(s, worker))
        s.outcome = Pass.RETURNED
        self.rests(s, worker)

    @transition(each="worker", moves=[arc(Pass.RUNNING, Pass.RAISED)])
    def settle(self, s: S, worker: Expr) -> None:
        """The root has failed, and each other worker has answered CANCEL, or that was given up: backward() raises."""
        s.when(s.outcome == Pass.RUNNING, s.root[worker], s.failed[worker])
        s.when(all_((j == worker) | (s.cancel[j] == Cancel.OVER) for j in s.worker))
        s.outcome, s.root[worker] = Pass.RAISED, False

    # ---- calls

    @transition(each=("call", "worker", "worker"), moves=[arc(Call.FREE, Call.OUT)])
    def ship(self, s: S, call: Expr, worker: Expr, other: Expr) -> None:
        """An engaged worker sends a call to another."""
        s.when(s.engaged[worker], s.state[call] == Call.FREE)
        s.state[call], s.sent_by[call, worker], s.sent_to[call, other] = Call.OUT, True, True

    @transition(each=("call", "worker"), moves=[arc(Call.OUT, Call.HELD), arc(Call.OUT, Call.DONE)])
    def take(self, s: S, call: Expr, worker: Expr) -> None:
        """A call arrives: it engages a worker at rest, which holds it; an engaged one answers at once."""
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

    @transition(each=("call", "worker"), moves=[arc((Call.OUT, Call.FAILED, Call.LOST), Call.FREE), DROPPED, TOLD])
    def hear_failed(self, s: S, call: Expr, worker: Expr) -> None:
        """A call has failed, is lost, or goes to one that has failed: the worker that waits for it fails."""
        gone = (s.state[call] == Call.OUT) & any_(s.sent_to[call, w] & s.failed[w] for w in s.worker)
        s.when(s.sent_by[call, worker], or_(gone, s.state[call].isin((Call.FAILED, Call.LOST))))
        self.fails(s, worker)
        self.ends(s, call)

    @transition(each="worker", moves=[arc(Cancel.OUT, Cancel.DONE), DROPPED])
    def take_cancel(self, s: S, worker: Expr) -> None:
        """A worker is told that the pass is over: it drops its part, and answers."""
        s.when(s.cancel[worker] == Cancel.OUT)
        self.fails(s, worker)
        s.cancel[worker] = Cancel.DONE

    @transition(each="worker", moves=[arc((Cancel.OUT, Cancel.DONE, Cancel.LOST), Cancel.OVER)])
    def hear_cancelled(self, s: S, worker: Expr) -> None:
        """A CANCEL is answered, or it is of no use: its worker has failed."""
        waits = s.cancel[worker].isin((Cancel.OUT, Cancel.LOST)) & s.failed[worker]
        s.when(or_(waits, s.cancel[worker] == Cancel.DONE))
        s.cancel[worker] = Cancel.OVER

    @transition(each="worker", moves=[arc(Cancel.LOST, Cancel.OVER)])
    def give_up_cancel(self, s: S, worker: Expr) -> None:
        """No answer to a CANCEL comes: it is given up."""
        s.when(s.cancel[worker] == Cancel.LOST)
        s.cancel[worker], s.unsure = Cancel.OVER, True

    @fault("fail", each="worker", moves=[DROPPED, TOLD])
    def fail(self, s: S, worker: Expr) -> None:
        """A worker fails: an operator raises, its time is over, the context is left, or it notices a loss."""
        s.when(~s.failed[worker])
        self.fails(s, worker)

    @fault("die", each="worker", moves=[arc(Call.HELD, Call.LOST, of="others")])
    def die(self, s: S, worker: Expr) -> None:
        """A worker dies: what it holds is not answered."""
        s.when(~s.failed[worker])
        self.answers(s, worker, Call.LOST)
        self.drops(s, worker)

    @fault("lose", each="call", moves=[arc((Call.OUT, Call.DONE, Call.FAILED), Call.LOST)])
    def lose(self, s: S, call: Expr) -> None:
        """A call is lost, or the answer to one."""
        s.when(s.state[call].isin((Call.OUT, Call.DONE, Call.FAILED)))
        s.state[call] = Call.LOST

    @fault("lose", each="worker", moves=[arc((Cancel.OUT, Cancel.DONE), Cancel.LOST)])
    def lose_cancel(self, s: S, worker: Expr) -> None:
        """A CANCEL is lost, or the answer to one."""
        s.when(s.cancel[worker].isin((Cancel.OUT, Cancel.DONE)))
        s.cancel[worker] = Cancel.LOST

    @fault("again", moves=[arc(Pass.AWAITED, Pass.RAISED)])
    def begin_beside(self, s: S) -> None:
        """backward() is called while another pass runs in the context: it raises."""
        s.when(s.outcome == Pass.AWAITED)
        s.outcome = Pass.RAISED

    @fault("again")
    def doubt(self, s: S) -> None:
        """Another pass over the context gives a CANCEL up."""
        s.when(~s.unsure)
        s.unsure = True

    @terminal
    def at_rest(self, s: S) -> Condition:
        """backward() is not called, or has ended, or its root is dead, and so told no worker."""
        dead = any_(s.root[w] & s.failed[w] for w in s.worker) & all_(x == Cancel.UNSENT for x in s.cancel)
        return (s.outcome != Pass.RUNNING) | dead

    # ---- what can be seen

    @sometimes()
    def it_returns(self, s: S) -> Condition:
        """backward() returns."""
        return s.outcome == Pass.RETURNED

    @sometimes()
    def it_raises(self, s: S) -> Condition:
        """backward() raises, and each worker was told."""
        return (s.outcome == Pass.RAISED) & ~s.unsure & any_(x == Cancel.OVER for x in s.cancel)

    @sometimes()
    def a_worker_is_engaged(self, s: S) -> Condition:
        """A worker owes an answer, and waits for one of its own."""
        return any_(s.engaged[w] & ~s.root[w] & self.waits(s, w) for w in s.worker)

    # ---- the end

    @always(witness="it_returns")
    def the_root_returns_last(self, s: S) -> Condition:
        """When backward() has returned, no worker is engaged, and no call is under way or held."""
        return implies(s.outcome == Pass.RETURNED, self.is_quiet(s))

    @always(witness="it_raises")
    def after_an_error_nothing_is_left(self, s: S) -> Condition:
        """When backward() has raised, no worker is engaged or holds a call, and no call under way engages one."""
        left = any_(s.engaged) | any_(x == Call.HELD for x in s.state)
        begins = any_((s.state[c] == Call.OUT) & s.sent_to[c, w] & ~s.failed[w] for c in s.call for w in s.worker)
        return implies((s.outcome == Pass.RAISED) & ~s.unsure, ~left & ~begins)

    @always(witness="a_worker_is_engaged")
    def the_engaged_owe_one_answer(self, s: S) -> Condition:
        """Each engaged worker but the root holds one call; the root, and a worker that is not engaged, holds none."""
        one = all_(
            (c == d) | ~(self.holds(s, c, w) & self.holds(s, d, w)) for w in s.worker for c in s.call for d in s.call
        )
        return one & all_(any_(self.holds(s, c, w) for c in s.call) == (s.engaged[w] & ~s.root[w]) for w in s.worker)

    @always(witness="a_worker_is_engaged")
    def a_worker_at_rest_waits_for_nothing(self, s: S) -> Condition:
        """A worker that waits for an answer is engaged, or has failed."""
        return all_(implies(self.waits(s, w), s.engaged[w] | s.failed[w]) for w in s.worker)

    @step(witness="it_returns")
    def nothing_begins_after_the_end(self, before: S, after: S) -> Condition:
        """A pass ends once; when backward() has returned, no worker is engaged again, and no call is sent."""
        once = implies(before.outcome.isin(ENDED), after.outcome == before.outcome)
        return once & implies(before.outcome == Pass.RETURNED, self.is_quiet(after))

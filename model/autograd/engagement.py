"""The end of a backward pass over any graph: the root returns last, and after an error nothing is left anywhere.

Theory of operation. This is the diffusing computation of Dijkstra and Scholten (1980), with failures, as in `Ours` and
`Smart` of `backward`, but without nodes and gradients. A *call* is a request from one worker to another, with its
answer. An *engaged* worker may send calls, each to any worker, so a pass may have any graph. The first call that
reaches a worker that is not engaged engages it. The worker holds this call and answers it when it comes to rest, which
is possible when all its own calls are answered. An engaged worker answers every other call at once. So the engaged
workers form a tree below the root, which begins engaged and returns when all its calls are answered.

Failures. A worker that fails answers the call that it holds with an error and refuses all later calls. A worker that
dies answers nothing. A worker fails as well if its own call is answered with an error, or is lost and given up. So an
error goes up the tree to the root. A root that fails sends CANCEL to all others and raises when all have answered. If a
CANCEL is given up, some worker may still keep the pass: the context is then `unsure`.

The proof is for any number of workers and calls (`trystate prove engagements`, with `lemmas`). `refinement` maps a pass
over one graph to this system, and `trystate verify` finds each step of the pass here.

Abstractions. One pass: later passes on its context have their own numbers, and are separate systems. A call that is
over becomes free for another one, so any number of calls may follow each other. Calls may overtake each other. A worker
may come to rest as soon as its calls are answered, even if it has work left. `Deficits` adds the gradients that are
then missing, and the failure of the pass because of them. `Gradients` has the nodes, without workers.
"""

from __future__ import annotations

import enum

from ..language import *
from .vocabulary import Edition

S = SymbolicState


class Call(enum.Enum):
    """A request of one worker to another, and its answer."""

    FREE = "not sent, or over"
    OUT = "on its way"
    HELD = "received, not answered: it has engaged its taker"
    DONE = "the answer is on its way: done"
    FAILED = "the answer is on its way: failed"
    LOST = "nothing is on its way any more"


class Cancel(enum.Enum):
    """The CANCEL from the root to a worker."""

    UNSENT = "not sent"
    OUT = "on its way"
    DONE = "the answer is on its way"
    LOST = "nothing is on its way any more"
    OVER = "answered or given up"


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
    failed = flag(per="worker", doc="its part is dropped and it refuses later calls, or it is dead")
    state = choice(Call, per="call")
    sent_by = flag(per=("call", "worker"), doc="the worker waits for the answer to the call")
    sent_to = flag(per=("call", "worker"), doc="the worker takes the call")
    cancel = choice(Cancel, per="worker", doc="the CANCEL to this worker")
    unsure = flag(doc="a CANCEL was given up: a worker may still have the pass")

    def lifelines(self) -> Lifelines:
        """The calls are drawn at one lifeline: a call has a sender and a receiver only while it is under way."""
        return Lifelines("calls", here=("unsure",))

    the_pass = machine_of(outcome, "The call of backward().")
    call_state = machine_of(state, "A call of one worker to another.")
    cancel_state = machine_of(cancel, "The CANCEL from the root to a worker.")

    # ---- helpers

    def holds(self, s: S, call: Expr, worker: Expr) -> Condition:
        """Does the worker owe an answer to this call?"""
        return (s.state[call] == Call.HELD) & s.sent_to[call, worker]

    def waits(self, s: S, worker: Expr) -> Condition:
        """Is a call of the worker not answered?"""
        return any_((s.state[c] != Call.FREE) & s.sent_by[c, worker] for c in s.call)

    def is_quiet(self, s: S) -> Condition:
        """Are all workers at rest, and all calls free?"""
        return ~any_(s.engaged) & s.state.all(Call.FREE)

    def engages(self, s: S, worker: Expr, call: Expr) -> None:
        """A worker is engaged by a call, unless it is engaged already."""
        s.engaged[worker] = True

    def rests(self, s: S, worker: Expr) -> None:
        """A worker is no longer engaged: all its calls are answered."""
        s.engaged[worker] = False

    def answers(self, s: S, worker: Expr, answer: Call) -> None:
        """The call that a worker holds gets an answer, or is lost."""
        for c in s.call:
            s.state[c] = ite(self.holds(s, c, worker), answer, s.state[c])

    def fails(self, s: S, worker: Expr) -> None:
        """A worker's part is dropped; it answers the call that it holds, and the root sends CANCEL to all others."""
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
        reset(s.state, s.sent_by, s.sent_to, at=call)

    # ---- the pass

    @transition(moves=[arc(Pass.AWAITED, Pass.RUNNING)])
    def begin(self, s: S, worker: Expr) -> None:
        """backward() is called: this worker is the root."""
        s.when(s.outcome == Pass.AWAITED, ~s.failed[worker])
        s.outcome, s.root[worker], s.engaged[worker] = Pass.RUNNING, True, True

    @transition(moves=[arc(Pass.RUNNING, Pass.RETURNED)])
    def come_home(self, s: S, worker: Expr) -> None:
        """All calls of the root are answered: backward() returns."""
        s.when(s.root[worker], s.engaged[worker], ~self.waits(s, worker))
        s.outcome = Pass.RETURNED
        self.rests(s, worker)

    @transition(moves=[arc(Pass.RUNNING, Pass.RAISED)])
    def settle(self, s: S, worker: Expr) -> None:
        """The root has failed, and each CANCEL is answered or given up: backward() raises."""
        s.when(s.outcome == Pass.RUNNING, s.root[worker], s.failed[worker])
        s.when(all_((j == worker) | (s.cancel[j] == Cancel.OVER) for j in s.worker))
        s.outcome, s.root[worker] = Pass.RAISED, False

    # ---- calls

    @transition(each=("call", "worker", "worker"), moves=[arc(Call.FREE, Call.OUT)])
    def ship(self, s: S, call: Expr, worker: Expr, other: Expr) -> None:
        """An engaged worker sends a call to another."""
        s.when(s.engaged[worker], s.state[call] == Call.FREE)
        s.state[call], s.sent_by[call, worker], s.sent_to[call, other] = Call.OUT, True, True

    @transition(moves=[arc(Call.OUT, (Call.HELD, Call.DONE))])
    def take(self, s: S, call: Expr, worker: Expr) -> None:
        """A call arrives: it engages a worker at rest, which holds it; an engaged one answers at once."""
        s.when(s.state[call] == Call.OUT, s.sent_to[call, worker], ~s.failed[worker])
        s.state[call] = ite(s.engaged[worker], Call.DONE, Call.HELD)
        self.engages(s, worker, call)

    @transition(moves=[arc(Call.OUT, Call.FAILED)])
    def refuse(self, s: S, call: Expr, worker: Expr) -> None:
        """A call arrives where the pass is over."""
        move(s.state, Call.OUT, Call.FAILED, s.sent_to[call, worker], s.failed[worker], at=call)

    @transition(moves=[arc(Call.HELD, Call.DONE, of="others")])
    def come_to_rest(self, s: S, worker: Expr) -> None:
        """All calls of a worker are answered: it answers the call that engaged it."""
        s.when(s.engaged[worker], ~s.root[worker], ~self.waits(s, worker))
        self.answers(s, worker, Call.DONE)
        self.rests(s, worker)

    @transition(moves=[arc(Call.DONE, Call.FREE)])
    def hear(self, s: S, call: Expr) -> None:
        """The answer that all is done arrives."""
        s.when(s.state[call] == Call.DONE)
        self.ends(s, call)

    # ---- failures

    @transition(moves=[arc((Call.OUT, Call.FAILED, Call.LOST), Call.FREE), DROPPED, TOLD])
    def hear_failed(self, s: S, call: Expr, worker: Expr) -> None:
        """A call has failed, is lost, or goes to a failed worker: the worker that waits for it fails."""
        gone = (s.state[call] == Call.OUT) & any_(s.sent_to[call, w] & s.failed[w] for w in s.worker)
        s.when(s.sent_by[call, worker], or_(gone, s.state[call].isin((Call.FAILED, Call.LOST))))
        self.fails(s, worker)
        self.ends(s, call)

    @transition(moves=[arc(Cancel.OUT, Cancel.DONE), DROPPED])
    def take_cancel(self, s: S, worker: Expr) -> None:
        """A worker receives CANCEL: it drops its part and answers."""
        s.when(s.cancel[worker] == Cancel.OUT)
        self.fails(s, worker)
        s.cancel[worker] = Cancel.DONE

    @transition(moves=[arc((Cancel.OUT, Cancel.DONE, Cancel.LOST), Cancel.OVER)])
    def hear_cancelled(self, s: S, worker: Expr) -> None:
        """A CANCEL is answered, or is not needed because its worker has failed."""
        waits = s.cancel[worker].isin((Cancel.OUT, Cancel.LOST)) & s.failed[worker]
        s.when(or_(waits, s.cancel[worker] == Cancel.DONE))
        s.cancel[worker] = Cancel.OVER

    @transition(moves=[arc(Cancel.LOST, Cancel.OVER)])
    def give_up_cancel(self, s: S, worker: Expr) -> None:
        """No answer to a CANCEL comes: it is given up."""
        s.when(s.cancel[worker] == Cancel.LOST)
        s.cancel[worker], s.unsure = Cancel.OVER, True

    @fault("fail", moves=[DROPPED, TOLD])
    def fail(self, s: S, worker: Expr) -> None:
        """A worker fails: an operator raises, its time is over, the context is left, or it notices a loss."""
        s.when(~s.failed[worker])
        self.fails(s, worker)

    @fault("die", moves=[arc(Call.HELD, Call.LOST, of="others")])
    def die(self, s: S, worker: Expr) -> None:
        """A worker dies: the call that it holds is not answered."""
        s.when(~s.failed[worker])
        self.answers(s, worker, Call.LOST)
        self.drops(s, worker)

    @fault("lose", moves=[arc((Call.OUT, Call.DONE, Call.FAILED), Call.LOST)])
    def lose(self, s: S, call: Expr) -> None:
        """A call or its answer is lost."""
        move(s.state, (Call.OUT, Call.DONE, Call.FAILED), Call.LOST, at=call)

    @fault("lose", moves=[arc((Cancel.OUT, Cancel.DONE), Cancel.LOST)])
    def lose_cancel(self, s: S, worker: Expr) -> None:
        """A CANCEL or its answer is lost."""
        move(s.cancel, (Cancel.OUT, Cancel.DONE), Cancel.LOST, at=worker)

    @fault("again", moves=[arc(Pass.AWAITED, Pass.RAISED)])
    def begin_beside(self, s: S) -> None:
        """backward() is called while another pass runs in the context: it raises."""
        s.when(s.outcome == Pass.AWAITED)
        s.outcome = Pass.RAISED

    @fault("again")
    def doubt(self, s: S) -> None:
        """Another pass over the context gives up a CANCEL."""
        s.when(~s.unsure)
        s.unsure = True

    @terminal
    def at_rest(self, s: S) -> Condition:
        """backward() is not called or has ended, or its root died and sent no CANCEL."""
        dead = any_(s.root[w] & s.failed[w] for w in s.worker) & s.cancel.all(Cancel.UNSENT)
        return (s.outcome != Pass.RUNNING) | dead

    # ---- states that can be reached

    @sometimes()
    def it_returns(self, s: S) -> Condition:
        """backward() returns."""
        return s.outcome == Pass.RETURNED

    @sometimes()
    def it_raises(self, s: S) -> Condition:
        """backward() raises, and no CANCEL was given up."""
        return (s.outcome == Pass.RAISED) & ~s.unsure & s.cancel.any(Cancel.OVER)

    @sometimes()
    def a_worker_is_engaged(self, s: S) -> Condition:
        """A worker owes an answer, and waits for an answer."""
        return any_(s.engaged[w] & ~s.root[w] & self.waits(s, w) for w in s.worker)

    # ---- the end

    @always(witness="it_returns")
    def the_root_returns_last(self, s: S) -> Condition:
        """When backward() has returned, no worker is engaged, and no call is under way or held."""
        return implies(s.outcome == Pass.RETURNED, self.is_quiet(s))

    @always(witness="it_raises")
    def after_an_error_nothing_is_left(self, s: S) -> Condition:
        """When backward() has raised, no worker is engaged or holds a call, and no call under way engages one."""
        left = any_(s.engaged) | s.state.any(Call.HELD)
        begins = any_((s.state[c] == Call.OUT) & s.sent_to[c, w] & ~s.failed[w] for c in s.call for w in s.worker)
        return implies((s.outcome == Pass.RAISED) & ~s.unsure, ~left & ~begins)

    @always(witness="a_worker_is_engaged")
    def the_engaged_owe_one_answer(self, s: S) -> Condition:
        """Each engaged worker except the root holds one call; the root and workers at rest hold no call."""
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


class Send(enum.Enum):
    """A value that a worker has sent: its gradient comes back."""

    UNKNOWN = "its worker has not counted"
    MISSING = "its worker has no gradient of it"
    HERE = "its worker has its gradient"


class Deficits(Engagements):
    """The same pass with the missing gradients: each answer carries a part of their number to the root."""

    title = "The missing gradients of a backward pass, over any graph"

    send, most = index(1), constant(4, "what a worker owes at most")

    home = flag(per=("send", "worker"), initial=ANY, doc="the worker has sent the value")
    gradient = choice(Send, per="send")
    counted = flag(per="worker", doc="its part has counted its sends")
    owed = integer(0 - most, most, initial=0, per="worker", doc="missing gradients not yet sent to the root")
    delta = integer(0 - most, most, initial=0, per="call", doc="the same, in the answer")
    unused = flag(doc="the pass fails because a gradient is missing")

    send_state = machine_of(gradient, "A value that a worker has sent.")

    # ---- helpers

    def missing(self, s: S) -> Condition:
        """The number of missing gradients."""
        return s.gradient.count(Send.MISSING)

    def is_new(self, s: S, send: Expr, worker: Expr) -> Condition:
        """Does the worker miss the gradient of this send when it counts?"""
        return s.home[send, worker] & (s.gradient[send] == Send.UNKNOWN)

    def drops(self, s: S, worker: Expr) -> None:
        s.owed[worker] = 0
        super().drops(s, worker)

    def ends(self, s: S, call: Expr) -> None:
        reset(s.delta, at=call)
        super().ends(s, call)

    # ---- the pass

    @transition(moves=[arc(Send.UNKNOWN, Send.MISSING, of="others")])
    def count_sends(self, s: S, worker: Expr) -> None:
        """An engaged worker counts its sends: each without a gradient is owed one."""
        s.when(s.engaged[worker], ~s.counted[worker])
        s.owed[worker] = s.owed[worker] + count(self.is_new(s, k, worker) for k in s.send)
        for k in s.send:
            s.gradient[k] = ite(self.is_new(s, k, worker), Send.MISSING, s.gradient[k])
        s.counted[worker] = True

    @transition(moves=[arc((Send.UNKNOWN, Send.MISSING), Send.HERE)])
    def arrive(self, s: S, send: Expr, worker: Expr) -> None:
        """A gradient arrives at a worker that is engaged, or that the call with the gradient has just engaged."""
        s.when(s.home[send, worker], s.engaged[worker], s.gradient[send] != Send.HERE)
        s.owed[worker] = s.owed[worker] - as_int(s.gradient[send] == Send.MISSING)
        s.gradient[send] = Send.HERE

    @transition(moves=Engagements.come_to_rest.arcs)
    def come_to_rest(self, s: S, worker: Expr) -> None:
        """A worker has counted, and all its calls are answered: it answers the call that engaged it."""
        s.when(s.counted[worker])
        for c in s.call:
            s.delta[c] = ite(self.holds(s, c, worker), s.owed[worker], s.delta[c])
        s.owed[worker] = 0
        Engagements.come_to_rest.body(self, s, worker)

    @transition(moves=Engagements.hear.arcs)
    def hear(self, s: S, call: Expr) -> None:
        """An answer arrives: the worker that waits for it, if it is engaged, owes what the answer carries."""
        for w in s.worker:
            live = s.sent_by[call, w] & s.engaged[w]
            s.owed[w] = s.owed[w] + ite(live, s.delta[call], 0)
        Engagements.hear.body(self, s, call)

    @transition(moves=Engagements.come_home.arcs)
    def come_home(self, s: S, worker: Expr) -> None:
        """All calls of the root are answered, and no gradient is missing: backward() returns."""
        s.when(s.counted[worker], s.owed[worker] == 0)
        Engagements.come_home.body(self, s, worker)

    @transition(moves=[TOLD])
    def find_missing(self, s: S, worker: Expr) -> None:
        """All calls of the root are answered, and a gradient is missing: the pass fails."""
        s.when(self.is_home(s, worker), s.owed[worker] != 0)
        s.unused = True
        self.fails(s, worker)

    def is_home(self, s: S, worker: Expr) -> Condition:
        """Has the root counted, and are all its calls answered?"""
        return s.root[worker] & s.engaged[worker] & s.counted[worker] & ~self.waits(s, worker)

    @sometimes()
    def a_gradient_is_missing(self, s: S) -> Condition:
        """All calls of the root are answered, and a gradient is missing."""
        return s.unused

    @step(on=("come_home", "find_missing"), witness="a_gradient_is_missing")
    def the_missing_are_counted(self, before: S, after: S, worker: Expr) -> Condition:
        """When the root has come to rest, its `owed` is the number of missing gradients in all parts."""
        return before.owed[worker] == self.missing(before)

    @always(witness="it_returns")
    def unused_calls_are_an_error(self, s: S) -> Condition:
        """backward() does not return if a worker that takes part has a send without a gradient."""
        all_here = all_(
            implies(s.home[k, w] & s.counted[w], s.gradient[k] == Send.HERE) for k in s.send for w in s.worker
        )
        return implies(s.outcome == Pass.RETURNED, all_here)

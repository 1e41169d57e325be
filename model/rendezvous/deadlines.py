"""One node's operations and its heartbeats: their deadlines, their lock, and a shared state that is corrupt.

Theory of operation. A node has two threads: the agent's, which calls `next_rendezvous` (here its exit operation),
`set_closed`, `is_closed` or `num_nodes_waiting`, and `shutdown`; and the timer's, which beats. A call repeats sync,
decide and act until the operator decides FINISH. Other nodes write meanwhile, and a call may lose every write. Then
only its deadline ends it (close 30 s, heartbeat 5 s; exit shares the join's deadline of 600 s).

torch. Both threads share one copy of the state with its token, and a sync changes copy and token one after the other.
So a thread that syncs in the middle of the other's sync can leave an old copy with a new token. A write with this token
wins, and undoes another node's write. `_heartbeat_lock` prevents that: `set_closed`, `is_closed`, `num_nodes_waiting`
and the timer hold it for a whole call, and `next_rendezvous` and `shutdown` end the timer first.

The article has the same calls, but prints no caller of `_close`: the edition SEED has torch 1.10's callers.

Ours. Each thread has its own copy, and there is no lock. The driver keeps the deadlines of `set_closed`, `is_closed`
and `shutdown`, and sends nothing after them. An exit whose write was lost gives up 5 s after the deadline of its join.
A heartbeat adds to a counter, which no write of another node can lose, and then reads the state: that renews a lease
that holds, if the state lists the node. It needs no deadline: when the lease is over, the agent stops its workers, and
only a write of the state renews the lease.

A value that is not a state. torch's reader turns a pickle.PickleError into RendezvousStateError and passes on any other
error: callers get a misleading error, and the thread that beats ends. In ours, every such value raises
RendezvousStateError. In both, no write replaces the value, and each call that reads it raises: the whole group ends.

Abstractions. The round is complete and has enough other members. A join is one step, since `Rendezvous` and `Holders`
model its steps: the node is a member again, or the join fails. No heartbeat expires. A heartbeat becomes due only while
the timer is idle and no answer is on its way. The bytes of two writes differ (see R11).
"""

from __future__ import annotations

from typing import Any

from ..language import *
from ..language.expressions import FALSE, TRUE
from .operators import OPERATORS
from .vocabulary import Action, AgentPhase, Call, CallError, Edition, Stored, Timer
from .vocabulary import CallStep as Step

S = SymbolicState
AGENT, TIMER = 0, 1  # the two threads
SEED, TORCH, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TRYSTATE
OPERATOR = {Call.EXIT: "exit", Call.SHUTDOWN: "close", Call.SET_CLOSED: "close", Call.KEEP_ALIVE: "keep-alive"}
BEGIN = [arc(Step.IDLE, Step.SYNCING)]
STOP = [
    *BEGIN,
    arc(Timer.BEATING, Timer.STOPPED),
    arc(Timer.DEAD, Timer.STOPPED, editions=[SEED, TORCH]),
    arc((Step.SYNCING, Step.ACTING, Step.RETURNED, Step.RAISED), Step.IDLE, of="others", editions=[TRYSTATE]),
]
CITE = "dynamic_rendezvous.py: "


class Deadlines(System):
    """One node with two threads, and a store to which other nodes write."""

    title = "Operations and heartbeats: deadlines, the heartbeat lock, a corrupt state"
    Edition = (SEED, TORCH, TRYSTATE)

    thread = index(2, "0 is the agent's, 1 the timer's")

    stored = choice(Stored)
    closed = flag(doc="the shared state is closed")
    member = flag(initial=True, doc="the shared state lists the node as a participant")
    due = flag(doc="the node's heartbeat in the shared state is due")

    phase = choice(AgentPhase, initial=AgentPhase.RUNNING)
    timer = choice(Timer)
    call = choice(Call, per="thread")
    at = choice(Step, per="thread")
    late = flag(per="thread", doc="the call's deadline has passed")
    error = choice(CallError, per="thread")

    got_closed = flag(per="thread", doc="the thread has read closed, or is about to write it")
    got_member = flag(per="thread", doc="the thread has read the node as a participant, or is about to write it")
    got_good = flag(per="thread", doc="what the thread has read is still the store's state")

    def lifelines(self) -> Lifelines:
        """The store has the shared state; both threads share the node's copy and its lock."""
        agent, timer = ("phase", "join", "join_fails", "cache_ends"), ("timer", "lease", "lease_ends")
        copy = ("lock", "copy_closed", "copy_member", "copy_due", "token_good", "dirty", "cached", "got_good")
        return Lifelines("store", {**dict.fromkeys(agent, AGENT), **dict.fromkeys(timer, TIMER)}, copy)

    call_step = machine_of(at, "A thread's progress in its call.")
    timer_thread = machine_of(timer, "The thread that beats.")
    stored_value = machine_of(stored, "The value in the store.")

    @terminal
    def at_rest(self, s: S) -> Condition:
        """The node has left."""
        return s.phase == AgentPhase.LEFT

    # ---- helpers

    def timer_idle(self, s: S) -> Condition:
        return all_((s.at[t] == Step.IDLE) | (ord_(t) != TIMER) for t in s.thread)

    def begins(self, s: S, thread: Expr, number: int, call: Call) -> None:
        """The thread with this number begins a call."""
        move(s.at, Step.IDLE, Step.SYNCING, ord_(thread) == number, at=thread)
        s.call[thread] = call

    def ends_timer(self, s: S) -> None:
        """`_stop_heartbeats` joins the timer's thread, so no heartbeat is under way."""
        s.when(self.timer_idle(s))
        s.timer = Timer.STOPPED

    def drops(self, s: S, thread: Expr) -> None:
        """The thread forgets the answer that it has read."""
        reset(s.got_closed, s.got_member, s.got_good, at=thread)

    def reads(self, s: S, thread: Expr) -> None:
        """The thread gets the store's state."""
        s.got_closed[thread] = s.closed
        s.got_member[thread] = s.member
        s.got_good[thread] = True

    def changes(self, s: S) -> None:
        """The store's value is new, and everything that was read before is out of date."""
        reset(s.got_good)

    def takes_writes(self, s: S) -> Condition:
        return s.stored == Stored.STATE

    def raises(self, s: S, thread: Expr, error: Any) -> None:
        s.at[thread] = Step.RAISED
        s.error[thread] = error

    def decides(self, s: S, thread: Expr, outcome: Any, atoms: dict[str, Any]) -> Condition:
        """The operator of the thread's call decides `outcome`."""
        tables = OPERATORS[self.edition]
        verdict = FALSE
        for call, name in OPERATOR.items():
            verdict = ite(s.call[thread] == call, tables[name].when(outcome, atoms), verdict)
        return verdict

    # ---- the agent's calls

    @transition(moves=STOP, fair=False, cite="rendezvous-engine 2.2.2.3")
    def begin_exit(self, s: S, thread: Expr) -> None:
        """next_rendezvous ends the timer and begins with the exit operation."""
        s.when(s.phase == AgentPhase.RUNNING)
        self.begins(s, thread, AGENT, Call.EXIT)
        self.ends_timer(s)
        s.phase = AgentPhase.EXITING

    @transition(moves=STOP, fair=False, cite="rendezvous-engine 2.2.2.2")
    def begin_shutdown(self, s: S, thread: Expr) -> None:
        """shutdown ends the timer and begins to close the rendezvous."""
        s.when(s.phase.isin((AgentPhase.RUNNING, AgentPhase.FAILED)))
        self.begins(s, thread, AGENT, Call.SHUTDOWN)
        self.ends_timer(s)
        s.phase = AgentPhase.DONE

    @transition(moves=BEGIN, fair=False, cite="rendezvous-engine 2.2.2.2")
    def begin_set_closed(self, s: S, thread: Expr) -> None:
        """set_closed closes the rendezvous while the timer continues."""
        s.when(s.phase == AgentPhase.RUNNING)
        self.begins(s, thread, AGENT, Call.SET_CLOSED)

    @transition(moves=BEGIN, fair=False, cite="elastic-node-change 2.3.1")
    def begin_poll(self, s: S, thread: Expr) -> None:
        """is_closed or num_nodes_waiting begins to read the shared state."""
        s.when(s.phase == AgentPhase.RUNNING)
        self.begins(s, thread, AGENT, Call.POLL)

    @transition(moves=BEGIN, cite="rendezvous-engine 3.2.1.2")
    def begin_keep_alive(self, s: S, thread: Expr) -> None:
        """The interval is over: the timer's thread beats."""
        s.when(s.timer == Timer.BEATING)
        self.begins(s, thread, TIMER, Call.KEEP_ALIVE)

    @transition(
        moves=[arc((Step.RETURNED, Step.RAISED), Step.IDLE), arc(Timer.BEATING, Timer.DEAD, editions=[SEED, TORCH])],
        cite="rendezvous-engine 3.2.1.2",
    )
    def end(self, s: S, thread: Expr) -> None:
        """The call is over: an error in the agent's thread ends the node; an error in the timer's is logged."""
        s.when(s.at[thread].isin((Step.RETURNED, Step.RAISED)))
        raised, call = s.at[thread] == Step.RAISED, s.call[thread]
        s.phase = ite(
            call == Call.EXIT,
            ite(raised, AgentPhase.FAILED, AgentPhase.JOINING),
            ite(
                call == Call.SHUTDOWN,
                AgentPhase.LEFT,
                ite(raised & (call != Call.KEEP_ALIVE), AgentPhase.FAILED, s.phase),
            ),
        )
        s.timer = ite((call == Call.KEEP_ALIVE) & self.ends_the_timer(s, thread), Timer.DEAD, s.timer)
        self.ends_call(s, thread)
        reset(s.call, s.at, s.error, s.late, at=thread)
        self.drops(s, thread)

    def ends_call(self, s: S, thread: Expr) -> None:
        """An edition may end more with the call."""

    def ends_the_timer(self, s: S, thread: Expr) -> Condition:
        """The error of a heartbeat ends the thread."""
        return FALSE

    # ---- the join, in one step

    @transition(moves=[arc(Timer.STOPPED, Timer.BEATING)], cite="rendezvous-engine 2.2.2.3")
    def join(self, s: S) -> None:
        """The node is a member of the next complete round, and its timer beats."""
        s.when(s.phase == AgentPhase.JOINING, s.stored == Stored.STATE, ~s.closed)
        s.phase = AgentPhase.RUNNING
        s.timer = Timer.BEATING
        s.member = True
        s.due = False
        self.changes(s)
        self.joins(s)

    def joins(self, s: S) -> None:
        """An edition may set more fields when the node has joined."""

    @transition(cite="rendezvous-engine 3.2.4")
    def join_fails(self, s: S) -> None:
        """The rendezvous is closed, or its state is corrupt: next_rendezvous raises."""
        s.when(s.phase == AgentPhase.JOINING, (s.stored != Stored.STATE) | s.closed)
        s.phase = AgentPhase.FAILED

    # ---- time, and other nodes

    @environment(fair=True, cite="rendezvous-engine 3.2.1.1, 3.2.2, 3.2.3")
    def deadline_passes(self, s: S, thread: Expr) -> None:
        """A call's deadline passes while it is under way."""
        under_way = (s.at[thread] != Step.IDLE) & not_(s.at[thread].isin((Step.RETURNED, Step.RAISED)))
        move(s.late, False, True, under_way, self.deadline_runs(s, thread), at=thread)

    def deadline_runs(self, s: S, thread: Expr) -> Condition:
        return s.call[thread].isin((Call.EXIT, Call.SHUTDOWN, Call.SET_CLOSED, Call.KEEP_ALIVE))

    @environment(fair=True, cite="rendezvous-engine 3.2.1.1")
    def heartbeat_gets_due(self, s: S) -> None:
        """The keep-alive interval passes since the last heartbeat."""
        s.when(s.member, s.phase == AgentPhase.RUNNING, ~s.due, self.no_stamp_under_way(s))
        s.due = True
        self.ages(s)

    def no_stamp_under_way(self, s: S) -> Condition:
        return self.timer_idle(s) & ~s.at.any(Step.ANSWERED, Step.LOADED)

    def ages(self, s: S) -> None:
        """An edition may set more fields when the heartbeat becomes due."""

    @environment(cite="rendezvous-engine 2.2.3.2")
    def another_writes(self, s: S) -> None:
        """Another node writes its heartbeat, and the state that this node has read is out of date."""
        s.when(s.stored == Stored.STATE)
        self.changes(s)

    @environment(cite="rendezvous-engine 3.2.2")
    def another_closes(self, s: S) -> None:
        """Another node closes the rendezvous."""
        s.when(s.stored == Stored.STATE, ~s.closed)
        s.closed = True
        self.changes(s)

    @fault("corrupt", moves=[arc(Stored.STATE, Stored.CORRUPT)], cite="rendezvous-engine 2.2.3.2: PickleError")
    def corrupt(self, s: S) -> None:
        """Something writes bytes that are not a state."""
        s.when(s.stored == Stored.STATE)
        s.stored = Stored.CORRUPT

    @fault("foreign", moves=[arc(Stored.STATE, Stored.FOREIGN)], cite="rendezvous-engine 2.2.3.2: PickleError")
    def write_foreign(self, s: S) -> None:
        """Something writes no bytes, or the pickle of a class that this torch does not have."""
        s.when(s.stored == Stored.STATE)
        s.stored = Stored.FOREIGN

    @environment(switch="restored", moves=[may((Stored.CORRUPT, Stored.FOREIGN), Stored.STATE)])
    def restore(self, s: S) -> None:
        """An operator restores the earlier state."""
        s.when(s.stored != Stored.STATE)
        s.stored = Stored.STATE

    # ---- properties

    @sometimes(cite="rendezvous-engine 3.2.3")
    def an_exit_times_out(self, s: S) -> Condition:
        """next_rendezvous raises RendezvousTimeoutError before it joins."""
        return any_((s.call[t] == Call.EXIT) & (s.error[t] == CallError.TIMEOUT) for t in s.thread)

    @sometimes(cite="rendezvous-engine 3.2.2")
    def a_close_times_out(self, s: S) -> Condition:
        """set_closed raises RendezvousTimeoutError."""
        return any_((s.call[t] == Call.SET_CLOSED) & (s.error[t] == CallError.TIMEOUT) for t in s.thread)

    @sometimes(cite="rendezvous-engine 3.2.2")
    def a_node_leaves_it_open(self, s: S) -> Condition:
        """The shutdown ran out of time: the node has left, and the rendezvous is open."""
        return (s.phase == AgentPhase.LEFT) & ~s.closed

    @sometimes(cite="rendezvous-engine 2.2.3.2")
    def a_write_is_about_to_lose(self, s: S) -> Condition:
        """A thread is about to write a change of an outdated state."""
        return any_(self.writes_behind(s, t) for t in s.thread)

    def writes_behind(self, s: S, thread: Expr) -> Condition:
        return (s.at[thread] == Step.ACTING) & ~s.got_good[thread]

    @sometimes(needs="corrupt")
    def a_corrupt_state_is_told(self, s: S) -> Condition:
        """A call raises RendezvousStateError."""
        return s.error.any(CallError.STATE)

    @step(witness="it_is_closed", cite="rendezvous-engine 3.2.2")
    def closed_stays_closed(self, before: S, after: S) -> Condition:
        """No write opens a rendezvous that was closed."""
        return implies(before.closed, after.closed)

    @sometimes()
    def it_is_closed(self, s: S) -> Condition:
        """The rendezvous is closed while the node runs."""
        return s.closed & (s.phase == AgentPhase.RUNNING)

    @step(except_=("join", "end"), witness="an_exit_is_written", cite="rendezvous-engine 3.2.3")
    def who_left_stays_out(self, before: S, after: S) -> Condition:
        """No write puts a node back that has left its round."""
        return implies(~before.member, ~after.member)

    @sometimes()
    def an_exit_is_written(self, s: S) -> Condition:
        """The node is out of its round."""
        return ~s.member & (s.phase == AgentPhase.JOINING)

    @always(witness="an_exit_times_out", cite="rendezvous-engine 2.2.3.1")
    def only_the_late_time_out(self, s: S) -> Condition:
        """A call raises RendezvousTimeoutError only after its deadline."""
        return all_(implies(s.error[t] == CallError.TIMEOUT, s.late[t]) for t in s.thread)

    @always(witness="a_close_is_written", cite="rendezvous-engine 3.2.2")
    def a_close_that_returned_has_closed(self, s: S) -> Condition:
        """Where shutdown or set_closed returns, the rendezvous is closed, or the node is not a member."""
        closing = ((s.call[t].isin((Call.SHUTDOWN, Call.SET_CLOSED))) & (s.at[t] == Step.RETURNED) for t in s.thread)
        return implies(any_(closing), s.closed | ~s.member)

    @sometimes()
    def a_close_is_written(self, s: S) -> Condition:
        """set_closed returns."""
        return any_((s.call[t] == Call.SET_CLOSED) & (s.at[t] == Step.RETURNED) for t in s.thread)

    @step(except_=("restore",), witness="a_corrupt_state_is_told", needs="corrupt")
    def a_corrupt_value_is_left_alone(self, before: S, after: S) -> Condition:
        """No node overwrites a value that is not a state."""
        return implies(before.stored != Stored.STATE, after.stored == before.stored)

    @always(witness="a_corrupt_state_is_told", needs="corrupt", cite="rendezvous-engine 2.2.3.2: RendezvousStateError")
    def corruption_is_named(self, s: S) -> Condition:
        """A call that reads a value that is not a state raises RendezvousStateError and no other error."""
        return ~s.error.any(CallError.OTHER)

    @always(witness="a_corrupt_state_is_told", needs="corrupt", cite="rendezvous-engine 3.2.1.2")
    def the_timer_lives(self, s: S) -> Condition:
        """No error ends the thread that beats."""
        return s.timer != Timer.DEAD

    @leads_to(cite="rendezvous-engine 2.2.3.1")
    def calls_end(self, s: S, thread: Expr) -> Any:
        """Each call returns or raises, although other nodes may win every write."""
        return s.at[thread] != Step.IDLE, (s.at[thread] == Step.IDLE) | self.may_go_on(s, thread)

    def may_go_on(self, s: S, thread: Expr) -> Condition:
        """The call need not end."""
        return FALSE


class Torch(Deadlines, edition=TORCH):
    """torch 2.13: one copy, a lock, and deadlines that the operators check."""

    lock = flag(doc="_heartbeat_lock is taken")
    copy_closed = flag(doc="the node's copy, which both threads use")
    copy_member = flag(initial=True, doc="as above")
    copy_due = flag(doc="as above")
    token_good = flag(initial=True, doc="the node's token is the store's")
    dirty = flag(doc="the copy is changed, and not written")
    cached = flag(initial=True, doc="the last sync was less than a second ago: its copy may be served again")
    got_due = flag(per="thread", doc="as the others of these")
    got_stored = choice(Stored, per="thread")

    def begins(self, s: S, thread: Expr, number: int, call: Call) -> None:
        super().begins(s, thread, number, call)
        if call in (Call.SET_CLOSED, Call.POLL, Call.KEEP_ALIVE):
            self.takes_lock(s)

    def takes_lock(self, s: S) -> None:
        s.when(~s.lock)
        s.lock = True

    def drops(self, s: S, thread: Expr) -> None:
        super().drops(s, thread)
        reset(s.got_due, s.got_stored, at=thread)

    def ends_call(self, s: S, thread: Expr) -> None:
        s.lock = s.lock & s.call[thread].isin((Call.EXIT, Call.SHUTDOWN))

    def changes(self, s: S) -> None:
        super().changes(s)
        s.token_good = False

    def joins(self, s: S) -> None:
        s.copy_closed = False
        s.copy_member = True
        s.copy_due = False
        s.token_good = True
        s.dirty = False

    def ages(self, s: S) -> None:
        s.copy_due = s.copy_due | s.copy_member

    def ends_the_timer(self, s: S, thread: Expr) -> Condition:
        return s.error[thread] == CallError.OTHER  # _keep_alive catches RendezvousError alone

    # ---- sync

    @transition(moves=[arc(Step.SYNCING, Step.ANSWERED)], cite="rendezvous-engine 2.2.3.2: get_state, set_state")
    def ask_store(self, s: S, thread: Expr) -> None:
        """The thread reads the store or does a compare-and-set; it has the answer but has not loaded it."""
        move(s.at, Step.SYNCING, Step.ANSWERED, at=thread)
        wins = s.dirty & s.token_good & self.takes_writes(s)
        s.closed = ite(wins, s.copy_closed, s.closed)
        s.member = ite(wins, s.copy_member, s.member)
        s.due = ite(wins, s.copy_due, s.due)
        s.stored = ite(wins, Stored.STATE, s.stored)
        reset(s.got_good, when=wins)
        s.token_good = s.token_good & ~wins
        self.reads(s, thread)
        s.got_due[thread] = s.due
        s.got_stored[thread] = s.stored

    @transition(
        moves=[arc(Step.SYNCING, (Step.DECIDING, Step.RETURNED))],
        cite="rendezvous-engine 2.2.3.2: cache_duration",
    )
    def serve_from_cache(self, s: S, thread: Expr) -> None:
        """The last sync was less than a second ago: the copy is not read again."""
        s.when(s.at[thread] == Step.SYNCING, ~s.dirty, s.cached)
        s.at[thread] = self.after_sync(s, thread)

    def after_sync(self, s: S, thread: Expr) -> Any:
        return ite(s.call[thread] == Call.POLL, Step.RETURNED, Step.DECIDING)

    @transition(
        moves=[arc(Step.ANSWERED, (Step.LOADED, Step.RAISED))],
        cite="rendezvous-engine 2.2.3.2: PickleError",
    )
    def load(self, s: S, thread: Expr) -> None:
        """The answer is unpickled and becomes the node's copy; or it is not a pickled state, and the call raises."""
        s.when(s.at[thread] == Step.ANSWERED)
        good = s.got_stored[thread] == Stored.STATE
        s.copy_closed = ite(good, s.got_closed[thread], s.copy_closed)
        s.copy_member = ite(good, s.got_member[thread], s.copy_member)
        s.copy_due = ite(good, s.got_due[thread], s.copy_due)
        s.error[thread] = ite(good, CallError.NONE, self.error_of(s.got_stored[thread]))
        s.at[thread] = ite(good, Step.LOADED, Step.RAISED)

    def error_of(self, stored: Expr) -> Any:
        return ite(stored == Stored.CORRUPT, CallError.STATE, CallError.OTHER)

    @transition(
        moves=[arc(Step.LOADED, (Step.DECIDING, Step.RETURNED))],
        cite="rendezvous-engine 2.2.3.2: the token is stored",
    )
    def take_token(self, s: S, thread: Expr) -> None:
        """The node takes the answer's token, and nothing is dirty."""
        s.when(s.at[thread] == Step.LOADED)
        s.token_good = s.got_good[thread]
        s.dirty = False
        s.cached = True
        s.at[thread] = self.after_sync(s, thread)
        self.drops(s, thread)

    @environment(fair=True, cite="rendezvous-engine 2.2.3.2: cache_duration")
    def cache_ends(self, s: S) -> None:
        """A second passes since the last sync."""
        s.when(s.cached)
        s.cached = False

    # ---- decide and act

    @transition(
        moves=[arc(Step.DECIDING, (Step.ACTING, Step.RETURNED, Step.RAISED))],
        cite="rendezvous-engine 3.2.1.1, 3.2.2, 3.2.3",
    )
    def decide(self, s: S, thread: Expr) -> None:
        """The operator reads the copy, and checks the deadline if an action is left."""
        s.when(s.at[thread] == Step.DECIDING)
        atoms = {
            "closed": s.copy_closed,
            "participant": s.copy_member,
            "beat_due": s.copy_due,
            "late": self.is_late(s, thread),
        }
        over = self.decides(s, thread, Action.FINISH, atoms)
        late = self.decides(s, thread, Action.ERROR_TIMEOUT, atoms)
        s.at[thread] = ite(over, Step.RETURNED, ite(late, Step.RAISED, Step.ACTING))
        s.error[thread] = ite(late, CallError.TIMEOUT, CallError.NONE)

    def is_late(self, s: S, thread: Expr) -> Condition:
        return s.late[thread]

    @transition(moves=[arc(Step.ACTING, Step.SYNCING)], cite="rendezvous-engine 2.2.3.1: mark_dirty")
    def act(self, s: S, thread: Expr) -> None:
        """The copy is changed and must be written next."""
        s.when(s.at[thread] == Step.ACTING)
        call = s.call[thread]
        leaves, beats = call == Call.EXIT, call == Call.KEEP_ALIVE
        s.copy_closed = s.copy_closed | call.isin((Call.SHUTDOWN, Call.SET_CLOSED))
        s.copy_member = s.copy_member & ~leaves
        s.copy_due = s.copy_due & ~(beats | leaves)
        s.dirty = True
        s.at[thread] = self.after_act()

    def after_act(self) -> Step:
        return Step.SYNCING

    # ---- properties

    def writes_behind(self, s: S, thread: Expr) -> Condition:
        return (s.at[thread] == Step.SYNCING) & s.dirty & ~s.token_good

    @sometimes(cite="rendezvous-engine 3.2.1.1")
    def a_heartbeat_times_out(self, s: S) -> Condition:
        """A keep-alive exceeds its deadline."""
        return any_((s.call[t] == Call.KEEP_ALIVE) & (s.error[t] == CallError.TIMEOUT) for t in s.thread)

    @sometimes(needs="corrupt")
    def a_change_is_left_behind(self, s: S) -> Condition:
        """A call has raised, and the next sync would still write the change that the call could not write."""
        return s.dirty & s.at.all(Step.IDLE)

    @always(witness="a_write_is_about_to_lose", cite="rendezvous-engine 2.2.2.1: _heartbeat_lock")
    def a_good_token_means_a_good_copy(self, s: S) -> Condition:
        """While no thread syncs, a copy with the store's token equals the store's state or was changed by this node."""
        syncing = s.at.any(Step.LOADED)
        same = (s.copy_closed == s.closed) & (s.copy_member == s.member)
        return implies(s.token_good & ~s.dirty & ~syncing & ~s.at.any(Step.ACTING), same)


class Torch110(Torch, edition=SEED):
    """torch 1.10, as in the article: one copy, a lock, and deadlines that the operators check."""


class Ours(Deadlines, edition=TRYSTATE):
    """Ours: a copy for each thread, deadlines that the driver keeps, and a lease instead of a heartbeat's deadline."""

    lease = flag(initial=True, doc="the lease of the node holds, by its own clock")
    lost = flag(per="thread", doc="the call has lost a write")
    listed = flag(initial=True, doc="the shared state lists the node: as a member, or in the round that it has opened")

    def drops(self, s: S, thread: Expr) -> None:
        super().drops(s, thread)
        s.lost[thread] = False

    def joins(self, s: S) -> None:
        s.lease = True
        s.listed = True

    def ends_call(self, s: S, thread: Expr) -> None:
        """A node whose join has timed out leaves, so its shutdown closes nothing (see R10)."""
        leaves = (s.call[thread] == Call.EXIT) & (s.error[thread] == CallError.TIMEOUT) & (s.stored == Stored.STATE)
        s.member = s.member & ~leaves
        s.listed = s.listed & ~leaves
        reset(s.got_good, when=leaves)

    def ends_timer(self, s: S) -> None:
        """`KeepAlive.stop` interrupts the timer's thread before its next request to the store."""
        s.timer = Timer.STOPPED
        for t in s.thread:
            mine = ord_(t) == TIMER
            s.call[t] = ite(mine, Call.NONE, s.call[t])
            s.at[t] = ite(mine, Step.IDLE, s.at[t])
            s.error[t] = ite(mine, CallError.NONE, s.error[t])
            s.lost[t] = s.lost[t] & ~mine
            reset(s.got_closed, s.got_member, s.got_good, at=t, when=mine)

    def no_stamp_under_way(self, s: S) -> Condition:
        return TRUE  # a heartbeat is due by the node's own lease

    def may_go_on(self, s: S, thread: Expr) -> Condition:
        """A heartbeat need not end after the lease: the end of the lease shows the node that it does not beat."""
        return (s.call[thread] == Call.KEEP_ALIVE) & ~s.lease

    def deadline_runs(self, s: S, thread: Expr) -> Condition:
        # The deadline of a join counts from the store's first answer: an outage before it has its own limit.
        first = (s.at[thread] == Step.SYNCING) & ~s.lost[thread]
        limited = s.call[thread].isin((Call.SHUTDOWN, Call.SET_CLOSED, Call.POLL))
        return limited | (s.call[thread] == Call.EXIT) & ~first

    def driver_gives_up(self, s: S, thread: Expr) -> Condition:
        return s.late[thread] & (s.call[thread] != Call.EXIT)

    def renews(self, s: S, thread: Expr) -> Condition:
        """The heartbeat before this read renews the lease: it still holds, and the state lists the node."""
        return s.lease & s.listed & (s.stored == Stored.STATE)

    @transition(
        moves=[arc(Step.SYNCING, (Step.ACTING, Step.RETURNED, Step.RAISED))],
        cite="docs/rendezvous.md",
    )
    def read(self, s: S, thread: Expr) -> None:
        """The node reads the store, after a heartbeat if one is due, and the operator decides."""
        s.when(s.at[thread] == Step.SYNCING, ~self.driver_gives_up(s, thread))
        good, call = s.stored == Stored.STATE, s.call[thread]
        # Only the heartbeats' thread, and a join that has lost a write, send heartbeats.
        renews = ((call == Call.KEEP_ALIVE) | (call == Call.EXIT) & s.lost[thread] & s.due) & self.renews(s, thread)
        s.due = s.due & ~renews
        s.lease = s.lease | renews
        atoms = {
            "closed": s.closed, "complete": TRUE, "participant": s.member,
            "expected": s.listed & ~s.member, "listed": s.listed, "beat_due": s.due,
        }  # fmt: skip
        finished = self.decides(s, thread, Action.FINISH, atoms) | (call == Call.KEEP_ALIVE) & s.closed
        # A heartbeat ends if it reads a closed rendezvous. set_closed closes, member or not. A poll is one read.
        over = ite(call == Call.POLL, TRUE, ite(call == Call.SET_CLOSED, s.closed, finished))
        late = (call == Call.EXIT) & s.late[thread] & s.lost[thread] & ~over
        s.error[thread] = ite(good, ite(late, CallError.TIMEOUT, CallError.NONE), self.error_of(s))
        s.at[thread] = ite(~good | late, Step.RAISED, ite(over, Step.RETURNED, Step.ACTING))
        self.reads(s, thread)

    def error_of(self, s: S) -> Any:
        return CallError.STATE

    @transition(moves=[arc(Step.ACTING, (Step.RETURNED, Step.SYNCING))], cite="docs/rendezvous.md")
    def write(self, s: S, thread: Expr) -> None:
        """A compare-and-set writes the change; if it loses, the store is read again."""
        s.when(s.at[thread] == Step.ACTING, ~self.driver_gives_up(s, thread))
        wins, call = self.is_current(s, thread) & self.takes_writes(s), s.call[thread]
        s.closed = s.closed & ~wins | wins & (s.got_closed[thread] | call.isin((Call.SHUTDOWN, Call.SET_CLOSED)))
        s.member = ite(wins, self.stays(s, thread), s.member)
        s.stored = ite(wins, Stored.STATE, s.stored)
        s.due = s.due & ~wins
        s.lease = s.lease | wins
        reset(s.got_good, when=wins)
        s.lost[thread] = s.lost[thread] | ~wins
        s.at[thread] = self.after_write(wins)

    def stays(self, s: S, thread: Expr) -> Condition:
        return s.got_member[thread] & (s.call[thread] != Call.EXIT)

    def is_current(self, s: S, thread: Expr) -> Condition:
        return s.got_good[thread]

    def after_write(self, wins: Expr) -> Any:
        return ite(wins, Step.RETURNED, Step.SYNCING)

    @transition(moves=[arc((Step.SYNCING, Step.ACTING), Step.RAISED)], cite="docs/rendezvous.md: close_timeout")
    def give_up(self, s: S, thread: Expr) -> None:
        """The deadline has passed: the driver sends nothing more and raises."""
        s.when(s.at[thread].isin((Step.SYNCING, Step.ACTING)), self.driver_gives_up(s, thread))
        self.raises(s, thread, CallError.TIMEOUT)

    @environment(fair=True, cite="docs/rendezvous.md: leases")
    def lease_ends(self, s: S) -> None:
        """No heartbeat was confirmed within the lease."""
        s.when(s.lease, s.due, s.timer == Timer.BEATING)
        s.lease = False

    @step(except_=("write", "join"), witness="a_lease_ends", cite="docs/rendezvous.md: leases")
    def what_is_over_needs_a_write(self, before: S, after: S) -> Condition:
        """No heartbeat renews a lease that is over: another node may have expelled this one."""
        return implies(~before.lease, ~after.lease)

    @sometimes()
    def a_lease_ends(self, s: S) -> Condition:
        """A node's lease ends while its timer tries to beat: the others may take the node for dead."""
        return ~s.lease & any_((s.call[t] == Call.KEEP_ALIVE) & s.lost[t] for t in s.thread)

    @leads_to(needs="corrupt", cite="docs/rendezvous.md: leases")
    def corruption_is_noticed(self, s: S) -> Any:
        """While the state is corrupt, the node's lease ends, or the state is restored, or the node stops running."""
        bad = (s.stored != Stored.STATE) & (s.phase == AgentPhase.RUNNING)
        return bad, ~s.lease | (s.stored == Stored.STATE) | (s.phase != AgentPhase.RUNNING)

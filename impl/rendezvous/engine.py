"""One node's part in the rendezvous, without I/O: generators that yield what to read, write or wait for.

Theory of operation. The nodes of a job share one value, the `State` (state.py): a list of participants, a wait list, a
list of spares, and the number of the round. No node leads. Each node reads the state, decides by itself, and writes the
next state with a compare-and-set. A write that loses the race is not repeated: the node reads and decides again. One
turn:

    operator (operators.py)  ->  Action  ->  change of the state (changes.py)  ->  Write, won or lost

Heartbeats are not in the state. The store has a counter for each node, and a heartbeat adds 1 to it, which no other
node's write can lose. The node reads the counters of three other nodes with it (observer.py, which has the rules
and the reason why they are safe). Each won write of a listed node is a heartbeat as well.

A node is outside, a participant, expected, waiting, or redundant (`Membership`). A round goes through three phases:

    open      participants come; with min_nodes of them the last call begins, which ends after last_call_timeout
    complete  the participants are frozen and sorted, their workers run, and every member writes heartbeats
    replaced  a member left, was expelled, or restarts: round + 1 is open, and the old members are expected in it

Callers. `driver.run` runs one generator. It performs each `Sync` or `Write` that the generator yields, one at a time,
and sends back a `Seen`. Two threads of a node have a generator each: the agent's thread (`join`, `leave`, `step_out`,
`give_notice`, `done`, `close`) and the heartbeat thread (`keep_alive`). Both threads use this object without a lock.
Each assignment replaces the whole value of `me`, `lease` or `makes_room`. Each generator has its own `Observer`.

Failures, and the code that handles them:

- *A write is lost.* Another node wrote first. `_back_off` draws a random pause from a span that grows with each loss.
- *A write was won, and its answer was lost.* The driver repeats the `Write`. The store then returns the bytes that this
  node wrote. They contain the version and the writer, so no other write has them, and the repeat counts as won. If
  another node has written since, the repeat is lost, and the node reads and decides again.
- *The answer to a heartbeat is lost.* The driver repeats it. The counter is then higher by 2, which harms nothing.
- *The lease has ended, and the node is still listed.* A heartbeat does not renew it any more: the node writes the state
  (KEEP_ALIVE), which fails if another node has expelled it.
- *The store cannot be reached.* The lease ends by this node's own clock, and `standing` is LAPSED before any other
  node may consider this one silent (observer.py). The agent then kills its workers.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, replace

from trystate.model.rendezvous.vocabulary import Action, Membership

from . import operators
from .changes import Table, after
from .decisions import Decision, decided
from .errors import RendezvousSettingsError, RendezvousTimeoutError, checked, closed_error, drained_error, late_error
from .intents import applied, exit_flags
from .observer import Beat, Beaten, Lease, Observer
from .operators import View
from .rooms.messages import ANYWAY, CLOSE, DONE, JOIN, LEAVE, NOTICE, STEP_OUT, Intent
from .state import Participant, Settings, State, named

BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX = 0.001, 0.5  # after a lost write; doubled each time, and drawn at random
BACKOFF_ATTEMPTS = 8  # the first span has room for this number of writers
BACKOFF_DOUBLINGS = 16  # limit of the exponent: the span is at its maximum before, and 2**lost would overflow a float
DRIFT_MAX = 0.02  # two clocks that are each wrong by up to 1 % drift apart by up to 2 %: see observer.py
HURRY_SECONDS = 0.5  # polling interval of `hurry`
ALONE = "no other node remains"
GRACE_SECONDS = 5.0  # lost writes of a join are repeated for this long after its deadline; torch: rollback_period


@dataclass(frozen=True, slots=True)
class Sync:
    """Wait until a revision above `revision` is notified, or for `seconds`; send `beat`, if it is due; read."""

    seconds: float = 0.0
    revision: int | None = None  # the last revision that was read; None: wait for the time alone
    beat: Beat | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """Write this state if the store still holds the one that was seen last.

    `action` is the reason. `decisions` describe a won write for the log.
    """

    state: State
    action: Action = Action.KEEP_ALIVE
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """The state that was read last, and the clock after the read. `won`: it is the state that was just written.

    `beaten`: the heartbeat that was sent before the read.
    """

    state: State | None
    now: float
    won: bool = False
    beaten: Beaten | None = None


Effect = Sync | Write


@dataclass(frozen=True, slots=True)
class Joined:
    """A complete round, as each of its members reads it."""

    state: State
    rank: int
    since: float = -math.inf  # when this node saw it complete, by its own clock

    @property
    def of(self) -> tuple[str, int]:
        """Identifies the round: its life and its number."""
        return self.state.life, self.state.round

    @property
    def world_size(self) -> int:
        return len(self.state.participants)

    @property
    def master(self) -> Participant:
        return self.state.participants[0]


class Standing(enum.Enum):
    """The standing of the round that a node is a member of."""

    CURRENT = "it is the current one"
    NEWCOMERS = "a node waits for the next one"
    REPLACED = "it was replaced"
    EXPELLED = "the node is not listed any more"
    LAPSED = "no heartbeat could be confirmed within the lease"
    CLOSED = "the rendezvous is closed"


RUNS = (Standing.CURRENT, Standing.NEWCOMERS)  # the workers of such a round may start, or keep running


class Engine:
    """One node's part in the rendezvous. `draw` returns numbers from 0 to 1; `life` names states that it creates.

    Raises:
        RendezvousSettingsError: min_nodes is below 1 or above max_nodes.
    """

    def __init__(self, me: Participant, settings: Settings, *, draw: Callable[[], float], life: str) -> None:
        self.me, self.settings = me, checked(settings)
        self.lease = Lease(settings)
        self.makes_room = False  # set while workers run: `keep_alive` replaces the round for a newcomer
        self._draw = draw
        self._lives = (f"{life}-{number}" for number in itertools.count())  # names of states that this node creates

    @property
    def token(self) -> str:
        return self.me.node.token

    # ---- next_rendezvous

    def join(
        self, seconds: float, *, failed: bool = False, lapsed: bool = False, final: str = ""
    ) -> Generator[Effect, Seen, Joined]:
        """Become a member of a complete round that is later than the node's present one.

        `failed`: the workers failed, which spends a restart if the rendezvous counts restarts. `final`: the reason why
        that failure is not restarted; it closes the rendezvous as failed. `lapsed`: the workers were killed at the end
        of a lease, even if the node has a lease again.

        Raises:
            RendezvousClosedError, RendezvousSettingsError, RendezvousTimeoutError.
        """
        observer, leaving, held_back = Observer(self.token), True, False
        seen = yield Sync()
        deadline, lost = seen.now + seconds, 0
        while True:
            self._look(observer, seen)
            view = self._view(observer, seen, late=seen.now >= deadline)
            if view.membership is Membership.REDUNDANT:
                deadline = seen.now + seconds  # a spare waits without a limit
            elif view.membership is Membership.WAITING and not held_back:
                # The members replace the round for a newcomer only after scale_up_interval, by their own clocks. The
                # newcomer's deadline moves by that time, once.
                deadline, held_back = deadline + view.settings.scale_up_interval * (1 + DRIFT_MAX), True
            # A restart: the node is still a member of a complete round, and replaces it before it joins the next one.
            # torch does this with two operators (dynamic_rendezvous.py: _RendezvousExitOp, _RendezvousJoinOp).
            leaving = leaving and operators.exit_(view) is Action.REPLACE_ROUND
            action = self._decide(view, leaving)
            if action is Action.SYNC or (action is Action.KEEP_ALIVE and view.lease):
                seen, lost = (yield self._pause(observer, seen, deadline)), 0
                continue
            if (joined := self._ends(action, view, seconds)) is not None:
                return replace(joined, since=seen.now)
            if lost and seen.now >= deadline + GRACE_SECONDS:
                # Other nodes have won every write since the deadline. The node gives up while it may still be listed:
                # `leave` takes it off the lists later, or the others expel it.
                raise self._late(seconds, view.state)
            replaces = action is Action.REPLACE_ROUND
            changed = self._rejoined(view, failed, lapsed, final) if replaces else self._changed(action, view)
            seen = yield from self._attempt(action, changed, view, seen, lost, self._beat(observer, view.state))
            lost = 0 if seen.won else lost + 1
            leaving = leaving and not seen.won
            # The node has left the lists: an operator drained it, or the deadline passed before the round was complete.
            if action is Action.WITHDRAW and seen.won:
                if view.drained:
                    raise drained_error(self.me.node, self._others(view.state))
                raise self._late(seconds, view.state)

    def _decide(self, view: View, leaving: bool) -> Action:
        """Apply the operators in their order: leave the old round, expel silent nodes, join."""
        if leaving:
            return Action.REPLACE_ROUND
        action = operators.expel(view)
        return operators.join(view) if action is Action.FINISH else action

    def _ends(self, action: Action, view: View, seconds: float) -> Joined | None:
        """The end of the operation: the round that the node is in, or an error."""
        state = view.state
        if action is Action.ERROR_TIMEOUT:
            raise self._late(seconds, state)
        if state is not None and action is Action.ERROR_CLOSED and state.closed is not None:
            raise closed_error(state.closed)
        if state is not None and action is Action.ERROR_SETTINGS:
            raise RendezvousSettingsError(self.settings.refusal(state.settings))
        if state is not None and action is Action.FINISH:
            rank = [p.node.token for p in state.participants].index(self.token)
            return Joined(state, rank)
        return None

    def _late(self, seconds: float, state: State | None) -> RendezvousTimeoutError:
        return late_error(self.me.node, self.settings, seconds, self._others(state))

    def _others(self, state: State | None) -> str:
        """The clause about the nodes that remain after this one has left."""
        nodes = [p.node for p in state.listed() if p.node.token != self.token] if state is not None else []
        return f"{named(nodes)} remain{'s' * (len(nodes) == 1)}" if nodes else ALONE

    # ---- while the workers run

    def keep_alive(
        self, joined: Joined, until: Collection[Standing] = (Standing.EXPELLED, Standing.LAPSED, Standing.CLOSED)
    ) -> Generator[Effect, Seen, Standing]:
        """Send heartbeats and expel silent nodes until the node is not a member of this round or of the next one.

        This continues after the round was replaced, because stopping the workers may take longer than the lease. A
        driver also computes `standing` after each effect.
        """
        observer, lost = Observer(self.token), 0
        seen = yield Sync(beat=Beat(self.token, -math.inf, observer.watched(joined.state)))
        while True:
            self._look(observer, seen)
            standing = self.standing(joined, seen.state, seen.now)
            if standing in until:
                return standing
            view = self._view(observer, seen, late=False)
            action = self._upkeep(view, joined, seen.now)
            if action is Action.FINISH or (action is Action.KEEP_ALIVE and view.lease):
                # A newcomer waits and scale_up_interval has not passed: the node wakes when the interval ends.
                waits = seen.state is not None and bool(seen.state.waiting) and not self._is_ripe(joined, seen.now)
                wakes = self._ripens(joined) if waits else math.inf
                seen, lost = (yield self._pause(observer, seen, wakes)), 0
            else:
                # The members stay expected in the next round: they join it when their workers have stopped.
                if action is Action.REPLACE_ROUND and view.state is not None:
                    changed = after(view.state, Table.give_notice, self.me.node, leaving=False)
                else:
                    changed = self._changed(action, view)
                seen = yield from self._attempt(action, changed, view, seen, lost, self._beat(observer, view.state))
                lost = 0 if seen.won else lost + 1

    def _upkeep(self, view: View, joined: Joined, now: float) -> Action:
        """Apply the operators in order: expel silent nodes, replace the round for a newcomer, send a heartbeat."""
        action = operators.expel(view)
        if action is Action.FINISH and self.makes_room and self._has_room(view.state) and self._is_ripe(joined, now):
            # A newcomer waits for a seat. Its arrival makes every agent stop its workers, and workers that lose a peer
            # fail. A failure in a complete round spends a restart of the job. So the round is replaced first, while
            # the workers still run: a later failure of a worker belongs to a round that is over.
            action = operators.exit_(view)
        return operators.keep_alive(view) if action is Action.FINISH else action

    def _ripens(self, joined: Joined) -> float:
        """The time, by this node's clock, from which a round may be replaced for newcomers alone."""
        return joined.since + joined.state.settings.scale_up_interval

    def _is_ripe(self, joined: Joined, now: float) -> bool:
        return now >= self._ripens(joined)

    def _has_room(self, state: State | None) -> bool:
        """Whether the round is to be replaced for a waiting node."""
        # A waiting node without a free seat becomes a spare. If the round were replaced for it repeatedly, each new
        # round would restart the observation of its heartbeats, and it would never be found silent.
        # Once a member is done the job is about to end: a restart would discard finished work.
        return state is not None and bool(state.waiting) and state.seats > 0 and not state.done

    def standing(self, joined: Joined, state: State | None, now: float) -> Standing:
        """The standing of a round, by the last state that was read and by the clock."""
        # The store was restarted without its contents: it has no state, or another incarnation without this round.
        if state is None or state.life != joined.state.life:
            return Standing.EXPELLED
        if state.closed is not None:
            return Standing.CLOSED
        membership = state.membership(self.token)
        if membership is Membership.OUTSIDE:
            return Standing.EXPELLED
        if not self.lease.holds(now):
            return Standing.LAPSED
        if state.round != joined.state.round:
            return Standing.REPLACED
        return Standing.NEWCOMERS if state.waiting and self._is_ripe(joined, now) else Standing.CURRENT

    # ---- leaving

    def leave(self) -> Generator[Effect, Seen, bool]:
        """Take this node off the lists; a complete round that loses a member is replaced. True if it was listed.

        The loss of a member spends a restart. If no restart is left, the rendezvous is closed as failed. A member whose
        workers have succeeded stays listed until the rendezvous is closed: the others count its success.
        """
        return (yield from self.perform(Action.WITHDRAW, Intent(LEAVE, self.token)))

    def step_out(self, failed: bool = False, lapsed: bool = False) -> Generator[Effect, Seen, bool]:
        """Replace a member's round before its health is checked, like `join`. True if it did.

        The others restart at once. They wait for this node without counting it: it is expected until it joins or
        leaves.
        """

        def change(view: View) -> State | None:
            leaves = operators.exit_(view) is Action.REPLACE_ROUND
            return self._rejoined(view, failed, lapsed, checked_first=True) if leaves else None

        return (yield from self._once(Action.REPLACE_ROUND, change))

    def give_notice(self, joined: Joined) -> Generator[Effect, Seen, bool]:
        """Replace the round before a leaving member stops its workers; this spends a restart. True if it did.

        Workers that lose a peer fail. The round is over before that, so their failures do not count as failures of the
        job. No node begins the next round until this node has left.
        """
        # A newcomer may wait at the same moment. The heartbeat thread would then replace the round for it, which spends
        # no restart, and this notice would find another round: a member would leave, and no restart would be spent.
        self.makes_room = False
        return (yield from self.perform(Action.REPLACE_ROUND, Intent(NOTICE, self.token, of=joined.of)))

    def done(self, joined: Joined) -> Generator[Effect, Seen, bool]:
        """Report that the workers have succeeded; the last report closes the rendezvous. False: nothing was written."""
        return (yield from self.perform(Action.MARK_DONE, Intent(DONE, self.token, of=joined.of)))

    def report(self, joined: Joined) -> Generator[Effect, Seen, bool]:
        """Call `done`; return whether the report is then in the state."""
        yield from self.done(joined)
        state = yield from look()
        return state is not None and self.token in state.done

    def close(self, reason: str, verdict: str = "", *, anyway: bool = False) -> Generator[Effect, Seen, bool]:
        """Close the rendezvous for everyone; only a member may, unless `anyway`. True if this node did it."""
        flags = ANYWAY * anyway
        intent = Intent(CLOSE, self.token, flags=flags, by=self.me.node, reason=reason, verdict=verdict)
        return (yield from self.perform(Action.MARK_RENDEZVOUS_CLOSED, intent))

    def perform(self, action: Action, intent: Intent) -> Generator[Effect, Seen, bool]:
        """Apply an intent, of this node or of an operator. False: its rules do not allow it.

        `action` is the reason of the write. Raises UsageError: a drain is refused.
        """
        begins = intent.kind == CLOSE and intent.flags & ANYWAY  # without a state, too

        def change(view: View) -> State | None:
            return applied(self._begun(view.state) if begins else view.state, intent)

        return (yield from self._once(action, change))

    def _once(self, action: Action, change: Callable[[View], State | None]) -> Generator[Effect, Seen, bool]:
        """Write what `change` returns, until a write is won (True) or `change` returns None (False)."""
        observer, lost = Observer(self.token), 0
        seen = yield Sync()
        while (changed := change(view := self._view(observer, seen, late=False))) is not None:
            seen = yield from self._attempt(action, changed, view, seen, lost)
            if seen.won:
                return True
            lost += 1
        return False

    # ---- shared

    def _look(self, observer: Observer, seen: Seen) -> None:
        """Observe what was read, and renew the lease if a heartbeat was sent before that."""
        observer.look(seen.state, seen.now, seen.beaten)
        if seen.beaten is not None and seen.state is not None and seen.state.find(self.token) is not None:
            self.lease.extend(seen.beaten.sent, seen.now)

    def _view(self, observer: Observer, seen: Seen, *, late: bool) -> View:
        state, now = seen.state, seen.now
        settings = state.settings if state is not None else self.settings
        return View(
            state, self.token, self.settings, late=late, lease=self.lease.holds(now), beat_due=self.lease.beat_due(now),
            call_over=state is not None and state.calling and now >= observer.call_ends(state),
            # The process of a member whose workers have succeeded may have ended: no heartbeat is expected of it.
            silent=observer.silent(settings).difference(state.done if state is not None else ()),
        )  # fmt: skip

    def _changed(self, action: Action, view: View) -> State:
        """The state after an action that an operator returned."""
        state, me = view.state, self.me
        if action is Action.ADD_TO_PARTICIPANTS:
            return after(self._begun(state), Table.add_to_participants, me, self.settings)
        assert state is not None  # operators return every other action only for a state
        if action is Action.EXPEL:
            return after(state, Table.expel, me.node, view.silent)
        if action in ENLISTING:
            return after(state, ENLISTING[action], me)
        return after(state, BY_NODE[action], me.node)

    def _begun(self, state: State | None) -> State:
        """The state, or a new one with this node's settings."""
        return state if state is not None else State(next(self._lives), self.settings)

    def _rejoined(self, view: View, failed: bool, lapsed: bool, final: str = "", checked_first: bool = False) -> State:
        """The state in which this member has replaced the round."""
        state = view.state
        assert state is not None  # the exit operator has read it
        flags, of = exit_flags(failed, view.lease, lapsed), (state.life, state.round)
        kind = STEP_OUT if checked_first else JOIN
        after_exit = applied(state, Intent(kind, self.token, flags=flags, of=of, me=self.me, reason=final))
        assert after_exit is not None  # the exit operator has allowed it
        return after_exit

    def _attempt(
        self, action: Action, changed: State, view: View, seen: Seen, lost: int, beat: Beat | None = None
    ) -> Generator[Effect, Seen, Seen]:
        """Write a state; after a lost write, back off and read. A won write renews the lease, from the last read on."""
        after = yield Write(changed, action, tuple(decided(action, view.state, changed, self.me)))
        if not after.won:
            return (yield Sync(self._back_off(action, view, lost, after.now - seen.now), beat=beat))
        if changed.find(self.token) is not None:
            self.lease.confirm(seen.now)
        return after

    def _pause(self, observer: Observer, seen: Seen, deadline: float) -> Sync:
        """Wait for a new revision, at most until the next heartbeat, the end of the last call or the deadline."""
        until = min(deadline, seen.now + self.settings.keep_alive_interval)
        beat = self._beat(observer, seen.state)
        if beat is not None:
            until = min(until, beat.due)
        if seen.state is not None and seen.state.calling and not seen.state.expected:
            until = min(until, observer.call_ends(seen.state))
        return Sync(max(0.0, until - seen.now), seen.state.revision if seen.state is not None else None, beat)

    def _beat(self, observer: Observer, state: State | None) -> Beat | None:
        """The next heartbeat of a listed node. It is due at the interval, and where a window of another node ends."""
        if state is None or state.find(self.token) is None:
            return None
        return Beat(self.token, min(self.lease.next_beat, observer.ends(state.settings)), observer.watched(state))

    def _back_off(self, action: Action, view: View, lost: int, took: float) -> float:
        """The seconds to wait after a lost write, drawn at random from a span that has room for all writers.

        In the time `took` of one attempt, from the read to the write, one writer succeeds. The number of writers is a
        guess, which doubles with each loss. Of the nodes that compete for seats, at most as many succeed as seats are
        free.
        """
        attempts = BACKOFF_ATTEMPTS * 2 ** min(lost, BACKOFF_DOUBLINGS)
        if action is Action.ADD_TO_PARTICIPANTS:
            taken = len(view.state.participants) if view.state is not None else 0
            attempts = min(attempts, view.settings.max_nodes - taken)
        span = max(BACKOFF_SECONDS_MIN, took) * attempts
        return self._draw() * float(min(BACKOFF_SECONDS_MAX, span))


# ---- for nodes and operators


def look() -> Generator[Effect, Seen, State | None]:
    """Read the state once."""
    return (yield Sync()).state


def until_alone(token: str, seconds: float, hurry: Callable[[], bool] = lambda: False) -> Generator[Effect, Seen, None]:
    """Wait until no other node is listed, at most `seconds`, or until `hurry()` is true, which is polled."""
    seen = yield Sync()
    ends = seen.now + seconds
    while seen.now < ends and seen.state is not None and any(p.node.token != token for p in seen.state.listed()):
        if hurry():
            return
        seen = yield Sync(min(HURRY_SECONDS, ends - seen.now), seen.state.revision)


ENLISTING = {
    Action.ADD_TO_WAIT_LIST: Table.add_to_wait_list,
    Action.ADD_TO_REDUNDANCY_LIST: Table.add_to_redundancy_list,
}
BY_NODE = {
    Action.KEEP_ALIVE: Table.keep_alive,
    Action.MARK_RENDEZVOUS_COMPLETE: Table.mark_complete,
    Action.WITHDRAW: Table.withdraw,
}

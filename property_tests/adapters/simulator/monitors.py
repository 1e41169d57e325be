"""The properties of the model, checked on a run: at every write, return and start of workers, and at its end.

Times are true times, which no node can read. Workers of a frozen host do not run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trystate.impl.rendezvous.engine import Joined, Write
from trystate.impl.rendezvous.state import State
from trystate.model.agent.vocabulary import Ending
from trystate.model.errors import TrystateError
from trystate.model.rendezvous.vocabulary import AgentPhase

from .moments import Time
from .nodes import KILL_SECONDS, Process
from .schedule import DRIFT_MAX, Fault

ACTIVE = (AgentPhase.JOINING, AgentPhase.RETURNING, AgentPhase.RUNNING, AgentPhase.DONE, AgentPhase.EXITING)
# Causes of failures that spend a restart. With another cause, workers stop for a newcomer, or the round is over.
BEATS = "beats"
LOSSES = ("worker_failure", "crash", "signal", "LAPSED")
VERDICTS = {Ending.SUCCEEDED: "succeeded", Ending.FAILED: "failed"}
Life = tuple[str, int]  # a life of the store, and a round


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a run: its time in seconds, its node, and the state that was written, if one was."""

    at: float
    who: str
    what: str
    state: State | None = None
    fault: Fault | None = None

    def __str__(self) -> str:
        return f"{self.at:8.3f} {self.who:5} {self.what}{shown(self.state) if self.state is not None else ''}"


class Violation(TrystateError):
    """A property does not hold in a run: its name in the model, and the facts that contradict it."""

    def __init__(self, name: str, seen: str) -> None:
        super().__init__(f"{name}: {seen}")
        self.name, self.seen = name, seen

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        return Violation, (self.name, self.seen)


def demand(holds: object, name: str, *seen: object) -> None:
    """Raises Violation unless `holds`. `seen` is formatted only then: each node calls this a hundred times a run."""
    if not holds:
        raise Violation(name, ", ".join(shown(one) if isinstance(one, State) else str(one) for one in seen))


class Watch:
    """The events of a run so far, and the properties that do not hold."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self.log: list[Event] = []
        self.violations: dict[str, Violation] = {}  # the first violation of each property

    def say(self, who: str, what: str, state: State | None = None) -> None:
        self.log.append(Event(self._time.now, who, what, state))

    def strikes(self, fault: Fault) -> None:
        self.log.append(Event(self._time.now, "", str(fault)[8:], fault=fault))

    def demand(self, holds: object, name: str, seen: str) -> None:
        if not holds and name not in self.violations:
            self.violations[name] = Violation(name, seen)
            self.say("", f"violated: {name}: {seen}")

    def look(self) -> None:
        """Called at regular intervals."""

    def unrest(self) -> Iterator[tuple[str, str]]:
        """Why a run without disturbances is not at rest yet: properties, each with the fact that contradicts it."""
        raise NotImplementedError


class Monitors(Watch):
    """The properties of a run, checked at each event."""

    unlisted_expel = False  # whether the request of a node that is not listed yet may expel silent nodes

    def __init__(self, time: Time) -> None:
        super().__init__(time)
        self.processes: dict[str, Process] = {}
        self._state: State | None = None  # the state that the store holds
        self._worlds: dict[Life, tuple[object, ...]] = {}
        self._writers: dict[tuple[str, int], str] = {}
        self._beat: dict[str, float] = {}  # when a node last wrote, or sent a heartbeat
        self._worked: set[tuple[Life, str]] = set()  # nodes whose workers have succeeded, by round
        self._completed: dict[Life, float] = {}  # when a round was complete
        self._emptied = -math.inf  # when the store lost its contents
        self._outages: list[tuple[float, float]] = []

    def strikes(self, fault: Fault) -> None:
        super().strikes(fault)
        if fault.kind == "wipe":
            self._state, self._emptied = None, self._time.now
        if fault.kind == "outage":
            self._outages.append((fault.at, fault.at + fault.seconds))

    # ---- events of the store

    def beat(self, who: str) -> None:
        """A heartbeat has reached the store; it renews no lease that is over."""
        self.say(who, BEATS)
        if self.processes[who].leased:
            self._beat[who] = self._time.now

    def wrote(self, before: State | None, after: State, who: str) -> None:
        self.say(who, f"writes version {after.version}: ", after)
        self._writers[after.life, after.version] = who
        self._beat[who], self._state = self._time.now, after
        demand(after.writer == who, "versions_name_their_writer", who, after)
        _shape(before, after)
        if before is not None:
            _kept(before, after)
            self._closing(before, after, who)
            self._spending(before, after, self.processes[who])
            self._removals(before, after, who)
            self._growing(before, after)
        if after.complete:
            self._completed.setdefault((after.life, after.round), self._time.now)
        self._settings(after)
        self._checked(after)
        self._runners(after)

    def _spending(self, before: State, after: State, writer: Process) -> None:
        """Only failures and departures spend restarts of the job, at most one for each round.

        `losses_spend` excludes one case: the workers of a node fail, and before its agent replaces the round, the
        node's heartbeats replace it for a newcomer (seed 1074). The failure then ends no round and spends nothing.
        """
        if not any(before.listed()):  # a newcomer with other settings begins another job
            same = after.settings == before.settings
            return demand(after.spent == same * before.spent, "losses_spend", writer.token, before, after)
        members = {p.node.token for p in before.participants} if before.complete and before.closed is None else set()
        gone = members - {p.node.token for p in after.listed()}
        fails = after.closed is not None and before.closed is None and after.closed.verdict == "failed"
        if fails or after.round != before.round:
            left = writer.leaves and writer.token in members
            failed = writer.restarting and writer.token in members and writer.leased
            failed = failed and not (before.waiting and after.cause.endswith("waited for a seat"))
            lost = bool(gone) or left or failed
            spent = int(lost and before.restarts_left and after.settings.max_restarts >= 0)
            enough = after.spent == before.spent + spent and fails >= (lost and not before.restarts_left)
            demand(enough or not lost, "losses_spend", writer.token, before, after)
        if fails or after.spent != before.spent:
            silent = fails and any(not self.processes[token].leased for token in members)
            left, failed = writer.leaves, writer.restarting and writer.cause in LOSSES
            genuine = gone or silent or ((left or failed) and writer.token in members)
            demand(genuine, "coming_spends_nothing", writer.token, writer.cause, before, after)

    def _growing(self, before: State, after: State) -> None:
        """A round that is replaced only for newcomers has been complete for the interval."""
        if after.round != before.round and after.cause.endswith("waited for a seat"):
            age = self._time.now - self._completed[before.life, before.round]
            least = before.settings.scale_up_interval * (1 - DRIFT_MAX)
            demand(age >= least, "newcomers_wait_for_the_interval", age, before)

    def _closing(self, before: State, after: State, who: str) -> None:
        if after.closed is None or before.closed is not None:
            return
        member = any(p.node.token == who for p in (*before.participants, *before.expected))
        gone = any(not self.processes[p.node.token].leased for p in before.participants)
        listed = self.unlisted_expel or before.find(who) is not None
        demand(member or (gone and listed), "closing_is_earned", who, before)
        verdict, agreed = after.closed.verdict, after.settings
        demand(after.closed.reason and verdict in ("succeeded", "failed"), "closing_says_why", who, after.closed)
        if verdict == "succeeded":
            life = (after.life, after.round)
            lazy = [p.node.token for p in before.participants if (life, p.node.token) not in self._worked]
            demand(before.complete and not lazy, "success_is_everybodys", who, after, *lazy)
        else:
            left = agreed.max_restarts < 0 or after.spent < agreed.max_restarts
            demand(not left, "restarts_left_are_used", who, after, after.spent)

    def _removals(self, before: State, after: State, who: str) -> None:
        """A node is removed by another node only after its lease, and only if it could not write a heartbeat."""
        left = {p.node.token for p in before.listed()} - {p.node.token for p in after.listed()} - {who}
        for gone in (self.processes[token] for token in sorted(left)):
            since = self._time.now - self._beat[gone.token]
            held = since * gone.host.rate < gone.host.settings.lease_seconds
            demand(not held, "leases_end_first", f"{who} expelled {gone.token} too early, after", since)
            window = gone.host.settings.expiry_seconds + 2 * gone.host.settings.keep_alive_interval
            stays = not (gone.up and gone.phase in ACTIVE and self._calm(gone) > window)
            demand(stays, "live_nodes_stay", f"{who} expelled {gone.token}, which could beat all the time")

    def _calm(self, process: Process) -> float:
        """Seconds in which a node could write heartbeats. With two attempts, one outage is enough to lose the lease."""
        since = process.computer.disturbed_until
        if process.host.settings.keep_alive_max_attempt <= 2:
            since = max(since, *(end for _, end in self._outages), 0.0)
        now = self._time.now
        return now - since - sum(max(0.0, min(end, now) - max(at, since)) for at, end in self._outages)

    def _settings(self, after: State) -> None:
        for p in after.listed():
            agrees = self.processes[p.node.token].host.settings == after.settings
            demand(agrees, "the_listed_agree", p.node.token, after.settings)

    def _checked(self, after: State) -> None:
        """A node is not a participant of a later round while its health command runs."""
        for p in after.participants:
            one = self.processes[p.node.token]
            early = one.checking and one.joined is not None and one.joined.state.round != after.round
            demand(not early, "members_are_checked_again", p.node.token, after)

    def _runners(self, after: State) -> None:
        """A node that runs is listed in its round, or expected in the next one, or its lease is over."""
        for process in self.processes.values():
            joined = process.joined
            if not process.runs or joined is None or not process.leased or after.closed is not None:
                continue
            if joined.state.life != after.life:
                self._outlived(process)
                continue
            current = joined.state.round == after.round
            among = after.participants if current else after.expected
            listed = any(p.node.token == process.token for p in among)
            name = "who_runs_has_a_lease" if current else "the_replaced_are_expected"
            demand(listed, name, process.token, joined.state, after)

    def _outlived(self, process: Process) -> None:
        """An empty store has no nodes: earlier nodes stop at the end of their leases."""
        since = (self._time.now - self._emptied) * process.host.rate
        ends = process.host.settings.lease_seconds + KILL_SECONDS * process.host.rate
        demand(since <= ends, "the_removed_are_told", process.token, "still runs", since)

    # ---- events of the nodes

    def begins(self, process: Process) -> None:
        self.processes[process.token] = process
        self.say(process.token, "starts to join")

    def noted(self, process: Process, write: Write, won: bool) -> None:
        state = write.state
        if not won:
            return self.say(process.token, f"{write.action.name} was lost")
        writer = self._writers.get((state.life, state.version), "nobody")
        demand(writer == process.token, "no_lost_write_is_won", process.token, writer, state)

    def returned(self, process: Process, joined: Joined) -> None:
        state = joined.state
        self.say(process.token, f"returns: round {state.round}, rank {joined.rank} of {joined.world_size}")
        members = tuple((p.node.token, p.host, p.port) for p in state.participants)
        known = self._worlds.setdefault((state.life, state.round), members)
        master = (joined.master.node.token, joined.master.host, joined.master.port)
        demand(known[0] == master, "agree_on_master", process.token, known[0], master)
        demand(known == members, "agree_on_world", process.token, known, members)
        demand(state.complete, "agree_on_world", process.token, state)
        mine = members[joined.rank][0]
        demand(mine == process.token, "agree_on_world", process.token, joined.rank, mine)
        before = process.joined.state if process.joined is not None else None
        later = before is None or before.life != state.life or before.round < state.round
        demand(later, "a_restart_is_a_new_round", process.token, state)

    def starts(self, process: Process) -> None:
        """Workers start, or a host returns with them: no workers run in another round."""
        self.say(process.token, f"{'runs' if process.running else 'has no workers'}")
        lives = set()
        for p in self.processes.values():
            if p.runs and p.closed is None and p.joined is not None:
                if self._state is not None and p.joined.state.life == self._state.life:
                    lives.add((p.joined.state.life, p.joined.state.round))
                else:
                    self._outlived(p)
        demand(len(lives) <= 1, "one_group_in_the_job", *sorted(lives))

    def worked(self, process: Process) -> None:
        assert process.joined is not None  # it has run
        state = process.joined.state
        self._worked.add(((state.life, state.round), process.token))
        self.say(process.token, "has succeeded")

    def killed(self, process: Process) -> None:
        self.say(process.token, "has a watchdog that kills its workers")

    def ends(self, process: Process, why: str) -> None:
        self.say(process.token, why)
        patient = process.ending is not Ending.CUT_OFF or process.lapsed >= process.host.join_seconds
        demand(patient, "outages_are_survived", process.token, process.lapsed)
        if process.ending in VERDICTS:
            closed = process.closed
            said = closed is not None and closed.verdict == VERDICTS[process.ending]
            demand(said, "one_verdict", process.token, why, closed)

    # ---- checks at the end of a run

    def unrest(self) -> Iterator[tuple[str, str]]:
        state, up = self._state, [p for p in self.processes.values() if p.up]
        if not up:
            return
        for p in up:
            if p.signalled:
                yield "signals_are_obeyed", f"{p.token} got a signal, and is {p.phase.name}"
        if state is None:
            yield "enough_nodes_complete_a_round", "nobody has written anything"
            return
        if state.closed is not None:
            for p in up:
                yield "the_verdict_reaches_everybody", f"{p.token} is {p.phase.name}: {shown(state)}"
            return
        member = {p.node.token for p in state.participants}
        trying = [p for p in up if p.phase in ACTIVE and p.host.settings == state.settings]
        if len(trying) >= state.settings.min_nodes and not state.complete:
            yield "enough_nodes_complete_a_round", f"{len(trying)} nodes try: {shown(state)}"
        yield from _unlisted(state, self.processes)
        for p in up:
            current = p.joined is not None and (p.joined.state.life, p.joined.state.round) == (state.life, state.round)
            waits = p.phase is AgentPhase.DONE and p.token in state.done
            if p.token in member and state.complete and not (current and (waits or p.phase is AgentPhase.RUNNING)):
                yield "full_rounds_come_to_rest", f"{p.token} is {p.phase.name}: {shown(state)}"
            if p.phase in (AgentPhase.RUNNING, AgentPhase.DONE) and p.token not in member:
                yield "the_removed_are_told", f"{p.token} runs, and is no member: {shown(state)}"
            if p.host.work < math.inf and state.complete and p.token in member:
                yield "everybody_ends", f"{p.token} is {p.phase.name}: {shown(state)}"
            if p.phase is AgentPhase.JOINING and state.find(p.token) is None:
                yield "everybody_is_listed", f"{p.token} joins, and is in no list: {shown(state)}"
        if state.complete and not state.done and len(state.participants) < state.settings.max_nodes and state.spares:
            yield "spares_fill_seats", shown(state)


def _shape(before: State | None, state: State) -> None:
    """The properties of every state of the store; a complete round is checked once, since it does not change."""
    members = state.participants
    tokens = [p.node.token for p in state.listed()]
    low, high = state.settings.min_nodes, state.settings.max_nodes
    demand(len(tokens) == len(set(tokens)), "lists_are_disjoint", state)
    demand(len(members) + len(state.expected) <= high, "seats_are_kept", state)
    spent, most = state.spent, state.settings.max_restarts
    demand(spent <= most if most >= 0 else spent == 0, "restarts_are_limited", state, spent)
    if state.complete and (before is None or not before.complete or before.round != state.round):
        demand([*members] == sorted(members, key=lambda p: p.order), "ranks_are_ordered", state)
        demand(len(members) >= low, "at_least_min", state)
    demand(not (state.complete and state.expected), "the_complete_expect_nobody", state)


def _kept(before: State, after: State) -> None:
    """The fields that a write may not change."""
    demand(after.version == before.version + 1, "versions_increase", before.version, after.version)
    demand(after.life == before.life, "one_life", before.life, after.life)
    demand(after.revision >= before.revision, "news_increase", before.revision, after.revision)
    demand(before.closed is None or after.closed == before.closed, "the_verdict_is_final", before, after)
    same = after.settings == before.settings or not any(before.listed())
    demand(same, "settings_stay", before.settings, after.settings)
    if after.round == before.round:
        then, now = ([(p.node, p.host, p.port) for p in s.participants] for s in (before, after))
        fixed = not before.complete or (after.complete and then == now)
        demand(fixed, "what_returned_stays_written", before, after)
    else:
        follows = after.round == before.round + 1 and before.complete
        demand(follows, "rounds_only_advance", before, after)
    begins = after.quorum and not before.calling and (after.round != before.round or not before.complete)
    demand(after.call == before.call + begins, "a_quorum_begins_a_last_call", before, after)
    demand(after.revision == before.revision + _is_news(before, after), "news_are_notified", before, after)


def _is_news(before: State, after: State) -> bool:
    """Whether other nodes may wait for this change. They do not wait for heartbeats and new participants."""
    waits, waited = ({(n, p.node.token) for n in ("waiting", "spares") for p in getattr(s, n)} for s in (after, before))
    moved = (after.round, after.complete, after.closed, after.draining) != (
        before.round, before.complete, before.closed, before.draining)  # fmt: skip
    gone = {p.node.token for p in before.listed()} - {p.node.token for p in after.listed()}
    return moved or bool(gone or waits - waited)


def shown(state: State) -> str:
    """`round 3 complete: 0 1 2; waiting 4`"""
    lists = {"": state.participants, "expected ": state.expected, "waiting ": state.waiting, "spare ": state.spares}
    parts = [name + " ".join(p.node.token for p in nodes) for name, nodes in lists.items() if nodes]
    flags = f"{' complete' if state.complete else ''}{' closed' if state.closed else ''}"
    return f"round {state.round}{flags}: {'; '.join(parts) or 'nobody'}"


def _unlisted(state: State, processes: Mapping[str, Process]) -> Iterator[tuple[str, str]]:
    """Nodes that should have come or left. A node that has reported success may have ended, and then makes no room."""
    for one in state.listed():
        if not processes[one.node.token].up and one.node.token not in state.done:
            yield "departures_are_noticed", f"{one.node.token} is gone: {shown(state)}"
    for one in state.waiting if not state.done else ():
        yield "the_waiting_are_answered", f"{one.node.token} waits: {shown(state)}"
    for one in state.expected:
        yield "the_expected_come_or_go", f"{one.node.token} is expected: {shown(state)}"

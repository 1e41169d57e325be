"""The properties of the model, checked on a run: at every change, return and start of workers, and at its end.

Also the properties of requests that arrive twice or late, and of restarts of the server. Times are true times, which no
node can read. Workers of a frozen host do not run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from trystate.impl.rendezvous.engine import Joined
from trystate.impl.rendezvous.rooms.member import JOINING
from trystate.impl.rendezvous.rooms.messages import Summary
from trystate.impl.rendezvous.rooms.room import LISTING
from trystate.impl.rendezvous.state import State
from trystate.model.agent.vocabulary import Ending
from trystate.model.rendezvous.vocabulary import AgentPhase

from ..simulator.machines import KILL_SECONDS
from ..simulator.moments import Time
from ..simulator.schedule import DRIFT_MAX, Fault
from ..simulator.watch import Watch, demand, shown
from .hosts import OPERATOR, Process

ACTIVE = (AgentPhase.JOINING, AgentPhase.RETURNING, AgentPhase.RUNNING, AgentPhase.DONE, AgentPhase.EXITING)
# Causes of failures that spend a restart. With another cause, workers stop for a newcomer, or the round is over.
LOSSES = ("worker_failure", "crash", "signal", "LAPSED")
VERDICTS = {Ending.SUCCEEDED: "succeeded", Ending.FAILED: "failed"}
Life = tuple[str, int]  # a life of the room, and a round
OUTSIDER: Any = SimpleNamespace(token=OPERATOR.token, up=False, runs=False, joined=None, leaves=False,
                              restarting=False, cause="")  # fmt: skip


class Monitors(Watch):
    """The properties of a run, checked at each event."""

    def __init__(self, time: Time) -> None:
        super().__init__(time)
        self.processes: dict[str, Process] = {OPERATOR.token: OUTSIDER}
        self._state: State | None = None  # the state of the room
        self._beat: dict[str, float] = {}  # when a node last wrote, or sent a heartbeat
        self._worked: set[tuple[Life, str]] = set()  # nodes whose workers have succeeded, by round
        self._completed: dict[Life, float] = {}  # when a round was complete
        self._emptied = -math.inf  # when the server lost its contents
        self._outages: list[tuple[float, float]] = []
        self.rounds: dict[Life, State] = {}  # complete ones
        self._seen: dict[Life, object] = {}  # the summaries of its members
        self._replaced: set[tuple[bytes, ...]] = set()  # requests that have replaced a round
        self._ended: dict[str, int] = {}  # the last join of a node that was taken off the lists
        self.version = 0  # the latest that a node has received
        self.sender = OUTSIDER  # the node of a request, as it was when it sent that

    def strikes(self, fault: Fault) -> None:
        super().strikes(fault)
        if fault.kind == "wipe":
            self._state, self._emptied = None, self._time.now
        if fault.kind in ("outage", "pause"):
            self._outages.append((fault.at, fault.at + fault.seconds))

    # ---- events of the room

    def beat(self, who: str) -> None:
        """A heartbeat has reached the room; it renews no lease that is over."""
        if self.processes[who].leased:
            self._beat[who] = self._time.now

    def changed(self, name: str, request: tuple[bytes, ...], before: State | None, after: State) -> None:
        """A request, or the room itself, has made the change of this name."""
        who, join, life = after.writer, int.from_bytes(request[1], "little"), (after.life, after.round)
        self.say(who, f"writes version {after.version}: ", after)
        self._state = after
        _shape(before, after)
        if before is not None:
            _kept(before, after)
            self._closing(before, after, who)
            self._spending(before, after, self.sender)
            self._removals(before, after, who)
            self._growing(before, after)
        if after.complete:
            self._completed.setdefault(life, self._time.now)
            self.rounds[life] = after
        self._settings(after)
        self._checked(after)
        self._runners(after)
        if name == "replace_round":
            demand(request not in self._replaced, "a_request_replaces_one_round", who, after)
            self._replaced.add(request)
        if name == "withdraw":
            self._ended[who] = max(join, self.processes[who].left)
        elif name in LISTING:
            self._beat[who] = self._time.now
            again = request[0][0] in JOINING and join <= self._ended.get(who, 0)
            demand(not again, "an_ended_join_stays_ended", who, join, after)

    def restored(self, before: State | None, after: State | None, whole: bool) -> None:
        """A server has started again; `whole`: all its records were on the disk."""
        demand(not whole or before == after, "a_restart_has_the_records", before, after)
        version, self._state = after.version if after is not None else 0, after
        demand(version >= self.version, "answers_are_kept", version, self.version)
        if not whole:  # some changes are undone, and may be made again; no node has seen them
            self._replaced.clear()
            self._ended.clear()

    def _spending(self, before: State, after: State, writer: Any) -> None:
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
        demand(member or gone, "closing_is_earned", who, before)
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
        """An empty room has no nodes: earlier nodes stop at the end of their leases."""
        since = (self._time.now - self._emptied) * process.host.rate
        ends = process.host.settings.lease_seconds + KILL_SECONDS * process.host.rate
        demand(since <= ends, "the_removed_are_told", process.token, "still runs", since)

    # ---- events of the nodes

    def begins(self, process: Process) -> None:
        self.processes[process.token] = process
        self.say(process.token, "starts to join")

    def joined(self, process: Process, s: Summary) -> Joined:
        """The round of a member's summary, with its state."""
        key = s.life, s.round
        found = Joined(self.rounds[key], s.rank)
        same = s.participants, s.master, s.members
        demand(self._seen.setdefault(key, same) == same, "agree_on_world", process.token, same)
        demand(s.rank in range(found.world_size) and s.participants == found.world_size, "agree_on_world", s)
        demand(s.master == (found.state.participants[0].host, found.state.participants[0].port), "agree_on_master", s)
        return found

    def returned(self, process: Process, joined: Joined) -> None:
        state = joined.state
        self.say(process.token, f"returns: round {state.round}, rank {joined.rank} of {joined.world_size}")
        mine = state.participants[joined.rank].node.token
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
    """The properties of every state; a complete round is checked once, since it does not change."""
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


def _unlisted(state: State, processes: Mapping[str, Process]) -> Iterator[tuple[str, str]]:
    """Nodes that should have come or left. A node that has reported success may have ended, and then makes no room."""
    for one in state.listed():
        if not processes[one.node.token].up and one.node.token not in state.done:
            yield "departures_are_noticed", f"{one.node.token} is gone: {shown(state)}"
    for one in state.waiting if not state.done else ():
        yield "the_waiting_are_answered", f"{one.node.token} waits: {shown(state)}"
    for one in state.expected:
        yield "the_expected_come_or_go", f"{one.node.token} is expected: {shown(state)}"

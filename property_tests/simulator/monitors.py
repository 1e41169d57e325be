"""The properties of the model, asked of a run: at every write, return and start of workers, and at its end.

Time is true time here: what no node can know, a monitor does. Workers of a host that stands still do not run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trystate.impl.rendezvous.engine import Joined
from trystate.impl.rendezvous.state import State
from trystate.model.errors import TrystateError
from trystate.model.rendezvous.vocabulary import Action, Place

from .moments import Time
from .nodes import Process
from .schedule import Fault

ACTIVE = (Place.JOINING, Place.RETURNING, Place.RUNNING, Place.EXITING)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a run: when in seconds, to whom, and the state that was written, if one was."""

    at: float
    who: str
    what: str
    state: State | None = None
    fault: Fault | None = None

    def __str__(self) -> str:
        return f"{self.at:8.3f} {self.who:5} {self.what}{shown(self.state) if self.state is not None else ''}"


class Violation(TrystateError):
    """A property does not hold in a run: its name in the model, and what was seen."""

    def __init__(self, name: str, seen: str) -> None:
        super().__init__(f"{name}: {seen}")
        self.name = name


def demand(holds: object, name: str, *seen: object) -> None:
    """What was seen is put into words only where it is wrong: this is asked a hundred times a run, of each node."""
    if not holds:
        raise Violation(name, ", ".join(shown(one) if isinstance(one, State) else str(one) for one in seen))


class Monitors:
    """What has been seen in a run so far."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self.processes: dict[str, Process] = {}
        self.log: list[Event] = []
        self._worlds: dict[tuple[str, int], tuple[object, ...]] = {}
        self._writers: dict[int, str] = {}
        self._beat: dict[str, float] = {}  # when a node last wrote

    def say(self, who: str, what: str, state: State | None = None) -> None:
        self.log.append(Event(self._time.now, who, what, state))

    def strikes(self, fault: Fault) -> None:
        self.log.append(Event(self._time.now, "", str(fault)[8:], fault=fault))

    # ---- told by the store

    def wrote(self, before: State | None, after: State, who: str) -> None:
        self.say(who, f"writes version {after.version}: ", after)
        self._writers[after.version] = who
        self._beat[who] = self._time.now
        _shape(after)
        if before is not None:
            _kept(before, after)
            self._closing(before, after, who)
            self._removals(before, after, who)
        self._settings(after)
        self._runners(after)

    def _closing(self, before: State, after: State, who: str) -> None:
        if after.closed is None or before.closed is not None:
            return
        member = any(p.node.token == who for p in (*before.participants, *before.expected))
        place = self.processes[who].place
        demand(member and place is Place.DONE, "closing_is_earned", who, place, before)

    def _removals(self, before: State, after: State, who: str) -> None:
        """Whoever is taken off a list by another: its lease is over, and it is not one that could beat."""
        left = {p.node.token for p in before.listed()} - {p.node.token for p in after.listed()} - {who}
        for gone in (self.processes[token] for token in sorted(left)):
            since = self._time.now - self._beat[gone.token]
            held = since * gone.host.rate < gone.host.settings.lease
            demand(not held, "leases_end_first", f"{who} expelled {gone.token} too early, after", since)
            window = gone.host.settings.window + 2 * gone.host.settings.interval
            calm = self._time.now - gone.computer.disturbed_until > window
            stays = not (gone.up and calm and gone.place in ACTIVE)
            demand(stays, "live_nodes_stay", f"{who} expelled {gone.token}, which could beat all the time")

    def _settings(self, after: State) -> None:
        for p in after.listed():
            agrees = self.processes[p.node.token].host.settings == after.settings
            demand(agrees, "the_listed_agree", p.node.token, after.settings)

    def _runners(self, after: State) -> None:
        """Whoever runs is listed in its round, or expected in the next one, or its lease is over."""
        for process in self.processes.values():
            if not process.runs or process.joined is None or not process.leased or after.closed is not None:
                continue
            current = process.joined.state.round == after.round
            among = after.participants if current else after.expected
            listed = any(p.node.token == process.token for p in among)
            name = "who_runs_has_a_lease" if current else "the_replaced_are_expected"
            demand(listed, name, process.token, process.joined.state, after)

    # ---- told by the nodes

    def begins(self, process: Process) -> None:
        self.processes[process.token] = process
        self.say(process.token, "starts to join")

    def noted(self, process: Process, action: Action, state: State, won: bool) -> None:
        if not won:
            return self.say(process.token, f"{action.name} was lost")
        writer = self._writers.get(state.version, "nobody")
        demand(writer == process.token, "no_lost_write_is_won", process.token, writer, state)

    def returned(self, process: Process, joined: Joined) -> None:
        state = joined.state
        self.say(process.token, f"returns: round {state.round}, rank {joined.rank} of {joined.world_size}")
        members = tuple((p.node.token, p.host, p.port) for p in state.participants)
        known = self._worlds.setdefault((state.life, state.round), members)
        demand(known == members, "agree_on_world", process.token, known, members)
        demand(state.complete, "agree_on_world", process.token, state)
        mine = members[joined.rank][0]
        demand(mine == process.token, "agree_on_world", process.token, joined.rank, mine)
        later = process.joined is None or process.joined.state.round < state.round
        demand(later, "rounds_only_advance", process.token, state)
        demand(joined.master == state.participants[0], "agree_on_master", joined.master, state)

    def starts(self, process: Process) -> None:
        """Workers start, or a host comes back with them: nobody runs in another round."""
        running = sorted((p.joined.state.round, p.token) for p in self.processes.values() if p.runs and p.joined)
        self.say(process.token, f"{'runs' if process.workers else 'has no workers'}")
        demand(len({r for r, _ in running}) <= 1, "never_two_groups", *running)

    def ends(self, process: Process, why: str) -> None:
        self.say(process.token, why)


def _shape(state: State) -> None:
    """What holds in every state of the store."""
    members = [p.node for p in state.participants]
    tokens = [p.node.token for p in state.listed()]
    low, high = state.settings.min_nodes, state.settings.max_nodes
    demand(len(tokens) == len(set(tokens)), "lists_are_disjoint", state)
    demand(len(members) + len(state.expected) <= high, "seats_are_kept", state)
    if state.complete:
        demand(members == sorted(members, key=lambda node: node.order), "ranks_are_ordered", state)
        demand(len(members) >= low, "at_least_min", state)
        demand(not state.expected, "the_complete_expect_nobody", state)


def _kept(before: State, after: State) -> None:
    """What a write may not change."""
    demand(after.version == before.version + 1, "versions_increase", before.version, after.version)
    demand(after.life == before.life, "one_life", before.life, after.life)
    demand(after.news >= before.news, "news_increase", before.news, after.news)
    demand(before.closed is None or after.closed == before.closed, "closed_stays_closed", after)
    same = after.settings == before.settings or not any(before.listed())
    demand(same, "settings_stay", before.settings, after.settings)
    if after.round == before.round:
        then, now = ([(p.node, p.host, p.port) for p in s.participants] for s in (before, after))
        fixed = not before.complete or (after.complete and then == now)
        demand(fixed, "what_returned_stays_written", before, after)
    else:
        follows = after.round == before.round + 1 and before.complete
        demand(follows, "rounds_only_advance", before, after)


def shown(state: State) -> str:
    """`round 3 complete: 0 1 2; waiting 4`"""
    lists = {"": state.participants, "expected ": state.expected, "waiting ": state.waiting, "spare ": state.spares}
    parts = [name + " ".join(p.node.token for p in nodes) for name, nodes in lists.items() if nodes]
    flags = f"{' complete' if state.complete else ''}{' closed' if state.closed else ''}"
    return f"round {state.round}{flags}: {'; '.join(parts) or 'nobody'}"


def unrest(state: State | None, processes: Mapping[str, Process]) -> Iterator[tuple[str, str]]:
    """What keeps a run from being at rest, once nothing disturbs it any more: name of a property, what is missing."""
    up = [p for p in processes.values() if p.up]
    if state is None:
        if up:
            yield "enough_nodes_complete_a_round", "nobody has written anything"
        return
    if state.closed is not None:
        for p in up:
            if p.place is Place.JOINING:
                yield "closing_reaches_everyone", f"{p.token} still joins"
        return
    member = {p.node.token for p in state.participants}
    trying = [p for p in up if p.place in ACTIVE and p.host.settings == state.settings]
    if len(trying) >= state.settings.min_nodes and not state.complete:
        yield "enough_nodes_complete_a_round", f"{len(trying)} nodes try: {shown(state)}"
    for one in state.listed():
        if up and not processes[one.node.token].up:
            yield "departures_are_noticed", f"{one.node.token} is gone: {shown(state)}"
    for one in state.waiting:
        yield "the_waiting_are_answered", f"{one.node.token} waits: {shown(state)}"
    for one in state.expected:
        yield "the_expected_come_or_go", f"{one.node.token} is expected: {shown(state)}"
    for p in up:
        running = p.place is Place.RUNNING and p.joined is not None and p.joined.state.round == state.round
        if p.token in member and state.complete and not running:
            yield "full_rounds_come_to_rest", f"{p.token} is {p.place.name}: {shown(state)}"
        if p.place is Place.RUNNING and p.token not in member:
            yield "the_removed_are_told", f"{p.token} runs, and is no member: {shown(state)}"
        if p.place is Place.JOINING and state.find(p.token) is None:
            yield "everybody_is_listed", f"{p.token} joins, and is in no list: {shown(state)}"
    if state.complete and len(state.participants) < state.settings.max_nodes and state.spares:
        yield "spares_fill_seats", shown(state)

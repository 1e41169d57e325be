"""NVRx's rendezvous barrier in a record of its store: its rounds, the places of its nodes, and its known defects.

Theory of operation. Each counter, slot and door of the barrier is a key, and all requests are in the record. The
operation of a connection shows the step of `model/nvrx/barrier` that its node takes: the `add` to the counter is
`take_slot`, the write of the slot `write_slot`, the write of `round_done` `close_round`. So each node has one place
(`At`), and nothing is guessed. A connection has the name of its node from the record in the slot. `min_nodes` is not in
the store: a node that reads its rank and waits again is a spare, so its rank is not below `min_nodes`. A connection
that reads the counter is the host of the rounds. A finding needs its cause in the record, and not only the symptom:
docs/nvrx.md has the cause of each.

Rule: only requests of the record count. A shutdown without one of these causes (a signal, the end of the training) is
not a violation. After lost lines nothing is judged.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trystate.impl.host.visible import some
from trystate.impl.store.record.format import BARRIER
from trystate.model.nvrx.barrier import NvrxBarrier
from trystate.model.nvrx.findings import FINDINGS
from trystate.model.nvrx.vocabulary import LENIENT, WITH_LAST_CALL, At, Door, Edition

from ..keys import Act, MalformedLine, acts_of
from ..record import Line
from .judging import PROBLEMS_MAX, Problem
from .waiting import NAMED_MAX, Wait

PREFIX = BARRIER.decode()
KEY = re.compile(
    r"(?P<prefix>(?:.*/)?ft_rendezvous_barrier:.+):(?P<name>shutdown|unhealthy_count|(?:round_done|join_count|"
    r"unhealthy_replacement_groups|slot)_(?P<number>\d{1,9})(?P<rank>_rank)?)",
    re.DOTALL,
)
NODES_MAX, EVENTS_MAX = 4_096, 20_000
EDITIONS = tuple(edition for edition in Edition if edition is not Edition.MENDED)
FAILURE = b"failure"
COUNTED = (At.COUNTED, At.WRITING)
NUMBERS = {finding.number: finding for finding in FINDINGS.values()}


def prefix_of(key: str) -> str:
    """The part that all keys of one rendezvous share; empty: it is not a key of the barrier."""
    found = KEY.fullmatch(key) if PREFIX in key else None
    return found["prefix"] if found else ""


@dataclass(slots=True, eq=False)
class Launcher:
    """A node, or a host that does not join, by its connection."""

    name: str
    at: At = At.WAITING
    round: int = 0
    slot: int | None = None
    rank: int | None = None
    since: float = 0.0  # the time of its last step
    gone: float | None = None
    fetched: float | None = None  # the time at which it read the slots, if it is a host
    scans: bool = False  # its round is closed, and it looks for the first one that is not: it joins at its next look

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Slot:
    """A record in a slot."""

    round: int
    owner: Launcher
    machine: str
    task: str | None


@dataclass(frozen=True, slots=True)
class Happened:
    """A step of the model that a line shows, and the place of its node after it."""

    time: float
    place: str
    step: str  # empty: the model has no such step
    node: Launcher
    at: At
    text: str = ""  # empty: few readers need it


class Barrier:
    """One rendezvous of NVRx's barrier, followed. The attributes that `Follower` has too have the same meaning."""

    def __init__(self, run: str, low: int | None = None, high: int | None = None) -> None:
        self.run, self.low, self.high = run, low, high
        self.editions: tuple[Edition, ...] = EDITIONS
        self.doors: dict[int, Door] = {}
        self.joined: dict[int, int] = {}
        self.slots: dict[int, Slot] = {}
        self.ranks: dict[int, tuple[int, int]] = {}  # slot -> the round and the rank
        self.taken: dict[int, tuple[int, Launcher]] = {}  # slot -> the round and the node that was counted there last
        self.marked: dict[int, set[str]] = {}
        self.unhealthy = 0
        self.shut: bytes = b""
        self.failed = ""  # the error that has shut it down: the number of a finding, or a sentence
        self.launchers: dict[int, Launcher] = {}
        self.hosts: list[Launcher] = []  # the connections that have read a counter
        self.events: deque[Happened] = deque(maxlen=EVENTS_MAX)
        self.problems: list[Problem] = []
        self._undecided: list[str] = []
        self._trained: list[Slot] = []  # the nodes that trained in the last closed round, if min_nodes is known
        self._lost: set[Launcher] = set()  # nodes that ended between the counter and the record
        self._stopped: set[int] = set()  # rounds that never close
        self.damaged = ""  # the place of a line that is missing or cannot be read
        self.open_round: int | None = None  # the round that nodes can join
        self.begun = False
        self.lines = self.rounds_complete = 0
        self.first = self.now = 0.0
        self.place = ""

    @property
    def undecided(self) -> list[str]:
        """Why not all is judged."""
        lost = [f"{self.damaged} is missing or cannot be read: nothing after it is judged"] if self.damaged else []
        return lost + self._undecided

    # ---- lines

    def feed(self, line: Line) -> None:
        """Take in the next line that concerns this rendezvous."""
        self.first = self.first or line.time
        self.now, self.place, self.lines = max(self.now, line.time), line.place, self.lines + 1
        if line.what == "open":
            self.launchers.pop(line.connection, None)
            return
        one = self.launchers.get(line.connection)
        if one is None:
            if len(self.launchers) >= NODES_MAX:
                self._undecided = self._undecided or [f"more than {NODES_MAX} connections: the later ones are left out"]
                return
            one = self.launchers[line.connection] = Launcher(f"connection {line.connection}", since=self.now)
        if line.what == "close":
            self._closed(one)
        elif line.what != "wait":
            self._acts(one, line)
        elif one in self.hosts and ":slot_" in line.key:
            self._fetches(one, False)
        if self._lost:
            self._stuck()

    def _acts(self, one: Launcher, line: Line) -> None:
        try:
            acts = [*acts_of(line.fields)]
        except MalformedLine:
            return  # the checks of the store report it
        for act in acts:
            key = KEY.fullmatch(act.key)
            if key is None:
                continue
            number = int(key["number"] or 0)
            kind = key["name"].rstrip("0123456789").rstrip("_") if key["rank"] is None else "rank"
            getattr(self, f"_{kind}")(one, act, number)

    def _step(self, one: Launcher, at: At, step: str, text: str = "") -> None:
        one.at, one.since = at, self.now
        self._happened(one, step, text)

    def _happened(self, one: Launcher, step: str, text: str = "") -> None:
        self.events.append(Happened(self.now, self.place, step, one, one.at, text))

    def _narrow(self, those: Collection[Edition], is_one: bool = True) -> None:
        """The edition is one of those, or none of them."""
        self.editions = tuple(one for one in self.editions if (one in those) == is_one) or self.editions

    def _wrong(
        self, name: str, number: str, *nodes: Launcher, kind: str = "violated", waits: tuple[str, ...] = ()
    ) -> None:
        if not self.damaged and len(self.problems) < PROBLEMS_MAX:
            text, who = getattr(NvrxBarrier, name).body.__doc__, tuple(map(str, nodes))
            self.problems.append(Problem(kind, self.now, self.place, text, name, NUMBERS[number], who, waits=waits))

    # ---- doors and counters

    def _round_done(self, one: Launcher, act: Act, number: int) -> None:
        door = self.doors.get(number, Door.ABSENT)
        if act.name == "set":
            closed = act.value == b"1"
            self.doors[number], self.begun = Door.CLOSED if closed else Door.OPEN, True
            if closed:
                self._closes(one, number)
                return
            self.open_round = number
            if door is Door.ABSENT and number:
                text = f"opens round {number}: its workers have failed" if not self.shut else f"opens round {number}"
                self._step(one, At.WAITING if one.at is At.TRAINING else one.at, "fail_workers", text)
        elif one.at is At.WAITING and act.name == "get":
            one.round = number
            if door is Door.OPEN and not one.scans:
                self._step(one, At.ADMITTED, "look_for_round")
            one.scans = one.scans or door is Door.CLOSED
            if door is Door.CLOSED and not (self.shut or number + 1 in self.doors or number in self._stopped):
                self._idles(number)
        elif one.at is At.COUNTED and act.name == "get":  # SET
            self._step(one, At.JOINED if door is Door.CLOSED else At.WRITING, "read_slot")

    def _join_count(self, one: Launcher, act: Act, number: int) -> None:
        if act.name == "get" and one not in self.hosts:
            self.hosts.append(one)
        if act.name != "add" or act.seen.value is None:
            return
        one.round, one.slot, one.rank = number, int(act.seen.value), None
        if one.slot != self.joined.get(number, 0) + 1:
            self.damaged = self.damaged or f"a request before {self.place}"
        self.joined[number] = one.slot
        self.taken[one.slot] = number, one
        self._step(one, At.COUNTED, "take_slot")

    def _unhealthy_count(self, one: Launcher, act: Act, _: int) -> None:
        if act.name == "add" and act.seen.value is not None:
            self.unhealthy = int(act.seen.value)
            self._happened(one, "", f"is unhealthy: {self.unhealthy} in all")

    def _unhealthy_replacement_groups(self, one: Launcher, act: Act, number: int) -> None:
        if act.value is not None and act.seen.ok is not False:
            before = self.marked.get(number, set())
            groups = _parsed(act.value).get("groups")
            self.marked[number] = {str(group) for group in groups} if isinstance(groups, list) else set()
            for task in sorted(self.marked[number] - before):
                self._happened(one, "", f"marks the task {task} as unhealthy in round {number}")

    # ---- slots

    def _slot(self, one: Launcher, act: Act, number: int) -> None:
        if act.name in ("check", "get"):
            if one in self.hosts and one.at not in COUNTED:
                self._fetches(one, act.name == "check")
            return
        if self._refused(one, act, number) or act.value is None:
            return
        self._narrow((Edition.SET,), act.name == "set")
        found = _parsed(act.value)
        payload = _payload(found) or found
        round_ = _number(found.get("round", found.get("cycle_id")))
        if round_ is None:
            self._undecided = self._undecided or [f"{self.place}: the value of {act.key} is not a record of a slot"]
            return
        machine = str(payload.get("addr"))
        one.name = f"{machine}_{payload.get('pid')}_{payload.get('local_id')}"
        before, task = self.slots.get(number), payload.get("replacement_group_id")
        self.slots[number] = Slot(round_, one, machine, None if task is None else str(task))
        self._step(one, At.JOINED, "write_slot", f"joins round {round_} in slot {number}")
        if before is not None and before.round > round_:
            self._wrong("slots_do_not_go_back", "B1", one, before.owner)
            if self.doors.get(before.round) is Door.OPEN:
                self._stops(before.round, "B1", before.owner)

    def _rank(self, one: Launcher, act: Act, number: int) -> None:
        if act.name in ("check", "get"):
            if one.at is At.COUNTED:
                self._step(one, At.WRITING, "read_slot")
            elif one.at is At.JOINED and self.doors.get(one.round) is Door.CLOSED and number == one.slot:
                self._reads_rank(one)
            return
        if self._refused(one, act, number) or act.value is None:
            return
        found = _parsed(act.value)
        if found:
            round_, rank = _number(found.get("round")), _number(_payload(found).get("rank"))
        else:  # SET: rank, number of nodes, round
            parts = [_number(part) for part in act.value.decode("latin-1").split(",")]
            rank, round_ = parts[0], parts[-1]
        if round_ is not None and rank is not None:
            self.ranks[number] = round_, rank

    def _refused(self, one: Launcher, act: Act, number: int) -> bool:
        """Whether a compare_set of a slot was refused."""
        if act.seen.ok is not False:
            return False
        there = max(self.slots[number].round if number in self.slots else -1, self.ranks.get(number, (-1, 0))[0])
        if there > one.round:
            self._step(one, At.WAITING, "write_slot", f"finds a record of round {there} in slot {number}")
        else:
            text = f"ends with RuntimeError: the record in slot {number} has changed, to one of round {there}"
            self._step(one, At.BROKEN, "write_slot", text)
            self._wrong("conflicts_are_excluded", "B6", one)
        return True

    def _reads_rank(self, one: Launcher) -> None:
        round_, rank = self.ranks.get(one.slot or 0, (-1, -1))
        one.rank = rank if round_ == one.round and rank >= 0 else None
        trains = one.rank is not None and (self.low is None or one.rank < self.low)
        self._step(one, At.TRAINING if trains else At.WAITING, "read_rank")
        if one.rank is None:
            self._happened(one, "", f"came after the host had read the slots: it waits for round {one.round + 1}")

    # ---- the host

    def _fetches(self, one: Launcher, checks: bool) -> None:
        """The host reads the slots. Since f59cfc6 it first checks which of them exist."""
        self._narrow(LENIENT, checks)
        one.fetched = self.now

    def _closes(self, one: Launcher, number: int) -> None:
        self.rounds_complete, self.open_round = self.rounds_complete + 1, None
        given = {k: rank for k, (r, rank) in self.ranks.items() if r == number and rank >= 0}
        ranked = {rank: self.slots[k] for k, rank in given.items() if k in self.slots}
        names = some([f"{ranked[rank].owner} as rank {rank}" for rank in sorted(ranked)], NAMED_MAX)
        counted = f"closes round {number} with {len(ranked)} of {self.joined.get(number, 0)} counted nodes"
        here, marked = {slot.machine for slot in ranked.values()}, self.marked.get(number, set())
        late = [slot.machine for slot in self._trained if slot.machine not in here and slot.task not in marked]
        call = f"; the last call is over, without {some(late, NAMED_MAX)}" if late else ""
        self._happened(one, "close_round", f"{counted}: {names}{call}")
        self._trained = [slot for rank, slot in ranked.items() if self.low is not None and rank < self.low]
        for rank, slot in sorted(ranked.items()):
            if self._is_dead(slot, number, one) and (self.low is None or rank < self.low):
                self._wrong("the_dead_have_no_rank", "B4", slot.owner)
        one.fetched = None

    def _is_dead(self, slot: Slot, number: int, host: Launcher) -> bool:
        """Whether its node ended before the host read the slots, and its task is marked."""
        gone = slot.owner.gone
        is_marked = slot.task is not None and slot.task in self.marked.get(number, ())
        return is_marked and gone is not None and (host.fetched is None or gone <= host.fetched)

    # ---- the end

    def _shutdown(self, one: Launcher, act: Act, _: int) -> None:
        if act.name in ("check", "get"):
            one.scans = False
            if act.name == "get":
                self._narrow(WITH_LAST_CALL)
            if self.shut:
                self._finds_shutdown(one)
            elif one.at is At.TRAINING and self.doors.get(one.round) is Door.CLOSED:
                self._joins_again(one)
            return
        if not act.value:
            return
        self._narrow(WITH_LAST_CALL, act.name != "set")
        if self.shut and one.at is At.TRAINING:
            self._step(one, At.COMPLETE, "complete")
        elif not self.shut and act.seen.ok is not False:
            self.shut = act.value
            self._shuts_down(one)

    def _shuts_down(self, one: Launcher) -> None:
        doubles = self._doubles(one)
        if one.at is At.BROKEN:
            self._step(one, At.BROKEN, "end_launcher", self._reason)
            self._fails(one, "B6")
        elif one.at is At.COUNTED and one.slot is not None and not {*self.editions} <= {*LENIENT}:
            text = f"is counted as number {one.slot} of round {one.round}, which is beyond max_nodes: it {self._reason}"
            self._step(one, At.FAILED, "", text)
            self._fails(one, "B2")
        elif one in self.hosts and doubles is not None:
            first, second, is_dead = doubles
            self.failed = f"finds {first} and {second} on one machine"
            self._happened(one, "", f"{self.failed}: it {self._reason}")
            if is_dead:
                self._fails(one, "B5")
        elif one in self.hosts and self.unhealthy and one.at is not At.TRAINING:
            self.failed = f"finds {self.unhealthy} unhealthy nodes"
            self._happened(one, "", f"{self.failed}: it {self._reason}")
        else:
            done = one.at is At.TRAINING
            self._step(one, At.COMPLETE if done else one.at, "complete" if done else "", self._reason)

    @property
    def _reason(self) -> str:
        reason = self.shut.decode("latin-1")
        return f"shuts the rendezvous down{f', with the reason {reason}' if not reason.isdigit() else ''}"

    def _doubles(self, host: Launcher) -> tuple[Launcher, Launcher, bool] | None:
        """Two nodes of one machine in the host's open round, and whether one of them is dead."""
        number, seen = self.open_round, dict[str, Slot]()
        for slot in (slot for _, slot in sorted(self.slots.items()) if slot.round == number):
            other = seen.setdefault(slot.machine, slot)
            if other is not slot and number is not None:
                return other.owner, slot.owner, any(self._is_dead(each, number, host) for each in (other, slot))
        return None

    def _fails(self, one: Launcher, number: str) -> None:
        self.failed = number
        self._wrong("no_failure_shuts_down", number, one)

    def _finds_shutdown(self, one: Launcher) -> None:
        if one.at is At.JOINED:
            self._step(one, At.FAILED, "", "finds the rendezvous shut down, and ends with an error")
        elif one.at is At.TRAINING:  # it stops its workers first
            one.at = At.WAITING
        if one.at is not At.WAITING or (one in self.hosts and one.slot is None):
            return
        fails = self.shut == FAILURE
        text = f"finds the rendezvous shut down, and ends with{'' if fails else 'out'} an error"
        self._step(one, At.FAILED if fails else At.LEFT, "look_for_round", text)
        if self.failed and not fails:
            self._wrong("a_failure_is_no_success", "B6" if self.failed == "B6" else "B7", one)

    def _joins_again(self, one: Launcher) -> None:
        if one.round + 1 in self.doors:
            self._step(one, At.WAITING, "see_next_round", f"stops its workers: round {one.round + 1} is open")
        elif one.rank is not None:
            self.low = one.rank if self.low is None else self.low
            one.at = At.WAITING
            self._happened(one, "", f"is a spare (rank {one.rank}): it waits for round {one.round + 1}")

    def _closed(self, one: Launcher) -> None:
        one.gone = self.now
        if one.at in COUNTED:
            self._lost.add(one)
            self._step(one, At.GONE, "crash", f"ends: it has slot {one.slot} of round {one.round}, without a record")
        elif one.at is At.JOINED and self.doors.get(one.round) is Door.OPEN and not self.shut:
            slot = self.slots.get(one.slot or 0)
            step = "kill" if slot is not None and slot.task in self.marked.get(one.round, ()) else ""
            self._step(one, At.GONE, step, f"ends: its record is in slot {one.slot} of round {one.round}")
        elif one.at is At.TRAINING and not self.shut:
            self._happened(one, "", f"ends: it trained in round {one.round}")

    def _stuck(self) -> None:
        """A round whose host needs the record of a dead node never closes (B3)."""
        needs_all = any(host.fetched is not None for host in self.hosts) and not {*self.editions} <= {*LENIENT}
        number = self.open_round
        if not self.shut and number is not None and needs_all and number not in self._stopped:
            lost = [who for who in self._absent(number).values() if who in self._lost]
            if lost:
                self._stops(number, "B3", *lost)

    def _stops(self, number: int, finding: str, *nodes: Launcher, name: str = "an_open_round_closes") -> None:
        """A round can never close, or the next one never be opened."""
        self._stopped.add(number)
        waits = tuple(str(wait) for wait in self.waiting())
        self._wrong(name, finding, *nodes, kind="hopeless", waits=waits)

    def _idles(self, number: int) -> None:
        """A node waits, no round is open, and each node that has trained is dead (B8)."""
        members = [one for one in self.launchers.values() if one.round == number and one.rank is not None]
        trained = [one for one in members if self.low is None or (one.rank or 0) < self.low]
        living = [one for one in self.launchers.values() if one.gone is None and one.at is At.WAITING]
        if trained and all(one.gone is not None for one in trained) and len(living) >= (self.low or 1):
            self._stops(number, "B8", *living, name="a_round_is_opened_again")

    def _absent(self, number: int) -> dict[int, Launcher]:
        """The nodes that were counted in a round and whose record is not there, by slot."""
        counted = {k: one for k, (r, one) in self.taken.items() if r == number}
        return {k: one for k, one in counted.items() if k not in self.slots or self.slots[k].round != number}

    # ---- waits

    def waiting(self) -> list[Wait]:
        """The waits of the living nodes."""
        return [] if self.shut else [*self._waits()]

    def _waits(self) -> Iterator[Wait]:
        for one in self.launchers.values():
            if one.gone is not None:
                continue
            if one in self.hosts and one.at in (At.JOINED, At.WAITING) and (number := self.open_round) is not None:
                yield self._of_host(one, number)
            elif one.at is At.JOINED:
                names = tuple(str(host) for host in self.hosts if host.gone is None)
                why = "" if names else f"{self.hosts[-1]} has ended" if self.hosts else "no host has read the counter"
                yield Wait(str(one), f"round {one.round} to close", names, one.since, "the host has to close it", why)
            elif one.at is At.WAITING and one not in self.hosts and self.open_round is None:
                trains = [each for each in self.launchers.values() if each.at is At.TRAINING and each.gone is None]
                names, needs = tuple(map(str, trains)), "a node that trains has to open it"
                yield Wait(str(one), "the next round", names, one.since, needs, "" if trains else "no node trains")

    def _of_host(self, host: Launcher, number: int) -> Wait:
        joined, absent = self.joined.get(number, 0), self._absent(number)
        if not absent:
            on = f"more nodes ({joined} of {self.low or '?'} in round {number})"
            return Wait(str(host), on, (), host.since, "they have to join, or the last call has to end")
        dead = [one.name for one in absent.values() if one.gone is not None]
        why = f"{some(dead, NAMED_MAX)} {'has' if len(dead) == 1 else 'have'} ended" if dead else ""
        on = f"the record{'s' * (len(absent) > 1)} in slot {some([*map(str, absent)], NAMED_MAX)} of round {number}"
        who, needs = tuple(map(str, absent.values())), "each node that is counted has to write its record"
        return Wait(str(host), on, who, host.since, needs, why)


def _parsed(value: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _payload(found: Mapping[str, Any]) -> Mapping[str, Any]:
    payload = found.get("payload")
    return payload if isinstance(payload, dict) else {}


def _number(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None

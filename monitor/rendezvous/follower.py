"""The states of the model that agree with the record of one rendezvous so far, and the steps that lead to them.

Theory of operation. The record shows each write of the shared state, in one order, with the connection that made it. It
does not show a node's agent, its workers and its local copy. So a follower keeps the *set* of all states that the
record allows. A step that the record does not show changes only its own node. The next line of this node shows whether
the step happened. After a read, the node takes the step that its decision table prescribes for the state that it read.
A write must be one step of the model from a possible state. A request for the master's address shows the phase of the
node. Usually one state is left; its steps are then certain (`events`).

The record has no lines for the passing of time. The follower assumes three events: a heartbeat is due, a heartbeat has
expired, the last call is over. It assumes an event only when the event explains a line and enough time has passed on
the recorder's clock.

    follower = Follower(protocol, options)
    follower.feed(line)          each line of this run, in order
    follower.nodes()             each node: phase, membership, rank, world, master; sets of values if undecided
    follower.snapshot            the state that the store holds now
    follower.problems            the problems so far, each with its line (`Problem`)
    follower.events              the steps that are certain, the oldest first (`dropped` counts the discarded ones)
    follower.waiting()           the waits of the nodes: for which node, since when, and the obstacle (`waiting.py`)

Failures:

- A line fits no state: the write is not a step of this edition (a foreign client, a defect of the runtime, a record
  that was changed). It is reported as a problem. The follower continues from the written value. Each later problem
  carries the place of this line, because the states are now assumptions.
- The set has too many states. The rest is discarded, and `undecided` reports it.
- The run has too many nodes. It is not followed further, and `undecided` reports it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from trystate.impl.host.visible import some
from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous.vocabulary import AgentPhase, Deadline, Edition, Heartbeat, Membership

from ..record import PART, Line
from .editions import EDITIONS, RAN, said_by
from .judging import Judge, Problem
from .known import Node, Options, Runs, TakenStep, Trail, unrolled
from .nodes import NODES_MAX, Peer
from .possibilities import Possibilities
from .shared_state import BEAT, NodeName, NoState, Protocol, Snapshot, closes_alone, read
from .states import Shown
from .stepping import Bytes, Values
from .waiting import NAMED_MAX, Wait, waits

STATES_MAX = 512  # possible states that are kept
EVENTS_MAX = 20_000  # steps that are kept for the report at the end
SLACK_SECONDS = 0.3  # limit of the time from a reading of a clock to the line that shows it
CACHE_SECONDS = 2.5  # limit of the age of a copy on which a torch node acts
TOLERANCE = 0.1  # the part of an interval or window by which two clocks, and a write in transit, may differ
RETURNS = {ordinal(phase) for phase in (AgentPhase.EXITING, AgentPhase.JOINING, AgentPhase.RETURNING)}
EXPIRED, NONE = ordinal(Heartbeat.EXPIRED), ordinal(Heartbeat.NONE)


class Follower(Possibilities):
    """One rendezvous, followed."""

    def __init__(self, protocol: Protocol, options: Options | None = None, run: str = "") -> None:
        self.options, self.run = options or Options(), run
        default = Edition.TORCH if protocol is Protocol.TORCH else Edition.TRYSTATE
        super().__init__(protocol, self.options.edition or default, self.options.low, self.options.high)
        # The editions that the record allows; the first is followed.
        self.editions: tuple[Edition, ...] = (self.edition,)
        if protocol is Protocol.TORCH and self.options.edition is None:
            self.editions = (Edition.TORCH, Edition.TORCH_2_12)
        self.shares = True  # torch's agents keep the store of the first master, and thereby its address
        self.version = 0  # the version of the key in the recorder's count
        self.begun = False  # a state was seen
        self.stopped = False  # there are too many nodes
        self.interval, self.window = self.options.interval, self.options.interval * self.options.attempts
        self.lines = self.most = self.dropped = 0
        self.first = 0.0
        self.changed = 0.0  # time of the last write that changed more than heartbeats
        self.void: str | None = None  # the place of the first line that no state explains
        self.undecided: list[str] = []
        self.damaged = ""  # the place of an earlier line that cannot be read
        self.partial = False  # a value bypassed the recorder
        self._missing = ""  # the reason why the record lacks lines, without a fault of the job
        self.events: deque[TakenStep] = deque()
        self.runs: deque[Runs] = deque(maxlen=EVENTS_MAX)
        self.rounds_complete = 0
        self._calls = 0.0  # start of the last call that is in progress
        self._deadline: float | None = None  # the end of torch's last call, on the recorder's clock, at the earliest
        self.judge = Judge(self)

    @property
    def problems(self) -> list[Problem]:
        return self.judge.problems

    def unseen(self) -> list[str]:
        """The nodes that bypass the recorder: a value has bypassed it, and they have no line."""
        return [str(peer) for peer in self.roster.peers if not peer.seen] if self.partial else []

    def doubt(self) -> str:
        """The reason why the states of the nodes may be wrong without a fault of the job; empty without doubt."""
        unseen = self.unseen()
        if not unseen:
            return self._missing
        return (
            f"the record shows {len(self.roster.peers) - len(unseen)} of {len(self.roster.peers)} nodes: "
            f"{some(unseen, NAMED_MAX)} bypassed the recorder; give each node the proxy's address as its endpoint"
        )

    # ---- lines

    def feed(self, line: Line) -> None:
        """Take in the next line that concerns this rendezvous."""
        if self.stopped:
            return
        self.first = self.first or line.time
        if self.begun and line.time - self.judge.still_since > self.window:
            self.judge.rested()  # before this line: with the states during the rest
        self.now, self.place = max(self.now, line.time), line.place
        self.lines += 1
        peer = self.roster.of(line.connection)
        if line.what == "room" and "error" not in line.fields:
            peer = self.roster.requested(str(line.fields.get("node", "")), line.connection, self.now)
        if line.what == "write":
            self._write(line)
        elif line.what == "refused":
            self._refused(line)
        elif line.what == "open":
            self.roster.opened(line.connection)
        elif line.what == "delete":
            self._begin_again("its key was deleted")
            self.version = 0
        elif line.what == "add" and (beat := BEAT.search(line.key)) is not None:
            peer = self.roster.beaten(beat["token"], line.connection, self.now, self.window * (1 - TOLERANCE))
            if peer is not None:
                self._awake(self.roster.index(peer.who))
        elif peer is not None:
            self._of_node(line, peer)
        self._settle()

    def _of_node(self, line: Line, peer: Peer) -> None:
        node = self.roster.index(peer.who)
        if line.what == "close":
            if self.roster.closed(line.connection, self.now) is not None:
                self._gone(node)
            return
        if line.what != "notice":  # it may be on its way to a host without power
            self._awake(node)
        if line.what in ("read", "room", "notice"):  # the answer of a room has its state, and so has a notice
            self._reads(node)
        elif line.what == "wait":
            missing = tuple(key for key in line.fields["missing"] if isinstance(key, str))[:100]
            peer.blocked = (line.key, missing, self.now)
            self._shows_place(line, node)
        elif line.what in ("go", "stop"):
            peer.blocked = None
            # An agent's wait for a key of the round ended without the key: read_timeout is over.
            if line.fields.get("why") in ("cancelled", "timeout") and PART.search(line.key):
                self._gives_up(node)
        else:
            peer.blocked = None
            self._shows_place(line, node)

    def _refused(self, line: Line) -> None:
        """Take a lost write: its node has read the state that the store holds."""
        peer = self.roster.of(line.connection)
        if peer is None:  # a new connection, perhaps of a known node
            try:
                wanted = read(self.protocol, line.value)
            except NoState:
                return
            if wanted is None or self.roster.unknown(wanted):
                return  # a node has a name when it is listed
            peer = self.roster.writer(line.connection, self.snapshot, wanted)
        if peer is not None:
            self._awake(self.roster.index(peer.who))
            self._reads(self.roster.index(peer.who))

    def _write(self, line: Line) -> None:
        try:
            snapshot = read(self.protocol, line.value)
        except NoState as why:
            self._unexplained(f"the value is not a state: {why}")
            return
        replaced, last_seen = line.fields.get("from", line.fields["v"] - 1), self.version
        self.version = line.fields["v"]
        if snapshot is None:
            return
        # `again`: the recorder repeats the state at the start of a file (impl/store/record/format.py).
        again = bool(line.fields.get("again"))
        if again and self.begun and snapshot == self.snapshot:
            return
        previous, self.snapshot = self.snapshot, snapshot
        if snapshot.life != previous.life and self.begun:
            self._begin_again("the store has lost it")
            previous = Snapshot()
        unseen = bool(line.fields.get("unseen"))
        # Only the write after the last one shows what it changes.
        if not self._know(previous, snapshot, infers=not again and not unseen and replaced == last_seen):
            self.stopped, self.snapshot = True, previous
            return
        # A value that is repeated, or that bypassed the recorder, was not written by a recorded connection.
        peer = None if again or unseen else self.roster.writer(line.connection, previous, snapshot)
        if again:
            if self.begun:
                self._lacks(f"{self.place}: the state was written in lines that the recorder has lost")
            self._adopt(snapshot, guess=True)
        elif unseen:
            # Only some nodes use the proxy's address. The states of the others cannot be followed.
            if not self.partial:
                self.judge.note("the value bypassed the recorder: the steps that led to it are not in the record")
                self.undecided.append(f"{self.place}: a value bypassed the recorder")
            self.partial = True
            self._adopt(snapshot, guess=True)
        elif replaced != last_seen:
            # A line of the record was lost or removed: the recorder counts each write of the key.
            self._gap(f"lines are missing: version {replaced} was replaced, and {last_seen} is the last one before")
            self._adopt(snapshot, guess=True)
        elif snapshot.version > previous.version + 1:
            # The same by our state's own count, which a write past the recorder increments as well.
            last = previous.version
            self._gap(f"lines are missing: the state counts {snapshot.version} writes, and {last} before this one")
            self._adopt(snapshot, guess=True)
        elif peer is None and snapshot.draining - previous.draining:
            self._drained(snapshot, snapshot.draining - previous.draining)
        elif peer is None:
            self._foreign(line, previous, snapshot)
        else:
            self._explain(peer, previous, snapshot)
        self.begun = True
        self.roster.beats(snapshot, self.now, fresh=not again)
        if peer is not None and line.fields.get("how") == "room":
            self.roster.requested(snapshot.writer, line.connection, self.now)
        self._timed(previous, snapshot)

    def _timed(self, previous: Snapshot, snapshot: Snapshot) -> None:
        """Update the times of the last change of the state and of the start of a last call."""
        if (snapshot.members, snapshot.complete, snapshot.closed) != (
            previous.members,
            previous.complete,
            previous.closed,
        ):
            self.changed = self.now
        self._calls = (self._calls or self.now) if snapshot.calling else 0.0

    def _gap(self, why: str) -> None:
        """Note missing lines: they cannot be read, or the record was changed."""
        if self.damaged:
            self._lacks(f"{self.place}: {why}, and {self.damaged} cannot be read")
        else:
            self._unexplained(why)

    def _lacks(self, why: str) -> None:
        self._missing = self._missing or why
        if why not in self.undecided:
            self.undecided.append(why)

    def _drained(self, snapshot: Snapshot, tokens: frozenset[str]) -> None:
        """Explain a write in which an operator, which is not a node, has marked a node of ours."""
        wanted = self.lens.wanted(snapshot, self.roster)
        found: dict[Bytes, Trail | None] = {}
        for node in (k for k, peer in enumerate(self.roster.peers) if peer.who.token in tokens):
            found, _ = self._tried(("drain",), node, wanted)
        if found:
            self.states = found
            return
        self._unexplained("an operator marks a node, and writes what no step writes")
        self._adopt(snapshot, guess=True)

    def _foreign(self, line: Line, previous: Snapshot, snapshot: Snapshot) -> None:
        """Explain a write of a node that no state has listed: a newcomer, or an operator."""
        if line.fields.get("how") == "room" and self._dropped(previous, snapshot):
            return
        if closes_alone(previous, snapshot):
            self.judge.note(f"{snapshot.closed}: by an operator, who is not a node")
        else:
            self._unexplained("the writer is not one of the nodes that the state lists")
        self._adopt(snapshot)

    def _dropped(self, previous: Snapshot, snapshot: Snapshot) -> bool:
        """Explain a write in which a room drops silent nodes because a newcomer has connected.

        Without a restart left the write closes the rendezvous instead. The JOIN of the newcomer lists it later. Its
        name is not known yet: it is a node for this step only.
        """
        fails = snapshot.closed is not None and previous.closed is None and snapshot.closed.verdict == "failed"
        if not fails and not len(snapshot.members) < len(previous.members):
            return False
        if len(self.roster.peers) >= NODES_MAX and not self.forget_the_gone():
            self._lacks(f"{self.place}: {NODES_MAX} nodes in one run, and a newcomer drops some: it is not followed")
            self._adopt(snapshot, guess=True)
            return True
        count = len(self.roster.peers)
        place = self.roster.add(NodeName(b"\xff" + snapshot.writer.encode(), "a newcomer", snapshot.writer))
        self.insert(place)
        before = dict(self.states)
        if not (explained := self._explains(self.roster.peers[place], previous, snapshot, before)):
            self.states = before
        self.roster.drop([place])
        self.rearrange(self.stepper, [*range(place), *range(place + 1, count + 1)])
        return explained

    # ---- what a write can be

    def _explain(self, peer: Peer, previous: Snapshot, snapshot: Snapshot) -> None:
        node, wanted = self.roster.index(peer.who), self.lens.wanted(snapshot, self.roster)
        foreign = self.roster.foreign(previous.beats, snapshot, peer) if self.begun else []
        # A node renews only its own heartbeat (dynamic_rendezvous.py: _keep_alive), so no step explains this write.
        if foreign:
            self._unexplained(f"{peer} writes the heartbeat of {foreign[0]}: no node does that")
            self._adopt(snapshot)
            return
        self._awake(node)
        believed = dict(self.states)
        if self._explains(peer, previous, snapshot, believed) or self._beats_before_it_tells(node, wanted, believed):
            return
        # A node that becomes rank 0 after another master has no store: torch up to 2.12 fails an assertion there, and
        # the node closes the rendezvous. The record is then of that edition.
        if snapshot.closed and Edition.TORCH_2_12 in self.editions[1:] and self._leads_anew(node, believed):
            believed = self._became(Edition.TORCH_2_12, believed)
            if self._explains(peer, previous, snapshot, believed):
                self.editions = (Edition.TORCH_2_12,)
                self.judge.note("the release is one of torch 2.5 to 2.12: no later one ends so")
                return
            believed = self._became(Edition.TORCH, believed)
        if closes_alone(previous, snapshot) and snapshot.closed and not snapshot.closed.verdict:
            # set_closed() or shutdown() of a program that uses the handler without an agent; a member or not.
            self.judge.note(f"{snapshot.closed}: by {peer}")
            self.states = believed
            self._adopt(snapshot)
            return
        self.judge.forbidden(peer, node, wanted)
        self.void = self.void or self.place
        self.states = believed
        self._adopt(snapshot, guess=True)

    def _explains(self, peer: Peer, previous: Snapshot, snapshot: Snapshot, before: dict[Bytes, Trail | None]) -> bool:
        """Whether the write is a step of the edition; the states are then the ones after it."""
        node, wanted = self.roster.index(peer.who), self.lens.wanted(snapshot, self.roster)
        for ends in (True, False):  # close to its end, a last call is over by one clock and not by another
            self.states = dict(before)
            self._age(node, ends)
            self._silence(previous, snapshot, node)
            for unseen in ((), self.traceless):  # first without anything unseen
                if unseen:
                    self.each(unseen, node)
                found, taken = self._tried(self._possible(previous, snapshot), node, wanted)
                if found:
                    self.judge.stepped(peer, node, taken)
                    self.states = found
                    self._reads(node)
                    return True
        return False

    def _leads_anew(self, node: int, states: Iterable[Bytes]) -> bool:
        """Whether the node returns as rank 0 after another master: only there torch 2.12 and 2.13 differ."""
        get, returning = self.stepper.get, AgentPhase.RETURNING
        return all(
            self.lens.phase(s, node) is returning
            and get(s, "saw_rank", node) == 0
            and get(s, "master", node) not in (0, node + 1)
            for s in states
        )

    def _became(self, edition: Edition, states: dict[Bytes, Trail | None]) -> dict[Bytes, Trail | None]:
        """Follow another edition from now on; returns these states as its states."""
        self.states, self.edition, self.moves = states, edition, EDITIONS[edition]
        self.rebuild(self.size, [*range(len(self.roster.peers))])
        return dict(self.states)

    def _tried(
        self, names: Iterable[str], node: int, wanted: Shown
    ) -> tuple[dict[Bytes, Trail | None], list[tuple[Bytes, str]]]:
        """The states after a write, each with its steps, and the states before it, each with the step of the write."""
        found: dict[Bytes, Trail | None] = {}
        taken: list[tuple[Bytes, str]] = []
        for state, trail in self.states.items():
            here = self.stepper.at(state, node)
            for name in names:
                after = self.stepper.allowed(name, here)
                if after is not None and self.lens.shows(after) == wanted:
                    found.setdefault(after, self.then(trail, name, node))
                    taken.append((state, name))
        return found, taken

    def _beats_before_it_tells(self, node: int, wanted: Shown, before: dict[Bytes, Trail | None]) -> bool:
        """Explain a heartbeat of a torch node between its read of the master's address and its number of workers."""
        at, expanded = ("phase", (node,)), self.states
        late = {s: trail for s, trail in before.items() if self.lens.phase(s, node) is AgentPhase.EXCHANGING}
        self.states = {self.stepper.put(s, {at: ordinal(AgentPhase.CONNECTING)}): t for s, t in late.items()}
        if self.roster.age(node, self.now) >= self.interval * (1 - TOLERANCE) - SLACK_SECONDS:
            self.always("heartbeat_ages", node)
        found, _ = self._tried(("keep_alive",), node, wanted)
        back = {self.stepper.put(s, {at: ordinal(AgentPhase.EXCHANGING)}): t for s, t in found.items()}
        self.states = back or expanded
        return bool(found)

    def _gives_up(self, node: int) -> None:
        """A wait at the store has lasted for read_timeout and its client cancels it; the node sent no heartbeat."""
        if "wait_times_out" not in self.traceless:
            return
        if self.roster.age(node, self.now) >= self.window * (1 + TOLERANCE):
            self.always("heartbeat_ages", node)
            self.always("heartbeat_expires", node)
        self.each(("wait_times_out",), node, keep=False)

    def _possible(self, previous: Snapshot, snapshot: Snapshot) -> tuple[str, ...]:
        """The writes that may have led to this state; fields of ours that the model omits exclude some."""
        if self.protocol is Protocol.TORCH:
            return self.writes
        failed = snapshot.closed is not None and snapshot.closed.verdict == "failed"
        left_out = set() if failed else {"close_as_failed", "leave_and_close"}
        settings, names = previous.settings, self.writes
        if settings is None or not 0 <= settings.max_restarts <= previous.spent:
            left_out.add("leave_and_close")
        if snapshot.done > previous.done:
            names = ("mark_closed", "close_as_failed", "mark_done") if snapshot.closed else ("mark_done",)
        else:
            left_out.add("mark_done")
        return tuple(name for name in names if name not in left_out)

    def _age(self, node: int, ends: bool) -> None:
        """Apply effects of time on which the write may depend: a heartbeat is due, the last call is over.

        `ends`: the last call is over as soon as it may be; otherwise only when it must be.
        """
        # A node of ours writes another heartbeat when the answer to one is lost, which a record does not show.
        due = self.protocol is Protocol.OURS
        if due or self.roster.age(node, self.now) >= self.interval * (1 - TOLERANCE) - SLACK_SECONDS:
            self.always("heartbeat_ages", node)
        settings, deadline = self.snapshot.settings, self._deadline
        if settings is not None:
            length = settings.rescale_timeout if self.snapshot.round else settings.last_call_timeout
            earliest, latest = length * (1 - TOLERANCE) - SLACK_SECONDS, length * (1 + TOLERANCE) + SLACK_SECONDS
            over = self._calls and self.now - self._calls >= (earliest if ends else latest)
        else:
            over = deadline is not None and self.now >= deadline + (-SLACK_SECONDS if ends else SLACK_SECONDS)
        if over:
            self.change(self._call_over)

    def _call_over(self, state: Bytes) -> Bytes:
        """End the last call, perhaps before each node has polled, which cannot happen in the model's long calls."""
        after = self.stepper.step("last_call_passes", self.stepper.at(state))
        if after is None and self.stepper.get(state, "deadline") == ordinal(Deadline.RUNNING):
            after = self.stepper.put(state, {("deadline", ()): ordinal(Deadline.PASSED)})
        return after or state

    def _silence(self, previous: Snapshot, snapshot: Snapshot, writer: int) -> None:
        """Expire the heartbeats of nodes that the writer has dropped, if the window has passed."""
        for who in previous.beats:
            node = self.roster.index(who)
            age = self.roster.age(node, self.now)
            failed = snapshot.closed is not None and snapshot.closed.verdict == "failed"  # perhaps by an expulsion
            closes = self.protocol is Protocol.OURS and failed and not previous.closed
            vanished = (who not in snapshot.beats or closes) and node != writer
            known = self.protocol is Protocol.TORCH and self.roster.peers[node].ahead is not None
            surely = known and age > self.window * (1 + TOLERANCE) + CACHE_SECONDS
            if (vanished and age >= self.window * (1 - TOLERANCE) - SLACK_SECONDS) or (surely and node != writer):
                self.change(lambda state, node=node: self._expired(state, node), "silence", node)  # type: ignore[misc]

    def _expired(self, state: Bytes, node: int) -> Bytes:
        if self.stepper.get(state, "heartbeat_age", node) in (NONE, EXPIRED):
            return state
        state = self.stepper.step("heartbeat_ages", self.stepper.at(state, node)) or state
        for fault in ("", "crash" if self.roster.peers[node].gone is not None else "stall"):
            silent = self.stepper.step(fault, self.stepper.at(state, node)) if fault else state
            after = self.stepper.step("heartbeat_expires", self.stepper.at(silent or state, node))
            if after is not None:
                return after
        return state

    # ---- what other lines show

    def _reads(self, node: int) -> None:
        """Take the step that the table has for a joining node and the state that it has read.

        A running node may stop its workers for a newcomer; that is decided at its next write.
        """
        self.each(self.moves.forced, node, keep=False)

    def _awake(self, node: int) -> None:
        """A node with a line is alive. If it seemed dead, only its connections had ended."""
        stalls = int(self.protocol is Protocol.OURS)  # `resume` stops its workers if its lease is over
        if any(self.stepper.get(state, "crashed", node) for state in self.states):
            self.change(
                lambda state: self.stepper.put(state, {("crashed", (node,)): 0, ("stalled", (node,)): stalls})
                if self.stepper.get(state, "crashed", node) else state
            )  # fmt: skip
        if any(self.stepper.get(state, "stalled", node) for state in self.states):
            self.always("resume", node)

    def _gone(self, node: int) -> None:
        """Take the end of a node's last connection: a torch process has ended, a node of ours may connect again."""
        if self.protocol is Protocol.OURS:
            return
        before = self.states
        self.each(self.moves.leaves, node)
        # If no step lets the node end in order, its process was killed.
        left = {s: trail for s, trail in self.states.items() if self.lens.phase(s, node) is AgentPhase.LEFT}
        self.states = left or before
        if not left:
            self.always("crash", node)

    def without_the_gone(self) -> list[Bytes]:
        """The possible states in which each node without a connection has crashed."""
        gone = [k for k, peer in enumerate(self.roster.peers) if peer.gone is not None]
        out = list(self.states)
        for k in gone:
            out = [self.stepper.step("crash", self.stepper.at(state, k)) or state for state in out]
        return [self.refilled(state) for state in out]

    def _shows_place(self, line: Line, node: int) -> None:
        """Take a request for a key below the round's prefix, by which agents exchange the master and the ranks."""
        found = PART.search(line.key)
        if found is None:
            return
        name, goal = said_by(line.what, found["rest"])
        if name not in self.moves.returns:
            return
        before = self.states
        if name == "set" and self.shares and self._leads_anew(node, before):
            self.editions = (self.edition,)  # a later master publishes its address, which torch up to 2.12 cannot
        kept = self._returned(name, node, goal)
        if not kept and "MASTER_ADDR" in found["rest"] and Edition.TRYSTATE not in self.editions:
            kept = self._returned_alone(name, node, goal, before)
        if not kept and name == "ranks":  # rank 0 writes all ranks before it reads its own
            self.states = before
            return
        if not kept and self.void is not None:  # the states of the node have been wrong since the unexplained line
            self.states = before
            self.change(lambda state: self.stepper.put(state, {("phase", (node,)): ordinal(goal)}))
            return
        if not kept:
            self._gap(f"{self.roster.peers[node]}: {line.what} {line.key}: its node has not joined a round")
            return
        self.states = kept
        if name == "role":
            tail = line.key.rsplit("/", 1)[-1]
            self.roster.peers[node].rank = int(tail) if tail.isdecimal() and len(tail) < 9 else None

    def _returned(self, name: str, node: int, goal: AgentPhase) -> dict[Bytes, Trail | None]:
        """The states in which the node has the phase that such a request shows."""
        self.each(self.moves.returns[name], node)
        return {s: trail for s, trail in self.states.items() if self.lens.phase(s, node) is goal}

    def _returned_alone(
        self, name: str, node: int, goal: AgentPhase, before: dict[Bytes, Trail | None]
    ) -> dict[Bytes, Trail | None]:
        """Like `_returned`, but the node has kept no master of an earlier round: the rounds share no store."""
        self.states = before
        self.change(lambda state: self.stepper.put(state, {("master", (node,)): 0}))
        kept = self._returned(name, node, goal)
        if kept and self.shares:
            self.shares = False
            if self.options.edition is None:
                self.editions = (Edition.TORCH, Edition.TORCH_2_12)
            self.judge.note("each round has its own store at its master: TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1")
        if not kept:
            self.states = before
        return kept

    def _forgets(self, state: Bytes) -> Bytes:
        """Remove the kept master of each node that joins a round, because the rounds share no store."""
        row = self.stepper.row
        masters = row(state, "master")
        old = [k for k, phase in enumerate(row(state, "phase")) if phase in RETURNS and masters[k]]
        return self.stepper.put(state, {("master", (k,)): 0 for k in old}) if old else state

    # ---- what is certain

    def _settle(self) -> None:
        """Judge after a line, report the steps that are certain, and keep the set small."""
        if not self.shares:
            self.change(self._forgets)
        if len(self.states) > STATES_MAX:
            text = f"{self.place}: more than {STATES_MAX} possible states: the rest is discarded"
            self.undecided += [text] if not self.undecided else []
            self.states = dict(list(self.states.items())[:STATES_MAX])
        self.most = max(self.most, len(self.states))
        self.judge.look()
        if len(self.states) == 1:
            ((state, trail),) = self.states.items()
            if trail is not None:
                for event in unrolled(trail):
                    self._certain(event, state)
                self.states = {state: None}

    def _certain(self, event: TakenStep, state: Bytes) -> None:
        self.events.append(event)
        if len(self.events) > EVENTS_MAX:
            self.events.popleft()
            self.dropped += 1
        self.judge.event(event)
        if event.step == "mark_complete" or (event.step == "add_to_participants" and self.snapshot.complete):
            self.rounds_complete += 1
            self.judge.completed(self.snapshot)
        if event.node is None or event.node not in self.roster:
            return
        node = self.roster.index(event.node)
        self.roster.peers[node].moved = event.time
        if event.step in RAN[self.protocol]:
            self.runs.append(self._runs(event, state, node))

    def _runs(self, event: TakenStep, state: Bytes, node: int) -> Runs:
        get = self.stepper.get
        master = get(state, "master", node)
        name = str(self.roster.peers[master - 1]) if 0 < master <= len(self.roster.peers) else "none"
        world = sum(self.stepper.row(state, "saw", node))
        return Runs(event.time, event.round, event.node, get(state, "saw_rank", node), world, name)  # type: ignore[arg-type]

    def finish(self) -> None:
        """End the record: check whether open promises can be kept, unless all nodes have left before."""
        self.judge.rested()
        if self.unseen():
            self.undecided.append(self.doubt())

    def rebuild(self, size: int, sources: list[int | None]) -> None:
        super().rebuild(size, sources)
        self.judge.rebuilt()

    # ---- nodes and settings that a state shows

    def _know(self, previous: Snapshot, snapshot: Snapshot, *, infers: bool) -> bool:
        """Add new nodes and the settings, which are inferred from torch's states; False: the run has too many nodes."""
        self._deadline = self._ends(previous)
        for who in self.roster.unknown(snapshot):
            if len(self.roster.peers) >= NODES_MAX and not self.forget_the_gone():
                text = f"{self.place}: more than {NODES_MAX} nodes in one run: it is not followed any further"
                self.undecided += [text] if text not in self.undecided else []
                return False
            self.insert(self.roster.add(who))
        if (settings := snapshot.settings) is not None:
            self.interval, self.window = settings.keep_alive_interval, settings.expiry_seconds
            self._resize(settings.min_nodes, settings.max_nodes)
        elif self.options.high is None and infers:
            self._infer(previous, snapshot)
        return True

    def _ends(self, previous: Snapshot) -> float | None:
        ahead = [peer.ahead for peer in self.roster.peers if peer.ahead is not None]
        return None if previous.deadline is None else previous.deadline + min(ahead, default=0.0)

    def _infer(self, previous: Snapshot, snapshot: Snapshot) -> None:
        """Infer min:max from torch's states: a deadline is set at min nodes, and a round is full at max nodes."""
        size, was = len(snapshot.listed(Membership.PARTICIPANT)), len(previous.listed(Membership.PARTICIPANT))
        low, high = self.low, self.high
        # torch sets the deadline of the last call when min nodes have joined, completes a round at once with max nodes,
        # and puts a newcomer on the redundancy list only if the round is full (dynamic_rendezvous.py).
        if size > was and not snapshot.complete and snapshot.deadline is not None and previous.deadline is None:
            low = low or size
        if size > was and snapshot.complete and not previous.complete:
            high = high or size
            low = low or size
        if snapshot.listed(Membership.REDUNDANT) and snapshot.complete:
            high = high or size
        self._resize(low, high)

    def _resize(self, low: int | None, high: int | None) -> None:
        if (low, high) != (self.low, self.high):
            self.low, self.high = low, high
            self.rebuild(self.size, [*range(len(self.roster.peers))])

    def _begin_again(self, why: str) -> None:
        """Start again with another shared state."""
        self.judge.note(f"the shared state starts again: {why}")
        alive: Values = {("crashed", (k,)): int(peer.gone is not None) for k, peer in enumerate(self.roster.peers)}
        absent: Values = {("crashed", (k,)): 1 for k in range(len(self.roster.peers), self.size)}
        self.states = {self.stepper.put(self.stepper.initial, alive | absent): None}
        self.begun = False
        self._calls, self._deadline = 0.0, None

    # ---- what does not fit

    def _unexplained(self, why: str) -> None:
        self.void = self.void or self.place
        self.judge.unexplained(why)

    def _adopt(self, snapshot: Snapshot, *, guess: bool = False) -> None:
        """Continue from the written state; the other fields keep their values, or are guessed."""
        wanted = self.lens.wanted(snapshot, self.roster)

        def adopted(state: Bytes) -> Bytes:
            found = self.lens.adopted(state, wanted)
            return self.lens.as_found(found, snapshot, self.roster) if guess else found

        self.change(adopted)

    # ---- the present state

    def waiting(self) -> list[Wait]:
        """The wait of each living node that waits."""
        return list(waits(self))

    def nodes(self) -> dict[NodeName, Node]:
        """Each node that is not forgotten, with the values that are possible."""
        get, out = self.stepper.get, {}
        for k, peer in enumerate(self.roster.peers):
            masters = {get(s, "master", k) for s in self.states}
            out[peer.who] = Node(
                name=str(peer), phases={self.lens.phase(s, k) for s in self.states},
                membership=self.snapshot.members.get(peer.who, Membership.OUTSIDE),
                ranks={get(s, "saw_rank", k) for s in self.states if get(s, "returned", k)},
                worlds={sum(self.stepper.row(s, "saw", k)) for s in self.states if get(s, "returned", k)},
                masters={str(self.roster.peers[m - 1]) for m in masters if 0 < m <= len(self.roster.peers)},
                gone=peer.gone,
            )  # fmt: skip
        return out

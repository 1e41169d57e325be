"""The log message of a waiting node: the nodes that have joined, the awaited nodes, and the time limit.

Theory of operation. `awaited` and `unfinished` are functions of the shared state. `Teller` decides when a sentence is
due: at the start, when it changes, and once a minute. The driver passes it each state that it reads, and each failed
read; between two reads there is at most one heartbeat interval. A change within a second of the last line is logged
with a later one, so a thousand nodes that come together cause some lines and not thousands.

Rule: nothing here decides anything, reads a clock or writes to a store; a node without these lines works the same.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest

from trystate.model.rendezvous.vocabulary import Membership

from ..host.visible import some
from .rooms.messages import Summary
from .state import NAMED_MAX, Node, Participant, Settings, State

AGAIN_SECONDS = 60.0
CHANGE_SECONDS = 1.0
AWAY = "waiting for the store, which does not answer"
SEATLESS = {Membership.REDUNDANT: "a spare", Membership.WAITING: "a node that waited for the next round"}
OTHERS_SECONDS = 5.0  # a node that misses others for this long looks at the other jobs of the store
LATE_SECONDS = 1.0  # a step of the start that takes longer is logged

log = logging.getLogger("trystate.waiting")


def say(line: str) -> None:
    """Write a line to the node's log, at the level INFO."""
    log.info("%s", line)


@contextlib.contextmanager
def said_when_late(line: str) -> Iterator[None]:
    """Log this line if the body takes more than LATE_SECONDS."""
    timer = threading.Timer(LATE_SECONDS, say, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def lasting(seconds: float) -> str:
    """`45 s`, `14 m`, `3 h`: as exact as a waiting reader needs it."""
    if seconds < 90:
        return f"{math.ceil(max(seconds, 0.0))} s"
    return f"{round(seconds / 60)} m" if seconds < 120 * 60 else f"{round(seconds / 3600)} h"


def listed(nodes: Iterable[Participant], state: State) -> str:
    """`hostA, hostB and 3 more`; if several nodes are on one host, their whole names."""
    found, hosts = [p.node for p in nodes], Counter(p.node.address for p in state.listed())
    first = nsmallest(NAMED_MAX, found, key=lambda node: node.order)
    return some([_name(node, hosts) for node in first], NAMED_MAX, len(found))


def _name(node: Node, hosts: Counter[str]) -> str:
    return node.address if hosts[node.address] == 1 else str(node)


def awaited(state: State | None, token: str) -> str:
    """The log message of a node that joins, without the time limit; empty: it waits for nothing."""
    membership = state.membership(token) if state is not None else Membership.OUTSIDE
    if state is None or state.closed is not None:
        return ""
    if membership is Membership.REDUNDANT:
        members = listed((*state.participants, *state.expected), state)
        return (f"this node is a spare: all {state.settings.max_nodes} seats are taken ({members}); waiting for one to "
                "become free")  # fmt: skip
    if membership is Membership.WAITING:
        return (f"waiting for a seat in the next round: the members of round {state.round} "
                f"({listed(state.participants, state)}) have not begun it; {_others(state, token)}")  # fmt: skip
    return _gathering(state) if membership is Membership.PARTICIPANT and not state.complete else ""


def _others(state: State, token: str) -> str:
    if state.done:
        return "some workers have succeeded; if all do, the job ends without this node"
    others = [p for p in state.waiting if p.node.token != token]
    return f"also waiting: {listed(others, state)}" if others else "no other node waits"


def _gathering(state: State) -> str:
    """The sentence for an open round with this node as a member."""
    low, high = state.settings.min_nodes, state.settings.max_nodes
    here, missing = len(state.participants), _missing(state)
    for_whom = []
    if state.expected:
        for_whom.append(f"{listed(state.expected, state)} to come back from the round before")
    if missing > 0:
        for_whom.append(f"{missing} more")
    if not for_whom:
        for_whom.append(f"the end of the last call: up to {high - here} more may come")
    nodes = f"{here} of {low} node{'s' * (low != 1)}" if low == high else f"{here} of {low} to {high} nodes"
    return f"{nodes}; waiting for {' and for '.join(for_whom)} (joined: {listed(state.participants, state)})"


def _missing(state: State) -> int:
    """The number of nodes that must come and are not listed yet."""
    return state.settings.min_nodes - len(state.participants) - len(state.expected)


def unfinished(state: State | None, token: str) -> str:
    """The log message of a node whose workers have succeeded; empty: it waits for nothing."""
    if state is None or state.closed is not None or token not in state.done:
        return ""
    done = {*state.done}
    running = [p for p in state.participants if p.node.token not in done]
    return (f"the workers of this node have succeeded; waiting for the workers of {listed(running, state)} "
            f"({len(state.participants) - len(running)} of {len(state.participants)} nodes are done)")  # fmt: skip


def served(state: State | None, token: str) -> str:
    """The log message of a node that has left and still serves the store; empty: it waits for no node."""
    others = [p for p in state.listed() if p.node.token != token] if state is not None else []
    if state is None or not others:
        return ""
    return f"this node has left; it serves the store until the others have left: {listed(others, state)}"


def _gathers(seen: Summary | None) -> bool:
    """Whether the node is in an open round."""
    return (seen is not None and seen.closed is None and not seen.complete
            and seen.membership is Membership.PARTICIPANT)  # fmt: skip


class Teller:
    """Decides when a sentence is due; times in seconds of a monotonic clock."""

    def __init__(self, say: Callable[[str], None] = say) -> None:
        self._say = say
        self._said, self._at = "", -math.inf

    def tell(self, sentence: Callable[[], str], now: float, limit: Callable[[], str] = str) -> None:
        """Log a sentence with its time limit if it is due; an empty sentence is not logged, and resets the last one.

        Neither is computed before it may be due, because each of a thousand nodes sees every other node come.
        """
        if now - self._at < CHANGE_SECONDS:
            return
        what = sentence()
        if not what:
            self._said = ""
        elif what != self._said or now - self._at >= AGAIN_SECONDS:
            self.know(what, now)
            self._say("; ".join(part for part in (what, limit()) if part))

    def know(self, what: str, now: float) -> None:
        """Record that this sentence has just been logged, here or elsewhere."""
        self._said, self._at = what, now


class Waits:
    """The sentences of a node that joins: from what it reads, and from reads that fail."""

    def __init__(
        self, settings: Settings, ends: float, say: Callable[[str], None] = say, *, place: str = "",
        others: Callable[[], str] = str,
    ) -> None:  # fmt: skip
        """`ends`: the deadline of the join, on the clock of the reads; `place`: a fault of the endpoint as
        a sentence, or ''.

        `others` names other jobs of the store that wait. It is called when nodes have been missing for OTHERS_SECONDS,
        and then once a minute.
        """
        self._settings, self._ends, self._teller = settings, ends, Teller(say)
        self._away, self._place, self._others = False, place, others
        self._neighbours, self._asks_at = "", math.inf  # the last answer of `others`, and the time of its next call
        self._call: tuple[str, int] | None = None  # the life and the round of the last call ...
        self._called = 0.0  # ... and the time at which this node saw it first
        self._gathered = False  # the node was in an open round when it was listed last
        self.late: bool | None = None  # whether the job was over at the first read
        self.seatless: Summary | None = None  # the last read before the end of the job in which the node had no seat

    def look(self, seen: Summary | None, now: float, sentence: Callable[[], str]) -> None:
        """Take what was read; `sentence` returns what the node waits for, or ''."""
        self._away = False
        if self.late is None:
            self.late = seen is not None and seen.closed is not None
        if seen is not None and seen.closed is None and seen.membership in SEATLESS:
            self.seatless = seen
        if seen is not None and seen.membership is not Membership.OUTSIDE:
            self._gathered = _gathers(seen)
        call = (seen.life, seen.round) if seen is not None and seen.calling else None
        if call != self._call:
            self._call, self._called = call, now
        self._look_at_others(seen, now)
        self._teller.tell(
            lambda: "; ".join(part for part in (sentence(), self._neighbours) if part), now,
            lambda: "; ".join(part for part in (self._limit(seen, now), self._place if _gathers(seen) else "") if part),
        )  # fmt: skip

    def _look_at_others(self, seen: Summary | None, now: float) -> None:
        if seen is None or not _gathers(seen) or seen.participants + seen.expected >= self._settings.min_nodes:
            self._neighbours, self._asks_at = "", math.inf
        elif self._asks_at == math.inf:
            self._asks_at = now + OTHERS_SECONDS
        elif now >= self._asks_at:
            self._neighbours, self._asks_at = self._others(), now + AGAIN_SECONDS

    def reasons(self) -> Iterator[str]:
        """Called after the deadline: the known reasons why too few nodes joined this node's round."""
        if self._gathered:
            yield from (f"{why[0].upper()}{why[1:]}." for why in (self._place, self._others()) if why)

    def away(self, since: float, now: float) -> None:
        """Log that the store has not answered since `since`; the driver has logged the first failure itself."""
        if not self._away:
            self._away = True
            self._teller.know(AWAY, now)
        self._teller.tell(lambda: AWAY, now, lambda: f"since {lasting(now - since)}; up to {lasting(self._ends - now)}")

    def _limit(self, seen: Summary | None, now: float) -> str:
        if seen is None or seen.membership is Membership.REDUNDANT:
            return "without a time limit"
        ends = self._ends
        if seen.calling and not seen.expected:
            settings = self._settings
            ends = min(ends, self._called + (settings.rescale_timeout if seen.round else settings.last_call_timeout))
        return f"up to {lasting(ends - now)}"

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
from collections.abc import Callable, Iterable, Iterator, Sequence

from trystate.model.rendezvous.vocabulary import Membership

from ..host.visible import some
from .engine import Seen
from .observer import Observer
from .state import NAMED_MAX, Node, Participant, State

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
    return some([_name(node, hosts) for node in sorted(found, key=lambda node: node.order)], NAMED_MAX)


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
    running = [p for p in state.participants if p.node.token not in state.done]
    return (f"the workers of this node have succeeded; waiting for the workers of {listed(running, state)} "
            f"({len(state.participants) - len(running)} of {len(state.participants)} nodes are done)")  # fmt: skip


def served(state: State | None, token: str) -> str:
    """The log message of a node that has left and still serves the store; empty: it waits for no node."""
    others = [p for p in state.listed() if p.node.token != token] if state is not None else []
    if state is None or not others:
        return ""
    return f"this node has left; it serves the store until the others have left: {listed(others, state)}"


def _gathers(state: State | None, token: str) -> bool:
    """Whether the node is in an open round."""
    return (state is not None and state.closed is None and not state.complete
            and state.membership(token) is Membership.PARTICIPANT)  # fmt: skip


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
    """The sentences of a node that joins: from states that it reads, and from reads that fail."""

    def __init__(
        self, token: str, ends: float, say: Callable[[str], None] = say, *, place: str = "",
        others: Callable[[], str] = str,
    ) -> None:  # fmt: skip
        """`ends`: the deadline of the join, on the clock of the states; `place`: a fault of the endpoint as
        a sentence, or ''.

        `others` names other jobs of the store that wait. It is called when nodes have been missing for OTHERS_SECONDS,
        and then once a minute.
        """
        self._token, self._ends, self._teller, self._observer = token, ends, Teller(say), Observer(token)
        self._away, self._place, self._others = False, place, others
        self._neighbours, self._asks_at = "", math.inf  # the last answer of `others`, and the time of its next call
        self._gathered = False  # the node was in an open round when it was listed last
        self.late: bool | None = None  # whether the job was over at the first read of its state
        self.seatless: State | None = None  # the last state before the end of the job in which the node had no seat

    def look(self, seen: Seen) -> None:
        """Take a state that was read."""
        self._away = False
        state = seen.state
        if self.late is None:
            self.late = state is not None and state.closed is not None
        if state is not None and state.closed is None and state.membership(self._token) in SEATLESS:
            self.seatless = state
        if state is not None and state.membership(self._token) is not Membership.OUTSIDE:
            self._gathered = _gathers(state, self._token)
        self._observer.look(state, seen.now)
        self._look_at_others(state, seen.now)
        self._teller.tell(lambda: self._sentence(state), seen.now, lambda: self._end(seen))

    def _look_at_others(self, state: State | None, now: float) -> None:
        if not _gathers(state, self._token) or state is None or _missing(state) <= 0:
            self._neighbours, self._asks_at = "", math.inf
        elif self._asks_at == math.inf:
            self._asks_at = now + OTHERS_SECONDS
        elif now >= self._asks_at:
            self._neighbours, self._asks_at = self._others(), now + AGAIN_SECONDS

    def reasons(self) -> Iterator[str]:
        """Called after the deadline: the known reasons why too few nodes joined this node's round."""
        if self._gathered:
            yield from (f"{why[0].upper()}{why[1:]}." for why in (self._place, self._others()) if why)

    def _sentence(self, state: State | None) -> str:
        return "; ".join(part for part in (awaited(state, self._token), self._neighbours) if part)

    def _end(self, seen: Seen) -> str:
        place = self._place if _gathers(seen.state, self._token) else ""
        return "; ".join(part for part in (self._limit(seen), place) if part)

    def away(self, since: float, now: float) -> None:
        """Log that the store has not answered since `since`; the driver has logged the first failure itself."""
        if not self._away:
            self._away = True
            self._teller.know(AWAY, now)
        self._teller.tell(lambda: AWAY, now, lambda: f"since {lasting(now - since)}; up to {lasting(self._ends - now)}")

    def _limit(self, seen: Seen) -> str:
        state = seen.state
        if state is None or state.membership(self._token) is Membership.REDUNDANT:
            return "without a time limit"
        calls: Sequence[float] = ()
        if state.calling and not state.expected:
            calls = (self._observer.call_ends(state),)
        return f"up to {lasting(min((self._ends, *calls)) - seen.now)}"

"""One rendezvous inside the store's server: each request of a node is applied in one step, without I/O.

Theory of operation. The state is a `Table`. A request is decoded and checked, and then, in one call of `request`:

    the connection is attached -> the node's heartbeat is noted, and silent nodes are expelled -> the intent's operator
    (operators.py) and its change (table.py) -> a record -> notices to other nodes -> the answer

The server takes three steps by itself, in `request` or `tick`: it expels silent nodes, completes a round at the end of
its last call, and replaces a round for newcomers when `scale_up_interval` is over. A change is recorded before its
answer and its notices are returned. Heartbeats, connections and clocks are not recorded: after a restart all windows,
the last call and the interval begin again, which only lengthens them.

Rules, which `member.py` and `model/rendezvous/rooms.py` rely on:

- *Lease before expulsion.* A window begins with the arrival of a request, and the lease of its node with its sending.
  The time between two requests counts as at most one interval: a server that stood still expels no node for it.
- *An intent is about one round*, by its life and number. To another round it is not applied, so repeating is harmless.
- *An ended join stays ended.* A node numbers its joins. A join that has taken its node off the lists is remembered, in
  the same record. Its request may come again, because the answer was lost: it gets the same answer, and lists no node.
- *No late copy of a request.* A node numbers its connections. Its first request on a later one replaces the earlier
  connection (`drop`). A request on an earlier one is not applied.

Failures: a peer sends bytes that are not a request, or sends for a second node: IntentError, and nothing has changed.
Limits: `members_max` nodes are listed, and a connection is of one node. The numbers of NUMBERS_MAX nodes that have no
connection now are kept, and NUMBERS_MAX ended joins. After that many others a late copy of a request can be applied.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import blake2b
from itertools import islice, takewhile
from typing import Any, NamedTuple

from trystate.model.errors import TrystateError, UsageError
from trystate.model.rendezvous.vocabulary import Action

from ...host.visible import some
from .. import operators
from ..changes import Table
from ..decisions import Decision, made
from ..encoding import decode, decode_settings, encode_any_size, encode_settings
from ..intents import change_of
from ..observer import BLIND_INTERVALS
from ..operators import View
from ..state import LISTS, NAMED_MAX, Closed, Node, Participant, Settings, State
from ..waiting import awaited, served, unfinished
from . import messages
from .messages import Intent, IntentError

MEMBERS_MAX = 1 << 16
NUMBERS_MAX = 1 << 16
# A sentence of WHY costs O(N), and thousands of nodes send for it. It is kept for a second, and longer for more nodes.
SENTENCE_SECONDS, SENTENCE_NODES = 1.0, 4096
EXACT_MAX = 64  # listed nodes; with more, nodes of one membership share a sentence
LISTING = ("add_to_participants", "add_to_wait_list", "add_to_redundancy_list", "replace_round")  # a node is listed


class Before(NamedTuple):
    """The values before a change, with which it is compared."""

    round: int
    spent: int
    closed: Closed | None
    complete: bool
    call: int


class Room:
    """One rendezvous. The caller sends and clears `notices`, closes and clears `drop`, logs and clears `decisions`.

    Args:
        life: returns the name of a new state; no two states have the same.
        record: called with each record, before the call that made the change returns.
        members_max: the limit of listed nodes; a newcomer above it is refused.
    """

    def __init__(
        self, life: Callable[[], str], record: Callable[[bytes], None] = lambda data: None, *,
        members_max: int = MEMBERS_MAX,
    ) -> None:  # fmt: skip
        self.notices: list[tuple[Any, bytes]] = []
        self.drop: list[Any] = []  # connections that later ones have replaced
        self.decisions: list[tuple[Node, Decision]] = []  # with the node that has made each
        self.due = math.inf  # when `tick` has something to do
        self._life, self._record, self._members_max = life, record, members_max
        self._table: Table | None = None
        self._peers: dict[str, tuple[Any, int]] = {}  # the connection of each node, and its number
        self._tokens: dict[Any, str] = {}
        self._numbers: OrderedDict[str, int] = OrderedDict()  # the last connections of nodes without one
        self._ended: OrderedDict[str, tuple[int, int]] = OrderedDict()  # a node's join that has ended, and its verdict
        self._since: OrderedDict[str, float] = OrderedDict()  # last heartbeats in watched time, the oldest first
        self._watched = 0.0  # total of the seconds in which requests came
        self._looked = 0.0  # the time of the last request of a node
        self._makers: dict[str, None] = {}  # members whose agents let newcomers in
        self._called = self._completed = 0.0  # when the last call began, and when the round was complete
        self._of: Settings | None = None  # the table's settings, encoded, and their digest
        self._settings = self._digest = b""
        self._members: tuple[tuple[str, int], bytes] = ("", 0), b""  # a complete round, and the digest of its members
        self._mark, self._body = 0, b""  # the parts of answers that are the same for all nodes
        self._sentences: dict[tuple[Any, ...], tuple[float, str]] = {}

    @property
    def state(self) -> State | None:
        """The state as a value, without heartbeats; O(N)."""
        return self._table.frozen() if self._table is not None else None

    def is_finished(self, now: float) -> bool:
        """Whether its rendezvous was closed, and no node has a connection or has sent a request for a window."""
        t, silent = self._table, now - self._looked
        return t is not None and t.closed is not None and not self._peers and silent >= t.settings.expiry_seconds

    # ---- the caller's calls

    def request(self, peer: Any, data: bytes, now: float, expels: bool = True) -> bytes:
        """Apply a request and return its answer. Raises IntentError: it is refused, and nothing was changed.

        `expels`: silent nodes may be expelled. Otherwise a BEAT, LOOK or WHY makes no record.
        """
        intent = messages.read_intent(data)
        settings = self._agreed(intent) if intent.kind in (messages.JOIN, messages.CLOSE) else None
        if intent.connection and not self._attach(peer, intent):
            return bytes((messages.NO_STATE,))
        t, token = self._table, intent.token
        if t is not None and intent.connection:
            self._beats(t, token, intent.me, now, expels)
        if intent.kind == messages.JOIN:
            return self._join(intent, settings, now) if settings is not None else bytes((messages.NEED_SETTINGS,))
        if t is None:
            return self._without_table(intent, settings, now)
        if intent.kind == messages.BEAT:
            return self._beat(t, intent)
        if intent.kind == messages.LOOK:
            return encode_any_size(self._with_beats(t))
        if intent.kind == messages.WHY:
            return self._sentence(t, token, bool(intent.flags & messages.LEFT), now).encode("utf-8", "surrogatepass")
        if intent.kind == messages.POKE:
            listed = t.find(token)
            if listed is None or self._has_ended(token, intent.join):
                return self._again(token, intent.join)
            return self._joined(intent, listed, t.settings, now)
        try:
            change = change_of(t, intent)
        except UsageError as why:
            return self._answer(token, why=str(why))
        if change is not None:
            self._change(change[0], now, *change[1])
        return self._answer(token, applied=change is not None)

    def gone(self, peer: Any) -> None:
        """The connection has ended."""
        token = self._tokens.pop(peer, None)
        if token is not None and self._peers[token][0] == peer:
            _remember(self._numbers, token, self._peers.pop(token)[1])

    def tick(self, now: float) -> None:
        """Called when `due` is reached: the end of a last call, or of the interval for newcomers."""
        t = self._table
        if t is not None and now >= self.due:
            if not t.complete:
                # A participant that has no connection may be lost: the next one that connects completes the round.
                there = next((p.node for token, p in t.participants.items() if token in self._peers), None)
                if there is not None:
                    self._change("mark_complete", now, there)
            elif (maker := next((token for token in self._makers if token in t.participants), None)) is not None:
                self._change("give_notice", now, t.participants[maker].node, False)
        self._set_due()

    def replay(self, record: bytes) -> None:
        """Apply the next record of an earlier process. Raises IntentError: damaged, or of another release."""
        name, version, arguments = messages.read_record(record)
        t = self._table
        try:
            if name == "begin" and t is None:
                self._table = Table(arguments[0], decode_settings(arguments[1]))
            elif name == "snapshot":
                self._table = Table.of(decode(arguments[0], any_size=True)) if arguments[0] else None
                self._ended = OrderedDict((token, (join, verdict)) for token, join, verdict in arguments[1])
            elif t is None or version != t.version + 1:
                raise IntentError(f"the record of version {version} of a room follows the version {t and t.version}; "
                                  "the records between them are lost")  # fmt: skip
            else:
                if name == "add_to_participants":
                    arguments[1] = decode_settings(arguments[1]) if arguments[1] else t.settings
                self._apply(t, name, arguments)
        except IntentError:
            raise
        except (ValueError, TrystateError) as why:
            raise IntentError(f"a record of a room is damaged: {why}") from None

    def begin_again(self, now: float) -> None:
        """Called after the last `replay`: all windows begin again."""
        t = self._table
        if t is not None:
            self._since = OrderedDict((p.node.token, 0.0) for p in t.listed() if p.node.token not in t.done)
            self._watched, self._looked = 0.0, now
            self._called = self._completed = now
            self._refresh(t)
            self._set_due()

    def snapshot(self) -> bytes:
        """One record that replaces all before it."""
        t = self._table
        state = encode_any_size(t.frozen()) if t is not None else b""
        ended = [(token, *join) for token, join in self._ended.items()]
        return messages.record("snapshot", t.version if t is not None else 0, (state, ended))

    # ---- connections and heartbeats

    def _attach(self, peer: Any, intent: Intent) -> bool:
        """Note that the node has this connection. False: it has a later one, and this one is dropped."""
        token, number = intent.token, intent.connection
        known, last = self._peers.get(token, (None, 0))
        if known == peer and known is not None:
            return True
        if self._tokens.get(peer, token) != token:
            raise IntentError(f"this connection is of the node {self._tokens[peer]!r}, not of {token!r}; each node has "
                              "its own connection")  # fmt: skip
        if number < (last or self._numbers.get(token, 0)):
            self.drop.append(peer)
            return False
        if known is not None:
            del self._tokens[known]
            self.drop.append(known)
        self._numbers.pop(token, None)
        self._peers[token], self._tokens[peer] = (peer, number), token
        if self.due == math.inf:
            self._set_due()
        return True

    def _beats(self, t: Table, token: str, me: Participant | None, now: float, expels: bool) -> None:
        """Take a request as a heartbeat of its node, and expel the silent nodes, if `expels`.

        All requests together are the looks of one observer.
        """
        since = self._since
        self._watched, self._looked = self._watched_at(t, now), now
        if token in since:
            since[token] = self._watched
            since.move_to_end(token)
        heard = self._watched - t.settings.expiry_seconds
        if expels and since and next(iter(since.values())) <= heard and t.closed is None:
            me = t.find(token) or me
            silent = list(takewhile(lambda other: since[other] <= heard, since))
            if me is not None:
                self._change("expel", now, me.node, silent)

    def _with_beats(self, t: Table) -> State:
        """The state in which `written` grows with each heartbeat of a node: the watched time of the last, in ms."""
        lists: dict[str, Any] = {
            name: tuple(replace(p, written=round(self._since.get(p.node.token, 0.0) * 1000)) for p in nodes.values())
            for name, nodes in zip(LISTS, t.lists(), strict=True)
        }
        return replace(t.frozen(), **lists)

    def _watched_at(self, t: Table, now: float) -> float:
        gap = now - self._looked
        return self._watched + min(max(0.0, gap), BLIND_INTERVALS * t.settings.keep_alive_interval)

    def _beat(self, t: Table, intent: Intent) -> bytes:
        token = intent.token
        if intent.flags & messages.MAKES_ROOM and t.complete and token in t.participants:
            self._makers[token] = None
        else:
            self._makers.pop(token, None)
        if t.waiting:
            self._set_due()
        if intent.known == self._mark and token in self._since:
            return bytes((messages.SAME,))
        return self._answer(token)

    # ---- joining

    def _agreed(self, intent: Intent) -> Settings | None:
        """The settings of a request; None: it has a digest alone, and the room has other ones."""
        t = self._table
        if t is not None and (t.closed is not None or intent.digest == self._digest):
            return t.settings
        if not intent.settings:
            return None
        try:
            if intent.kind == messages.JOIN and messages.digest(intent.settings) != intent.digest:
                raise IntentError("the settings of a JOIN do not have its digest")
            return decode_settings(intent.settings)
        except ValueError as why:
            raise IntentError(f"the settings of a request cannot be read: {why}") from None

    def _without_table(self, intent: Intent, settings: Settings | None, now: float) -> bytes:
        """The answer of a room that has not begun. An operator may close it in advance."""
        if intent.kind in (messages.LOOK, messages.WHY):
            return b""
        if intent.kind != messages.CLOSE or not intent.flags & messages.ANYWAY or settings is None or intent.by is None:
            return bytes((messages.NO_STATE,))
        self._begin(settings, now)
        self._change("mark_closed", now, intent.by, intent.reason, intent.verdict)
        return self._answer(intent.token, applied=True)

    def _begin(self, settings: Settings, now: float) -> None:
        self._table = t = Table(self._life(), settings)
        self._looked = now
        self._refresh(t)
        self._record(messages.record("begin", 0, (t.life, self._settings)))

    def _join(self, intent: Intent, settings: Settings, now: float) -> bytes:
        if self._table is None:
            if intent.flags & messages.LATE:
                return bytes((messages.NO_STATE,))
            self._begin(settings, now)
        t, me, token = self._table, intent.me, intent.token
        assert t is not None and me is not None  # a JOIN has a listing
        if self._has_ended(token, intent.join):
            return self._again(token, intent.join)
        if (change := change_of(t, intent)) is not None:  # a member replaces its round
            self._change(change[0], now, *change[1])
        elif t.closed is None and t.size >= self._members_max and t.find(token) is None:
            why = (f"the rendezvous has {t.size} nodes, and the limit is members_max={self._members_max}; start fewer "
                   "nodes, or raise the limit of the server")  # fmt: skip
            return self._answer(token, messages.NO_PLACE, why)
        return self._joined(intent, me, settings, now)

    def _joined(self, intent: Intent, me: Participant, settings: Settings, now: float) -> bytes:
        """Apply the join operator until it changes nothing more."""
        t, token = self._table, intent.token
        assert t is not None
        while True:
            call_over = t.calling and now >= self._call_ends(t)
            shared: Any = t  # it has what an operator reads of a State
            view = View(shared, token, settings, late=bool(intent.flags & messages.LATE), call_over=call_over)
            action = operators.join(view)
            if action is Action.WITHDRAW:
                verdict = messages.WAS_DRAINED if view.drained else messages.TIMED_OUT
                self._change("withdraw", now, me.node, intent.join, verdict)
                return self._again(token, intent.join)
            if action is Action.ERROR_SETTINGS:
                return self._answer(token, messages.OTHER_SETTINGS, settings.refusal(t.settings))
            if action is Action.ERROR_TIMEOUT:
                return self._answer(token, messages.TIMED_OUT, self._others(t))
            if action is Action.ERROR_CLOSED:
                return self._answer(token, messages.IS_CLOSED)
            if action is Action.ADD_TO_PARTICIPANTS:
                self._change("add_to_participants", now, me, settings)
            elif action is Action.MARK_RENDEZVOUS_COMPLETE:
                self._change("mark_complete", now, me.node)
            elif action is not Action.SYNC and action is not Action.FINISH:  # the wait list, or the spares
                self._change(action.name.lower(), now, me)
            if action is Action.SYNC or action is Action.FINISH or not t.calling:  # the operator changes nothing more
                # A node of a small room logs at once what it waits for; one of a large room sends a WHY later.
                return self._answer(token, why=self._sentence(t, token, False, now) if t.size <= EXACT_MAX else "")

    def _has_ended(self, token: str, join: int) -> bool:
        return token in self._ended and join <= self._ended[token][0]

    def _again(self, token: str, join: int) -> bytes:
        """The answer to a join that has ended, or to a node that is not listed."""
        assert self._table is not None
        if not self._has_ended(token, join):
            return self._answer(token)
        return self._answer(token, self._ended[token][1], self._others(self._table))

    def _others(self, t: Table) -> str:
        """The clause about the nodes that remain after one has left."""
        first = [str(p.node) for p in islice(t.listed(), NAMED_MAX)]
        return f"{some(first, NAMED_MAX, t.size)} remain{'s' * (t.size == 1)}" if first else "no other node remains"

    # ---- a change, and what follows from it

    def _apply(self, t: Table, name: str, arguments: Any) -> None:
        if name == "withdraw":
            me, join, verdict = arguments
            arguments = (me,)
            if join:
                _remember(self._ended, me.token, (join, verdict))
        getattr(t, name)(*arguments)

    def _change(self, name: str, now: float, me: Any, *more: Any) -> None:
        """Change the table and record it; make the notices and the decisions. `me` is the node that changes it."""
        t = self._table
        assert t is not None
        node: Node = me.node if isinstance(me, Participant) else me
        if name == "withdraw":
            more = more or (0, 0)  # no join has ended by it
        was, done = Before(t.round, t.spent, t.closed, t.complete, t.call), t.done  # a new round has its own
        member = t.complete and node.token in t.participants
        lost = [p.node for token in more[0] if (p := t.find(token)) is not None] if name == "expel" else []
        plain = [self._plain(one) if isinstance(one, Settings) else one for one in more]
        self._apply(t, name, (me, *more))
        self._record(messages.record(name, t.version, (me, *plain)))
        self._refresh(t)
        # The windows and the clocks.
        gone = [one for one in lost if t.find(one.token) is None]
        # The process of a member whose workers have succeeded may have ended: no heartbeats are expected of it.
        for token in (node.token,) if name in ("withdraw", "mark_done") else [one.token for one in gone]:
            self._since.pop(token, None)
        again = (*((node.token,) if name in LISTING else ()), *(done if t.round != was.round else ()))
        for token in again:
            if t.find(token) is not None:
                self._since[token] = self._watched_at(t, now)
                self._since.move_to_end(token)
        if t.round != was.round:
            self._makers.clear()
        if t.call != was.call:
            self._called = now
        if t.complete and (t.round, True) != (was.round, was.complete):
            self._completed = now
        # The parts that other nodes see.
        action = Action.__members__.get(name.upper(), Action.SYNC)
        self.decisions += [(node, one) for one in made(action, was, t, [str(one) for one in gone], member)]
        if t.closed is not was.closed or t.round != was.round:
            self._notify(self._peers)
        elif t.complete and not was.complete:
            self._notify(t.participants)
        else:
            self._notify([one.token for one in lost] if name == "expel" else [more[0].token] if name == "drain" else ())
        self._set_due()

    def _plain(self, settings: Settings) -> bytes:
        """Settings in a record: nothing, if they are the table's."""
        return b"" if settings is self._of or settings == self._of else encode_settings(settings)

    def _refresh(self, t: Table) -> None:
        """Make again what is made of the table."""
        if t.settings is not self._of:
            self._of, self._settings = t.settings, encode_settings(t.settings)
            self._digest = messages.digest(self._settings)
        members = bytes(messages.MEMBERS_BYTES)
        if t.complete:
            members = self._members[1]
            if self._members[0] != (t.life, t.round):
                names = f"{t.life} {t.round} {' '.join(t.participants)}".encode("utf-8", "surrogatepass")
                members = blake2b(names, digest_size=messages.MEMBERS_BYTES).digest()
                self._members = (t.life, t.round), members
        self._body, self._mark = messages.body(t, members), messages.mark(t.life, t.revision)

    def _call_ends(self, t: Table) -> float:
        return self._called + (t.settings.rescale_timeout if t.round else t.settings.last_call_timeout)

    def _set_due(self) -> None:
        t, self.due = self._table, math.inf
        if t is None or t.closed is not None:
            return
        if t.calling and not t.expected:
            if any(token in self._peers for token in t.participants):
                self.due = self._call_ends(t)
        elif t.complete and t.waiting and not t.done and t.seats > 0 and self._makers:
            # A waiting node without a free seat becomes a spare. Once a member is done, the job is about to end.
            self.due = self._completed + t.settings.scale_up_interval

    # ---- answers and notices

    def _answer(self, token: str, verdict: int = 0, why: str = "", applied: bool = False) -> bytes:
        t = self._table
        assert t is not None
        flags = (
            messages.APPLIED * applied | messages.DRAINED * (token in t.draining) | messages.IS_DONE * (token in t.done)
        )
        rank = t.ranks.get(token, -1)
        return messages.answer(t.membership(token), rank, self._body, flags=flags, verdict=verdict, why=why)

    def _notify(self, tokens: Iterable[str]) -> None:
        for token in tokens:
            known = self._peers.get(token)
            if known is not None:
                self.notices.append((known[0], self._answer(token)))

    def _sentence(self, t: Table, token: str, left: bool, now: float) -> str:
        """The sentence about what a node waits for."""
        key = t.membership(token), token in t.done, left
        at, sentence = self._sentences.get(key, (-math.inf, ""))
        if now - at >= SENTENCE_SECONDS * max(1.0, t.size / SENTENCE_NODES) or t.size <= EXACT_MAX:
            state = t.frozen()
            sentence = served(state, token) if left else awaited(state, token) or unfinished(state, token)
            self._sentences[key] = now, sentence
        return sentence


def _remember(numbers: OrderedDict[str, Any], token: str, value: Any) -> None:
    numbers[token] = value
    numbers.move_to_end(token)
    if len(numbers) > NUMBERS_MAX:
        numbers.popitem(last=False)

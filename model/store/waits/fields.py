"""The state of clients that wait for keys and of their server, and the messages between them.

Theory of operation. Each client has one connection: requests one way, answers the other, both in order. A blocking
operation of torch's client is a WAIT, followed for a get by a GET; when its time is over, the client sends CANCEL_WAIT
and reads until that is answered. The server answers a WAIT at once if all keys exist; otherwise it registers the client
(`waiting`) and answers when a write creates the last missing key. A write of another client arrives at the server in
one step. A `target` is 0 for all keys, or the number of a key from 1. A `turn` distinguishes an operation of a client
from the previous one; on the wire, no byte does.

The editions differ in three flags below: how a wait counts its keys, whether the value that ended a wait is kept for
the GET after it, and whether a GET of a missing key is answered.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar

from ...language import *
from ..vocabulary import Connection, Key, Waiter

S = SymbolicState


class Asking(enum.Enum):
    """The answer that an operation of a client is about to read."""

    WAIT = "that the keys exist"
    GET = "that the key exists; a request for its value follows"
    VALUE = "the value"


class Request(enum.Enum):
    """A request of a client."""

    WAIT = "notify when the keys exist"
    GET = "the value of a key"
    CANCEL_WAIT = "cancel the wait"
    WAIT_IN_ONE = "ours: notify when the keys exist, or when the time is over"
    GET_IN_ONE = "ours: the value when the key exists, or the end of the time"


class Answer(enum.Enum):
    """The server's answer to a client."""

    STOP_WAITING = "the keys exist"
    WAIT_CANCELED = "the wait is cancelled"
    VALUE = "a value that was set"
    EMPTY = "an empty value for a missing key"
    TIMED_OUT = "ours: not in time"


class Fields(System):
    """The fields of the system, and the helpers that its steps share."""

    counts_together: ClassVar[bool] = False  # a wait ends when all its keys exist at once, not when each has existed
    keeps_values: ClassVar[bool] = False  # a GET is answered with the value that satisfied the WAIT before it
    refuses_missing: ClassVar[bool] = False  # a GET of a missing key closes the connection

    client = index(2)
    key = index(2)
    value = index(1, "how many values a key takes in turn: with several, an answer shows which write it has")
    torch_clients = constant(1, "in ours: how many clients are torch's")
    deletes = constant(1, "1: others delete keys, 0: they do not")
    compares = constant(1, "1: others also write with compare_set, 0: they do not")

    holds = integer(0, "value", per="key", doc="its value; 0: the key is missing")
    failed = flag(doc="the last request of others was a compare_set that stored nothing")
    frozen = flag(doc="the server answers nothing any more")

    waiter = choice(Waiter, per="client")
    asking = choice(Asking, per="client")
    target = integer(0, "key", per="client", doc="the keys that the client waits for")
    turn = flag(per="client")
    together = flag(per="client", doc="all its keys existed at one moment since its request")
    held = flag(per=("client", "value"), doc="the key of its get had the value at one moment since its request")
    expired = flag(per="client", doc="the time of its operation is over")
    requests = sequence(2, per="client", kind=Request, target=(0, "key"), turn=bool, doc="on their way to the server")
    answers = sequence(2, per="client", kind=Answer, turn=bool, value=(0, "value"), doc="on their way to the client")

    waiting = integer(0, "key", per=("key", "client"), doc="entries of the client in the key's list of waiters")
    awaited = integer(0, "key", per="client", doc="torch: for how many keys it still waits")
    missing = flag(per=("key", "client"), doc="ours: a key of its wait that is missing")
    wants_value = flag(per="client", doc="ours: the registered client wants the value")
    kept = integer(0, "value", per=("key", "client"), doc="ours: the value that satisfied a wait, for the GET after it")
    waiting_turn = flag(per="client", doc="the turn of the wait that is registered")
    half = flag(per="client", doc="the server holds part of a request")
    lost = flag(per="client", doc="the connection is lost in both directions")
    closed = flag(per="client", doc="the server has closed the connection")

    def lifelines(self) -> Lifelines:
        """Writes of other clients arrive at the server."""
        at = "waiting awaited missing wants_value kept waiting_turn half closed forget_connection"
        return served("server", at, requests="requests", answers="answers", here="together held")

    waiter_state = machine_of(waiter, "A client's blocking wait.")

    @machine(Key)
    def key_state(self, s: S, key: Expr) -> Any:
        """A key."""
        return ite(s.holds[key] > 0, Key.PRESENT, Key.ABSENT)

    @machine(Connection)
    def connection(self, s: S, client: Expr) -> Any:
        """A client's connection."""
        served = ite(self.is_registered(s, client), Connection.BLOCKED, Connection.READY)
        return ite(s.closed[client], Connection.CLOSED, ite(s.lost[client], Connection.CLOSING, served))

    # ---- helpers of the steps

    def has_deadline(self, client: Expr) -> Any:
        """The client waits for every answer with a deadline."""
        return not_(self.is_torchs(client))

    def is_torchs(self, client: Expr) -> Any:
        """It is a client of torch's."""
        return not_(False)

    def is_registered(self, s: S, client: Expr) -> Any:
        if self.counts_together:
            return any_(s.waiting[k, client] > 0 for k in s.key)
        return s.awaited[client] > 0

    def is_cut(self, s: S, client: Expr) -> Any:
        return s.lost[client] | s.closed[client]

    def among(self, target: Any, key: Expr) -> Any:
        return (target == 0) | (target == ord_(key) + 1)

    def all_there(self, s: S, target: Any) -> Any:
        return all_(implies(self.among(target, k), s.holds[k] > 0) for k in s.key)

    def value_of(self, s: S, target: Any) -> Any:
        """The value of a get's key."""
        return count(any_(self.among(target, k) & (s.holds[k] > ord_(v)) for k in s.key) for v in s.value)

    def begins(self, s: S, client: Expr, asking: Asking, target: Any, kind: Request = Request.WAIT) -> None:
        """The client begins an operation; one answer of an earlier operation may be outstanding (in torch 1.9)."""
        outstanding = s.requests[client].length + s.answers[client].length + as_int(self.is_registered(s, client))
        move(s.waiter, Waiter.IDLE, Waiter.BLOCKED, ~self.is_cut(s, client), outstanding <= 1, at=client)
        s.turn[client] = ~s.turn[client]
        s.requests[client].push(kind=kind, target=target, turn=s.turn[client])
        s.asking[client] = asking
        s.target[client] = target
        s.together[client] = self.all_there(s, target)
        if asking is not Asking.WAIT:
            for v in s.value:
                s.held[client, v] = self.value_of(s, target) == ord_(v) + 1

    def ends(self, s: S, client: Expr, how: Waiter) -> None:
        s.waiter[client] = how
        reset(s.asking, s.target, s.expired, s.held, at=client)

    def reads(self, s: S, client: Expr, waiter: Waiter, *kinds: Answer) -> None:
        """The client reads the next answer if it is of one of these kinds."""
        head = s.answers[client].head
        s.when(s.waiter[client] == waiter, ~s.answers[client].is_empty, head.kind.isin(kinds))
        s.answers[client].pop()

    def hangs_up(self, s: S, client: Expr) -> None:
        """The connection is lost, and messages on their way do not arrive."""
        s.lost[client] = True
        s.requests[client].clear()
        s.answers[client].clear()

    def serves(self, s: S) -> None:
        """The server can serve a request."""
        s.when(~s.frozen)

    def takes(self, s: S, client: Expr, kind: Request) -> tuple[Any, Any]:
        """The server reads the next request if it is of this kind; returns its target and its turn."""
        self.serves(s)
        head = s.requests[client].head
        s.when(~s.closed[client], ~s.requests[client].is_empty, head.kind == kind)
        s.requests[client].pop()
        return head.target, head.turn

    def drops_kept(self, s: S, client: Expr) -> None:
        for k in s.key:
            reset(s.kept, at=(k, client))

    def forgets(self, s: S, client: Expr, when: Any = True) -> None:
        """The client is removed from every list."""
        for k in s.key:
            reset(s.waiting, s.missing, at=(k, client), when=when)
        reset(s.awaited, s.waiting_turn, s.wants_value, at=client, when=when)

    def wakes(self, s: S, key: Expr) -> None:
        """Answers each client that waits for the key if it was the last missing key."""
        if self.counts_together:
            self.wakes_the_satisfied(s, key)
        else:
            self.counts_down(s, key)

    def counts_down(self, s: S, key: Expr) -> None:
        """torch: every entry counts once and is removed; below 0 the counter wraps and never reaches 0 again."""
        for j in s.client:
            entries, awaited, turn = s.waiting[key, j], s.awaited[j], s.waiting_turn[j]
            last = (entries > 0) & (awaited > 0) & (awaited <= entries)
            s.answers[j].push(when=last & ~s.lost[j], kind=Answer.STOP_WAITING, turn=turn)
            s.awaited[j] = ite(awaited > entries, awaited - entries, 0)
            s.waiting_turn[j] = turn & (awaited > entries)
            s.waiting[key, j] = 0

    def wakes_the_satisfied(self, s: S, key: Expr) -> None:
        """Ours: a waiter stays registered under all its keys until no key is missing."""
        reset(s.missing, at=key)
        before = s.fork()
        for j in s.client:
            done = (before.waiting[key, j] > 0) & ~any_(before.missing[k, j] for k in s.key)
            turn, reads = before.waiting_turn[j], before.wants_value[j]
            kind, value = ite(reads, Answer.VALUE, Answer.STOP_WAITING), ite(reads, before.holds[key], 0)
            s.answers[j].push(when=done & ~before.lost[j], kind=kind, turn=turn, value=value)
            s.waiting_turn[j] = turn & ~done
            s.wants_value[j] = reads & ~done
            for k in s.key:
                satisfied = done & self.is_torchs(j) & (before.waiting[k, j] > 0)
                s.kept[k, j] = ite(satisfied, before.holds[k], before.kept[k, j])
                s.waiting[k, j] = ite(done, 0, before.waiting[k, j])

    def comes_to_hold(self, s: S, key: Expr, value: Any) -> None:
        s.holds[key] = value
        s.failed = False
        for j in s.client:
            asks = s.waiter[j].isin((Waiter.BLOCKED, Waiter.CANCELLING))
            s.together[j] = s.together[j] | (asks & self.all_there(s, s.target[j]))
            gets = (s.waiter[j] == Waiter.BLOCKED) & (s.asking[j] != Asking.WAIT) & self.among(s.target[j], key)
            for v in s.value:
                s.held[j, v] = s.held[j, v] | (gets & (s.holds[key] == ord_(v) + 1))

    def goes_missing(self, s: S, key: Expr) -> None:
        """Ours: a client that is registered for the key must wait for it again."""
        if self.counts_together:
            for j in s.client:
                s.missing[key, j] = s.waiting[key, j] > 0

    def registers(self, s: S, client: Expr, target: Any, turn: Any, when: Any) -> None:
        """Registers the client: in torch once more under each missing key, in ours under all its keys."""
        s.waiting_turn[client] = ite(when, turn, s.waiting_turn[client])
        if self.counts_together:
            for k in s.key:
                s.waiting[k, client] = as_int(when & self.among(target, k))
                s.missing[k, client] = when & self.among(target, k) & (s.holds[k] == 0)
            return
        absent = count(self.among(target, k) & (s.holds[k] == 0) for k in s.key)
        s.awaited[client] = ite(when, absent, s.awaited[client])
        for k in s.key:
            entries = s.waiting[k, client]
            # More entries than the number of keys have the same effect as that number.
            more = when & self.among(target, k) & (s.holds[k] == 0) & (entries < self.size_of("key"))
            s.waiting[k, client] = entries + as_int(more)

    def keeps(self, s: S, client: Expr, target: Any, when: Any) -> None:
        """Ours: keeps the values that satisfied a wait until the next request."""
        if self.keeps_values:
            for k in s.key:
                s.kept[k, client] = ite(when & self.among(target, k), s.holds[k], 0)

    def closes(self, s: S, client: Expr, when: Any) -> None:
        """The server closes the connection and removes its data."""
        self.forgets(s, client, when)
        for k in s.key:
            s.kept[k, client] = ite(when, 0, s.kept[k, client])
        self.drops_parts(s, client, when)
        s.closed[client] = s.closed[client] | when

    def drops_parts(self, s: S, client: Expr, when: Any) -> None:
        """A part of a request is dropped with its connection."""
        s.half[client] = s.half[client] & not_(when)

    def is_known(self, s: S, client: Expr) -> Any:
        """The server has data of the connection."""
        listed = any_((s.waiting[k, client] > 0) | s.missing[k, client] | (s.kept[k, client] > 0) for k in s.key)
        return listed | (s.awaited[client] > 0) | s.wants_value[client] | s.half[client]

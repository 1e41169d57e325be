"""The state of clients that wait for keys and of their server, and the messages between them.

Theory of operation. Each client has one connection: requests one way, answers the other, both in order. A blocking
operation of torch's client is a WAIT, and for a get a GET after its answer; when its time is over it sends CANCEL_WAIT
and reads until that is answered. The server answers a WAIT at once if all keys are there; else it registers the client
(`waiting`) and answers when a write makes the last key appear. A write of another client arrives at the server as one
step. A `target` is 0 for all keys, or the number of a key from 1. A `turn` tells an operation of a client from the one
before it, which is what no byte on the wire does.

The editions differ in three things, each a flag below: how a wait counts its keys, whether the value that ended a wait
is kept for the GET after it, and whether a GET of a missing key is answered.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar

from ...language import *
from ..vocabulary import Connection, Key, Waiter

S = SymbolicState


class Asking(enum.Enum):
    """The answer that an operation of a client is about to read."""

    WAIT = "that the keys are there"
    GET = "that the key is there, to ask for its value then"
    VALUE = "the value"


class Request(enum.Enum):
    """A request of a client."""

    WAIT = "tell me when the keys are there"
    GET = "the value of a key"
    CANCEL_WAIT = "I wait no more"
    WAIT_IN_ONE = "ours: tell me when the keys are there, or that they were not in time"
    GET_IN_ONE = "ours: the value when the key is there, or that it was not in time"


class Answer(enum.Enum):
    """The server's answer to a client."""

    STOP_WAITING = "the keys are there"
    WAIT_CANCELED = "you wait no more"
    VALUE = "a value that somebody set"
    EMPTY = "an empty value for a key that is not there"
    TIMED_OUT = "ours: not in time"


class Fields(System):
    """The fields of the system, and what its steps share."""

    counts_together: ClassVar[bool] = False  # a wait ends when all its keys are there at once, not when each has been
    keeps_values: ClassVar[bool] = False  # a GET is answered with the value that satisfied the WAIT before it
    refuses_missing: ClassVar[bool] = False  # a GET of a missing key closes the connection

    client = index(2)
    key = index(2)
    value = index(1, "how many values a key takes in turn: with several, an answer tells which write it is of")
    torch_clients = constant(1, "in ours: how many clients are torch's")
    deletes = constant(1, "1: others delete keys, 0: they do not")
    compares = constant(1, "1: others write with compare_set too, 0: they do not")

    holds = integer(0, "value", per="key", doc="which of the values; 0: the key is not there")
    failed = flag(doc="the last that others asked for was a compare_set, which stored nothing")
    frozen = flag(doc="the server answers nothing any more")

    waiter = choice(Waiter, per="client")
    asking = choice(Asking, per="client")
    target = integer(0, "key", per="client", doc="the keys that the client waits for")
    turn = flag(per="client")
    together = flag(per="client", doc="all its keys were there at one moment since it asked")
    held = flag(per=("client", "value"), doc="the key that it gets held the value at one moment since it asked")
    expired = flag(per="client", doc="the time of its operation is over")
    requests = sequence(2, per="client", kind=Request, target=(0, "key"), turn=bool, doc="on their way to the server")
    answers = sequence(2, per="client", kind=Answer, turn=bool, value=(0, "value"), doc="on their way to the client")

    waiting = integer(0, "key", per=("key", "client"), doc="entries of the client in the key's list of waiters")
    awaited = integer(0, "key", per="client", doc="torch: for how many keys it still waits")
    missing = flag(per=("key", "client"), doc="ours: which of them are missing")
    wants_value = flag(per="client", doc="ours: the registered client wants the value")
    kept = integer(0, "value", per=("key", "client"), doc="ours: the value that satisfied a wait, for the GET after it")
    waiting_turn = flag(per="client", doc="the turn of the wait that is registered")
    half = flag(per="client", doc="the server holds part of a request")
    lost = flag(per="client", doc="the connection is gone, in both directions")
    closed = flag(per="client", doc="... and the server has found out")

    def lifelines(self) -> Lifelines:
        """The write of another client arrives at the server."""
        at = "waiting awaited missing wants_value kept waiting_turn half closed forget_connection"
        return served("server", at, requests="requests", answers="answers", here="together held")

    @machine(Waiter, each="client")
    def waiter_state(self, s: S, client: Expr) -> Any:
        """A client's blocking wait."""
        return s.waiter[client]

    @machine(Key, each="key")
    def key_state(self, s: S, key: Expr) -> Any:
        """A key."""
        return ite(s.holds[key] > 0, Key.PRESENT, Key.ABSENT)

    @machine(Connection, each="client")
    def connection(self, s: S, client: Expr) -> Any:
        """A client's connection."""
        served = ite(self.is_registered(s, client), Connection.BLOCKED, Connection.READY)
        return ite(s.closed[client], Connection.CLOSED, ite(s.lost[client], Connection.CLOSING, served))

    # ---- what the steps share

    def has_deadline(self, client: Expr) -> Any:
        """Does the client wait for no answer without end?"""
        return not_(self.is_torchs(client))

    def is_torchs(self, client: Expr) -> Any:
        """Is it a client of torch's?"""
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
        """One answer of an earlier operation may be outstanding, which in torch 1.9 happens."""
        outstanding = s.requests[client].length + s.answers[client].length + as_int(self.is_registered(s, client))
        s.when(s.waiter[client] == Waiter.IDLE, ~self.is_cut(s, client), outstanding <= 1)
        s.turn[client] = ~s.turn[client]
        s.requests[client].push(kind=kind, target=target, turn=s.turn[client])
        s.waiter[client] = Waiter.BLOCKED
        s.asking[client] = asking
        s.target[client] = target
        s.together[client] = self.all_there(s, target)
        if asking is not Asking.WAIT:
            for v in s.value:
                s.held[client, v] = self.value_of(s, target) == ord_(v) + 1

    def ends(self, s: S, client: Expr, how: Waiter) -> None:
        s.waiter[client] = how
        s.asking[client] = Asking.WAIT
        s.target[client] = 0
        s.expired[client] = False
        for v in s.value:
            s.held[client, v] = False

    def reads(self, s: S, client: Expr, waiter: Waiter, *kinds: Answer) -> None:
        """The client takes the next answer, which is of one of these kinds."""
        head = s.answers[client].head
        s.when(s.waiter[client] == waiter, ~s.answers[client].is_empty, head.kind.isin(kinds))
        s.answers[client].pop()

    def hangs_up(self, s: S, client: Expr, when: Any = True) -> None:
        """The connection is lost: messages on their way do not arrive."""
        s.lost[client] = s.lost[client] | when
        s.requests[client].clear(when=when)
        s.answers[client].clear(when=when)

    def serves(self, s: S) -> None:
        """The server looks at a request."""
        s.when(~s.frozen)

    def takes(self, s: S, client: Expr, kind: Request) -> tuple[Any, Any]:
        """The server takes the next request, of this kind: its target and its turn."""
        self.serves(s)
        head = s.requests[client].head
        target, turn = head.target, head.turn
        s.when(~s.closed[client], ~s.requests[client].is_empty, head.kind == kind)
        s.requests[client].pop()
        return target, turn

    def drops_kept(self, s: S, client: Expr) -> None:
        for k in s.key:
            s.kept[k, client] = 0

    def forgets(self, s: S, client: Expr, when: Any = True) -> None:
        """The client is taken off every list."""
        for k in s.key:
            s.waiting[k, client] = ite(when, 0, s.waiting[k, client])
            s.missing[k, client] = s.missing[k, client] & not_(when)
        s.awaited[client] = ite(when, 0, s.awaited[client])
        s.waiting_turn[client] = s.waiting_turn[client] & not_(when)
        s.wants_value[client] = s.wants_value[client] & not_(when)

    def wakes(self, s: S, key: Expr) -> None:
        """Tell each client that waits for the key, if it was the last one missing."""
        if self.counts_together:
            self.wakes_the_satisfied(s, key)
        else:
            self.counts_down(s, key)

    def counts_down(self, s: S, key: Expr) -> None:
        """torch: every entry counts once, and is gone; below 0 the counter wraps and never comes to 0 again."""
        for j in s.client:
            entries, awaited, turn = s.waiting[key, j], s.awaited[j], s.waiting_turn[j]
            last = (entries > 0) & (awaited > 0) & (awaited <= entries)
            s.answers[j].push(when=last & ~s.lost[j], kind=Answer.STOP_WAITING, turn=turn)
            s.awaited[j] = ite(awaited > entries, awaited - entries, 0)
            s.waiting_turn[j] = turn & (awaited > entries)
            s.waiting[key, j] = 0

    def wakes_the_satisfied(self, s: S, key: Expr) -> None:
        """A waiter stays registered under all its keys until none is missing."""
        for j in s.client:
            s.missing[key, j] = False
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
        """A client that waits for several keys at once has to wait for this one again."""
        if self.counts_together:
            for j in s.client:
                s.missing[key, j] = s.waiting[key, j] > 0

    def registers(self, s: S, client: Expr, target: Any, turn: Any, when: Any) -> None:
        """torch: under the keys that are missing, once more; ours: under all its keys."""
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
            # More entries than keys are awaited at most count like just as many.
            more = when & self.among(target, k) & (s.holds[k] == 0) & (entries < self.size_of("key"))
            s.waiting[k, client] = entries + as_int(more)

    def keeps(self, s: S, client: Expr, target: Any, when: Any) -> None:
        """Ours: the values that satisfied a wait, until the next request."""
        if self.keeps_values:
            for k in s.key:
                s.kept[k, client] = ite(when & self.among(target, k), s.holds[k], 0)

    def closes(self, s: S, client: Expr, when: Any) -> None:
        """The server closes the connection and removes its traces."""
        self.forgets(s, client, when)
        for k in s.key:
            s.kept[k, client] = ite(when, 0, s.kept[k, client])
        self.drops_parts(s, client, when)
        s.closed[client] = s.closed[client] | when

    def drops_parts(self, s: S, client: Expr, when: Any) -> None:
        """A part of a request goes with its connection."""
        s.half[client] = s.half[client] & not_(when)

    def is_known(self, s: S, client: Expr) -> Any:
        """Does the server remember anything of the connection?"""
        listed = any_((s.waiting[k, client] > 0) | s.missing[k, client] | (s.kept[k, client] > 0) for k in s.key)
        return listed | (s.awaited[client] > 0) | s.wants_value[client] | s.half[client]

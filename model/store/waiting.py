"""What clients that wait for keys and their server remember, and what is on its way between them.

Each client has one connection: requests one way, answers the other, both in order. What other clients write arrives at
the server as one step. A `target` is 0 for all keys, or the number of a key from 1; a `turn` tells an operation of a
client from the one before it, which is what no byte on the wire does. In ours, clients from `torch_clients` on are our
own, which wait and get in one request whose deadline the server keeps; the others are torch's.
"""

from __future__ import annotations

import enum
from typing import Any

from ..language import (
    Expr,
    SymbolicState,
    System,
    all_,
    any_,
    as_int,
    choice,
    constant,
    count,
    flag,
    implies,
    index,
    integer,
    ite,
    machine,
    not_,
    ord_,
    sequence,
)
from .vocabulary import Connection, Edition, Key, Waiter

S = SymbolicState
C, K, W = Connection, Key, Waiter
SEED, TORCH, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TRYSTATE


class Asking(enum.Enum):
    """What an operation of a client is about to read."""

    WAIT = "that the keys are there"
    GET = "that the key is there, to ask for its value then"
    VALUE = "the value"


class Request(enum.Enum):
    """What a client sends."""

    WAIT = "tell me when the keys are there"
    GET = "the value of a key"
    CANCEL_WAIT = "I wait no more"
    WAIT_IN_ONE = "ours: tell me when the keys are there, or that they were not in time"
    GET_IN_ONE = "ours: the value when the key is there, or that it was not in time"


class Answer(enum.Enum):
    """What the server sends."""

    STOP_WAITING = "the keys are there"
    WAIT_CANCELED = "you wait no more"
    VALUE = "a value that somebody set"
    EMPTY = "an empty value for a key that is not there"
    TIMED_OUT = "ours: not in time"


class Waiting(System):
    """The fields of the system, and the helpers that its steps share."""

    Edition = Edition

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
    target = integer(0, "key", per="client", doc="what the client waits for")
    turn = flag(per="client")
    together = flag(per="client", doc="all its keys were there at one moment since it asked")
    held = flag(per=("client", "value"), doc="the key that it gets held the value at one moment since it asked")
    expired = flag(per="client", doc="the time of its operation is over")
    requests = sequence(2, per="client", kind=Request, target=(0, "key"), turn=bool, doc="on their way to the server")
    answers = sequence(2, per="client", kind=Answer, turn=bool, value=(0, "value"), doc="on their way to the client")

    waiting = integer(0, "key", per=("key", "client"), doc="entries of the client in the key's list of waiters")
    awaited = integer(0, "key", per="client", doc="torch: for how many keys it still waits")
    missing = flag(per=("key", "client"), doc="ours: which of them are missing")
    wants_value = flag(per="client", doc="ours: who is registered wants the value")
    kept = integer(0, "value", per=("key", "client"), doc="ours: the value that satisfied a wait, for the GET after it")
    waiting_turn = flag(per="client", doc="the turn of the wait that is registered")
    half = flag(per="client", doc="the server holds part of a request")
    lost = flag(per="client", doc="the connection is gone, in both directions")
    closed = flag(per="client", doc="... and the server has found out")

    @machine(Waiter, each="client")
    def waiter_state(self, s: S, client: Expr) -> Any:
        """A client's blocking wait."""
        return s.waiter[client]

    @machine(Key, each="key")
    def key_state(self, s: S, key: Expr) -> Any:
        """A key."""
        return ite(s.holds[key] > 0, K.PRESENT, K.ABSENT)

    @machine(Connection, each="client")
    def connection(self, s: S, client: Expr) -> Any:
        """A client's connection."""
        served = ite(self.is_registered(s, client), C.BLOCKED, C.READY)
        return ite(s.closed[client], C.CLOSED, ite(s.lost[client], C.CLOSING, served))

    # ---- what the steps share

    @property
    def counts_together(self) -> bool:
        """Does a wait end when all its keys are there, or when each has been there?"""
        return self.edition is TRYSTATE

    @property
    def keeps_values(self) -> bool:
        """Is a GET answered from what satisfied the WAIT before it?"""
        return self.edition is TRYSTATE

    def has_deadline(self, client: Expr) -> Any:
        """Does the client wait for no answer without end?"""
        return not_(self.is_torchs(client))

    def is_torchs(self, client: Expr) -> Any:
        return ord_(client) < self.torch_clients if self.edition is TRYSTATE else not_(False)

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
        """What the one key of a get holds."""
        return count(any_(self.among(target, k) & (s.holds[k] > ord_(v)) for k in s.key) for v in s.value)

    def begins(self, s: S, client: Expr, asking: Asking, target: Any, kind: Request = Request.WAIT) -> None:
        """One answer of an earlier operation may be outstanding, which in torch 1.9 happens."""
        outstanding = s.requests[client].length + s.answers[client].length + as_int(self.is_registered(s, client))
        s.when(s.waiter[client] == W.IDLE, ~self.is_cut(s, client), outstanding <= 1)
        s.turn[client] = ~s.turn[client]
        s.requests[client].push(kind=kind, target=target, turn=s.turn[client])
        s.waiter[client] = W.BLOCKED
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
        """The connection is lost: what was on its way does not arrive."""
        s.lost[client] = s.lost[client] | when
        s.requests[client].clear(when=when)
        s.answers[client].clear(when=when)

    def serves(self, s: S) -> None:
        """The daemon of 2021 reads a request to its end before it looks at another."""
        s.when(~s.frozen)
        if self.edition is SEED:
            s.when(~any_(s.half[j] for j in s.client))

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
        """Whoever waits for the key is told, if it was the last one."""
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
        """Ours: a waiter stays registered under all its keys until none is missing."""
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
            asks = s.waiter[j].isin((W.BLOCKED, W.CANCELLING))
            s.together[j] = s.together[j] | (asks & self.all_there(s, s.target[j]))
            gets = (s.waiter[j] == W.BLOCKED) & (s.asking[j] != Asking.WAIT) & self.among(s.target[j], key)
            for v in s.value:
                s.held[j, v] = s.held[j, v] | (gets & (s.holds[key] == ord_(v) + 1))

    def goes_missing(self, s: S, key: Expr) -> None:
        """Ours: who waits for several keys has to wait for this one again."""
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
            more = when & self.among(target, k) & (s.holds[k] == 0) & (entries < self.sizes["key"])
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
        keeps_parts = self.edition is TORCH
        s.half[client] = s.half[client] & (not_(when) | keeps_parts)
        s.closed[client] = s.closed[client] | when

    def is_known(self, s: S, client: Expr) -> Any:
        """Does the server remember anything of the connection?"""
        listed = any_((s.waiting[k, client] > 0) | s.missing[k, client] | (s.kept[k, client] > 0) for k in s.key)
        return listed | (s.awaited[client] > 0) | s.wants_value[client] | s.half[client]

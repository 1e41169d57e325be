"""Watches: a client asks once, and is sent every later change of the key, in order, on a connection of its own.

Theory of operation. A client has an ordinary connection, on which it asks for changes and waits, and a connection for
its watches, whose messages one thread reads and hands to the callback that the client's map has for the key. One watch
begins or ends at a time, while events of the others come (`another`). A connection is a number: when it is closed the
next newcomer gets it. torch 2.13 has no watch: pytorch/pytorch#105014 removed it in 2023.

Abstractions. The changes of a key are numbered, deletions too: an event carries the number of its change, which is on
no wire, and the value that a change gives to its key is that number; so no event can be lost, doubled or misplaced
without a gap. A change is served in one step. In the seed a send to a closed socket raises after the other watchers
were told, also those that stand behind it in the table, whose order is not kept; a deletion then leaves the key.
"""

from __future__ import annotations

import enum
from typing import Any

from ...language import (
    Expr,
    SymbolicState,
    System,
    any_,
    choice,
    constant,
    flag,
    index,
    integer,
    ite,
    machine,
    ord_,
    sequence,
)
from ...language.lifelines import Lifelines, served
from ..vocabulary import Key, Watcher

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any


class Link(enum.Enum):
    """A watch's connection."""

    UP = "open at both ends"
    BROKEN = "cut; neither end has noticed"
    DROPPED = "closed by the server; the client has not noticed"
    LEFT = "closed by the client; the server has not noticed"
    DOWN = "closed at both ends; its number is free"


class Message(enum.Enum):
    """The server's message to a watcher: a change, or an answer to a request of the watcher."""

    UPDATED = "the key has another value"
    CREATED = "the key was absent"
    APPENDED = "the value has grown"
    DELETED = "the key is absent now"
    REGISTERED = "from now on every change follows"
    CANCELLED = "no change follows"


class Request(enum.Enum):
    """A watcher's request on its way to the server."""

    NONE = "nothing"
    WATCH = "watch the key"
    AGAIN = "watch the key, which is watched already"
    UNWATCH = "no longer watch it"


EVENTS = (Message.UPDATED, Message.CREATED, Message.APPENDED, Message.DELETED)
OPEN = (Link.UP, Link.BROKEN, Link.DROPPED)  # as the client sees it
GONE = (Link.DROPPED, Link.DOWN)  # as the server sees it


class Fields(System):
    """The fields of the system, and what its steps share."""

    client = index(2)
    key = index(2)
    writes = constant(3, "how many changes there are")

    changes = integer(0, "writes", doc="how many there were")
    version = integer(0, "writes", per="key", doc="the number of its last change")
    value = integer(0, "writes", per="key", doc="the number of the change that wrote it; 0: absent")
    asked = integer(0, "key", per="client", doc="the key that it asked to change: key + 1, or 0")
    waits = integer(0, "key", per="client", doc="the key that it waits for: key + 1, or 0")
    shut = flag(per="client", doc="the server closed its ordinary connection")
    stuck = integer(0, "client", doc="the daemon is blocked in a send for this client's change: client + 1, or 0")

    watcher = choice(Watcher, per="client")
    watched = flag(per=("client", "key"), doc="its map has a callback for the key")
    about = integer(0, "key", per="client", doc="the key of its request, until the answer is read: key + 1, or 0")
    request = choice(Request, per="client")
    link = choice(Link, per="client")
    listed = integer(0, 2, per=("client", "key"), doc="entries in the server's table of watchers")
    messages = sequence(
        2, per="client", kind=Message, key=(0, "key"), number=(0, "writes"), old=(0, "writes"), new=(0, "writes")
    )  # fmt: skip
    seen = integer(
        0, "writes", per=("client", "key"), doc="the version at registration, then of what the callback was told last"
    )
    told = integer(0, "writes", per=("client", "key"), doc="the value at that version")
    slow = flag(per="client", doc="its thread reads nothing, or its callback does not return")

    def lifelines(self) -> Lifelines:
        """The master is the process of the store."""
        at, truth = "listed shut notice_end get_stuck", "seen told"
        return served("master", at, requests="asked request", answers="messages", here=truth)

    @machine(Watcher, each="client")
    def watcher_state(self, s: S, client: Expr) -> Any:
        """One client's watches: one that begins, or the callbacks of those that have begun."""
        return s.watcher[client]

    @machine(Link, each="client")
    def connection(self, s: S, client: Expr) -> Any:
        """The connection of a watch."""
        return s.link[client]

    @machine(Key, each="key")
    def key_state(self, s: S, key: Expr) -> Any:
        """One key."""
        return ite(s.value[key] == 0, Key.ABSENT, Key.PRESENT)

    def watches(self, s: S, client: Expr) -> Condition:
        """The client's map has a callback."""
        return any_(s.watched[client, k] for k in s.key)

    # ---- changes

    def is_there(self, s: S, client: Expr) -> Condition:
        """The client has not left: whose watch is lost may go on without one."""
        return (s.watcher[client] != Watcher.UNREGISTERED) | s.link[client].isin(OPEN)

    def takes(self, s: S, client: Expr, key: Expr) -> None:
        """The server handles this client's request."""
        s.when(s.asked[client] == ord_(key) + 1)
        s.when((s.stuck == 0) | (s.stuck == ord_(client) + 1))
        s.asked[client] = 0
        s.stuck = 0

    def fits(self, s: S, client: Expr, key: Expr) -> Condition:
        fits = s.messages[client].length + s.listed[client, key] <= self.sequences["messages"].length
        return (s.link[client] != Link.UP) | fits

    def put(self, s: S, client: Expr, key: Expr, verb: Message, *, wakes: bool = True) -> None:
        """A request gives the key a value: tell its watchers, wake the clients that wait for it."""
        self.takes(s, client, key)
        before = s.fork()
        new = self.counts(s, key)
        s.value[key] = new
        self.announce(s, key, ite(before.value[key] == 0, Message.CREATED, verb), before.value[key], new)
        if wakes:
            for j in s.client:
                s.waits[j] = ite(s.waits[j] == ord_(key) + 1, 0, s.waits[j])

    def counts(self, s: S, key: Expr) -> Expr:
        """The number of another change of the key."""
        number: Expr = s.version[key] + 1
        s.changes = s.changes + 1
        s.version[key] = number
        return number

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        """Send an event to each watcher of the key."""
        raise NotImplementedError

    def give_up(self, s: S, client: Expr, late: Any) -> None:
        """Close the connection of a watcher that does not read, and forget it."""
        s.link[client] = ite(late, Link.DROPPED, s.link[client])
        self.drops_request(s, client, late)
        for k in s.key:
            s.listed[client, k] = ite(late, 0, s.listed[client, k])

    def drops_request(self, s: S, client: Expr, when: Any = True) -> None:
        """A request that the server has not taken is lost with its connection."""
        lost = (s.request[client] != Request.NONE) & when
        s.request[client] = ite(lost, Request.NONE, s.request[client])
        s.about[client] = ite(lost, 0, s.about[client])

    # ---- requests of a watcher

    def asks(self, s: S, client: Expr, key: Expr, request: Request) -> None:
        """The client sends a request about a key."""
        s.request[client] = request
        s.about[client] = ord_(key) + 1

    def calm(self, s: S, client: Expr) -> Condition:
        """No request of this watcher and no answer is on its way."""
        answers = [s.messages[client].contains(kind=k) for k in (Message.REGISTERED, Message.CANCELLED)]
        return (s.link[client] == Link.UP) & (s.request[client] == Request.NONE) & ~answers[0] & ~answers[1]

    def answers(self, s: S, client: Expr, key: Expr, requests: tuple[Request, ...], answer: Message) -> Condition:
        """The server takes a watcher's request and answers; where the answer does not fit, as for an event."""
        s.when(s.request[client].isin(requests), s.about[client] == ord_(key) + 1, s.link[client] == Link.UP)
        s.when(s.stuck == 0)
        full = s.messages[client].is_full
        s.request[client] = Request.NONE
        s.about[client] = ite(full, 0, s.about[client])
        s.messages[client].push(when=~full, kind=answer)
        return full

    def registers(self, s: S, client: Expr, key: Expr) -> Condition:
        """The server acknowledges a watch, which begins with the change that was last; whether that does not fit."""
        before = s.fork()
        full = self.answers(s, client, key, (Request.WATCH, Request.AGAIN), Message.REGISTERED)
        begins = before.request[client] == Request.WATCH
        s.seen[client, key] = ite(begins, before.version[key], s.seen[client, key])
        s.told[client, key] = ite(begins, before.value[key], s.told[client, key])
        return full

    # ---- the thread that reads

    def reads(self, s: S, client: Expr, *kinds: Message) -> None:
        s.when(~s.slow[client], s.link[client].isin(OPEN), s.watcher[client] != Watcher.NOTIFIED)
        s.when(~s.messages[client].is_empty, s.messages[client].head.kind.isin(kinds))
        s.messages[client].pop()

    def tells(self, s: S, client: Expr) -> None:
        """The first message is an event of a watched key: the callback of that key is called with it."""
        event = s.fork().messages[client].head
        s.when(self.has_callback(s, client, event.key))
        self.reads(s, client, *EVENTS)
        for k in s.key:
            s.seen[client, k] = ite(event.key == ord_(k) + 1, event.number, s.seen[client, k])
            s.told[client, k] = ite(event.key == ord_(k) + 1, event.new, s.told[client, k])

    def has_callback(self, s: S, client: Expr, key: Expr) -> Condition:
        """The client's map has a callback for the key of a message."""
        return any_(s.watched[client, k] & (key == ord_(k) + 1) for k in s.key)

    def forget(self, s: S, client: Expr) -> None:
        """Nothing is watched any more: the last seen versions and values go."""
        for k in s.key:
            s.watched[client, k] = False
            s.seen[client, k] = 0
            s.told[client, k] = 0
        s.about[client] = 0
        s.request[client] = Request.NONE
        s.messages[client].clear()

    def forget_answered(self, s: S, client: Expr) -> None:
        """The key of the request that is answered is watched no more."""
        for k in s.key:
            over = s.about[client] == ord_(k) + 1
            s.watched[client, k] = s.watched[client, k] & ~over
            s.seen[client, k] = ite(over, 0, s.seen[client, k])
            s.told[client, k] = ite(over, 0, s.told[client, k])
        s.about[client] = 0

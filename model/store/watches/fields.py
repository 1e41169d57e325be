"""Watches: a client registers once and gets every later change of the key, in order, on a separate connection.

Theory of operation. A client has an ordinary connection, on which it requests changes and waits, and a connection for
its watches. One thread reads the messages of the second and calls the callback that the client's map has for the key.
One watch begins or ends at a time, while events of the other watches arrive (`another`). A connection is a number: when
it is closed, the next newcomer gets the number. torch 2.13 has no watch: pytorch/pytorch#105014 removed it in 2023.

Abstractions. The changes of a key, deletions included, are numbered. An event carries the number of its change, which
no wire has, and the value that a change gives to its key is that number. So a lost, repeated or misplaced event shows
as a gap. A change is served in one step. In the seed a send to a closed socket raises after all other watchers were
notified, even those behind it in the table: the model has no order of the table. A deletion then leaves the key.
"""

from __future__ import annotations

import enum
from typing import Any

from ...language import (
    Condition,
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
    machine_of,
    ord_,
    reset,
    sequence,
)
from ...language.lifelines import Lifelines, served
from ..vocabulary import Key, Watcher

S = SymbolicState


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
    REGISTERED = "the watch begins: every later change follows"
    CANCELLED = "the watch is over: no change follows"


class Request(enum.Enum):
    """A watcher's request on its way to the server."""

    NONE = "nothing"
    WATCH = "watch the key"
    AGAIN = "watch the key, which is watched already"
    UNWATCH = "stop watching the key"


EVENTS = (Message.UPDATED, Message.CREATED, Message.APPENDED, Message.DELETED)
OPEN = (Link.UP, Link.BROKEN, Link.DROPPED)  # open at the client
GONE = (Link.DROPPED, Link.DOWN)  # closed at the server


class Fields(System):
    """The fields of the system, and the helpers that its steps share."""

    client = index(2)
    key = index(2)
    writes = constant(3, "the number of changes")

    changes = integer(0, "writes", doc="the number of changes so far")
    version = integer(0, "writes", per="key", doc="the number of its last change")
    value = integer(0, "writes", per="key", doc="the number of the change that wrote it; 0: absent")
    asked = integer(0, "key", per="client", doc="the key of its request for a change: key + 1, or 0")
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
        0, "writes", per=("client", "key"), doc="the version at registration, or of the last event its callback got"
    )
    told = integer(0, "writes", per=("client", "key"), doc="the value at that version")
    slow = flag(per="client", doc="its thread reads nothing or its callback does not return")

    def lifelines(self) -> Lifelines:
        """The master is the process of the store."""
        at, truth = "listed shut notice_end get_stuck", "seen told"
        return served("master", at, requests="asked request", answers="messages", here=truth)

    watcher_state = machine_of(
        watcher, "One client's watches: a watch that begins, or the callbacks of the watches that have begun."
    )
    connection = machine_of(link, "The connection of a watch.")

    @machine(Key)
    def key_state(self, s: S, key: Expr) -> Any:
        """One key."""
        return ite(s.value[key] == 0, Key.ABSENT, Key.PRESENT)

    def watches(self, s: S, client: Expr) -> Condition:
        """The client's map has a callback."""
        return any_(s.watched[client, k] for k in s.key)

    # ---- changes

    def is_there(self, s: S, client: Expr) -> Condition:
        """The client has not left; a client that has lost its watch may continue without one."""
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
        """A request gives the key a value; the server notifies its watchers and wakes the clients that wait for it."""
        self.takes(s, client, key)
        before = s.fork()
        new = self.counts(s, key)
        s.value[key] = new
        self.announce(s, key, ite(before.value[key] == 0, Message.CREATED, verb), before.value[key], new)
        if wakes:
            for j in s.client:
                s.waits[j] = ite(s.waits[j] == ord_(key) + 1, 0, s.waits[j])

    def counts(self, s: S, key: Expr) -> Expr:
        """Counts another change of the key and returns its number."""
        number: Expr = s.version[key] + 1
        s.changes = s.changes + 1
        s.version[key] = number
        return number

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        """Sends an event to each watcher of the key."""
        raise NotImplementedError

    def give_up(self, s: S, client: Expr, late: Any) -> None:
        """If `late`, the server closes the connection of a watcher that does not read, and forgets it."""
        s.link[client] = ite(late, Link.DROPPED, s.link[client])
        self.drops_request(s, client, late)
        reset(s.listed, at=client, when=late)

    def drops_request(self, s: S, client: Expr, when: Any = True) -> None:
        """A request that the server has not taken is lost with its connection."""
        lost = (s.request[client] != Request.NONE) & when
        reset(s.request, s.about, at=client, when=lost)

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
        """The server reads a watcher's request and answers; returns whether the answer did not fit."""
        s.when(s.request[client].isin(requests), s.about[client] == ord_(key) + 1, s.link[client] == Link.UP)
        s.when(s.stuck == 0)
        full = s.messages[client].is_full
        s.request[client] = Request.NONE
        s.about[client] = ite(full, 0, s.about[client])
        s.messages[client].push(when=~full, kind=answer)
        return full

    def registers(self, s: S, client: Expr, key: Expr) -> Condition:
        """The server acknowledges a watch, which begins after the last change; returns whether that did not fit."""
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
        """The first message is an event of a watched key, and the callback of that key is called with it."""
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
        """The client watches nothing any more, and its last seen versions and values are reset."""
        reset(s.watched, s.seen, s.told, s.about, s.request, at=client)
        s.messages[client].clear()

    def forget_answered(self, s: S, client: Expr) -> None:
        """The client stops watching the key of the answered request."""
        for k in s.key:
            over = s.about[client] == ord_(k) + 1
            s.watched[client, k] = s.watched[client, k] & ~over
            s.seen[client, k] = ite(over, 0, s.seen[client, k])
            s.told[client, k] = ite(over, 0, s.told[client, k])
        s.about[client] = 0

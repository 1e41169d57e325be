"""Watches: a client asks once, and is sent every later change of the key, in order, on a connection of its own.

A client has an ordinary connection, on which it asks for changes and waits, and a connection for its watch, whose
messages one thread reads and hands to the callback. A connection is a number: when it is closed the next newcomer
gets it. torch 2.13 has no watch (it was removed in 2023, pytorch/pytorch#105014), so there is no edition TORCH.

Abstractions. The changes of a key are numbered, deletions too: an event carries the number of its change, which is on
no wire, and the value that a change gives to its key is that number; so no event can be lost, doubled or misplaced
without a gap. A change is served in one step. In the seed a send to a closed socket raises after the other watchers
were told; the order of the table, which torch leaves to chance, is not kept.
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
    arc,
    choice,
    constant,
    count,
    environment,
    fault,
    flag,
    index,
    integer,
    ite,
    machine,
    may,
    ord_,
    sequence,
    transition,
)
from .vocabulary import Edition, Key, Watcher

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
SEED, TRYSTATE = Edition.SEED, Edition.TRYSTATE
W = Watcher


class Link(enum.Enum):
    """A watch's connection."""

    UP = "open at both ends"
    BROKEN = "cut; neither end has noticed"
    DROPPED = "closed by the server; the client has not noticed"
    LEFT = "closed by the client; the server has not noticed"
    DOWN = "closed at both ends; its number is free"


class Message(enum.Enum):
    """What the server sends to a watcher: a change, or an answer to a request of the watcher."""

    UPDATED = "the key has another value"
    CREATED = "the key was absent"
    APPENDED = "the value has grown"
    DELETED = "the key is absent now"
    REGISTERED = "from now on every change follows"
    CANCELLED = "no change follows"


class Request(enum.Enum):
    """What is on its way from a watcher to the server."""

    NONE = "nothing"
    WATCH = "watch the key"
    UNWATCH = "no longer watch it"


EVENTS = (Message.UPDATED, Message.CREATED, Message.APPENDED, Message.DELETED)
OPEN = (Link.UP, Link.BROKEN, Link.DROPPED)  # as the client sees it
GONE = (Link.DROPPED, Link.DOWN)  # as the server sees it
GIVES_UP = may(Link.UP, Link.DROPPED, editions=[TRYSTATE])
TELLS = (*GIVES_UP, *may(Link.UP, Link.DROPPED, of="others", editions=[TRYSTATE]))
CREATES = (*arc(Key.ABSENT, Key.PRESENT), *TELLS)


class Watching(System):
    """The fields and the steps of watches."""

    title = "Watches on keys"
    Edition = (Edition.SEED, Edition.TRYSTATE)

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
    watched = integer(0, "key", per="client", doc="the key that its callback is for: key + 1, or 0")
    request = choice(Request, per="client")
    link = choice(Link, per="client")
    listed = integer(0, 2, per=("client", "key"), doc="entries in the server's table of watchers")
    messages = sequence(
        2, per="client", kind=Message, key=(0, "key"), number=(0, "writes"), old=(0, "writes"), new=(0, "writes")
    )  # fmt: skip
    seen = integer(
        0, "writes", per="client", doc="the version at registration, then of what the callback was told last"
    )
    told = integer(0, "writes", per="client", doc="the value at that version")
    slow = flag(per="client", doc="its thread reads nothing, or its callback does not return")

    @machine(Watcher, each="client")
    def watcher_state(self, s: S, client: Expr) -> Any:
        """One client's watch."""
        return s.watcher[client]

    @machine(Link, each="client")
    def connection(self, s: S, client: Expr) -> Any:
        """The connection of a watch."""
        return s.link[client]

    @machine(Key, each="key")
    def key_state(self, s: S, key: Expr) -> Any:
        """One key."""
        return ite(s.value[key] == 0, Key.ABSENT, Key.PRESENT)

    # ---- changes, asked for on ordinary connections

    def is_there(self, s: S, client: Expr) -> Condition:
        """The client has not left: whose watch is lost may go on without one."""
        return (s.watcher[client] != W.UNREGISTERED) | s.link[client].isin(OPEN)

    @environment(each=("client", "key"))
    def ask(self, s: S, client: Expr, key: Expr) -> None:
        """A client sends a request that changes a key."""
        s.when(s.asked[client] == 0, s.waits[client] == 0, ~s.shut[client], self.is_there(s, client))
        s.when(s.changes + count(x != 0 for x in s.asked) < self.writes)
        s.asked[client] = ord_(key) + 1

    def takes(self, s: S, client: Expr, key: Expr) -> None:
        """The server handles this client's request; the seed's daemon only where every send goes through."""
        s.when(s.asked[client] == ord_(key) + 1)
        s.when((s.stuck == 0) | (s.stuck == ord_(client) + 1))
        if self.edition is SEED:
            s.when(all_(self.fits(s, j, key) for j in s.client))
            s.shut[client] = any_((s.listed[j, key] > 0) & s.link[j].isin(GONE) for j in s.client)
        s.asked[client] = 0
        s.stuck = 0

    def fits(self, s: S, client: Expr, key: Expr) -> Condition:
        fits = s.messages[client].length + s.listed[client, key] <= self.sequences["messages"].length
        return (s.link[client] != Link.UP) | fits

    def put(self, s: S, client: Expr, key: Expr, verb: Message, *, wakes: bool = True) -> None:
        """A request gives the key a value: tell its watchers, wake who waits for it."""
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
        """Send an event to each watcher of the key; ours gives up a watcher that does not keep up."""
        before = s.fork()
        for j in s.client:
            told = (before.listed[j, key] > 0) & (before.link[j] == Link.UP)
            event = {"kind": kind, "key": ord_(key) + 1, "number": before.version[key], "old": old, "new": new}
            if self.edition is SEED:
                s.messages[j].push(when=told, **event)
                s.messages[j].push(when=told & (before.listed[j, key] > 1), **event)
            else:
                full = told & before.messages[j].is_full
                s.messages[j].push(when=told & ~full, **event)
                self.give_up(s, j, full)

    def give_up(self, s: S, client: Expr, late: Any) -> None:
        """Close the connection of a watcher that does not read, and forget it."""
        s.link[client] = ite(late, Link.DROPPED, s.link[client])
        s.request[client] = ite(late, Request.NONE, s.request[client])
        for k in s.key:
            s.listed[client, k] = ite(late, 0, s.listed[client, k])

    @transition(each=("client", "key"), moves=CREATES, cite="TCPStore.cpp:setHandler, addHandler (1.9)")
    def set_or_add(self, s: S, client: Expr, key: Expr) -> None:
        """The server sets a key, or adds to it."""
        self.put(s, client, key, Message.UPDATED)

    @transition(
        each=("client", "key"), moves=CREATES, cite="TCPStore.cpp:compareSetHandler (1.9): tells watchers, wakes nobody"
    )
    def compare_set(self, s: S, client: Expr, key: Expr) -> None:
        """The server compares, finds what was expected, and sets."""
        self.put(s, client, key, Message.UPDATED, wakes=self.edition is not SEED)

    @transition(each=("client", "key"), editions=[TRYSTATE], moves=CREATES)
    def append(self, s: S, client: Expr, key: Expr) -> None:
        """The server appends to a key."""
        self.put(s, client, key, Message.APPENDED)

    @transition(
        each=("client", "key"), moves=[arc(Key.PRESENT, Key.ABSENT), TELLS], cite="TCPStore.cpp:deleteHandler (1.9)"
    )
    def delete(self, s: S, client: Expr, key: Expr) -> None:
        """The server deletes a key."""
        s.when(s.value[key] != 0)
        self.takes(s, client, key)
        old = s.value[key]
        self.counts(s, key)
        s.value[key] = 0
        self.announce(s, key, Message.DELETED, old, 0)

    @transition(each=("client", "key"), cite="TCPStore.cpp:compareSetHandler (1.9)")
    def change_nothing(self, s: S, client: Expr, key: Expr) -> None:
        """A compare_set that finds something else: nothing changes, nobody is told."""
        s.when(s.asked[client] == ord_(key) + 1, s.stuck == 0)
        s.asked[client] = 0

    @transition(each=("client", "key"), editions=[SEED], cite="TCPStore.cpp:sendKeyUpdatesToClients (1.9): send blocks")
    def get_stuck(self, s: S, client: Expr, key: Expr) -> None:
        """A watcher's connection takes no more: the daemon's only thread blocks in send."""
        s.when(s.stuck == 0, s.asked[client] == ord_(key) + 1, any_(~self.fits(s, j, key) for j in s.client))
        s.stuck = ord_(client) + 1

    @environment(each=("client", "key"), switch="wait")
    def wait_for(self, s: S, client: Expr, key: Expr) -> None:
        """A client waits for an absent key."""
        s.when(s.waits[client] == 0, s.asked[client] == 0, self.is_there(s, client))
        s.when(s.value[key] == 0, s.stuck == 0)
        s.waits[client] = ord_(key) + 1

    # ---- registering and cancelling

    def calm(self, s: S, client: Expr) -> Condition:
        """No request of this watcher and no answer is on its way."""
        answers = [s.messages[client].contains(kind=k) for k in (Message.REGISTERED, Message.CANCELLED)]
        return (s.link[client] == Link.UP) & (s.request[client] == Request.NONE) & ~answers[0] & ~answers[1]

    @environment(each=("client", "key"), moves=[arc(W.UNREGISTERED, W.REGISTERING)], cite="TCPStore.cpp:watchKey (1.9)")
    def watch_key(self, s: S, client: Expr, key: Expr) -> None:
        """A client notes its callback, sends the request, and waits."""
        s.when(s.watcher[client] == W.UNREGISTERED, s.link[client] == Link.UP)
        s.watcher[client] = W.REGISTERING
        s.watched[client] = ord_(key) + 1
        s.request[client] = Request.WATCH

    @environment(each="client", switch="again")
    def watch_again(self, s: S, client: Expr) -> None:
        """A client watches its key a second time, with another callback."""
        s.when(s.watcher[client] == W.REGISTERED, self.calm(s, client))
        s.request[client] = Request.WATCH

    @environment(each="client", switch="cancel", editions=[TRYSTATE])
    def cancel(self, s: S, client: Expr) -> None:
        """A client cancels its watch, from its callback or not."""
        s.when(s.watcher[client].isin((W.REGISTERED, W.NOTIFIED)), self.calm(s, client))
        s.request[client] = Request.UNWATCH

    def answers(self, s: S, client: Expr, key: Expr, request: Request, answer: Message) -> Condition:
        """The server takes a watcher's request and answers; where the answer does not fit, as for an event."""
        s.when(s.request[client] == request, s.watched[client] == ord_(key) + 1, s.link[client] == Link.UP)
        s.when(s.stuck == 0)
        full = s.messages[client].is_full
        if self.edition is SEED:
            s.when(~full)
        s.request[client] = Request.NONE
        s.messages[client].push(when=~full, kind=answer)
        return full

    @transition(each=("client", "key"), moves=GIVES_UP, cite="TCPStore.cpp:watchHandler (1.9)")
    def register(self, s: S, client: Expr, key: Expr) -> None:
        """The server enters the connection into its table, and acknowledges."""
        before = s.fork()
        full = self.answers(s, client, key, Request.WATCH, Message.REGISTERED)
        entries = s.listed[client, key]
        s.listed[client, key] = ite(entries == 0, 1, 2) if self.edition is SEED else 1  # twice at most here
        begins = s.watcher[client] == W.REGISTERING
        s.seen[client] = ite(begins, before.version[key], s.seen[client])
        s.told[client] = ite(begins, before.value[key], s.told[client])
        if self.edition is not SEED:
            self.give_up(s, client, full)

    @transition(each=("client", "key"), editions=[TRYSTATE], moves=GIVES_UP)
    def unregister(self, s: S, client: Expr, key: Expr) -> None:
        """The server removes the entry, and acknowledges."""
        full = self.answers(s, client, key, Request.UNWATCH, Message.CANCELLED)
        s.listed[client, key] = 0
        self.give_up(s, client, full)

    # ---- the thread that reads

    def reads(self, s: S, client: Expr, *kinds: Message) -> None:
        s.when(~s.slow[client], s.link[client].isin(OPEN), s.watcher[client] != W.NOTIFIED)
        s.when(~s.messages[client].is_empty, s.messages[client].head.kind.isin(kinds))
        s.messages[client].pop()

    def tells(self, s: S, client: Expr) -> None:
        """The first message is an event of the watched key: the callback is called with it."""
        event = s.fork().messages[client].head
        s.when(s.watched[client] == event.key)
        self.reads(s, client, *EVENTS)
        s.seen[client] = event.number
        s.told[client] = event.new

    def forget(self, s: S, client: Expr) -> None:
        """Nothing is watched any more: what was known of it goes."""
        s.watched[client] = 0
        s.seen[client] = 0
        s.told[client] = 0
        s.request[client] = Request.NONE
        s.messages[client].clear()

    @transition(each="client", moves=[arc(W.REGISTERING, W.REGISTERED)], cite="TCPStore.cpp:callbackHandler (1.9)")
    def return_registered(self, s: S, client: Expr) -> None:
        """The acknowledgement is read: watch_key returns."""
        self.reads(s, client, Message.REGISTERED)
        s.watcher[client] = W.REGISTERED

    @environment(each="client", switch="preempted", editions=[SEED], cite="pytorch/pytorch#69590")
    def notify_nobody(self, s: S, client: Expr) -> None:
        """The flag is set, without its lock, after watch_key looked at it and before it sleeps: nobody is woken."""
        s.when(s.watcher[client] == W.REGISTERING)
        self.reads(s, client, Message.REGISTERED)

    @transition(each="client", moves=[arc(W.REGISTERED, W.NOTIFIED)], cite="TCPStore.cpp:callbackHandler (1.9)")
    def run_callback(self, s: S, client: Expr) -> None:
        """An event is read: the callback runs."""
        s.when(s.watcher[client] == W.REGISTERED)
        self.tells(s, client)
        s.watcher[client] = W.NOTIFIED

    @transition(each="client", editions=[SEED], cite="TCPStore.cpp:watchKey (1.9): the callback is noted first")
    def run_callback_early(self, s: S, client: Expr) -> None:
        """An event is read before watch_key has returned: the callback runs, and returns at once."""
        s.when(s.watcher[client] == W.REGISTERING)
        self.tells(s, client)

    @transition(
        each="client", editions=[SEED],
        moves=[may((W.REGISTERING, W.REGISTERED), W.UNREGISTERED), arc(Link.UP, Link.LEFT)],
        cite="TCPStore.cpp:callbackHandler (1.9): keyToCallbacks_.at throws in the thread",
    )  # fmt: skip
    def terminate(self, s: S, client: Expr) -> None:
        """An event of a key without a callback is read: the process of the client ends."""
        s.when(s.link[client] == Link.UP, s.watched[client] != s.messages[client].head.key)
        self.reads(s, client, *EVENTS)
        s.link[client] = Link.LEFT
        s.watcher[client] = W.UNREGISTERED
        self.forget(s, client)

    @transition(each="client", moves=[arc(W.NOTIFIED, W.REGISTERED)])
    def return_callback(self, s: S, client: Expr) -> None:
        """The callback returns."""
        s.when(s.watcher[client] == W.NOTIFIED, ~s.slow[client])
        s.watcher[client] = W.REGISTERED

    @transition(each="client", editions=[TRYSTATE], moves=[arc(W.REGISTERED, W.UNREGISTERED)])
    def return_cancelled(self, s: S, client: Expr) -> None:
        """The acknowledgement is read: the watch is over."""
        self.reads(s, client, Message.CANCELLED)
        self.forget(s, client)
        s.watcher[client] = W.UNREGISTERED

    # ---- connections that end

    @transition(
        each="client", editions=[TRYSTATE],
        moves=[arc((W.REGISTERING, W.REGISTERED), W.LOST), arc(Link.BROKEN, Link.LEFT), arc(Link.DROPPED, Link.DOWN)],
    )  # fmt: skip
    def notice_loss(self, s: S, client: Expr) -> None:
        """The client finds the connection closed, whatever it has not read, and says that changes may be missed."""
        s.when(s.link[client].isin((Link.BROKEN, Link.DROPPED)), ~s.slow[client], s.watcher[client] != W.NOTIFIED)
        s.link[client] = ite(s.link[client] == Link.BROKEN, Link.LEFT, Link.DOWN)
        s.watcher[client] = ite(s.watched[client] == 0, s.watcher[client], W.LOST)
        self.forget(s, client)

    @transition(
        each="client", moves=[arc(Link.LEFT, Link.DOWN), arc(Link.BROKEN, Link.DROPPED)],
        cite="TCPStore.cpp:queryFds (1.9): forgets waitingSockets_ and keysAwaited_, not watchedSockets_",
    )  # fmt: skip
    def notice_end(self, s: S, client: Expr) -> None:
        """The server finds the connection closed, closes it, and removes its traces."""
        s.when(s.link[client].isin((Link.BROKEN, Link.LEFT)), s.stuck == 0)
        s.link[client] = ite(s.link[client] == Link.BROKEN, Link.DROPPED, Link.DOWN)
        s.request[client] = Request.NONE
        if self.edition is not SEED:
            for k in s.key:
                s.listed[client, k] = 0

    @environment(
        each="client", switch="leave",
        moves=[arc(W.REGISTERED, W.UNREGISTERED), arc(Link.UP, Link.LEFT)], cite="TCPStore.cpp:~TCPStore (1.9)",
    )  # fmt: skip
    def leave(self, s: S, client: Expr) -> None:
        """A client closes its store, or its process ends."""
        s.when(s.link[client] == Link.UP, s.watcher[client].isin((W.UNREGISTERED, W.REGISTERED)), ~s.slow[client])
        s.when(s.asked[client] == 0, s.waits[client] == 0)
        s.link[client] = Link.LEFT
        s.watcher[client] = W.UNREGISTERED
        self.forget(s, client)

    @environment(
        each="client", switch="newcomer",
        moves=[may(W.LOST, W.UNREGISTERED, editions=[TRYSTATE]), arc(Link.DOWN, Link.UP)],
    )  # fmt: skip
    def connect(self, s: S, client: Expr) -> None:
        """Somebody connects, and the connection gets the number of a closed one."""
        s.when(s.link[client] == Link.DOWN)
        s.link[client] = Link.UP
        s.watcher[client] = W.UNREGISTERED

    @fault("drop", each="client", moves=[arc(Link.UP, Link.BROKEN)])
    def drop(self, s: S, client: Expr) -> None:
        """A watch's connection is cut."""
        s.when(s.link[client] == Link.UP)
        s.link[client] = Link.BROKEN

    @fault("slow", each="client")
    def slow_down(self, s: S, client: Expr) -> None:
        """A client's callback does not return, or its process stops: nothing is read."""
        s.when(s.watcher[client].isin((W.REGISTERED, W.NOTIFIED)), ~s.slow[client])
        s.slow[client] = True

    @environment(each="client")
    def catch_up(self, s: S, client: Expr) -> None:
        """A slow client goes on."""
        s.when(s.slow[client])
        s.slow[client] = False

"""The editions: torch 1.9, the watch_key of the articles of 2021, and ours.

torch 1.9 forgets no connection, and a slow watcher blocks all clients. Our watches can be cancelled, a lost watcher is
notified of the loss, and no watcher delays other clients.
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ..vocabulary import Edition, Key, Watcher
from .fields import EVENTS, GONE, Link, Request, S
from .fields import Message as Sent
from .properties import Watches


class Seed(Watches, edition=Edition.SEED):
    """One thread serves all connections and waits in `send` until a watcher has read."""

    def takes(self, s: S, client: Expr, key: Expr) -> None:
        """A request is served only if every send fits; a send to a closed connection closes the requester's one."""
        s.when(all_(self.fits(s, j, key) for j in s.client))
        s.shut[client] = any_((s.listed[j, key] > 0) & s.link[j].isin(GONE) for j in s.client)
        super().takes(s, client, key)

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        before = s.fork()
        for j in s.client:
            told = (before.listed[j, key] > 0) & (before.link[j] == Link.UP)
            event = {"kind": kind, "key": ord_(key) + 1, "number": before.version[key], "old": old, "new": new}
            s.messages[j].push(when=told, **event)
            s.messages[j].push(when=told & (before.listed[j, key] > 1), **event)

    def left_of(self, s: S, client: Expr, key: Expr) -> Condition:
        """The daemon announces first and then erases: if a send fails, the key stays (deleteHandler)."""
        return ite(s.shut[client], s.value[key], 0)

    def unlists(self, s: S, client: Expr) -> None:
        """The entry stays, and applies to the next connection with this number."""

    @transition(
        moves=[arc(Key.ABSENT, Key.PRESENT)],
        cite="TCPStore.cpp:compareSetHandler (1.9): tells watchers, wakes nobody",
    )
    def compare_set(self, s: S, client: Expr, key: Expr) -> None:
        """The server compares, finds the expected value, and sets; clients that wait for the key are not woken."""
        self.put(s, client, key, Sent.UPDATED, wakes=False)

    @transition(cite="TCPStore.cpp:sendKeyUpdatesToClients (1.9): send blocks")
    def get_stuck(self, s: S, client: Expr, key: Expr) -> None:
        """A watcher's connection is full: the daemon's only thread blocks in send."""
        s.when(s.stuck == 0, s.asked[client] == ord_(key) + 1, any_(~self.fits(s, j, key) for j in s.client))
        s.stuck = ord_(client) + 1

    def answers(self, s: S, client: Expr, key: Expr, requests: tuple[Request, ...], answer: Sent) -> Condition:
        s.when(~s.messages[client].is_full)
        return super().answers(s, client, key, requests, answer)

    @transition(cite="TCPStore.cpp:watchHandler (1.9)")
    def register(self, s: S, client: Expr, key: Expr) -> None:
        """The server enters the connection into its table, even if it is already listed, and acknowledges."""
        self.registers(s, client, key)
        s.listed[client, key] = ite(s.listed[client, key] == 0, 1, 2)  # the model counts up to 2

    @environment(switch="preempted", cite="pytorch/pytorch#69590")
    def notify_nobody(self, s: S, client: Expr) -> None:
        """The flag is set without its lock after watch_key checked it and before it sleeps: it is not woken."""
        s.when(s.watcher[client] == Watcher.REGISTERING)
        self.reads(s, client, Sent.REGISTERED)
        s.about[client] = 0

    @transition(cite="TCPStore.cpp:watchKey (1.9): the callback is noted first")
    def run_callback_early(self, s: S, client: Expr) -> None:
        """An event is read before watch_key has returned: the callback runs, and returns at once."""
        s.when(s.watcher[client] == Watcher.REGISTERING)
        self.tells(s, client)

    @transition(
        moves=[may((Watcher.REGISTERING, Watcher.REGISTERED), Watcher.UNREGISTERED), arc(Link.UP, Link.LEFT)],
        cite="TCPStore.cpp:callbackHandler (1.9): keyToCallbacks_.at throws in the thread",
    )
    def terminate(self, s: S, client: Expr) -> None:
        """An event of a key without a callback is read: the process of the client ends."""
        s.when(s.link[client] == Link.UP, ~self.has_callback(s, client, s.messages[client].head.key))
        self.reads(s, client, *EVENTS)
        s.link[client] = Link.LEFT
        s.watcher[client] = Watcher.UNREGISTERED
        self.forget(s, client)


GIVES_UP = may(Link.UP, Link.DROPPED)
TELLS = (*GIVES_UP, *may(Link.UP, Link.DROPPED, of="others"))
CREATES = (*arc(Key.ABSENT, Key.PRESENT), *TELLS)


class Ours(Watches, edition=Edition.TRYSTATE):
    """The server lists a watcher once, forgets it with its connection, and closes it if it does not read."""

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        """Sends an event to each watcher of the key; the server closes a watcher whose event does not fit."""
        before = s.fork()
        for j in s.client:
            told = (before.listed[j, key] > 0) & (before.link[j] == Link.UP)
            event = {"kind": kind, "key": ord_(key) + 1, "number": before.version[key], "old": old, "new": new}
            full = told & before.messages[j].is_full
            s.messages[j].push(when=told & ~full, **event)
            self.give_up(s, j, full)

    set_or_add = Watches.set_or_add.claiming(CREATES)
    delete = Watches.delete.claiming(arc(Key.PRESENT, Key.ABSENT), TELLS)

    @transition(moves=CREATES)
    def compare_set(self, s: S, client: Expr, key: Expr) -> None:
        """The server compares, finds the expected value, and sets."""
        self.put(s, client, key, Sent.UPDATED)

    @transition(moves=CREATES)
    def append(self, s: S, client: Expr, key: Expr) -> None:
        """The server appends to a key."""
        self.put(s, client, key, Sent.APPENDED)

    @transition(moves=GIVES_UP)
    def register(self, s: S, client: Expr, key: Expr) -> None:
        """The server enters the connection into its table and acknowledges."""
        full = self.registers(s, client, key)
        s.listed[client, key] = 1
        self.give_up(s, client, full)

    @environment(switch="cancel")
    def cancel(self, s: S, client: Expr, key: Expr) -> None:
        """A client cancels the watch of a key, possibly from a callback."""
        s.when(s.watcher[client].isin((Watcher.REGISTERED, Watcher.NOTIFIED)), self.calm(s, client))
        s.when(s.watched[client, key])
        self.asks(s, client, key, Request.UNWATCH)

    @transition(moves=GIVES_UP)
    def unregister(self, s: S, client: Expr, key: Expr) -> None:
        """The server removes the entry and acknowledges."""
        full = self.answers(s, client, key, (Request.UNWATCH,), Sent.CANCELLED)
        s.listed[client, key] = 0
        self.give_up(s, client, full)

    @transition(moves=[arc(Watcher.REGISTERED, Watcher.UNREGISTERED)])
    def return_cancelled(self, s: S, client: Expr) -> None:
        """The acknowledgement is read: the watch is over, and the watches of other keys continue."""
        self.reads(s, client, Sent.CANCELLED)
        self.forget_answered(s, client)
        s.watcher[client] = ite(self.watches(s, client), s.watcher[client], Watcher.UNREGISTERED)

    @transition(
        moves=[
            arc((Watcher.REGISTERING, Watcher.REGISTERED), Watcher.LOST),
            arc(Link.BROKEN, Link.LEFT),
            arc(Link.DROPPED, Link.DOWN),
        ],
    )
    def notice_loss(self, s: S, client: Expr) -> None:
        """The client finds the connection closed, even before unread messages, and reports possibly missed changes."""
        s.when(s.link[client].isin((Link.BROKEN, Link.DROPPED)), ~s.slow[client], s.watcher[client] != Watcher.NOTIFIED)
        s.link[client] = ite(s.link[client] == Link.BROKEN, Link.LEFT, Link.DOWN)
        s.watcher[client] = ite(self.watches(s, client), Watcher.LOST, s.watcher[client])
        self.forget(s, client)

    connect = Watches.connect.claiming(may(Watcher.LOST, Watcher.UNREGISTERED), arc(Link.DOWN, Link.UP))

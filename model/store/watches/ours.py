"""Our watches: they can be cancelled, a lost watcher is notified of the loss, and no watcher delays other clients."""

from __future__ import annotations

from typing import Any

from ...language import Expr, arc, environment, ite, may, ord_, transition
from ..vocabulary import Edition, Key, Watcher
from .fields import Link, Message, Request, S
from .properties import Watches

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
        self.put(s, client, key, Message.UPDATED)

    @transition(moves=CREATES)
    def append(self, s: S, client: Expr, key: Expr) -> None:
        """The server appends to a key."""
        self.put(s, client, key, Message.APPENDED)

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
        full = self.answers(s, client, key, (Request.UNWATCH,), Message.CANCELLED)
        s.listed[client, key] = 0
        self.give_up(s, client, full)

    @transition(moves=[arc(Watcher.REGISTERED, Watcher.UNREGISTERED)])
    def return_cancelled(self, s: S, client: Expr) -> None:
        """The acknowledgement is read: the watch is over, and the watches of other keys continue."""
        self.reads(s, client, Message.CANCELLED)
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

"""The steps of the server and of a watcher's thread that are the same in both editions."""

from __future__ import annotations

from ...language import Condition, Expr, arc, ite, ord_, reset, transition
from ..vocabulary import Key, Watcher
from .fields import Fields, Link, Message, S


class Steps(Fields):
    """The steps of the server and of a watcher's thread in both editions."""

    # ---- the server

    @transition(moves=[arc(Key.ABSENT, Key.PRESENT)], cite="TCPStore.cpp:setHandler, addHandler (1.9)")
    def set_or_add(self, s: S, client: Expr, key: Expr) -> None:
        """The server sets a key or adds to it."""
        self.put(s, client, key, Message.UPDATED)

    @transition(moves=[arc(Key.PRESENT, Key.ABSENT)], cite="TCPStore.cpp:deleteHandler (1.9)")
    def delete(self, s: S, client: Expr, key: Expr) -> None:
        """The server deletes a key."""
        s.when(s.value[key] != 0)
        self.takes(s, client, key)
        old = s.value[key]
        self.counts(s, key)
        s.value[key] = self.left_of(s, client, key)
        self.announce(s, key, Message.DELETED, old, 0)

    def left_of(self, s: S, client: Expr, key: Expr) -> Condition:
        """The value of a key after it is deleted for this client: 0, no value."""
        return 0

    @transition(cite="TCPStore.cpp:compareSetHandler (1.9)")
    def change_nothing(self, s: S, client: Expr, key: Expr) -> None:
        """A compare_set finds another value: nothing changes and no watcher is notified."""
        s.when(s.asked[client] == ord_(key) + 1, s.stuck == 0)
        s.asked[client] = 0

    @transition(
        moves=[arc(Link.LEFT, Link.DOWN), arc(Link.BROKEN, Link.DROPPED)],
        cite="TCPStore.cpp:queryFds (1.9): forgets waitingSockets_ and keysAwaited_, not watchedSockets_",
    )
    def notice_end(self, s: S, client: Expr) -> None:
        """The server finds the connection closed, closes it, and removes its data."""
        s.when(s.link[client].isin((Link.BROKEN, Link.LEFT)), s.stuck == 0)
        s.link[client] = ite(s.link[client] == Link.BROKEN, Link.DROPPED, Link.DOWN)
        self.drops_request(s, client)
        self.unlists(s, client)

    def unlists(self, s: S, client: Expr) -> None:
        """The connection leaves the table of watchers."""
        reset(s.listed, at=client)

    # ---- the thread that reads

    @transition(moves=[arc(Watcher.REGISTERING, Watcher.REGISTERED)], cite="TCPStore.cpp:callbackHandler (1.9)")
    def return_registered(self, s: S, client: Expr) -> None:
        """The acknowledgement is read: watch_key returns."""
        self.reads(s, client, Message.REGISTERED)
        s.about[client] = 0
        s.watcher[client] = Watcher.REGISTERED

    @transition(moves=[arc(Watcher.REGISTERED, Watcher.NOTIFIED)], cite="TCPStore.cpp:callbackHandler (1.9)")
    def run_callback(self, s: S, client: Expr) -> None:
        """An event is read: the callback runs."""
        s.when(s.watcher[client] == Watcher.REGISTERED)
        self.tells(s, client)
        s.watcher[client] = Watcher.NOTIFIED

    @transition(moves=[arc(Watcher.NOTIFIED, Watcher.REGISTERED)])
    def return_callback(self, s: S, client: Expr) -> None:
        """The callback returns."""
        s.when(s.watcher[client] == Watcher.NOTIFIED, ~s.slow[client])
        s.watcher[client] = Watcher.REGISTERED

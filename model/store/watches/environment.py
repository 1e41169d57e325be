"""The environment of watches: clients request changes, leave and connect, connections are cut."""

from __future__ import annotations

from ...language import *
from ..vocabulary import Watcher
from .fields import Link, Request, S
from .steps import Steps


class Environment(Steps):
    """The requests of clients, and the ends of connections."""

    @environment()
    def ask(self, s: S, client: Expr, key: Expr) -> None:
        """A client sends a request that changes a key."""
        s.when(s.asked[client] == 0, s.waits[client] == 0, ~s.shut[client], self.is_there(s, client))
        s.when(s.changes + count(x != 0 for x in s.asked) < self.writes)
        s.asked[client] = ord_(key) + 1

    @environment(switch="wait")
    def wait_for(self, s: S, client: Expr, key: Expr) -> None:
        """A client waits for an absent key."""
        s.when(s.waits[client] == 0, s.asked[client] == 0, self.is_there(s, client))
        s.when(s.value[key] == 0, s.stuck == 0)
        s.waits[client] = ord_(key) + 1

    @environment(moves=[arc(Watcher.UNREGISTERED, Watcher.REGISTERING)], cite="TCPStore.cpp:watchKey (1.9)")
    def watch_key(self, s: S, client: Expr, key: Expr) -> None:
        """A client registers its callback, sends the request, and waits."""
        move(s.watcher, Watcher.UNREGISTERED, Watcher.REGISTERING, s.link[client] == Link.UP, at=client)
        s.watched[client, key] = True
        self.asks(s, client, key, Request.WATCH)

    @environment(switch="another", cite="TCPStore.hpp:keyToCallbacks_ (1.9)")
    def watch_another(self, s: S, client: Expr, key: Expr) -> None:
        """A client that watches a key watches another one, with another callback, while events arrive."""
        move(s.watched, False, True, s.watcher[client] == Watcher.REGISTERED, self.calm(s, client), at=(client, key))
        self.asks(s, client, key, Request.WATCH)

    @environment(switch="again")
    def watch_again(self, s: S, client: Expr, key: Expr) -> None:
        """A client watches a key a second time, with another callback."""
        s.when(s.watcher[client] == Watcher.REGISTERED, self.calm(s, client), s.watched[client, key])
        self.asks(s, client, key, Request.AGAIN)

    @environment(
        switch="leave",
        moves=[arc(Watcher.REGISTERED, Watcher.UNREGISTERED), arc(Link.UP, Link.LEFT)],
        cite="TCPStore.cpp:~TCPStore (1.9)",
    )
    def leave(self, s: S, client: Expr) -> None:
        """A client closes its store or its process ends."""
        s.when(
            s.link[client] == Link.UP,
            s.watcher[client].isin((Watcher.UNREGISTERED, Watcher.REGISTERED)),
            ~s.slow[client],
        )
        s.when(s.asked[client] == 0, s.waits[client] == 0)
        s.link[client] = Link.LEFT
        s.watcher[client] = Watcher.UNREGISTERED
        self.forget(s, client)

    @environment(switch="newcomer", moves=[arc(Link.DOWN, Link.UP)])
    def connect(self, s: S, client: Expr) -> None:
        """A new client connects, and its connection gets the number of a closed one."""
        move(s.link, Link.DOWN, Link.UP, at=client)
        s.watcher[client] = Watcher.UNREGISTERED

    @fault("drop", moves=[arc(Link.UP, Link.BROKEN)])
    def drop(self, s: S, client: Expr) -> None:
        """A watch's connection is cut."""
        move(s.link, Link.UP, Link.BROKEN, at=client)

    @fault("slow")
    def slow_down(self, s: S, client: Expr) -> None:
        """A client's callback does not return or its process is stopped: it reads nothing."""
        move(s.slow, False, True, s.watcher[client].isin((Watcher.REGISTERED, Watcher.NOTIFIED)), at=client)

    @environment()
    def catch_up(self, s: S, client: Expr) -> None:
        """A slow client continues."""
        move(s.slow, True, False, at=client)

"""The environment of watches: clients ask for changes, leave and come, connections are cut."""

from __future__ import annotations

from ...language import Expr, arc, count, environment, fault, ord_
from ..vocabulary import Watcher
from .fields import Link, Request, S
from .steps import Steps


class Environment(Steps):
    """The requests of clients, and connections that end."""

    @environment(each=("client", "key"))
    def ask(self, s: S, client: Expr, key: Expr) -> None:
        """A client sends a request that changes a key."""
        s.when(s.asked[client] == 0, s.waits[client] == 0, ~s.shut[client], self.is_there(s, client))
        s.when(s.changes + count(x != 0 for x in s.asked) < self.writes)
        s.asked[client] = ord_(key) + 1

    @environment(each=("client", "key"), switch="wait")
    def wait_for(self, s: S, client: Expr, key: Expr) -> None:
        """A client waits for an absent key."""
        s.when(s.waits[client] == 0, s.asked[client] == 0, self.is_there(s, client))
        s.when(s.value[key] == 0, s.stuck == 0)
        s.waits[client] = ord_(key) + 1

    @environment(
        each=("client", "key"),
        moves=[arc(Watcher.UNREGISTERED, Watcher.REGISTERING)],
        cite="TCPStore.cpp:watchKey (1.9)",
    )
    def watch_key(self, s: S, client: Expr, key: Expr) -> None:
        """A client notes its callback, sends the request, and waits."""
        s.when(s.watcher[client] == Watcher.UNREGISTERED, s.link[client] == Link.UP)
        s.watcher[client] = Watcher.REGISTERING
        s.watched[client, key] = True
        self.asks(s, client, key, Request.WATCH)

    @environment(each=("client", "key"), switch="another", cite="TCPStore.hpp:keyToCallbacks_ (1.9)")
    def watch_another(self, s: S, client: Expr, key: Expr) -> None:
        """A client that watches a key watches one more, with its callback, while events come."""
        s.when(s.watcher[client] == Watcher.REGISTERED, self.calm(s, client), ~s.watched[client, key])
        s.watched[client, key] = True
        self.asks(s, client, key, Request.WATCH)

    @environment(each=("client", "key"), switch="again")
    def watch_again(self, s: S, client: Expr, key: Expr) -> None:
        """A client watches a key a second time, with another callback."""
        s.when(s.watcher[client] == Watcher.REGISTERED, self.calm(s, client), s.watched[client, key])
        self.asks(s, client, key, Request.AGAIN)

    @environment(
        each="client",
        switch="leave",
        moves=[arc(Watcher.REGISTERED, Watcher.UNREGISTERED), arc(Link.UP, Link.LEFT)],
        cite="TCPStore.cpp:~TCPStore (1.9)",
    )
    def leave(self, s: S, client: Expr) -> None:
        """A client closes its store, or its process ends."""
        s.when(
            s.link[client] == Link.UP,
            s.watcher[client].isin((Watcher.UNREGISTERED, Watcher.REGISTERED)),
            ~s.slow[client],
        )
        s.when(s.asked[client] == 0, s.waits[client] == 0)
        s.link[client] = Link.LEFT
        s.watcher[client] = Watcher.UNREGISTERED
        self.forget(s, client)

    @environment(each="client", switch="newcomer", moves=[arc(Link.DOWN, Link.UP)])
    def connect(self, s: S, client: Expr) -> None:
        """Somebody connects, and the connection gets the number of a closed one."""
        s.when(s.link[client] == Link.DOWN)
        s.link[client] = Link.UP
        s.watcher[client] = Watcher.UNREGISTERED

    @fault("drop", each="client", moves=[arc(Link.UP, Link.BROKEN)])
    def drop(self, s: S, client: Expr) -> None:
        """A watch's connection is cut."""
        s.when(s.link[client] == Link.UP)
        s.link[client] = Link.BROKEN

    @fault("slow", each="client")
    def slow_down(self, s: S, client: Expr) -> None:
        """A client's callback does not return, or its process stops: nothing is read."""
        s.when(s.watcher[client].isin((Watcher.REGISTERED, Watcher.NOTIFIED)), ~s.slow[client])
        s.slow[client] = True

    @environment(each="client")
    def catch_up(self, s: S, client: Expr) -> None:
        """A slow client goes on."""
        s.when(s.slow[client])
        s.slow[client] = False

"""torch 2.13, the libuv server: a client that was answered stays in the line of the queue.

A later push then answers its wait for something else (S4), or wakes a client that does not pop (S5, S28).
"""

from __future__ import annotations

from typing import Any

from ...language import Expr, any_, arc, as_int, ite, transition
from ..vocabulary import Connection, Edition, Key
from .environment import WAKES
from .fields import Answer, Element, Request, S
from .properties import Queues
from .steps import WAIT


class Torch(Queues, edition=Edition.TORCH):
    """A push counts down along the line; no client ever leaves it."""

    def is_registered(self, s: S, client: Expr) -> Any:
        return s.awaited[client] > 0

    @transition(each="client", moves=[arc(Connection.READY, Connection.BLOCKED)], cite=WAIT)
    def take_wait_for_queue(self, s: S, client: Expr) -> None:
        """A WAIT for the queue: answered if it has an element; else the client stands in line."""
        self.takes(s, client, Request.WAIT_QUEUE)
        some = ~s.queue.is_empty
        s.awaited[client] = ite(some, s.awaited[client], 1)
        s.answers[client].push(when=some, kind=Answer.STOP_WAITING)
        self.joins_line(s, client, ~some)

    @transition(each="client", moves=[arc(Connection.READY, Connection.BLOCKED)], cite=WAIT)
    def take_wait_for_both(self, s: S, client: Expr) -> None:
        """A WAIT for both: when the key is missing, the queue counts as missing even if it has elements."""
        self.takes(s, client, Request.WAIT_BOTH)
        both, absent = self.both_there(s), s.stored == Key.ABSENT
        s.answers[client].push(when=both, kind=Answer.STOP_WAITING)
        self.joins_line(s, client, ~both)
        s.on_key[client] = s.on_key[client] + as_int(absent & (s.on_key[client] < 2))
        s.awaited[client] = ite(both, s.awaited[client], 1 + as_int(absent))

    @transition(
        fair=False,
        moves=[arc(Element.UNSENT, Element.QUEUED, of="others"), WAKES],
        cite="TCPStoreLibUvBackend.cpp: queuePush",
    )
    def push(self, s: S) -> None:
        """Another client pushes the next element."""
        self.pushes(s)
        self.wakes_one(s)

    def wakes_one(self, s: S, when: Any = True) -> None:
        """A push counts down along the line until one comes to 0; nobody leaves it."""
        before = s.fork()
        for j in s.client:
            stops = any_(self.uses_up(before, k) & (before.place[k] < before.place[j]) for k in s.client)
            counts = self.in_line(before, j) & (before.awaited[j] > 0) & ~stops & when
            s.answers[j].push(when=counts & (before.awaited[j] == 1) & ~before.lost[j], kind=Answer.STOP_WAITING)
            s.awaited[j] = before.awaited[j] - as_int(counts)

    def uses_up(self, s: S, client: Expr) -> Any:
        """Does a wake go no further than this client? It does not ask whether the client will pop."""
        return self.in_line(s, client) & (s.awaited[client] == 1)

    def wakes_all_on_key(self, s: S) -> None:
        """The key was set: every entry in its list counts once."""
        before = s.fork()
        for j in s.client:
            entries, awaited = before.on_key[j], before.awaited[j]
            last = (entries > 0) & (awaited > 0) & ~(awaited > entries)
            s.answers[j].push(when=last & ~before.lost[j], kind=Answer.STOP_WAITING)
            s.awaited[j] = ite(awaited > entries, awaited - entries, 0)
            s.on_key[j] = 0

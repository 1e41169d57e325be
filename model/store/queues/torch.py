"""torch 2.13, the libuv server: a client that was answered stays in the line of the queue.

A later push then answers the client's next wait, for something else (S4), or wakes a client that does not pop (S5,
S28).
"""

from __future__ import annotations

from typing import Any

from ...language import Expr, any_, arc, as_int, ite, transition
from ..vocabulary import Connection, Edition, Key
from .fields import Answer, Element, Request, S
from .properties import Queues
from .steps import WAIT, WAKES


class Torch(Queues, edition=Edition.TORCH):
    """A push decrements the counts along the line; no client ever leaves the line."""

    def is_registered(self, s: S, client: Expr) -> Any:
        return s.awaited[client] > 0

    @transition(moves=[arc(Connection.READY, Connection.BLOCKED)], cite=WAIT)
    def take_wait_for_queue(self, s: S, client: Expr) -> None:
        """A WAIT for the queue is answered if the queue has an element; otherwise the client joins the line."""
        self.takes(s, client, Request.WAIT_QUEUE)
        some = ~s.queue.is_empty
        s.awaited[client] = ite(some, s.awaited[client], 1)
        s.answers[client].push(when=some, kind=Answer.STOP_WAITING)
        self.joins_line(s, client, ~some)

    @transition(moves=[arc(Connection.READY, Connection.BLOCKED)], cite=WAIT)
    def take_wait_for_both(self, s: S, client: Expr) -> None:
        """A WAIT for both: if the key is missing, the queue counts as missing too, even if it has elements."""
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
        """A push decrements the counts along the line until one reaches 0; no client leaves the line."""
        before = s.fork()
        for j in s.client:
            stops = any_(self.uses_up(before, k) & (before.place[k] < before.place[j]) for k in s.client)
            counts = self.in_line(before, j) & (before.awaited[j] > 0) & ~stops & when
            s.answers[j].push(when=counts & (before.awaited[j] == 1) & ~before.lost[j], kind=Answer.STOP_WAITING)
            s.awaited[j] = before.awaited[j] - as_int(counts)

    def uses_up(self, s: S, client: Expr) -> Any:
        """A push wakes no client after this one, whether or not this one pops."""
        return self.in_line(s, client) & (s.awaited[client] == 1)

    def wakes_all_on_key(self, s: S) -> None:
        """The key was set: every entry in its list decrements its client's count once."""
        before = s.fork()
        for j in s.client:
            entries, awaited = before.on_key[j], before.awaited[j]
            last = (entries > 0) & (awaited > 0) & ~(awaited > entries)
            s.answers[j].push(when=last & ~before.lost[j], kind=Answer.STOP_WAITING)
            s.awaited[j] = ite(awaited > entries, awaited - entries, 0)
            s.on_key[j] = 0

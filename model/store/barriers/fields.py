"""Barriers: when as many different clients as the world has are in, all that have arrived are released, each once.

Theory of operation. torch 2.13 counts requests in a key of the store. Ours counts clients, in a table: when a
client comes again while the server has not noticed that its first connection broke, its arrival moves to the new one.
The seed has no barrier, so there is no edition SEED.

Abstractions. One barrier. torch's client gives up by its own clock, cancels, and raises whatever it then reads; with
ours the server decides what was first. A client that dies, or gives up on a frozen server and closes, is a connection
that breaks: the client (or its successor) knows at once, the server later, and messages on their way are lost. In ours
the clients are our own, which say who they are; it knows one of torch's by its connection only.

The truth (`inside`, `lost`, `freed`) follows the connections and the messages on them, and never the server's table.
Of our edition `only_arrivals_release` and `keys_stay_untouched` hold by construction: in the model its table and the
keys never meet. They become claims about our server by its replay with `write` and `delete` switched on: after every
step the key and the answers are compared with the model's.
"""

from __future__ import annotations

import enum
from typing import Any

from ...language import *
from ..vocabulary import Arrival

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any


class Request(enum.Enum):
    """A request of a client."""

    BARRIER = "count me in"
    CANCEL = "I wait no longer"


class Reply(enum.Enum):
    """The server's reply to a client."""

    STOP = "all have arrived"
    CANCELED = "you are no longer waiting"
    TIMED_OUT = "not in time: you are not counted"


class Fields(System):
    """The fields of the system, and what its steps share."""

    client = index(3)
    world = constant(2, "how many have to arrive")
    rounds = constant(1, "how often a client passes")

    place = choice(Arrival, per="client")
    cancelling = flag(per="client", doc="sent CANCEL, and reads until it is answered")
    passed = integer(0, "rounds", per="client", doc="how often it has passed")
    requests = sequence(2, per="client", kind=Request)
    replies = sequence(2, per="client", kind=Reply)
    waiting = flag(per="client", doc="the server's table: arrived on the connection that the client has")
    held = flag(per="client", doc="the server's table: arrived on a connection that is broken")
    key = integer(0, "world", doc="the value of the key with the barrier's name; 0: absent")

    inside = flag(per="client", doc="the truth: arrived, and neither released nor withdrawn")
    lost = flag(per="client", doc="the truth: so on a broken connection, which the server has not noticed")
    freed = flag(per="client", doc="the truth: the server released its last arrival")

    def lifelines(self) -> Lifelines:
        """The table and the key are the server's."""
        truth = "inside lost freed"
        at, totals = "waiting held notice_end", {"key": self.sizes["world"]}
        return served("server", at, requests="requests", answers="replies", here=truth, totals=totals)

    @machine(Arrival, each="client")
    def arrival(self, s: S, client: Expr) -> Any:
        """A client's place in the barrier."""
        return s.place[client]

    # ---- the client

    def reads(self, s: S, client: Expr, reply: Reply) -> None:
        s.when(s.place[client] == Arrival.ARRIVED, ~s.replies[client].is_empty, s.replies[client].head.kind == reply)
        s.replies[client].pop()

    # ---- the server

    def takes(self, s: S, client: Expr, request: Request) -> None:
        s.when(~s.requests[client].is_empty, s.requests[client].head.kind == request)
        s.requests[client].pop()

    def answer(self, s: S, client: Expr, reply: Reply, when: Any = True) -> None:
        """Send an answer: the client that gets it is no longer in."""
        s.replies[client].push(when=when, kind=reply)
        s.inside[client] = s.inside[client] & not_(when)
        if reply is Reply.STOP:
            s.freed[client] = s.freed[client] | when

    def answer_broken(self, s: S, client: Expr, when: Any) -> None:
        """Send an answer on a connection that is broken: no client gets it."""
        s.lost[client] = s.lost[client] & not_(when)

    def release(self, s: S, opens: Any, newcomer: Expr | None = None) -> None:
        """Answer all clients that wait, and the one that has just arrived; their arrivals are used up."""
        before = s.fork()
        for j in s.client:
            own = False if newcomer is None else newcomer == j
            out = and_(opens, before.waiting[j] | own)
            self.answer(s, j, Reply.STOP, out)
            self.answer_broken(s, j, and_(opens, before.held[j]))
            s.waiting[j] = s.waiting[j] & ~out
            s.held[j] = s.held[j] & not_(opens)

    def arrived(self, s: S) -> Condition:
        """How many different clients the table lists."""
        return count(s.waiting[j] | s.held[j] for j in s.client)

"""Barriers: when world_size different clients have arrived, all of them are released, each once.

Theory of operation. torch 2.13 counts requests in a key of the store. Ours counts clients in a table: when a client
comes again before the server has noticed that its first connection broke, its arrival moves to the new connection. The
seed has no barrier, so this system has no edition SEED.

Abstractions. There is one barrier. torch's client gives up by its own clock, cancels, and raises whatever it then
reads; in ours the server decides what was first. A client that dies, or that gives up on a frozen server and closes, is
modelled as a connection that breaks: the client (or its successor) notices at once, the server later, and messages on
their way are lost. In ours the clients are our own, which send their identity; our server identifies a client of
torch's only by its connection.

The truth (`inside`, `lost`, `freed`) follows the connections and the messages on them, not the server's table. In our
edition `only_arrivals_release` and `keys_stay_untouched` hold by construction, because the model's table and keys are
separate. They become claims about our server when it is replayed with `write` and `delete` switched on: after every
step the key and the answers are compared with the model's.
"""

from __future__ import annotations

import enum
from typing import Any

from ...language import *
from ..vocabulary import Arrival

S = SymbolicState


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
    """The fields of the system, and the helpers that its steps share."""

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
    lost = flag(per="client", doc="the truth: inside on a broken connection, which the server has not noticed")
    freed = flag(per="client", doc="the truth: the server released its last arrival")

    def lifelines(self) -> Lifelines:
        """The server has the table and the key."""
        truth = "inside lost freed"
        at, totals = "waiting held notice_end", {"key": self.sizes["world"]}
        return served("server", at, requests="requests", answers="replies", here=truth, totals=totals)

    arrival = machine_of(place, "A client's place in the barrier.")

    # ---- the client

    def reads(self, s: S, client: Expr, reply: Reply) -> None:
        s.when(s.place[client] == Arrival.ARRIVED, ~s.replies[client].is_empty, s.replies[client].head.kind == reply)
        s.replies[client].pop()

    # ---- the server

    def takes(self, s: S, client: Expr, request: Request) -> None:
        s.when(~s.requests[client].is_empty, s.requests[client].head.kind == request)
        s.requests[client].pop()

    def answer(self, s: S, client: Expr, reply: Reply, when: Any = True) -> None:
        """Sends an answer; the client that gets it has left the barrier."""
        s.replies[client].push(when=when, kind=reply)
        s.inside[client] = s.inside[client] & not_(when)
        if reply is Reply.STOP:
            s.freed[client] = s.freed[client] | when

    def release(self, s: S, opens: Any, newcomer: Expr | None = None) -> None:
        """Answers all waiting clients and the one that has just arrived; their arrivals are used up."""
        before = s.fork()
        for j in s.client:
            own = False if newcomer is None else newcomer == j
            out = and_(opens, before.waiting[j] | own)
            self.answer(s, j, Reply.STOP, out)
            s.lost[j] = s.lost[j] & not_(
                and_(opens, before.held[j])
            )  # an answer on a broken connection: no client gets it
            s.waiting[j] = s.waiting[j] & ~out
            s.held[j] = s.held[j] & not_(opens)

    def arrived(self, s: S) -> Condition:
        """The number of different clients in the table."""
        return count(s.waiting[j] | s.held[j] for j in s.client)

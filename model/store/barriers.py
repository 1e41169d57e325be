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

from ..language import *
from .vocabulary import Arrival, Edition

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


ENDS = ("take_cancel", "raise_cancelled", "run_out_of_time", "raise_timeout", "drop", "notice_end")  # no releases


class Barriers(System):
    """Clients that use one barrier, once or several times."""

    title = "A barrier"
    Edition = (Edition.TORCH, Edition.TRYSTATE)  # the seed has no barrier

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

    # ---- the steps of both editions

    @transition(moves=[arc(Arrival.ARRIVED, Arrival.RELEASED)], cite="TCPStore.cpp:barrier")
    def pass_through(self, s: S, client: Expr) -> None:
        """The answer is read: barrier() returns."""
        s.when(~s.cancelling[client])
        self.reads(s, client, Reply.STOP)
        s.place[client] = Arrival.RELEASED
        s.passed[client] = s.passed[client] + 1

    @transition(cite="TCPStoreLibUvBackend.cpp:clearClientWaitState")
    def notice_end(self, s: S, client: Expr) -> None:
        """The server notices a broken connection and withdraws its arrival."""
        s.when(s.lost[client])
        reset(s.held, s.lost, at=client)

    # ---- the environment

    @environment(
        moves=[arc((Arrival.AWAY, Arrival.RELEASED, Arrival.WITHDRAWN), Arrival.ARRIVED)],
        cite="TCPStore.cpp:barrier",
    )
    def arrive(self, s: S, client: Expr) -> None:
        """A client enters the barrier, for the first time or again."""
        s.when(s.place[client] != Arrival.ARRIVED, s.passed[client] < self.rounds)
        s.place[client] = Arrival.ARRIVED
        s.freed[client] = False
        s.requests[client].push(kind=Request.BARRIER)

    @fault("drop", moves=[arc(Arrival.ARRIVED, Arrival.WITHDRAWN)])
    def drop(self, s: S, client: Expr) -> None:
        """A connection breaks or its client dies: barrier() raises, and messages on their way are lost."""
        move(s.place, Arrival.ARRIVED, Arrival.WITHDRAWN, at=client)
        reset(s.cancelling, s.freed, at=client)
        s.requests[client].clear()
        s.replies[client].clear()
        s.held[client] = s.held[client] | s.waiting[client]
        s.waiting[client] = False
        s.lost[client] = s.lost[client] | s.inside[client]
        s.inside[client] = False

    @environment(switch="delete", cite="TCPStoreLibUvBackend.cpp:deleteKey")
    def delete_key(self, s: S) -> None:
        """A client deletes the key with the barrier's name."""
        s.key = 0

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Too few clients have arrived, and no message is on its way."""
        quiet = (s.requests[j].is_empty & s.replies[j].is_empty & ~s.lost[j] for j in s.client)
        return (s.place.count(Arrival.ARRIVED) < self.world) & all_(quiet)

    def counted(self, s: S) -> Condition:
        """The number of clients that the server counts."""
        raise NotImplementedError

    @sometimes()
    def the_barrier_opens(self, s: S) -> Condition:
        """At least world_size clients have passed."""
        return s.place.count(Arrival.RELEASED) >= self.world

    @sometimes()
    def as_often_as_wanted(self, s: S) -> Condition:
        """At least world_size clients have passed in every round."""
        return count(x == self.rounds for x in s.passed) >= self.world

    @sometimes()
    def one_is_missing(self, s: S) -> Condition:
        """All clients but one have arrived and wait."""
        return s.inside.count() == self.world - 1

    @sometimes(needs="timeout")
    def a_retry_passes(self, s: S) -> Condition:
        """The barrier opens after a client has given up."""
        return (s.timeout_left == 0) & s.passed.all(self.rounds)

    @sometimes(needs="drop")
    def a_break_is_unnoticed(self, s: S) -> Condition:
        """A client has arrived again while the server takes its broken connection for alive."""
        return any_(s.lost[j] & (s.place[j] == Arrival.ARRIVED) for j in s.client)

    @sometimes(needs="write")
    def the_key_is_written(self, s: S) -> Condition:
        """The key was written, and a client is in the barrier."""
        return (s.write_left == 0) & s.place.any(Arrival.ARRIVED)

    def present(self, s: S, client: Expr) -> Condition:
        """The number of different clients in the barrier, including the one that arrives."""
        return count(s.inside[j] | s.lost[j] | (j == client) for j in s.client)

    def anybody_goes(self, before: S, after: S, client: Expr) -> Condition:
        return any_((before.inside[j] | (j == client)) & ~after.inside[j] for j in before.client)

    @step(on=("count_in",), witness="the_barrier_opens")
    def nobody_passes_before_all_are_in(self, before: S, after: S, client: Expr) -> Condition:
        """No client is released before world_size different clients have arrived."""
        return implies(self.anybody_goes(before, after, client), self.present(before, client) >= self.world)

    @step(on=("count_in",), witness="the_barrier_opens")
    def all_go_together(self, before: S, after: S, client: Expr) -> Condition:
        """When one client is released, all are, and the barrier is empty again."""
        left = any_(after.inside[j] | after.lost[j] for j in after.client)
        return implies(self.anybody_goes(before, after, client), ~left)

    @always(witness="one_is_missing")
    def a_full_barrier_opens(self, s: S) -> Condition:
        """The barrier never keeps world_size clients that have arrived waiting."""
        return count(s.inside[j] | s.lost[j] for j in s.client) < self.world

    @step(on=("write_key",), witness="the_key_is_written", needs="write")
    def only_arrivals_release(self, before: S, after: S) -> Condition:
        """Writing a key does not release a client."""
        return all_(before.inside[j] == after.inside[j] for j in before.client)

    @step(witness="the_barrier_opens")
    def keys_stay_untouched(self, before: S, after: S) -> Condition:
        """No step of a barrier changes a key; only a client that writes or deletes it does."""
        switches = [f"{name}_left" for name in ("write", "delete") if name in self.faults]
        by_others = or_(*(getattr(before, left) != getattr(after, left) for left in switches))
        return by_others | (after.key == before.key)

    @step(on=ENDS, witness="one_is_missing")
    def failures_change_nothing(self, before: S, after: S, client: Expr) -> Condition:
        """When a barrier timed out or failed, the server counts one less, as if the call had not happened."""

        def present(s: S) -> Condition:
            return count(s.inside[j] | s.lost[j] for j in s.client)

        return self.counted(before) + present(after) == self.counted(after) + present(before)

    @always(witness="the_barrier_opens")
    def released_once(self, s: S) -> Condition:
        """Only a client that has arrived is released, and it is released once."""
        twice = any_(
            and_(s.replies[j].length == 2, *(record.kind == Reply.STOP for _, record in s.replies[j])) for j in s.client
        )
        earned = (
            implies(s.replies[j].contains(kind=Reply.STOP), (s.place[j] == Arrival.ARRIVED) & s.freed[j])
            for j in s.client
        )
        return ~twice & all_(earned)

    @always(witness="the_barrier_opens")
    def the_released_return(self, s: S) -> Condition:
        """No client that the server released raises."""
        return all_(implies(s.freed[j], s.place[j] != Arrival.WITHDRAWN) for j in s.client)

    @always(witness="one_is_missing")
    def nothing_is_left_behind(self, s: S) -> Condition:
        """The table lists the clients in the barrier, and no connection that has ended."""
        return all_((s.waiting[j] == s.inside[j]) & (s.held[j] == s.lost[j]) for j in s.client)

    @leads_to()
    def enough_are_released(self, s: S) -> tuple[Condition, Condition]:
        """If world_size clients have arrived, they are released or leave."""
        return s.place.count(Arrival.ARRIVED) >= self.world, s.place.count(Arrival.ARRIVED) < self.world

    @leads_to()
    def timeouts_are_told(self, s: S, client: Expr) -> tuple[Condition, Condition]:
        """A client whose time is over raises or returns."""
        late = s.cancelling[client] | s.replies[client].contains(kind=Reply.TIMED_OUT)
        return late, s.place[client] != Arrival.ARRIVED


# ---- the editions


class Torch(Barriers, edition=Edition.TORCH):
    """torch 2.13, the libuv server: the count is a key, never decremented (S11), reset (S12) or protected (S13)."""

    @environment(switch="timeout", cite="TCPStore.cpp:barrier: poll, then CANCEL_WAIT")
    def give_up(self, s: S, client: Expr) -> None:
        """The client's time is over: it sends CANCEL_WAIT."""
        move(s.cancelling, False, True, s.place[client] == Arrival.ARRIVED, at=client)
        s.requests[client].push(kind=Request.CANCEL)

    @transition(cite="TCPStore.cpp:barrier: 0 means read once more")
    def read_on(self, s: S, client: Expr) -> None:
        """The barrier opened before the cancel arrived: the client reads one more answer."""
        s.when(s.cancelling[client])
        self.reads(s, client, Reply.STOP)

    @transition(
        moves=[arc(Arrival.ARRIVED, Arrival.WITHDRAWN)],
        cite="TCPStore.cpp:barrier: 1 raises, and so does 0 and then 1",
    )
    def raise_cancelled(self, s: S, client: Expr) -> None:
        """The cancel is answered: barrier() raises, whatever was read before."""
        self.reads(s, client, Reply.CANCELED)
        s.cancelling[client] = False
        s.place[client] = Arrival.WITHDRAWN

    @transition(cite="TCPStoreLibUvBackend.cpp:LibUVStoreDaemon::barrier")
    def count_in(self, s: S, client: Expr) -> None:
        """The server adds 1 to the key; the last arrival opens the barrier."""
        self.takes(s, client, Request.BARRIER)
        s.inside[client] = True
        s.key = ite(s.key < self.world, s.key + 1, self.world)
        opens = s.key >= self.world
        s.waiting[client] = ~opens
        self.release(s, opens, client)

    @transition(cite="TCPStoreLibUvBackend.cpp:clearClientWaitState")
    def take_cancel(self, s: S, client: Expr) -> None:
        """The server removes the client from the list of waiters; the count stays."""
        self.takes(s, client, Request.CANCEL)
        s.waiting[client] = False
        self.answer(s, client, Reply.CANCELED)

    @environment(switch="write", cite="TCPStoreLibUvBackend.cpp:wakeupWaitingClients")
    def write_key(self, s: S) -> None:
        """A client sets the key with the barrier's name: the clients that wait under it are woken."""
        s.key = 1
        self.release(s, True)

    def counted(self, s: S) -> Condition:
        return s.key


class Ours(Barriers, edition=Edition.TRYSTATE):
    """The server has a table of clients, separate from the keys, and decides what came first."""

    @transition(moves=[arc(Arrival.ARRIVED, Arrival.WITHDRAWN)])
    def raise_timeout(self, s: S, client: Expr) -> None:
        """The client reads that it was not in time: barrier() raises."""
        self.reads(s, client, Reply.TIMED_OUT)
        s.place[client] = Arrival.WITHDRAWN

    @transition()
    def count_in(self, s: S, client: Expr) -> None:
        """The server enters the client into its table; the last arrival opens the barrier."""
        self.takes(s, client, Request.BARRIER)
        s.inside[client] = True
        s.lost[client] = False  # it has arrived again
        self.moves(s, client)
        s.waiting[client] = True
        self.release(s, self.arrived(s) >= self.world, client)

    def moves(self, s: S, client: Expr) -> None:
        """The client's new arrival replaces its arrival on a broken connection."""
        s.held[client] = False

    @environment(switch="timeout")
    def run_out_of_time(self, s: S, client: Expr) -> None:
        """The deadline of an arrival passes at the server: it withdraws the arrival and notifies the client."""
        move(s.waiting, True, False, at=client)
        self.answer(s, client, Reply.TIMED_OUT)

    @environment(switch="write")
    def write_key(self, s: S) -> None:
        """A client sets the key with the barrier's name."""
        s.key = 1

    def counted(self, s: S) -> Condition:
        return self.arrived(s)

"""Barriers: whoever arrives is released when as many different clients as the world has are in, and each one once.

torch 2.13 counts requests in a key of the store; ours counts clients, in a table of its own: when a client comes again
while the server has not noticed that its first connection broke, its arrival moves to the new one. The seed has no
barrier, so there is no edition SEED.

Abstractions. One barrier. torch's client gives up by its own clock, cancels, and raises whatever it then reads; with
ours the server decides what was first. A client that dies, or gives up on a frozen server and closes, is a connection
that breaks: the client (or its successor) knows at once, the server later, and what was on its way is lost. In ours
the clients are our own, which say who they are; it knows one of torch's by its connection only.

The truth (`inside`, `lost`, `freed`) follows the connections and what is sent on them, and never the server's table.
Of our edition `only_arrivals_release` and `keys_stay_untouched` hold by construction: in the model its table and the
keys never meet. What makes them claims about our server is its replay with `write` and `delete` switched on: after
every step the key and the answers are compared with the model's.
"""

from __future__ import annotations

import enum
from typing import Any

from ..language import (
    Expr,
    SymbolicState,
    System,
    all_,
    always,
    and_,
    any_,
    arc,
    choice,
    constant,
    count,
    environment,
    fault,
    flag,
    implies,
    index,
    integer,
    ite,
    leads_to,
    machine,
    not_,
    or_,
    sequence,
    sometimes,
    step,
    terminal,
    transition,
)
from .vocabulary import Arrival, Edition

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
A = Arrival
ENDS = ("take_cancel", "raise_cancelled", "run_out_of_time", "raise_timeout", "drop", "notice_end")  # not by release


class Request(enum.Enum):
    """What a client sends."""

    BARRIER = "count me in"
    CANCEL = "I wait no longer"


class Reply(enum.Enum):
    """What the server answers."""

    STOP = "all have arrived"
    CANCELED = "you are no longer waiting"
    TIMED_OUT = "not in time: you are not counted"


class Barriers(System):
    """Clients that meet at one barrier, and may meet there again."""

    title = "A barrier"
    Edition = (Edition.TORCH, Edition.TRYSTATE)

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

    @machine(Arrival, each="client")
    def arrival(self, s: S, client: Expr) -> Any:
        """A client's place in the barrier."""
        return s.place[client]

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Too few have arrived, and nothing is on its way."""
        quiet = (s.requests[j].is_empty & s.replies[j].is_empty & ~s.lost[j] for j in s.client)
        return (s.place.count(A.ARRIVED) < self.world) & all_(quiet)

    # ---- the client

    @environment(each="client", moves=[arc((A.AWAY, A.RELEASED, A.WITHDRAWN), A.ARRIVED)], cite="TCPStore.cpp:barrier")
    def arrive(self, s: S, client: Expr) -> None:
        """A client comes to the barrier, for the first time or again."""
        s.when(s.place[client] != A.ARRIVED, s.passed[client] < self.rounds)
        s.place[client] = A.ARRIVED
        s.freed[client] = False
        s.requests[client].push(kind=Request.BARRIER)

    def reads(self, s: S, client: Expr, reply: Reply) -> None:
        s.when(s.place[client] == A.ARRIVED, ~s.replies[client].is_empty, s.replies[client].head.kind == reply)
        s.replies[client].pop()

    @transition(each="client", moves=[arc(A.ARRIVED, A.RELEASED)], cite="TCPStore.cpp:barrier")
    def pass_through(self, s: S, client: Expr) -> None:
        """The answer is read: barrier() returns."""
        s.when(~s.cancelling[client])
        self.reads(s, client, Reply.STOP)
        s.place[client] = A.RELEASED
        s.passed[client] = s.passed[client] + 1

    @environment(each="client", switch="timeout", editions=[TORCH], cite="TCPStore.cpp:barrier: poll, then CANCEL_WAIT")
    def give_up(self, s: S, client: Expr) -> None:
        """The client's time is over: it sends CANCEL_WAIT."""
        s.when(s.place[client] == A.ARRIVED, ~s.cancelling[client])
        s.cancelling[client] = True
        s.requests[client].push(kind=Request.CANCEL)

    @transition(each="client", editions=[TORCH], cite="TCPStore.cpp:barrier: 0 means read once more")
    def read_on(self, s: S, client: Expr) -> None:
        """The barrier opened before the cancel arrived: the client reads one answer more."""
        s.when(s.cancelling[client])
        self.reads(s, client, Reply.STOP)

    @transition(
        each="client", editions=[TORCH], moves=[arc(A.ARRIVED, A.WITHDRAWN)],
        cite="TCPStore.cpp:barrier: 1 raises, and so does 0 and then 1",
    )  # fmt: skip
    def raise_cancelled(self, s: S, client: Expr) -> None:
        """The cancel is answered: barrier() raises, whatever was read before."""
        self.reads(s, client, Reply.CANCELED)
        s.cancelling[client] = False
        s.place[client] = A.WITHDRAWN

    @transition(each="client", editions=[TRYSTATE], moves=[arc(A.ARRIVED, A.WITHDRAWN)])
    def raise_timeout(self, s: S, client: Expr) -> None:
        """The server says that it was not in time: barrier() raises."""
        self.reads(s, client, Reply.TIMED_OUT)
        s.place[client] = A.WITHDRAWN

    # ---- the server

    def takes(self, s: S, client: Expr, request: Request) -> None:
        s.when(~s.requests[client].is_empty, s.requests[client].head.kind == request)
        s.requests[client].pop()

    def answer(self, s: S, client: Expr, reply: Reply, when: Any = True) -> None:
        """Send an answer: whoever gets it is no longer in."""
        s.replies[client].push(when=when, kind=reply)
        s.inside[client] = s.inside[client] & not_(when)
        if reply is Reply.STOP:
            s.freed[client] = s.freed[client] | when

    def answer_broken(self, s: S, client: Expr, when: Any) -> None:
        """Send an answer on a connection that is broken: nobody gets it."""
        s.lost[client] = s.lost[client] & not_(when)

    def release(self, s: S, opens: Any, newcomer: Expr | None = None) -> None:
        """Answer all who wait, and whoever has just arrived; their arrivals are used up."""
        before = s.fork()
        for j in s.client:
            own = False if newcomer is None else newcomer == j
            out = and_(opens, before.waiting[j] | own)
            self.answer(s, j, Reply.STOP, out)
            self.answer_broken(s, j, and_(opens, before.held[j]))
            s.waiting[j] = s.waiting[j] & ~out
            s.held[j] = s.held[j] & not_(opens)

    @transition(each="client", cite="TCPStoreLibUvBackend.cpp:LibUVStoreDaemon::barrier")
    def count_in(self, s: S, client: Expr) -> None:
        """The server counts an arrival: torch adds 1 to a key, ours counts clients. The last one opens the barrier."""
        self.takes(s, client, Request.BARRIER)
        s.inside[client] = True
        if self.edition is TORCH:
            s.key = ite(s.key < self.world, s.key + 1, self.world)
            opens = s.key >= self.world
            s.waiting[client] = ~opens
        else:
            s.lost[client] = False  # it has come again
            self.moves(s, client)
            s.waiting[client] = True
            opens = self.arrived(s) >= self.world
        self.release(s, opens, client)

    def moves(self, s: S, client: Expr) -> None:
        """Ours: an arrival on a broken connection is found to be this client's, and gives way to its new one."""
        s.held[client] = False

    def arrived(self, s: S) -> Condition:
        """How many different clients the table lists."""
        return count(s.waiting[j] | s.held[j] for j in s.client)

    @transition(each="client", editions=[TORCH], cite="TCPStoreLibUvBackend.cpp:clearClientWaitState")
    def take_cancel(self, s: S, client: Expr) -> None:
        """The server takes the client off the list of waiters; the count stays."""
        self.takes(s, client, Request.CANCEL)
        s.waiting[client] = False
        self.answer(s, client, Reply.CANCELED)

    @environment(each="client", switch="timeout", editions=[TRYSTATE])
    def run_out_of_time(self, s: S, client: Expr) -> None:
        """The deadline of an arrival passes at the server: it is withdrawn, and the client is told."""
        s.when(s.waiting[client])
        s.waiting[client] = False
        self.answer(s, client, Reply.TIMED_OUT)

    @transition(each="client", cite="TCPStoreLibUvBackend.cpp:clearClientWaitState")
    def notice_end(self, s: S, client: Expr) -> None:
        """The server notices a broken connection, and withdraws its arrival; torch's count stays."""
        s.when(s.lost[client])
        s.held[client] = False
        s.lost[client] = False

    # ---- surroundings

    @fault("drop", each="client", moves=[arc(A.ARRIVED, A.WITHDRAWN)])
    def drop(self, s: S, client: Expr) -> None:
        """A connection breaks, or its client dies: barrier() raises; what was on its way is lost."""
        s.when(s.place[client] == A.ARRIVED)
        s.place[client] = A.WITHDRAWN
        s.cancelling[client] = False
        s.freed[client] = False
        s.requests[client].clear()
        s.replies[client].clear()
        s.held[client] = s.held[client] | s.waiting[client]
        s.waiting[client] = False
        s.lost[client] = s.lost[client] | s.inside[client]
        s.inside[client] = False

    @environment(switch="write", cite="TCPStoreLibUvBackend.cpp:wakeupWaitingClients")
    def write_key(self, s: S) -> None:
        """Somebody sets the key with the barrier's name; torch wakes who waits under it."""
        s.key = 1
        self.release(s, self.edition is TORCH)

    @environment(switch="delete", cite="TCPStoreLibUvBackend.cpp:deleteKey")
    def delete_key(self, s: S) -> None:
        """Somebody deletes the key with the barrier's name."""
        s.key = 0

    # ---- what can be seen

    @sometimes()
    def the_barrier_opens(self, s: S) -> Condition:
        """As many as the world has have passed."""
        return s.place.count(A.RELEASED) >= self.world

    @sometimes()
    def as_often_as_wanted(self, s: S) -> Condition:
        """As many as the world has have passed in every round."""
        return count(x == self.rounds for x in s.passed) >= self.world

    @sometimes()
    def one_is_missing(self, s: S) -> Condition:
        """All but one have arrived, and wait."""
        return s.inside.count() == self.world - 1

    @sometimes(needs="timeout")
    def a_retry_passes(self, s: S) -> Condition:
        """The barrier opens after a client had given up."""
        return (s.timeout_left == 0) & all_(x == self.rounds for x in s.passed)

    @sometimes(needs="drop")
    def a_break_is_unnoticed(self, s: S) -> Condition:
        """A client has come again while the server takes its broken connection for alive."""
        return any_(s.lost[j] & (s.place[j] == A.ARRIVED) for j in s.client)

    @sometimes(needs="write")
    def the_key_is_written(self, s: S) -> Condition:
        """The key is written while a client waits, or was until then."""
        return (s.write_left == 0) & any_(x == A.ARRIVED for x in s.place)

    # ---- what is asked

    def present(self, s: S, client: Expr) -> Condition:
        """How many different clients are in, with the one that arrives."""
        return count(s.inside[j] | s.lost[j] | (j == client) for j in s.client)

    def anybody_goes(self, before: S, after: S, client: Expr) -> Condition:
        return any_((before.inside[j] | (j == client)) & ~after.inside[j] for j in before.client)

    @step(on=("count_in",), each="client", witness="the_barrier_opens")
    def nobody_passes_before_all_are_in(self, before: S, after: S, client: Expr) -> Condition:
        """Nobody is released before as many different clients have arrived as the world has."""
        return implies(self.anybody_goes(before, after, client), self.present(before, client) >= self.world)

    @step(on=("count_in",), each="client", witness="the_barrier_opens")
    def all_go_together(self, before: S, after: S, client: Expr) -> Condition:
        """When one is released all are, and the barrier is as new."""
        left = any_(after.inside[j] | after.lost[j] for j in after.client)
        return implies(self.anybody_goes(before, after, client), ~left)

    @always(witness="one_is_missing")
    def a_full_barrier_opens(self, s: S) -> Condition:
        """As many as the world has are never kept waiting."""
        return count(s.inside[j] | s.lost[j] for j in s.client) < self.world

    @step(on=("write_key",), witness="the_key_is_written", needs="write")
    def only_arrivals_release(self, before: S, after: S) -> Condition:
        """Writing a key releases nobody."""
        return all_(before.inside[j] == after.inside[j] for j in before.client)

    @step(witness="the_barrier_opens")
    def keys_stay_untouched(self, before: S, after: S) -> Condition:
        """No step of a barrier changes a key: only who writes or deletes it does."""
        switches = [f"{name}_left" for name in ("write", "delete") if name in self.faults]
        by_others = or_(*(getattr(before, left) != getattr(after, left) for left in switches))
        return by_others | (after.key == before.key)

    def counted(self, s: S) -> Condition:
        """How many the server counts: torch in the key, ours in its table."""
        return s.key if self.edition is TORCH else self.arrived(s)

    @step(on=ENDS, each="client", witness="one_is_missing")
    def failures_change_nothing(self, before: S, after: S, client: Expr) -> Condition:
        """When a barrier was not in time, or failed, the server counts one less, as if it had not been."""

        def present(s: S) -> Condition:
            return count(s.inside[j] | s.lost[j] for j in s.client)

        return self.counted(before) + present(after) == self.counted(after) + present(before)

    @always(witness="the_barrier_opens")
    def released_once(self, s: S) -> Condition:
        """Whoever is told that all have arrived has arrived, and is told once."""
        twice = any_(
            and_(s.replies[j].length == 2, *(record.kind == Reply.STOP for _, record in s.replies[j]))
            for j in s.client
        )  # fmt: skip
        earned = (
            implies(s.replies[j].contains(kind=Reply.STOP), (s.place[j] == A.ARRIVED) & s.freed[j]) for j in s.client
        )
        return ~twice & all_(earned)

    @always(witness="the_barrier_opens")
    def the_released_return(self, s: S) -> Condition:
        """Nobody raises whom the server released."""
        return all_(implies(s.freed[j], s.place[j] != A.WITHDRAWN) for j in s.client)

    @always(witness="one_is_missing")
    def nothing_is_left_behind(self, s: S) -> Condition:
        """The table lists who is in, and nothing of a connection that has ended."""
        return all_((s.waiting[j] == s.inside[j]) & (s.held[j] == s.lost[j]) for j in s.client)

    @leads_to()
    def enough_are_released(self, s: S) -> tuple[Condition, Condition]:
        """If as many are there as the world has, they are released, or leave."""
        return s.place.count(A.ARRIVED) >= self.world, s.place.count(A.ARRIVED) < self.world

    @leads_to(each="client")
    def timeouts_are_told(self, s: S, client: Expr) -> tuple[Condition, Condition]:
        """Whoever's time is over raises, or returns after all."""
        late = s.cancelling[client] | s.replies[client].contains(kind=Reply.TIMED_OUT)
        return late, s.place[client] != A.ARRIVED

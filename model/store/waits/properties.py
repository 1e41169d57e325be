"""The steps that all editions have, and the properties, the same for each edition.

docs/language.md explains how to read a property; `../findings.py` lists the violations by edition.
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ..vocabulary import Connection, Edition, Key, Waiter
from .fields import Answer, Asking, Fields, Request, S

DOES_WAIT = "TCPStore.cpp: doWait"
WAKES = arc(Connection.BLOCKED, Connection.READY, of="others")
READS = (
    "return_from_wait", "ask_for_value", "read_value", "read_cancelled", "read_late_answer", "read_timed_out",
    "read_out_of_step",
)  # fmt: skip
WRITES = ("set_key", "delete_key", "compare_set_creates")


class Waits(Fields):
    """Clients that wait for keys and get them, and a server to which other clients write."""

    title = "Blocking waits"
    Edition = Edition

    # ---- a client's operation

    @transition(fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)], cite=DOES_WAIT)
    def wait_for_one(self, s: S, client: Expr, key: Expr) -> None:
        """wait([key]) sends a WAIT."""
        s.when(self.is_torchs(client))
        self.begins(s, client, Asking.WAIT, ord_(key) + 1)

    @transition(fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)], cite=DOES_WAIT)
    def wait_for_all(self, s: S, client: Expr) -> None:
        """wait(all keys) sends a WAIT."""
        s.when(self.is_torchs(client))
        self.begins(s, client, Asking.WAIT, 0)

    @transition(fair=False, moves=[arc(Waiter.IDLE, Waiter.BLOCKED)], cite="TCPStore.cpp: get")
    def get(self, s: S, client: Expr, key: Expr) -> None:
        """get(key) sends a WAIT first."""
        s.when(self.is_torchs(client))
        self.begins(s, client, Asking.GET, ord_(key) + 1)

    @transition(moves=[arc(Waiter.BLOCKED, Waiter.SATISFIED)], cite=DOES_WAIT)
    def return_from_wait(self, s: S, client: Expr) -> None:
        """wait() reads STOP_WAITING and returns."""
        s.when(s.asking[client] == Asking.WAIT)
        self.reads(s, client, Waiter.BLOCKED, Answer.STOP_WAITING)
        self.ends(s, client, Waiter.SATISFIED)

    @transition(cite="TCPStore.cpp: get")
    def ask_for_value(self, s: S, client: Expr) -> None:
        """get() reads STOP_WAITING and sends a GET."""
        move(s.asking, Asking.GET, Asking.VALUE, at=client)
        self.reads(s, client, Waiter.BLOCKED, Answer.STOP_WAITING)
        s.requests[client].push(kind=Request.GET, target=s.target[client], turn=s.turn[client])

    @transition(moves=[arc(Waiter.BLOCKED, Waiter.SATISFIED)], cite="TCPStore.cpp: get")
    def read_value(self, s: S, client: Expr) -> None:
        """get() reads the value and returns."""
        s.when(s.asking[client] == Asking.VALUE)
        self.reads(s, client, Waiter.BLOCKED, Answer.VALUE, Answer.EMPTY)
        self.ends(s, client, Waiter.SATISFIED)

    @transition(moves=[arc((Waiter.SATISFIED, Waiter.TIMED_OUT), Waiter.IDLE)])
    def go_on(self, s: S, client: Expr) -> None:
        """The client's operation is over, and the next may begin."""
        move(s.waiter, (Waiter.SATISFIED, Waiter.TIMED_OUT), Waiter.IDLE, at=client)
        s.together[client] = False

    @environment()
    def time_ends(self, s: S, client: Expr) -> None:
        """The time of an operation is over; neither end has reacted yet."""
        move(s.expired, False, True, s.waiter[client] == Waiter.BLOCKED, at=client)

    @transition(moves=[arc((Waiter.IDLE, Waiter.BLOCKED), Waiter.DISCONNECTED)])
    def find_connection_lost(self, s: S, client: Expr) -> None:
        """The client finds its connection closed and raises."""
        s.when(self.is_cut(s, client), s.waiter[client].isin((Waiter.IDLE, Waiter.BLOCKED, Waiter.CANCELLING)))
        self.ends(s, client, Waiter.DISCONNECTED)

    # ---- the server

    @transition(moves=[arc(Connection.READY, Connection.BLOCKED)], cite="ddp-initialisation 4.2.6: waitHandler")
    def take_wait(self, s: S, client: Expr) -> None:
        """A WAIT is answered at once if all its keys exist; otherwise the client is registered."""
        target, turn = self.takes(s, client, Request.WAIT)
        there = self.all_there(s, target)
        s.answers[client].push(when=there, kind=Answer.STOP_WAITING, turn=turn)
        self.keeps(s, client, target, there)
        self.registers(s, client, target, turn, ~there)

    @transition(cite="TCPStoreLibUvBackend.cpp: get; ddp-initialisation 4.2.6: getHandler")
    def answer_get(self, s: S, client: Expr) -> None:
        """A GET gets the value; for a missing key, an empty value or (torch 1.9) a closed connection."""
        target, turn = self.takes(s, client, Request.GET)
        value = self.value_of(s, target)
        if self.keeps_values:
            kept = count(any_(self.among(target, k) & (s.kept[k, client] > ord_(v)) for k in s.key) for v in s.value)
            value = ite(value > 0, value, kept)
        refused = value == 0 if self.refuses_missing else not_(True)
        kind = ite(value > 0, Answer.VALUE, Answer.EMPTY)
        s.answers[client].push(when=~refused, kind=kind, turn=turn, value=value)
        self.drops_kept(s, client)
        self.closes(s, client, refused)

    @transition(
        moves=[arc(Connection.CLOSING, Connection.CLOSED)],
        cite="TCPStoreLibUvBackend.cpp: unregisterClient; ddp-initialisation 4.2.6.2: queryFds",
    )
    def forget_connection(self, s: S, client: Expr) -> None:
        """The server finds a connection lost and removes its data."""
        s.when(s.lost[client], ~s.closed[client], ~s.frozen)
        self.closes(s, client, True)

    @transition(fair=False, moves=[arc(Key.ABSENT, Key.PRESENT), WAKES], cite="ddp-initialisation 4.2.6: setHandler")
    def set_key(self, s: S, key: Expr) -> None:
        """Another client sets the key, or adds or appends to it."""
        self.serves(s)
        self.comes_to_hold(s, key, ite(s.holds[key] < self.size_of("value"), s.holds[key] + 1, 1))
        self.wakes(s, key)

    @transition(fair=False, moves=[arc(Key.PRESENT, Key.ABSENT)], cite="ddp-initialisation 4.2.6: deleteHandler")
    def delete_key(self, s: S, key: Expr) -> None:
        """Another client deletes the key, and no client is notified."""
        self.serves(s)
        s.when(self.deletes > 0, s.holds[key] > 0)
        s.holds[key] = 0
        s.failed = False
        self.goes_missing(s, key)

    @transition(
        fair=False,
        moves=[arc(Key.ABSENT, Key.PRESENT), may(Connection.BLOCKED, Connection.READY, of="others")],
        cite="TCPStoreLibUvBackend.cpp: compareAndSet",
    )
    def compare_set_creates(self, s: S, key: Expr) -> None:
        """Another client's compare_set expects no value and stores one."""
        self.serves(s)
        s.when(self.compares > 0, s.holds[key] == 0)
        self.comes_to_hold(s, key, 1)
        self.wakes(s, key)

    # ---- faults

    @fault("drop", moves=[arc((Connection.READY, Connection.BLOCKED), Connection.CLOSING)])
    def drop(self, s: S, client: Expr) -> None:
        """A connection is lost in both directions; each end notices that later."""
        s.when(~self.is_cut(s, client))
        self.hangs_up(s, client)

    @fault("half_frame", moves=[arc(Connection.READY, Connection.CLOSING), may(Connection.BLOCKED, Connection.CLOSING)])
    def drop_half_way(self, s: S, client: Expr) -> None:
        """A connection is lost after half of a request has arrived."""
        s.when(~self.is_cut(s, client), ~s.requests[client].is_empty)
        s.half[client] = True
        self.hangs_up(s, client)

    @fault("freeze")
    def freeze(self, s: S) -> None:
        """The server stops but its connections stay open (a stopped process, a host that is cut off)."""
        s.when(~s.frozen)
        s.frozen = True

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Any:
        """No client has an operation under way, except torch's clients of a frozen server."""
        return all_(
            s.waiter[j].isin((Waiter.IDLE, Waiter.DISCONNECTED)) | self.is_left_to_torch(s, j) for j in s.client
        )

    def is_left_to_torch(self, s: S, client: Expr) -> Any:
        """The client may wait without end because its waits have no deadline."""
        return not_(True)

    @sometimes()
    def a_wait_for_all_returns(self, s: S) -> Any:
        """A wait has returned while all keys exist."""
        return any_((s.waiter[j] == Waiter.SATISFIED) & s.together[j] for j in s.client) & self.all_there(s, 0)

    @sometimes()
    def all_wait_at_once(self, s: S) -> Any:
        """Every client is registered as a waiter."""
        return all_(self.is_registered(s, j) for j in s.client)

    @sometimes()
    def a_get_reads_a_value(self, s: S) -> Any:
        """The value for a get is on its way."""
        return any_((s.asking[j] == Asking.VALUE) & s.answers[j].contains(kind=Answer.VALUE) for j in s.client)

    @sometimes()
    def a_wait_times_out(self, s: S) -> Any:
        """An operation has raised because its time was over."""
        return s.waiter.any(Waiter.TIMED_OUT)

    @sometimes(cite=DOES_WAIT)
    def an_answer_meets_a_cancel(self, s: S) -> Any:
        """A wait is satisfied while its CANCEL_WAIT is on its way."""
        return any_(
            s.answers[j].contains(kind=Answer.STOP_WAITING) & s.requests[j].contains(kind=Request.CANCEL_WAIT)
            for j in s.client
        )

    @sometimes(needs="drop")
    def a_waiter_is_lost(self, s: S) -> Any:
        """A registered waiter's connection is lost, and the server has not noticed it yet."""
        return any_(s.lost[j] & ~s.closed[j] & self.is_registered(s, j) for j in s.client)

    @sometimes(needs="half_frame")
    def half_a_request_is_held(self, s: S) -> Any:
        """The server holds a part of a request."""
        return any_(s.half)

    @sometimes(needs="freeze")
    def a_wait_meets_a_frozen_server(self, s: S) -> Any:
        """A client waits for a server that has stopped."""
        return s.frozen & s.waiter.any(Waiter.BLOCKED)

    @always(witness="all_wait_at_once")
    def no_wake_up_is_lost(self, s: S) -> Any:
        """No client sleeps while all keys that it waits for exist."""
        return ~any_(
            (s.waiter[j] == Waiter.BLOCKED)
            & ~self.is_cut(s, j)
            & s.requests[j].is_empty
            & s.answers[j].is_empty
            & self.all_there(s, s.target[j])
            for j in s.client
        )

    @always(witness="a_wait_for_all_returns")
    def keys_were_there_together(self, s: S) -> Any:
        """A wait or a get returns only if all its keys existed at one moment since it began."""
        return all_(implies(s.waiter[j] == Waiter.SATISFIED, s.together[j]) for j in s.client)

    @step(on=("read_value",), witness="a_get_reads_a_value")
    def a_get_returns_what_was_set(self, before: S, after: S, client: Expr) -> Any:
        """A get returns a value that the key had at one moment since it began."""
        value = before.answers[client].head.value
        return any_(before.held[client, v] & (value == ord_(v) + 1) for v in before.value)

    @step(on=READS, witness="a_wait_times_out")
    def answers_are_in_step(self, before: S, after: S, client: Expr) -> Any:
        """A client never takes the answer to an earlier request for the answer to its last one."""
        return before.answers[client].head.turn == before.turn[client]

    @always(witness="a_get_reads_a_value")
    def nobody_is_thrown_out(self, s: S) -> Any:
        """The server closes no connection that both ends can still use."""
        return ~any_(s.closed[j] & ~s.lost[j] for j in s.client)

    @always(witness="a_wait_for_all_returns")
    def nothing_of_a_closed_connection_is_left(self, s: S) -> Any:
        """A closed connection is in no table of the server."""
        return all_(implies(s.closed[j], ~self.is_known(s, j)) for j in s.client)

    @step(except_=WRITES, witness="a_wait_times_out")
    def only_writes_change_keys(self, before: S, after: S) -> Any:
        """A failed operation (a timeout, a failed compare_set, a lost connection) changes no key."""
        return all_(before.holds[k] == after.holds[k] for k in before.key)

    @step(witness="a_wait_times_out")
    def the_late_raise(self, before: S, after: S, client: Expr) -> Any:
        """An operation that was cancelled or timed out does not return: it raises."""
        told = before.answers[client].contains(kind=Answer.TIMED_OUT)
        return implies((before.waiter[client] == Waiter.CANCELLING) | told, after.waiter[client] != Waiter.SATISFIED)

    @leads_to()
    def ready_waits_return(self, s: S, client: Expr) -> Any:
        """A client whose keys exist, and stay, returns unless the server is frozen."""
        ready = (s.waiter[client] == Waiter.BLOCKED) & self.all_there(s, s.target[client])
        helped = ready & ~s.frozen & ~self.is_cut(s, client)
        return helped, ~helped

    @leads_to(cite="TCPStore.cpp: a GET after a WAIT and the reads after a CANCEL_WAIT have no timeout")
    def late_operations_end(self, s: S, client: Expr) -> Any:
        """Every operation whose time is over returns or raises, even if the server is frozen."""
        late = s.expired[client] & ~self.is_left_to_torch(s, client)
        return late, ~late

"""The properties of blocking waits, the same for each edition.

docs/language.md says how a property is read; `../findings.py` lists the violations by edition.
"""

from __future__ import annotations

from typing import Any

from ...language import Expr, all_, always, any_, implies, leads_to, not_, ord_, sometimes, step, terminal
from ..vocabulary import Edition, Waiter
from .environment import Environment
from .fields import Answer, Asking, Request, S
from .steps import DOES_WAIT

READS = (
    "return_from_wait", "ask_for_value", "read_value", "read_cancelled", "read_late_answer", "read_timed_out",
    "read_out_of_step",
)  # fmt: skip
WRITES = ("set_key", "delete_key", "compare_set_creates")


class Waits(Environment):
    """Clients that wait for keys and get them, and a server that others write to."""

    title = "Blocking waits"
    Edition = Edition

    @terminal
    def at_rest(self, s: S) -> Any:
        """Nobody asks for anything, but those whom we cannot help."""
        return all_(
            s.waiter[j].isin((Waiter.IDLE, Waiter.DISCONNECTED)) | self.is_left_to_torch(s, j) for j in s.client
        )

    def is_left_to_torch(self, s: S, client: Expr) -> Any:
        """Does the client wait without end, for lack of a deadline of its own?"""
        return not_(True)

    @sometimes()
    def a_wait_for_all_returns(self, s: S) -> Any:
        """A wait has returned while all keys are there."""
        return any_((s.waiter[j] == Waiter.SATISFIED) & s.together[j] for j in s.client) & self.all_there(s, 0)

    @sometimes()
    def all_wait_at_once(self, s: S) -> Any:
        """Every client is registered as a waiter."""
        return all_(self.is_registered(s, j) for j in s.client)

    @sometimes()
    def a_get_reads_a_value(self, s: S) -> Any:
        """A get has its value before it."""
        return any_((s.asking[j] == Asking.VALUE) & s.answers[j].contains(kind=Answer.VALUE) for j in s.client)

    @sometimes()
    def a_wait_times_out(self, s: S) -> Any:
        """An operation has raised, because it took too long."""
        return any_(x == Waiter.TIMED_OUT for x in s.waiter)

    @sometimes(cite=DOES_WAIT)
    def an_answer_meets_a_cancel(self, s: S) -> Any:
        """A wait is satisfied while its CANCEL_WAIT is on its way."""
        return any_(
            s.answers[j].contains(kind=Answer.STOP_WAITING) & s.requests[j].contains(kind=Request.CANCEL_WAIT)
            for j in s.client
        )

    @sometimes(needs="drop")
    def a_waiter_is_lost(self, s: S) -> Any:
        """The server finds a connection lost that waited."""
        return any_(s.lost[j] & ~s.closed[j] & self.is_registered(s, j) for j in s.client)

    @sometimes(needs="half_frame")
    def half_a_request_is_held(self, s: S) -> Any:
        """The server holds a part of a request."""
        return any_(s.half)

    @sometimes(needs="freeze")
    def a_wait_meets_a_frozen_server(self, s: S) -> Any:
        """A client waits for a server that has stopped."""
        return s.frozen & any_(x == Waiter.BLOCKED for x in s.waiter)

    @always(witness="all_wait_at_once")
    def no_wake_up_is_lost(self, s: S) -> Any:
        """Nobody sleeps while all keys that he waits for are there."""
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
        """A wait or a get returns only if all its keys were there at one moment since it began."""
        return all_(implies(s.waiter[j] == Waiter.SATISFIED, s.together[j]) for j in s.client)

    @step(each="client", on=("read_value",), witness="a_get_reads_a_value")
    def a_get_returns_what_was_set(self, before: S, after: S, client: Expr) -> Any:
        """A get returns a value that the key held at one moment since it began."""
        value = before.answers[client].head.value
        return any_(before.held[client, v] & (value == ord_(v) + 1) for v in before.value)

    @step(each="client", on=READS, witness="a_wait_times_out")
    def answers_are_in_step(self, before: S, after: S, client: Expr) -> Any:
        """A client never reads the answer to an earlier request as that to its last."""
        return before.answers[client].head.turn == before.turn[client]

    @always(witness="a_get_reads_a_value")
    def nobody_is_thrown_out(self, s: S) -> Any:
        """The server closes no connection that both ends could use."""
        return ~any_(s.closed[j] & ~s.lost[j] for j in s.client)

    @always(witness="a_wait_for_all_returns")
    def nothing_of_a_closed_connection_is_left(self, s: S) -> Any:
        """A connection that is closed is in no table of the server."""
        return all_(implies(s.closed[j], ~self.is_known(s, j)) for j in s.client)

    @step(except_=WRITES, witness="a_wait_times_out")
    def only_writes_change_keys(self, before: S, after: S) -> Any:
        """A failed operation changes no key: a timeout, a compare_set, a connection that is lost."""
        return all_(before.holds[k] == after.holds[k] for k in before.key)

    @step(each="client", witness="a_wait_times_out")
    def the_late_raise(self, before: S, after: S, client: Expr) -> Any:
        """An operation that was cancelled, or told that it is late, does not return: it raises."""
        told = before.answers[client].contains(kind=Answer.TIMED_OUT)
        return implies((before.waiter[client] == Waiter.CANCELLING) | told, after.waiter[client] != Waiter.SATISFIED)

    @leads_to(each="client")
    def ready_waits_return(self, s: S, client: Expr) -> Any:
        """A client whose keys are there, and stay, returns; nobody can help it with a frozen server."""
        ready = (s.waiter[client] == Waiter.BLOCKED) & self.all_there(s, s.target[client])
        helped = ready & ~s.frozen & ~self.is_cut(s, client)
        return helped, ~helped

    @leads_to(each="client", cite="TCPStore.cpp: a GET after a WAIT and the reads after a CANCEL_WAIT have no timeout")
    def late_operations_end(self, s: S, client: Expr) -> Any:
        """Every operation whose time is over returns or raises, even if the server is frozen."""
        late = s.expired[client] & ~self.is_left_to_torch(s, client)
        return late, ~late

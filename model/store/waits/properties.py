"""The properties of blocking waits, the same for each edition.

docs/language.md explains how to read a property; `../findings.py` lists the violations by edition.
"""

from __future__ import annotations

from typing import Any

from ...language import *
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
    """Clients that wait for keys and get them, and a server to which other clients write."""

    title = "Blocking waits"
    Edition = Edition

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

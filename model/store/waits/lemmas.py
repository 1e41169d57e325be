"""Lemmas of the proof of our waits: facts about the same steps that no user needs.

`trystate prove waits` proves them together with the properties. The plans of `trystate verify` do not have them: a test
searches small systems for a state that violates one.
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ..vocabulary import Waiter
from .editions import Ours
from .fields import Answer, Asking, Request, S

RESTING = (Waiter.IDLE, Waiter.SATISFIED, Waiter.TIMED_OUT)


class Lemmas(Ours):
    """The edition TRYSTATE, with the lemmas of its proof."""

    @always(witness="a_get_reads_a_value")
    def a_key_holds_a_value(self, s: S) -> Any:
        """A key has one of the values or no value."""
        return all_(s.holds[k] <= self.size_of("value") for k in s.key)

    @always(witness="a_waiter_is_lost")
    def the_lost_have_no_messages(self, s: S) -> Any:
        """A lost connection has no messages on their way."""
        return all_(implies(s.lost[j], s.requests[j].is_empty & s.answers[j].is_empty) for j in s.client)

    @always(witness="all_wait_at_once")
    def a_client_at_rest_has_no_operation(self, s: S) -> Any:
        """An idle client has no message on its way and no registered wait."""
        return all_(
            s.lost[j] | ite(s.waiter[j].isin(RESTING), self.is_nowhere(s, j), s.waiter[j] != Waiter.DISCONNECTED)
            for j in s.client
        )

    @always(witness="all_wait_at_once")
    def an_operation_is_in_one_place(self, s: S) -> Any:
        """An operation is a request on its way, a registered wait, or an answer on its way."""
        return all_(
            implies(~s.lost[j] & (s.waiter[j] == Waiter.BLOCKED), self.is_asked(s, j) | self.is_answered(s, j))
            for j in s.client
        )

    @always(witness="an_answer_meets_a_cancel")
    def a_cancel_comes_last(self, s: S) -> Any:
        """A CANCEL_WAIT comes after the request that it cancels, and its answer after the request's answer."""
        return all_(
            implies(
                ~s.lost[j] & (s.waiter[j] == Waiter.CANCELLING),
                self.is_torchs(j) & (self.cancel_is_sent(s, j) | self.cancel_is_answered(s, j)),
            )
            for j in s.client
        )

    @always(witness="all_wait_at_once")
    def messages_are_of_this_turn(self, s: S) -> Any:
        """Each message on its way and each registered wait belongs to the client's last operation."""
        return all_(
            all_(implies(there, r.turn == s.turn[j]) for there, r in (*s.requests[j], *s.answers[j]))
            & implies(~s.lost[j] & self.is_registered(s, j), s.waiting_turn[j] == s.turn[j])
            for j in s.client
        )

    @always(witness="all_wait_at_once")
    def the_registered_miss_a_key(self, s: S) -> Any:
        """The missing keys of a registered wait are its absent keys, and a registered wait has at least one."""
        absent = all_(s.missing[k, j] == ((s.waiting[k, j] > 0) & (s.holds[k] == 0)) for j in s.client for k in s.key)
        return absent & all_(implies(self.is_registered(s, j), any_(s.missing[k, j] for k in s.key)) for j in s.client)

    @always(witness="all_wait_at_once")
    def the_registered_wait_for_their_keys(self, s: S) -> Any:
        """A wait is registered under all its keys; our own client's get wants the value."""
        return all_(
            s.lost[j]
            | implies(
                self.is_registered(s, j), all_((s.waiting[k, j] > 0) == self.among(s.target[j], k) for k in s.key)
            )
            & (s.wants_value[j] == (self.is_registered(s, j) & (s.asking[j] == Asking.VALUE)))
            for j in s.client
        )

    @always(witness="a_get_reads_a_value")
    def a_get_has_a_key(self, s: S) -> Any:
        """A get has one key, and a client that gets is blocked."""
        return all_(
            (s.asking[j] == Asking.WAIT)
            | ((s.waiter[j] == Waiter.BLOCKED) & any_(s.target[j] == ord_(k) + 1 for k in s.key))
            for j in s.client
        )

    @always(witness="a_wait_for_all_returns")
    def the_answered_had_their_keys(self, s: S) -> Any:
        """If all keys of an operation exist, or existed when it was answered, they existed together."""
        asks = (Waiter.BLOCKED, Waiter.CANCELLING)
        return all_(
            implies(
                s.waiter[j].isin(asks)
                & (
                    self.all_there(s, s.target[j])
                    | s.answers[j].contains(kind=Answer.STOP_WAITING)
                    | s.answers[j].contains(kind=Answer.VALUE)
                    | (self.is_torchs(j) & (s.asking[j] == Asking.VALUE))
                ),
                s.together[j],
            )
            for j in s.client
        )

    @always(witness="a_get_reads_a_value")
    def a_value_that_is_there_was_held(self, s: S) -> Any:
        """A key that a client gets has a value that it had since the get began."""
        return all_(
            implies(
                (s.asking[j] != Asking.WAIT) & self.among(s.target[j], k) & (s.holds[k] > 0),
                self.was_held(s, j, s.holds[k]),
            )
            for j in s.client
            for k in s.key
        )

    @always(witness="a_get_reads_a_value")
    def a_value_that_is_kept_was_held(self, s: S) -> Any:
        """The value that the server keeps for a coming GET is one that the key had since the get began."""
        return all_(
            implies(
                ~s.lost[j]
                & self.is_torchs(j)
                & self.among(s.target[j], k)
                & (
                    ((s.asking[j] == Asking.GET) & ~s.answers[j].is_empty)
                    | ((s.asking[j] == Asking.VALUE) & ~s.requests[j].is_empty)
                ),
                self.was_held(s, j, s.kept[k, j]),
            )
            for j in s.client
            for k in s.key
        )

    @always(witness="a_get_reads_a_value")
    def a_value_on_its_way_was_held(self, s: S) -> Any:
        """The value in an answer is one that the key had since the get began."""
        return all_(
            implies(
                ~s.answers[j].is_empty & (s.answers[j].head.kind == Answer.VALUE),
                self.was_held(s, j, s.answers[j].head.value),
            )
            for j in s.client
        )

    # ---- the places of an operation

    def is_nowhere(self, s: S, client: Expr) -> Any:
        return s.requests[client].is_empty & s.answers[client].is_empty & ~self.is_registered(s, client)

    def is_asked(self, s: S, client: Expr) -> Any:
        """The request is on its way or its wait is registered."""
        requests, asking, head = s.requests[client], s.asking[client], s.requests[client].head
        kind = ite(
            self.is_torchs(client),
            ite(asking == Asking.VALUE, Request.GET, Request.WAIT),
            ite(asking == Asking.VALUE, Request.GET_IN_ONE, Request.WAIT_IN_ONE),
        )
        asked = (requests.length == 1) & (head.kind == kind) & (head.target == s.target[client])
        waits = requests.is_empty & ~(self.is_torchs(client) & (asking == Asking.VALUE))
        return (
            s.answers[client].is_empty
            & ite(self.is_registered(s, client), waits, asked)
            & (self.is_torchs(client) | (asking != Asking.GET))
        )

    def is_answered(self, s: S, client: Expr) -> Any:
        """The only missing answer is on its way."""
        kind, asking = s.answers[client].head.kind, s.asking[client]
        good = kind == ite(asking == Asking.VALUE, Answer.VALUE, Answer.STOP_WAITING)
        late = ~self.is_torchs(client) & (kind == Answer.TIMED_OUT)
        alone = s.requests[client].is_empty & (s.answers[client].length == 1) & ~self.is_registered(s, client)
        return alone & (good | late) & (self.is_torchs(client) | (asking != Asking.GET))

    def cancel_is_sent(self, s: S, client: Expr) -> Any:
        """The CANCEL_WAIT is on its way, and the WAIT is before it, registered, or answered."""
        requests, answers = s.requests[client], s.answers[client]
        (_, first), (_, second) = requests
        both = (requests.length == 2) & (first.kind == Request.WAIT) & (second.kind == Request.CANCEL_WAIT)
        both = both & (first.target == s.target[client]) & answers.is_empty & ~self.is_registered(s, client)
        alone = (requests.length == 1) & (first.kind == Request.CANCEL_WAIT)
        told = (answers.length == 1) & (answers.head.kind == Answer.STOP_WAITING) & ~self.is_registered(s, client)
        return both | (alone & (answers.is_empty | told))

    def cancel_is_answered(self, s: S, client: Expr) -> Any:
        """WAIT_CANCELED is on its way, perhaps after the answer to the WAIT."""
        answers = s.answers[client]
        (_, first), (_, second) = answers
        alone = (answers.length == 1) & (first.kind == Answer.WAIT_CANCELED)
        told = (first.kind == Answer.STOP_WAITING) & (second.kind == Answer.WAIT_CANCELED)
        over = s.requests[client].is_empty & ~self.is_registered(s, client)
        return over & (alone | ((answers.length == 2) & told))

    def was_held(self, s: S, client: Expr, value: Any) -> Any:
        """The key that the client gets had this value since the get began."""
        return any_(s.held[client, v] & (value == ord_(v) + 1) for v in s.value)

"""The properties of a queue, the same for both editions.

docs/language.md explains how to read a property; `../findings.py` lists the violations by edition.
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ..vocabulary import Edition, Key, Waiter
from .fields import Answer, Doing, Request, S
from .steps import Steps


class Queues(Steps):
    """Clients that pop from a queue, get a key and wait for both, and other clients that push."""

    title = "Queues"
    Edition = (Edition.TORCH, Edition.TRYSTATE)  # torch 1.9 has no queues

    @terminal
    def at_rest(self, s: S) -> Any:
        """No client has an operation under way; or nothing times out, and each operation waits at the server."""
        endless = self.timeouts == 0
        return all_(
            s.waiter[j].isin((Waiter.IDLE, Waiter.DISCONNECTED)) | (endless & self.is_registered(s, j))
            for j in s.client
        )

    def pops(self, s: S, client: Expr) -> Any:
        return (s.waiter[client] == Waiter.BLOCKED) & s.doing[client].isin((Doing.POP, Doing.TAKE)) & ~s.lost[client]

    def sleeps(self, s: S, client: Expr) -> Any:
        return s.requests[client].is_empty & s.answers[client].is_empty & ~s.lost[client]

    def comes(self, s: S, client: Expr) -> Any:
        """The client's WAIT was answered and nothing is reserved for it: it will request an element."""
        told = (s.doing[client] == Doing.POP) & s.answers[client].contains(kind=Answer.STOP_WAITING)
        asks = (s.doing[client] == Doing.ELEMENT) & s.requests[client].contains(kind=Request.QUEUE_POP)
        return (told | asks) & (s.reserved[client] == 0)

    @sometimes()
    def all_stand_in_line(self, s: S) -> Any:
        """Every client waits for the queue."""
        return all_(self.in_line(s, j) & (s.doing[j] != Doing.BOTH) & self.sleeps(s, j) for j in s.client)

    @sometimes()
    def elements_queue_up(self, s: S) -> Any:
        """All elements are in the queue while a client pops."""
        full = s.queue.length == self.sizes["element"]
        return full & any_(self.pops(s, j) for j in s.client)

    @sometimes()
    def all_are_delivered(self, s: S) -> Any:
        """Every element has been popped."""
        return s.got.all(1)

    @sometimes()
    def a_get_waits(self, s: S) -> Any:
        """A client waits only for the key while the queue has an element."""
        return any_((s.doing[j] == Doing.GET) & self.is_registered(s, j) for j in s.client) & ~s.queue.is_empty

    @sometimes()
    def a_wait_for_both_is_answered(self, s: S) -> Any:
        """The wait of a client for both is answered."""
        return any_((s.doing[j] == Doing.BOTH) & ~s.answers[j].is_empty & s.together[j] for j in s.client)

    @sometimes(needs="drop")
    def a_popper_is_lost(self, s: S) -> Any:
        """The connection of a popper is lost, and the server has not noticed it yet."""
        return any_(s.lost[j] & ~s.closed[j] & (self.in_line(s, j) | (s.reserved[j] > 0)) for j in s.client)

    @always(witness="all_are_delivered")
    def elements_are_delivered_once(self, s: S) -> Any:
        """An element is in one place only and is popped at most once."""
        return all_(self.places_of(s, e) <= 1 for e in s.element)

    @always(witness="all_are_delivered")
    def no_element_vanishes(self, s: S) -> Any:
        """An element that was pushed is somewhere, unless it was on its way when the connection broke."""
        return all_(implies(ord_(e) < s.pushed, (self.places_of(s, e) > 0) | s.gone[e]) for e in s.element)

    @step(witness="elements_queue_up")
    def elements_leave_in_order(self, before: S, after: S) -> Any:
        """No element leaves the queue while one that was pushed before it stays."""
        numbers = range(1, self.sizes["element"] + 1)
        return ~any_(
            before.queue.contains(element=later)
            & ~after.queue.contains(element=later)
            & before.queue.contains(element=earlier)
            & after.queue.contains(element=earlier)
            for later in numbers
            for earlier in range(1, later)
        )

    @always(witness="all_stand_in_line")
    def no_popper_sleeps_beside_an_element(self, s: S) -> Any:
        """No client sleeps in a blocking pop while the queue has more elements than poppers on their way to them."""
        asleep = any_(self.pops(s, j) & self.sleeps(s, j) for j in s.client)
        return ~asleep | (s.queue.length <= count(self.comes(s, j) for j in s.client))

    @step(on=("raise_empty",), witness="all_stand_in_line")
    def a_blocking_pop_never_says_empty(self, before: S, after: S, client: Expr) -> Any:
        """A blocking pop never raises that the queue is empty, unless its client let its reservation pass."""
        return before.dawdled[client]

    @always(witness="a_get_waits")
    def a_get_waits_for_its_key(self, s: S) -> Any:
        """A get is never released by a push to the queue."""
        told = any_((s.doing[j] == Doing.GET) & ~s.answers[j].is_empty for j in s.client)
        return implies(told, s.stored == Key.PRESENT)

    @always(witness="a_wait_for_both_is_answered")
    def both_were_there_together(self, s: S) -> Any:
        """A wait for both returns only if both existed at one moment since it began."""
        return all_(implies((s.doing[j] == Doing.BOTH) & ~s.answers[j].is_empty, s.together[j]) for j in s.client)

    @always(witness="a_wait_for_both_is_answered")
    def a_wait_for_both_is_told(self, s: S) -> Any:
        """No client sleeps in a wait for both while both exist."""
        asleep = any_((s.doing[j] == Doing.BOTH) & self.sleeps(s, j) for j in s.client)
        return ~(asleep & self.both_there(s))

    @always(witness="all_are_delivered")
    def nothing_of_a_closed_connection_is_left(self, s: S) -> Any:
        """A closed connection is on no list, and nothing is reserved for it."""
        return all_(
            implies(s.closed[j], ~self.in_line(s, j) & (s.on_key[j] + s.awaited[j] + s.reserved[j] == 0))
            for j in s.client
        )

    @leads_to()
    def poppers_are_served(self, s: S, client: Expr) -> Any:
        """While the queue has an element, a blocking pop ends."""
        wants = self.pops(s, client) & ~s.queue.is_empty
        return wants, ~wants

    @leads_to(needs="drop")
    def reservations_come_back(self, s: S, client: Expr) -> Any:
        """An element that is reserved for a lost connection returns to the queue."""
        return s.lost[client] & (s.reserved[client] > 0), s.reserved[client] == 0

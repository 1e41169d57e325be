"""The properties of a queue, the same for both editions.

docs/language.md says how a property is read; `../findings.py` lists the violations by edition.
"""

from __future__ import annotations

from typing import Any

from ...language import Expr, all_, always, any_, count, implies, leads_to, ord_, sometimes, step, terminal
from ..vocabulary import Edition, Key, Waiter
from .environment import Environment
from .fields import Answer, Doing, Request, S


class Queues(Environment):
    """Clients that pop from a queue, get a key and wait for both, and others that push."""

    title = "Queues"
    Edition = (Edition.TORCH, Edition.TRYSTATE)  # torch 1.9 has no queues

    @terminal
    def at_rest(self, s: S) -> Any:
        """Nobody asks for anything, or time has no end and every client that asks is registered."""
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
        """A popper that was told of an element, and will ask for one."""
        told = (s.doing[client] == Doing.POP) & s.answers[client].contains(kind=Answer.STOP_WAITING)
        asks = (s.doing[client] == Doing.ELEMENT) & s.requests[client].contains(kind=Request.QUEUE_POP)
        return (told | asks) & (s.reserved[client] == 0)

    @sometimes()
    def all_stand_in_line(self, s: S) -> Any:
        """Every client waits for the queue."""
        return all_(self.in_line(s, j) & (s.doing[j] != Doing.BOTH) & self.sleeps(s, j) for j in s.client)

    @sometimes()
    def elements_queue_up(self, s: S) -> Any:
        """All elements are in the queue, and a client asks for one."""
        full = s.queue.length == self.sizes["element"]
        return full & any_(self.pops(s, j) for j in s.client)

    @sometimes()
    def all_are_delivered(self, s: S) -> Any:
        """Every element has been popped."""
        return all_(s.got[e] == 1 for e in s.element)

    @sometimes()
    def a_get_waits(self, s: S) -> Any:
        """A client waits for the key alone while an element comes."""
        return any_((s.doing[j] == Doing.GET) & self.is_registered(s, j) for j in s.client) & ~s.queue.is_empty

    @sometimes()
    def a_wait_for_both_is_answered(self, s: S) -> Any:
        """A client that waited for both is told that they are there."""
        return any_((s.doing[j] == Doing.BOTH) & ~s.answers[j].is_empty & s.together[j] for j in s.client)

    @sometimes(needs="drop")
    def a_popper_is_lost(self, s: S) -> Any:
        """The connection of a popper is lost, and the server does not know it yet."""
        return any_(s.lost[j] & ~s.closed[j] & (self.in_line(s, j) | (s.reserved[j] > 0)) for j in s.client)

    @always(witness="all_are_delivered")
    def elements_are_delivered_once(self, s: S) -> Any:
        """An element is in one place only, and popped at most once."""
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
        """Nobody sleeps in a blocking pop while there are more elements than poppers on their way to them."""
        asleep = any_(self.pops(s, j) & self.sleeps(s, j) for j in s.client)
        return ~asleep | (s.queue.length <= count(self.comes(s, j) for j in s.client))

    @step(each="client", on=("raise_empty",), witness="all_stand_in_line")
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
        """A wait for both returns only if both were there at one moment since it began."""
        return all_(implies((s.doing[j] == Doing.BOTH) & ~s.answers[j].is_empty, s.together[j]) for j in s.client)

    @always(witness="a_wait_for_both_is_answered")
    def a_wait_for_both_is_told(self, s: S) -> Any:
        """Nobody sleeps in a wait for both while both are there."""
        asleep = any_((s.doing[j] == Doing.BOTH) & self.sleeps(s, j) for j in s.client)
        return ~(asleep & self.both_there(s))

    @always(witness="all_are_delivered")
    def nothing_of_a_closed_connection_is_left(self, s: S) -> Any:
        """A connection that is closed is in no list, and nothing is reserved for it."""
        return all_(
            implies(s.closed[j], ~self.in_line(s, j) & (s.on_key[j] + s.awaited[j] + s.reserved[j] == 0))
            for j in s.client
        )

    @leads_to(each="client")
    def poppers_are_served(self, s: S, client: Expr) -> Any:
        """While there is an element, a blocking pop does not last."""
        wants = self.pops(s, client) & ~s.queue.is_empty
        return wants, ~wants

    @leads_to(each="client", needs="drop")
    def reservations_come_back(self, s: S, client: Expr) -> Any:
        """An element that is reserved for a lost connection comes back."""
        return s.lost[client] & (s.reserved[client] > 0), s.reserved[client] == 0

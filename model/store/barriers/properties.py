"""The properties of a barrier, the same for both editions.

docs/language.md explains how to read a property; `../findings.py` lists the violations by edition.
"""

from __future__ import annotations

from ...language import *
from ..vocabulary import Arrival, Edition
from .environment import Environment
from .fields import Reply, S

ENDS = ("take_cancel", "raise_cancelled", "run_out_of_time", "raise_timeout", "drop", "notice_end")  # no releases


class Barriers(Environment):
    """Clients that use one barrier, once or several times."""

    title = "A barrier"
    Edition = (Edition.TORCH, Edition.TRYSTATE)  # the seed has no barrier

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

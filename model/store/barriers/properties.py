"""The properties of a barrier, the same for both editions.

docs/language.md says how a property is read; `../findings.py` lists the violations by edition.
"""

from __future__ import annotations

from ...language import Expr, all_, always, and_, any_, count, implies, leads_to, or_, sometimes, step, terminal
from ..vocabulary import Arrival, Edition
from .environment import Environment
from .fields import Condition, Reply, S

ENDS = ("take_cancel", "raise_cancelled", "run_out_of_time", "raise_timeout", "drop", "notice_end")  # not by release


class Barriers(Environment):
    """Clients that meet at one barrier, and may meet there again."""

    title = "A barrier"
    Edition = (Edition.TORCH, Edition.TRYSTATE)  # the seed has no barrier

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Too few have arrived, and nothing is on its way."""
        quiet = (s.requests[j].is_empty & s.replies[j].is_empty & ~s.lost[j] for j in s.client)
        return (s.place.count(Arrival.ARRIVED) < self.world) & all_(quiet)

    def counted(self, s: S) -> Condition:
        """How many clients the server counts."""
        raise NotImplementedError

    @sometimes()
    def the_barrier_opens(self, s: S) -> Condition:
        """As many as the world has have passed."""
        return s.place.count(Arrival.RELEASED) >= self.world

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
        return any_(s.lost[j] & (s.place[j] == Arrival.ARRIVED) for j in s.client)

    @sometimes(needs="write")
    def the_key_is_written(self, s: S) -> Condition:
        """The key is written while a client waits, or was until then."""
        return (s.write_left == 0) & any_(x == Arrival.ARRIVED for x in s.place)

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

    @step(on=ENDS, each="client", witness="one_is_missing")
    def failures_change_nothing(self, before: S, after: S, client: Expr) -> Condition:
        """When a barrier was not in time, or failed, the server counts one less, as if it had not been."""

        def present(s: S) -> Condition:
            return count(s.inside[j] | s.lost[j] for j in s.client)

        return self.counted(before) + present(after) == self.counted(after) + present(before)

    @always(witness="the_barrier_opens")
    def released_once(self, s: S) -> Condition:
        """A client that is told that all have arrived has arrived, and is told once."""
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
        """Nobody raises whom the server released."""
        return all_(implies(s.freed[j], s.place[j] != Arrival.WITHDRAWN) for j in s.client)

    @always(witness="one_is_missing")
    def nothing_is_left_behind(self, s: S) -> Condition:
        """The table lists who is in, and nothing of a connection that has ended."""
        return all_((s.waiting[j] == s.inside[j]) & (s.held[j] == s.lost[j]) for j in s.client)

    @leads_to()
    def enough_are_released(self, s: S) -> tuple[Condition, Condition]:
        """If as many are there as the world has, they are released, or leave."""
        return s.place.count(Arrival.ARRIVED) >= self.world, s.place.count(Arrival.ARRIVED) < self.world

    @leads_to(each="client")
    def timeouts_are_told(self, s: S, client: Expr) -> tuple[Condition, Condition]:
        """A client whose time is over raises, or returns after all."""
        late = s.cancelling[client] | s.replies[client].contains(kind=Reply.TIMED_OUT)
        return late, s.place[client] != Arrival.ARRIVED

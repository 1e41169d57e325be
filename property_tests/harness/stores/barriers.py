"""Barriers: clients are released exactly when all have arrived; a client that times out has not arrived."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

from .deviations import Deviation
from .handles import AMPLE, Call
from .suite import Suite

BRIEF = timedelta(milliseconds=30)
LEFT_OVER = (Deviation.BARRIER_COUNTS_IN_THE_KEY, Deviation.BARRIER_COUNTS_IN_TWO_KEYS)


class BarrierConformance(Suite):
    """The claims about barriers. Each test uses a new barrier, since a used barrier may release every client."""

    def _arrive(self, stores: list[Any], key: str) -> list[Call[Any]]:
        return [Call(store.barrier, key, len(stores) + 1, AMPLE) for store in stores]

    def test_a_barrier_releases_exactly_when_all_are_there(self) -> None:
        self.needs("barrier")
        with self._threaded(3) as (first, *others):
            calls = self._arrive(others, "all")
            self.claim(all(call.blocked() for call in calls), "two of three are held")
            Call(first.barrier, "all", 3, AMPLE).result()
            for call in calls:
                call.result()

    def test_a_barrier_can_be_used_again(self) -> None:
        self.needs("barrier")
        with self._threaded(3) as (first, *others):
            for call in [*self._arrive(others, "again"), Call(first.barrier, "again", 3, AMPLE)]:
                call.result()
            calls = self._arrive(others, "again")
            held = all(call.blocked() for call in calls)
            self.claim(held, "a used barrier holds again until all clients have arrived", *LEFT_OVER)
            Call(first.barrier, "again", 3, AMPLE).result()
            for call in calls:
                call.result()

    def test_an_arrival_that_timed_out_is_withdrawn(self) -> None:
        self.needs("barrier")
        with self._threaded(2) as (first, other):
            with suppress(RuntimeError, TimeoutError):
                first.barrier("withdrawn", 2, BRIEF)
            call = Call(other.barrier, "withdrawn", 2, AMPLE)
            held = call.blocked()
            if held:
                Call(first.barrier, "withdrawn", 2, AMPLE).result()
            call.result()
            self.claim(held, "a client that timed out has not arrived", *LEFT_OVER)

    def test_a_barrier_does_not_meet_the_key_of_its_name(self) -> None:
        self.needs("barrier")
        with self._threaded(2) as (first, other):
            call = Call(other.barrier, "both", 2, AMPLE)
            self.claim(call.blocked(), "one of two is held")
            apart = not first.check(["both"])
            self.write(first, "set", "both", b"v")
            held = apart and call.blocked()  # if the key is the counter, the set wakes this call at some time
            if held:
                Call(first.barrier, "both", 2, AMPLE).result()
            call.result()
            self.claim(held, "a set of the barrier's key releases no client", Deviation.BARRIER_COUNTS_IN_THE_KEY)

    def test_two_barriers_do_not_meet(self) -> None:
        self.needs("barrier")
        with self._threaded(3) as (first, left, right):
            calls = [Call(left.barrier, "left", 2, AMPLE), Call(right.barrier, "right", 2, AMPLE)]
            self.claim(all(call.blocked() for call in calls), "one of two is held in each of two barriers")
            Call(first.barrier, "left", 2, AMPLE).result()
            calls[0].result()
            self.claim(calls[1].blocked(), "the other barrier still holds its client")
            Call(first.barrier, "right", 2, AMPLE).result()
            calls[1].result()

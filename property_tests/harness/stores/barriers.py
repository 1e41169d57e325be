"""Barriers and crowds: clients are released exactly when all have arrived; many threads lose and invent no value.

Each thread has its own handle. Rule: a race need not show. So the suite tolerates a deviation that is a race, and does
not require it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from .deviations import Deviation
from .handles import AMPLE, Call, QueueEmptyError, is_timeout
from .suite import Suite, all_at_once

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


ROUNDS = 40
SECONDS = 0.15  # duration of a race that has no number of rounds


def each(function: Callable[[Any], Any], stores: list[Any]) -> list[Any]:
    return all_at_once([partial(function, store) for store in stores])


class CrowdConformance(Suite):
    """The claims that hold for every interleaving of the threads."""

    def test_no_add_is_lost_and_each_sum_is_returned_once(self) -> None:
        self.needs_threads()
        with self.opened(self.concurrency) as stores:
            sums = each(lambda store: [store.add("n", 1) for _ in range(ROUNDS)], stores)
            wanted = list(range(1, ROUNDS * len(stores) + 1))
            self.claim(sorted(n for own in sums for n in own) == wanted, "each sum is returned once")
            self.claim(stores[0].get("n") == b"%d" % wanted[-1], "the last sum is stored")

    def test_no_two_compare_sets_succeed_on_the_same_value(self) -> None:
        self.needs_threads()
        with self.opened(self.concurrency) as stores:
            self.write(stores[0], "set", "n", b"0")
            count = [partial(self._count_up, store, b":%d" % k) for k, store in enumerate(stores)]
            wins = all_at_once(count)
            numbers = [n for own in wins for n in own]
            self.claim(len(numbers) == len(set(numbers)), "each value is replaced by one compare_set only")

    @staticmethod
    def _count_up(store: Any, mark: bytes) -> list[int]:
        """Replace n by n + 1 with this thread's mark, `ROUNDS // 4` times; returns the replaced numbers."""
        won: list[int] = []
        seen = store.get("n")
        while len(won) < ROUNDS // 4:
            number = int(seen.partition(b":")[0])
            desired = b"%d" % (number + 1) + mark
            found = store.compare_set("n", seen, desired)
            won += [number] if found == desired else []
            seen = found
        return won

    def test_each_pushed_value_is_popped_once_and_in_order(self) -> None:
        self.needs("queue_push")
        self.needs_threads()

        def pop(store: Any) -> list[bytes]:
            got: list[bytes] = []
            while b"end" not in got:
                try:
                    got.append(store.queue_pop("q", True))
                except QueueEmptyError:
                    if Deviation.POP_RACES_WITH_POP not in self.deviations:
                        raise
            return got

        with self.opened(self.concurrency) as (mine, *others):
            calls = [partial(pop, store) for store in others]
            pushed = [b"%04d" % n for n in range(ROUNDS * 2)] + [b"end"] * len(others)
            *popped, _ = all_at_once([*calls, lambda: [mine.queue_push("q", value) for value in pushed]])
            got = [value for own in popped for value in own]
            self.claim(sorted(got) == sorted(pushed), "each value is popped once")
            self.claim(all(own == sorted(own) for own in popped), "no client pops a value before an earlier one")

    def test_get_never_returns_what_nobody_set(self) -> None:
        self.needs_threads()
        end = time.monotonic() + SECONDS

        def read(store: Any) -> set[object]:
            seen: set[object] = set()
            store.set_timeout(timedelta(seconds=1))
            while time.monotonic() < end:
                try:
                    seen.add(store.get("k"))
                except Exception as error:  # any other error of a get is an observation too
                    if not is_timeout(error):
                        return seen | {type(error).__name__}
            return seen

        def write(store: Any) -> None:
            while time.monotonic() < end:
                self.write(store, "set", "k", b"v")
                store.delete_key("k")
            self.write(store, "set", "k", b"v")

        with self.opened(2) as (mine, other):
            seen, _ = all_at_once([lambda: read(other), lambda: write(mine)])
            text = f"get returns what was set, or times out (seen: {sorted(map(repr, seen))})"
            self.claim_race(seen <= {b"v"}, text, Deviation.GET_RACES_WITH_DELETE)

    def test_a_multi_set_is_seen_as_one(self) -> None:
        self.needs_threads()
        keys = [f"k{n}" for n in range(8)]
        end = time.monotonic() + SECONDS

        def write(store: Any) -> None:
            number = 0
            while time.monotonic() < end:
                number += 1
                self.write(store, "multi_set", keys, [b"%d" % number] * len(keys))

        def read(store: Any) -> bool:
            torn = False
            while time.monotonic() < end and not torn:
                torn = len(set(store.multi_get(keys))) > 1
            return torn

        with self.opened(2) as (mine, other):
            self.write(mine, "multi_set", keys, [b"0"] * len(keys))
            torn, _ = all_at_once([lambda: read(other), lambda: write(mine)])
            self.claim_race(
                not torn, "multi_get sees all of a multi_set, or nothing of it", Deviation.MULTI_SET_IN_PIECES
            )

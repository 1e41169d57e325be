"""Many threads at once, each with its own handle: no value is lost, invented, or seen in part.

Rule: a race need not show. So the suite tolerates a deviation that is a race, and does not require it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from .deviations import Deviation
from .handles import QueueEmptyError, is_timeout
from .suite import Suite, all_at_once

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

"""Waking and timeouts: blocking calls, each on its own thread with its own handle.

Rule: an event that must not happen gets a short time limit; an event that must happen gets a long one.
"""

from __future__ import annotations

import threading
import time
import unittest
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any

from trystate.model.store.vocabulary import Change

from ..subjects import Disagreement
from .deviations import Deviation, lacking
from .handles import AMPLE, PAUSE_SECONDS, PROMPT_SECONDS, Call, QueueEmptyError, c10d, is_timeout
from .suite import Suite, all_at_once

BRIEF = timedelta(milliseconds=120)
MARGIN_SECONDS = 0.7  # a call may end this long after its timeout
ZERO = timedelta(0)
LOOKS = 300  # many tries, because a client that does not wait for an answer often receives it


class WakingConformance(Suite):
    """Waits, and what ends them."""

    def _woken_by(self, writer: str, *arguments: Any, key: Any = "k", unless: tuple[Deviation, ...] = ()) -> None:
        with self._threaded(3) as (mine, waiting, getting):
            waiter, getter = Call(waiting.wait, ["k"], AMPLE), Call(getting.get, "k")
            self.claim(waiter.blocked() and getter.blocked(), "a wait and a get of a missing key block")
            self.write(mine, writer, key, *arguments)
            woken = [self.ends(waiter, *unless), self.ends(getter, *unless)]
            self.claim(all(woken), f"{writer} wakes the clients that wait for the key", *unless)
            self.write(mine, "set", "k", mine.get("k"))  # wakes the calls that still block
            waiter.result()
            self.claim(getter.result() == mine.get("k"), "the get returns the value that woke it")

    def test_a_wait_and_a_get_are_woken_by_set(self) -> None:
        self._woken_by("set", b"v")

    def test_a_wait_and_a_get_are_woken_by_add(self) -> None:
        self._woken_by("add", 7, unless=(Deviation.ADD_WAKES_NOBODY,))

    def test_a_wait_and_a_get_are_woken_by_compare_set(self) -> None:
        self._woken_by("compare_set", b"", b"v", unless=(Deviation.COMPARE_SET_WAKES_NOBODY,))

    def test_a_wait_and_a_get_are_woken_by_append(self) -> None:
        self._woken_by("append", b"v")

    def test_a_wait_and_a_get_are_woken_by_multi_set(self) -> None:
        self._woken_by("multi_set", [b"v"], key=["k"])

    def test_a_wait_and_a_pop_are_woken_by_queue_push(self) -> None:
        with self._threaded(3, "queue_push") as (mine, waiting, popping):
            waiter = Call(waiting.wait, ["p"], AMPLE)
            self.claim(waiter.blocked(), "a wait for an empty queue blocks")
            self.write(mine, "queue_push", "p", b"1")
            self.claim(self.ends(waiter), "queue_push wakes the client that waits for the queue")
            popper = Call(popping.queue_pop, "q", True)
            self.claim(popper.blocked(), "a pop of an empty queue blocks")
            self.write(mine, "queue_push", "q", b"2")
            self.claim(self.ends(popper), "queue_push wakes the client that pops")
            self.claim(popper.result() == b"2", "the pop returns the value that was pushed")

    def test_a_push_wakes_the_one_who_waits_for_it(self) -> None:
        with self._threaded(3, "queue_push") as (mine, waiting, popping):
            waiter = Call(waiting.wait, ["other"], AMPLE)
            self.claim(waiter.blocked(), "a wait for a missing key blocks")
            popper = Call(popping.queue_pop, "q", True)
            self.claim(popper.blocked(), "a pop of an empty queue blocks")
            self.write(mine, "queue_push", "q", b"1")
            ended = self.ends(popper, Deviation.PUSH_WAKES_ONE)
            self.write(mine, "set", "other", b"v")
            waiter.result()
            popper.result()
            self.claim(ended, "a push wakes the client that pops, although others wait", Deviation.PUSH_WAKES_ONE)

    def test_a_wait_needs_all_its_keys_together(self) -> None:
        with self._threaded(2) as (mine, waiting):
            waiter = Call(waiting.wait, ["a", "b"], AMPLE)
            self.claim(waiter.blocked(), "a wait for two missing keys blocks")
            self.write(mine, "set", "a", b"1")
            self.claim(waiter.blocked(), "a wait for two keys blocks while one is missing")
            mine.delete_key("a")
            self.write(mine, "set", "b", b"1")
            asleep = waiter.blocked()
            self.write(mine, "set", "a", b"2")
            waiter.result()
            self.claim(asleep, "a wait continues if a key was deleted meanwhile", Deviation.WAIT_COUNTS_KEYS)

    def test_a_queue_that_is_not_empty_counts_for_a_wait(self) -> None:
        with self._threaded(2, "queue_push") as (mine, waiting):
            self.write(mine, "queue_push", "q", b"1")
            waiter = Call(waiting.wait, ["q", "k"], AMPLE)
            self.claim(waiter.blocked(), "a wait for a queue and a missing key blocks")
            self.write(mine, "set", "k", b"1")
            ended = self.ends(waiter, Deviation.WAIT_FORGETS_QUEUES)
            self.write(mine, "queue_push", "q", b"2")
            waiter.result()
            text = "a wait ends when the key is there and the queue is not empty"
            self.claim(ended, text, Deviation.WAIT_FORGETS_QUEUES)

    def test_a_compare_set_that_fails_and_a_delete_wake_nobody(self) -> None:
        with self._threaded(3) as (mine, waiting, getting):
            waiter, getter = Call(waiting.wait, ["k"], AMPLE), Call(getting.get, "k")
            self.claim(waiter.blocked() and getter.blocked(), "a wait and a get of a missing key block")
            mine.delete_key("k")
            self.claim(waiter.blocked() and getter.blocked(), "a delete wakes no client")
            mine.compare_set("k", b"x", b"y")
            asleep = waiter.blocked() and getter.blocked()
            self.claim(asleep, "a compare_set that stores nothing wakes no client", Deviation.FAILING_COMPARE_SET_WAKES)
            self.write(mine, "set", "k", b"v")
            waiter.result()
            got = getter.result()
            self.claim_race(got == b"v", "get returns a value that was set", Deviation.FAILING_COMPARE_SET_WAKES)

    def test_a_wait_does_not_hold_up_other_threads(self) -> None:
        with self._threaded(2) as (shared, other):
            waiter = Call(shared.wait, ["k"], AMPLE)
            self.claim(waiter.blocked(), "a wait for a missing key blocks")
            adder = Call(shared.add, "n", 1)
            ended = self.ends(adder, Deviation.ONE_CALL_AT_A_TIME)
            self.write(other, "set", "k", b"v")
            waiter.result()
            self.claim(adder.result() == 1, "an add from another thread counts")
            self.claim(ended, "an object can be used while a wait of it blocks", Deviation.ONE_CALL_AT_A_TIME)


def _blocking(store: Any, gate: str = "") -> dict[str, Callable[[], Any]]:
    """A call of each operation that waits, for a missing key, an empty queue or an incomplete barrier."""
    return {
        "wait": lambda: store.wait(["nowhere"], BRIEF),
        "get": lambda: store.get("nowhere"),
        "multi_get": lambda: store.multi_get(["nowhere"]),
        "queue_pop": lambda: store.queue_pop("nowhere", True),
        "barrier": lambda: store.barrier(gate, 2, BRIEF),
    }


class TimeoutConformance(Suite):
    """How long a call may take."""

    def test_a_timeout_ends_in_time_and_with_torchs_exception(self) -> None:
        self.needs_threads()
        names = [name for name in _blocking(None) if name not in lacking(self.deviations)]
        groups = [names[at : at + self.concurrency] for at in range(0, len(names), self.concurrency)]
        with self.opened(min(len(names), self.concurrency)) as stores:
            for store in stores:
                store.set_timeout(BRIEF)
            late, ended = set(names), list[Call[Any]]()
            for gate, group in product(("first", "second", "third"), groups):
                calls = {n: Call(_blocking(s, gate)[n]) for n, s in zip(group, stores, strict=False)}
                # On a busy machine a call may be late, but not each time.
                late -= {name for name, call in calls.items() if not self._is_late(name, call)}
                ended += calls.values()
            said = ", ".join(sorted(late)) or "none"
            text = f"a call ends at its timeout of {BRIEF.total_seconds()} s (late: {said})"
            self.claim(not late, text, Deviation.TIMEOUTS_ARE_WHOLE_SECONDS)
            torchs = all(isinstance(call.error, c10d.DistStoreError) for call in ended)
            text = "a timeout raises torch.distributed.DistStoreError"
            self.claim(torchs, text, Deviation.TIMEOUT_IS_A_RUNTIME_ERROR)

    @staticmethod
    def _is_late(name: str, call: Call[Any]) -> bool:
        call.blocked(BRIEF.total_seconds() + PROMPT_SECONDS)
        if not is_timeout(call.error):
            raise Disagreement(f"{name} of a missing key times out: no, {call.error!r}")
        if call.elapsed < BRIEF.total_seconds() * 0.95:
            raise Disagreement(f"{name} waits for its timeout of {BRIEF}: no, {call.elapsed:.3f} s")
        return call.elapsed > BRIEF.total_seconds() + MARGIN_SECONDS

    def test_a_timeout_of_zero_looks_once(self) -> None:
        self.needs_threads()
        with self.opened(2) as (mine, other):
            self.write(other, "set", "k", b"v")
            ends = time.monotonic() + PROMPT_SECONDS / 2
            looks = Call(lambda: [mine.wait(["k"], ZERO) for n in range(LOOKS) if n < 3 or time.monotonic() < ends])
            returned = not looks.blocked(PROMPT_SECONDS)
            text = "a wait with a timeout of 0 returns if the key exists"
            self.claim_race(returned and looks.error is None, text, Deviation.ZERO_DOES_NOT_LOOK)
            missing = Call(mine.wait, ["nowhere"], ZERO)
            ended = self.ends(missing, Deviation.ZERO_WAITS_FOR_EVER)
            self.write(other, "set", "nowhere", b"")
            missing.blocked()
            text = "a wait with a timeout of 0 times out if the key is missing"
            self.claim(ended and is_timeout(missing.error), text, Deviation.ZERO_WAITS_FOR_EVER)

    def test_a_negative_timeout_is_refused(self) -> None:
        self.needs_threads()
        with self.opened(2) as (mine, other):
            call = Call(mine.wait, ["nowhere"], timedelta(seconds=-1))
            ended = self.ends(call, Deviation.NEGATIVE_WAITS_FOR_EVER)
            self.write(other, "set", "nowhere", b"")
            call.blocked()
            refused = ended and isinstance(call.error, ValueError)
            unless = (Deviation.NEGATIVE_WAITS_FOR_EVER, Deviation.NEGATIVE_TIMES_OUT)
            self.claim(refused, f"a negative timeout raises ValueError (seen: {call.error!r})", *unless)

    def test_each_handle_has_its_own_timeout_and_a_clone_takes_its_originals(self) -> None:
        with self.opened(1) as (mine,):
            mine.set_timeout(timedelta(seconds=7))
            other = self.clone(mine)
            try:
                inherits = other.timeout == timedelta(seconds=7)
                self.claim(
                    inherits, "a clone begins with the timeout of its original", Deviation.CLONE_FORGETS_THE_TIMEOUT
                )
                other.set_timeout(timedelta(seconds=9))
                own = mine.timeout == timedelta(seconds=7)
                self.claim(own, "the timeout of a clone is its own", Deviation.CLONE_SHARES_THE_TIMEOUT)
            finally:
                self.close_store(other)


SHORT = timedelta(milliseconds=30)
LEFT_OVER = (Deviation.BARRIER_COUNTS_IN_THE_KEY, Deviation.BARRIER_COUNTS_IN_TWO_KEYS)


class BarrierConformance(Suite):
    """The claims about barriers. Each test uses a new barrier, since a used barrier may release every client."""

    def _arrive(self, stores: list[Any], key: str) -> list[Call[Any]]:
        return [Call(store.barrier, key, len(stores) + 1, AMPLE) for store in stores]

    def test_a_barrier_can_be_used_again(self) -> None:
        with self._threaded(3, "barrier") as (first, *others):
            calls = self._arrive(others, "again")
            self.claim(all(call.blocked() for call in calls), "two of three are held")
            for call in [*calls, Call(first.barrier, "again", 3, AMPLE)]:
                call.result()
            calls = self._arrive(others, "again")
            held = all(call.blocked() for call in calls)
            self.claim(held, "a used barrier holds again until all clients have arrived", *LEFT_OVER)
            Call(first.barrier, "again", 3, AMPLE).result()
            for call in calls:
                call.result()

    def test_an_arrival_that_timed_out_is_withdrawn(self) -> None:
        with self._threaded(2, "barrier") as (first, other):
            with suppress(RuntimeError, TimeoutError):
                first.barrier("withdrawn", 2, SHORT)
            call = Call(other.barrier, "withdrawn", 2, AMPLE)
            held = call.blocked()
            if held:
                Call(first.barrier, "withdrawn", 2, AMPLE).result()
            call.result()
            self.claim(held, "a client that timed out has not arrived", *LEFT_OVER)

    def test_a_barrier_does_not_meet_the_key_of_its_name(self) -> None:
        with self._threaded(2, "barrier") as (first, other):
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
        with self._threaded(3, "barrier") as (first, left, right):
            calls = [Call(left.barrier, "left", 2, AMPLE), Call(right.barrier, "right", 2, AMPLE)]
            self.claim(all(call.blocked() for call in calls), "one of two is held in each of two barriers")
            Call(first.barrier, "left", 2, AMPLE).result()
            calls[0].result()
            self.claim(calls[1].blocked(), "the other barrier still holds its client")
            Call(first.barrier, "right", 2, AMPLE).result()
            calls[1].result()


ROUNDS, ROUNDS_MAX = 40, 2_000  # the least in each thread, and the most within `SECONDS`
SECONDS = 0.15  # duration of a race that has no number of rounds


def each(function: Callable[[Any], Any], stores: list[Any]) -> list[Any]:
    return all_at_once([partial(function, store) for store in stores])


class CrowdConformance(Suite):
    """The claims that hold for every interleaving of the threads."""

    def test_no_add_is_lost_and_each_sum_is_returned_once(self) -> None:
        with self._threaded() as stores:
            end = time.monotonic() + SECONDS

            def add(store: Any) -> list[int]:
                own: list[int] = []
                while len(own) < ROUNDS or (time.monotonic() < end and len(own) < ROUNDS_MAX):
                    own.append(store.add("n", 1))
                return own

            sums = each(add, stores)
            wanted = list(range(1, sum(map(len, sums)) + 1))
            self.claim(sorted(n for own in sums for n in own) == wanted, "each sum is returned once")
            self.claim(stores[0].get("n") == b"%d" % wanted[-1], "the last sum is stored")

    def test_no_two_compare_sets_succeed_on_the_same_value(self) -> None:
        with self._threaded() as stores:
            self.write(stores[0], "set", "n", b"0")
            end = time.monotonic() + SECONDS
            count = [partial(self._count_up, store, b":%d" % k, end) for k, store in enumerate(stores)]
            wins = all_at_once(count)
            numbers = [n for own in wins for n in own]
            self.claim(len(numbers) == len(set(numbers)), "each value is replaced by one compare_set only")

    @staticmethod
    def _count_up(store: Any, mark: bytes, end: float) -> list[int]:
        """Replace n by n + 1 with this thread's mark, at least `ROUNDS // 4` times; returns the replaced numbers."""
        won: list[int] = []
        seen = store.get("n")
        while len(won) < ROUNDS // 4 or (time.monotonic() < end and len(won) < ROUNDS_MAX):
            number = int(seen.partition(b":")[0])
            desired = b"%d" % (number + 1) + mark
            found = store.compare_set("n", seen, desired)
            won += [number] if found == desired else []
            seen = found
        return won

    def test_each_pushed_value_is_popped_once_and_in_order(self) -> None:
        def pop(store: Any) -> list[bytes]:
            got: list[bytes] = []
            while b"end" not in got:
                try:
                    got.append(store.queue_pop("q", True))
                except QueueEmptyError:
                    if Deviation.POP_RACES_WITH_POP not in self.deviations:
                        raise
            return got

        with self._threaded(needs="queue_push") as (mine, *others):
            calls = [partial(pop, store) for store in others]
            pushed = [b"%04d" % n for n in range(ROUNDS * 2)] + [b"end"] * len(others)
            *popped, _ = all_at_once([*calls, lambda: [mine.queue_push("q", value) for value in pushed]])
            got = [value for own in popped for value in own]
            self.claim(sorted(got) == sorted(pushed), "each value is popped once")
            self.claim(all(own == sorted(own) for own in popped), "no client pops a value before an earlier one")

    def test_get_never_returns_what_nobody_set(self) -> None:
        def read(store: Any) -> set[object]:
            seen: set[object] = set()
            store.set_timeout(timedelta(seconds=1))
            while not seen or time.monotonic() < end:
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

        with self._threaded(2) as (mine, other):
            end = time.monotonic() + SECONDS  # a store may take long to make
            seen, _ = all_at_once([lambda: read(other), lambda: write(mine)])
            text = f"get returns what was set, or times out (seen: {sorted(map(repr, seen))})"
            self.claim_race(seen <= {b"v"}, text, Deviation.GET_RACES_WITH_DELETE)

    def test_a_multi_set_is_seen_as_one(self) -> None:
        keys = [f"k{n}" for n in range(8)]

        def write(store: Any) -> None:
            number = 0
            while time.monotonic() < end:
                number += 1
                self.write(store, "multi_set", keys, [b"%d" % number] * len(keys))

        def read(store: Any) -> bool:
            torn = len(set(store.multi_get(keys))) > 1
            while time.monotonic() < end and not torn:
                torn = len(set(store.multi_get(keys))) > 1
            return torn

        with self._threaded(2) as (mine, other):
            self.write(mine, "multi_set", keys, [b"0"] * len(keys))
            end = time.monotonic() + SECONDS
            torn, _ = all_at_once([lambda: read(other), lambda: write(mine)])
            text = "multi_get sees all of a multi_set, or nothing of it"
            self.claim_race(not torn, text, Deviation.MULTI_SET_IN_PIECES)


Told = tuple[Change, str, bytes | None, bytes | None]


class Diary:
    """A callback that records its events."""

    def __init__(self) -> None:
        self._told: list[Told] = []
        self._more = threading.Condition()

    def __call__(self, event: Any) -> None:
        with self._more:
            self._told.append((event.kind, event.key, event.old, event.new))
            self._more.notify_all()

    def told(self, count: int, seconds: float = PROMPT_SECONDS) -> list[Told]:
        """The events so far; waits until there are `count` of them, or for a time limit."""
        with self._more:
            self._more.wait_for(lambda: len(self._told) >= count, seconds)
            return list(self._told)

    def after(self, count: int) -> list[Told]:
        """The events so far; waits for `count` of them, and then a short time for events that must not come."""
        self.told(count)
        return self.told(count + 1, PAUSE_SECONDS)


class WatchConformance(Suite):
    """The events of a watcher."""

    def _watching(self, store: Any) -> Callable[[str], tuple[Diary, Any]]:
        if not self.watches(store):
            raise unittest.SkipTest("there is no watch_key")

        def watch(key: str) -> tuple[Diary, Any]:
            diary = Diary()
            return diary, store.watch_key(key, diary)

        return watch

    def _told(self, diary: Diary, *expected: Told) -> None:
        told = diary.after(len(expected))
        self.claim(told == list(expected), f"a watcher receives {list(expected)} (seen: {told})")

    def test_changes_before_watch_key_and_after_cancel_are_not_told(self) -> None:
        with self.opened(2) as (mine, other):
            other.set("k", b"before")
            diary, watch = self._watching(mine)("k")
            other.set("k", b"now")
            self._told(diary, (Change.UPDATED, "k", b"before", b"now"))
            watch.cancel()
            other.set("k", b"after")
            self._told(diary, (Change.UPDATED, "k", b"before", b"now"))

    def test_several_watches_of_a_key_are_told_each(self) -> None:
        with self.opened(2) as (mine, other):
            watching = [self._watching(store)("k") for store in (mine, mine, other)]
            mine.set("k", b"v")
            for diary, watch in watching:
                self._told(diary, (Change.CREATED, "k", None, b"v"))
                watch.cancel()

    def test_a_callback_may_use_the_store(self) -> None:
        with self.opened(2) as (mine, other):
            self._watching(mine)("elsewhere")[1].cancel()
            watch = mine.watch_key("k", lambda event: mine.set("copy", event.new))
            other.set("k", b"v")
            self.claim(other.get("copy") == b"v", "a callback can set another key")
            watch.cancel()

    def test_changes_by_many_are_told_in_the_order_they_happened(self) -> None:
        self.needs_threads()
        rounds = 25
        with self.opened(self.concurrency + 1) as (mine, *others):
            diary, watch = self._watching(mine)("n")

            def count(store: Any) -> None:
                for _ in range(rounds):
                    store.add("n", 1)

            all_at_once([partial(count, store) for store in others])
            values = [b"%d" % n for n in range(1, rounds * len(others) + 1)]
            told = [(old, new) for _, _, old, new in diary.after(len(values))]
            self.claim(told == list(zip([None, *values], values, strict=False)), "each sum is received once, in order")
            watch.cancel()

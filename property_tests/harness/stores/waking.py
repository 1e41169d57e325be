"""Waking and timeouts: blocking calls, each on its own thread with its own handle.

Rule: an event that must not happen gets a short time limit; an event that must happen gets a long one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from ..subjects import Disagreement
from .deviations import Deviation, lacking
from .handles import AMPLE, PROMPT_SECONDS, Call, c10d, is_timeout
from .suite import Suite

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
        self.needs("queue_push")
        with self._threaded(3) as (mine, waiting, popping):
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
        self.needs("queue_push")
        with self._threaded(3) as (mine, waiting, popping):
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
        self.needs("queue_push")
        with self._threaded(2) as (mine, waiting):
            self.write(mine, "queue_push", "q", b"1")
            waiter = Call(waiting.wait, ["q", "k"], AMPLE)
            self.claim(waiter.blocked(), "a wait for a queue and a missing key blocks")
            self.write(mine, "set", "k", b"1")
            ended = self.ends(waiter, Deviation.WAIT_FORGETS_QUEUES)
            self.write(mine, "queue_push", "q", b"2")
            waiter.result()
            self.claim(
                ended, "a wait ends when the key is there and the queue is not empty", Deviation.WAIT_FORGETS_QUEUES
            )

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

    def test_a_wait_that_timed_out_leaves_nothing_behind(self) -> None:
        with self._threaded(2) as (mine, waiting):
            with suppress(RuntimeError, TimeoutError):
                waiting.wait(["k"], BRIEF / 4)
            self.write(mine, "set", "k", b"1")
            self.claim(waiting.add("n", 1) == 1, "an answer after a timeout belongs to its own request")
            self.claim(waiting.get("k") == b"1", "a key that was set after the timeout exists")

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


def _blocking(store: Any, timeout: timedelta, gate: str = "gate") -> dict[str, Callable[[], Any]]:
    """A call of each operation that waits, for a missing key, an empty queue or an incomplete barrier."""
    return {
        "wait": lambda: store.wait(["nowhere"], timeout),
        "get": lambda: store.get("nowhere"),
        "multi_get": lambda: store.multi_get(["nowhere"]),
        "queue_pop": lambda: store.queue_pop("nowhere", True),
        "barrier": lambda: store.barrier(gate, 2, timeout),
    }


class TimeoutConformance(Suite):
    """How long a call may take."""

    def test_a_timeout_ends_in_time_and_with_torchs_exception(self) -> None:
        self.needs_threads()
        names = [name for name in _blocking(None, BRIEF) if name not in lacking(self.deviations)]
        with self.opened(len(names)) as stores:
            for store in stores:
                store.set_timeout(BRIEF)
            late = set(names)
            for gate in ("first", "second", "third"):  # on a busy machine a call may be late, but not each time
                calls = {n: Call(_blocking(s, BRIEF, gate)[n]) for n, s in zip(names, stores, strict=True)}
                late &= {name for name, call in calls.items() if self._is_late(name, call)}
            said = ", ".join(sorted(late)) or "none"
            text = f"a call ends at its timeout of {BRIEF.total_seconds()} s (late: {said})"
            self.claim(not late, text, Deviation.TIMEOUTS_ARE_WHOLE_SECONDS)
            torchs = all(isinstance(call.error, c10d.DistStoreError) for call in calls.values())
            self.claim(
                torchs, "a timeout raises torch.distributed.DistStoreError", Deviation.TIMEOUT_IS_A_RUNTIME_ERROR
            )

    @staticmethod
    def _is_late(name: str, call: Call[Any]) -> bool:
        call.blocked(BRIEF.total_seconds() + PROMPT_SECONDS)
        if not is_timeout(call.error):
            raise Disagreement(f"{name} of a missing key times out: no, {call.error!r}")
        if call.elapsed < BRIEF.total_seconds() * 0.95:
            raise Disagreement(f"{name} waits for its timeout of {BRIEF}: no, {call.elapsed:.3f} s")
        return call.elapsed > BRIEF.total_seconds() + MARGIN_SECONDS

    def test_a_timeout_of_zero_looks_once(self) -> None:
        with self.opened(2) as (mine, other):
            self.write(other, "set", "k", b"v")
            looks = Call(lambda: [mine.wait(["k"], ZERO) for _ in range(LOOKS)])
            looks.blocked(PROMPT_SECONDS)
            text = "a wait with a timeout of 0 returns if the key exists"
            self.claim_race(looks.error is None, text, Deviation.ZERO_DOES_NOT_LOOK)
            missing = Call(mine.wait, ["nowhere"], ZERO)
            ended = self.ends(missing, Deviation.ZERO_WAITS_FOR_EVER)
            self.write(other, "set", "nowhere", b"")
            missing.blocked()
            text = "a wait with a timeout of 0 times out if the key is missing"
            self.claim(ended and is_timeout(missing.error), text, Deviation.ZERO_WAITS_FOR_EVER)

    def test_a_negative_timeout_is_refused(self) -> None:
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

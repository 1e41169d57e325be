"""Random operations, one after the other, on a store and on the reference: a hypothesis state machine.

After each operation the result, the contents of the store, and the events of watchers are compared. Rule: the reference
computes the result first, so only a call that must time out gets a short timeout.
"""

from __future__ import annotations

import unittest
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from trystate.model.store import reference as ref
from trystate.model.store.reference import INT64_MAX, INT64_MIN, Contents, Operation, Refusal, Result

from ..subjects import Disagreement
from .deviations import Deviation, lacking, rows_above
from .handles import AMPLE, MAY_BLOCK, PROMPT_SECONDS, Call, Handle
from .suite import Suite
from .waking import Diary

STEPS = 20  # steps of a run; more runs find more defects than longer runs
TIMEOUTS_MS = (0, 5)
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)  # `explain` runs the shortest case again


def machine_settings() -> settings:
    """The settings of the loaded profile, for runs of a store."""
    return settings(
        stateful_step_count=STEPS, deadline=None, phases=PHASES, suppress_health_check=[HealthCheck.too_slow]
    )


class SequenceConformance(Suite):
    """Operations one after the other."""

    def test_operations_one_after_the_other_do_what_the_reference_does(self) -> None:
        run_state_machine_as_test(store_machine(self), settings=machine_settings())

    def test_torch_can_call_the_store_under_a_prefix(self) -> None:
        """`init_process_group` puts each store under torch's PrefixStore, which calls it from C++."""
        from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

        with self.opened(1) as (store,):
            if not isinstance(store, Store):
                raise unittest.SkipTest("this store is not a torch.distributed.Store")
            prefixed: Any = PrefixStore("p", store)
            several: list[bytes] = []
            try:
                prefixed.set("k", b"1")
                prefixed.wait(["k"])
                prefixed.wait(["k"], AMPLE)
                found = [prefixed.get("k"), prefixed.add("k", 2), prefixed.compare_set("k", b"3", b"4")]
                if prefixed.has_extended_api():
                    prefixed.append("k", b"5")
                    prefixed.multi_set(["l"], [b"6"])
                    several = prefixed.multi_get(["k", "l"])
                found += [prefixed.check(["k"]), prefixed.num_keys() > 0, prefixed.delete_key("k")]
            except RuntimeError as error:
                why = "C++ cannot call the store: for delete_key and num_keys it needs deleteKey and getNumKeys"
                raise Disagreement(f"{why}: {error}") from error
            self.claim(found == [b"1", 3, b"4", True, True, True] and several in ([], [b"45", b"6"]),
                       "torch reads under a prefix what it wrote there")  # fmt: skip


def shortest_failure(suite: Suite) -> tuple[str, list[str]]:
    """The first defect that a suite finds in its store, as text, and the shortest steps that show it; empty if none.

    If the store is deterministic, each call returns the same.
    """
    fixed = settings(
        machine_settings(), max_examples=1_000, derandomize=True, database=None, report_multiple_bugs=False
    )
    try:
        run_state_machine_as_test(store_machine(suite), settings=fixed)
    except Disagreement as found:
        program = "\n".join(found.__notes__).split("\n")
        steps = [line.strip().removeprefix("state.") for line in program if line.strip().startswith("state.")]
        return str(found), steps[:-1]  # the last step is teardown()
    return "", []


def store_machine(suite: Suite) -> type[RuleBasedStateMachine]:
    """The state machine for one suite; its rules are the methods of a store."""
    # No rule has a precondition: hypothesis draws again where it does not hold, and such runs shrink badly.
    missing = lacking(suite.deviations)
    offered = _offered(suite)
    unfit = suite.deviations & {Deviation.ZERO_WAITS_FOR_EVER, Deviation.ZERO_DOES_NOT_LOOK}
    brief = [ms for ms in TIMEOUTS_MS if ms or not unfit]
    body: dict[str, Any] = {"_suite": suite}
    body |= {f"_rule_{name}": _rule(name, brief) for name in ARGUMENTS if name in offered}
    body |= {f"_rule_no_{name}": _rule(name, brief, missing=True) for name in sorted(missing & ARGUMENTS.keys())}
    if "watch_key" in offered:
        body["_rule_watch_key"] = rule(client=st.integers(0, 1), key=keys)(_StoreMachine.watch_key)
    return type(f"{type(suite).__name__}Machine", (_StoreMachine,), body)


def _offered(suite: Suite) -> frozenset[str]:
    """The operations to try on the store; `take` and `watch_key` only if the store has these methods."""
    store = suite.make_store()
    try:
        extra = {name for name in ("take", "watch_key") if hasattr(store, name)}
        return frozenset(((ARGUMENTS.keys() - {"take"}) | extra) - lacking(suite.deviations))
    finally:
        suite.close_store(store)


def _rule(name: str, brief: Sequence[int], *, missing: bool = False) -> Any:
    def step(self: _StoreMachine, client: int, timeout_ms: int = 0, **arguments: Any) -> None:
        self._step(client, operation(name, arguments), timedelta(milliseconds=timeout_ms), missing)

    step.__name__ = name
    drawn: dict[str, Any] = dict(ARGUMENTS[name][1])
    if name in BLOCKING:
        drawn["timeout_ms"] = st.sampled_from(brief)
    decorate: Any = rule(client=st.integers(0, 1), **drawn)
    return decorate(step)


class _Watched:
    """A watched key: the events that have come, and the expected events."""

    def __init__(self, store: Any, key: str) -> None:
        self.expected: list[tuple[Any, ...]] = []
        self._diary = Diary()
        store.set_timeout(AMPLE)  # an earlier call may have set a short timeout
        self.watch = store.watch_key(key, self._diary)

    def compare(self) -> None:
        told = self._diary.told(len(self.expected))
        if told != self.expected:
            lost = ", and the watch is lost" if getattr(self.watch, "lost", False) else ""
            raise Disagreement(f"a watcher must receive {self.expected}, and received {told}{lost}")


class _StoreMachine(RuleBasedStateMachine):
    """The reference's contents, two handles of a store, and the watches; its subclasses define the store."""

    _suite: ClassVar[Suite]

    def __init__(self) -> None:
        super().__init__()
        self._handles: list[Handle] = []
        self._watched: dict[str, _Watched] = {}
        try:
            self._take_handle(self._suite.make_store())
            self._take_handle(self._suite.clone(self._handles[0].store))
            self._above = rows_above(self._suite.deviations)
            self._contents = self._at_first()
        except BaseException:
            self.teardown()
            raise

    def _take_handle(self, store: Any) -> None:
        self._handles.append(Handle(store, self._suite.deviations))

    def teardown(self) -> None:
        for watched in self._watched.values():
            watched.watch.cancel()
        while self._handles:  # torch's client closes its connection with the last reference
            self._suite.close_store(self._handles.pop().store)

    def watch_key(self, client: int, key: str) -> None:
        """Begin to watch a key, or end its watch."""
        watched = self._watched.pop(key, None)
        if watched is not None:
            watched.compare()
            watched.watch.cancel()
        else:
            self._watched[key] = _Watched(self._handles[client].store, key)

    def _at_first(self) -> Contents:
        """Empty, except for the keys that the new store lists and counts."""
        listed, counted = (self._handles[0].perform(one) for one in (ref.ListKeys(), ref.NumKeys()))
        return Contents(
            counted_besides=counted if isinstance(counted, int) else 0,
            listed_besides=tuple(str(k) for k in listed) if isinstance(listed, tuple) else (),
        )

    def _step(self, client: int, wanted: Operation, timeout: timedelta, missing: bool) -> None:
        if missing:
            said = self._handles[client].perform(wanted)
            if said is Refusal.CLOSED and Deviation.UNKNOWN_REQUESTS_CLOSE in self._suite.deviations:
                return None
            return self._compare(wanted, Refusal.UNSUPPORTED, said)
        after, outcome = ref.apply(self._contents, wanted, above=self._above)
        late = outcome.result is Refusal.TIMED_OUT
        if late and Deviation.TIMEOUTS_ARE_WHOLE_SECONDS in self._suite.deviations:
            return None  # a whole second is as long as the rest of the run
        self._compare(wanted, outcome.result, self._perform(client, wanted, timeout if late else AMPLE))
        if outcome.result is Refusal.CLOSED and Deviation.LOST_FOR_GOOD in self._suite.deviations:
            self._replace(client)
        for change in ref.changes(self._contents, wanted, after):
            if change[1] in self._watched:
                self._watched[change[1]].expected.append(change)
        self._contents = after
        self._look_at_everything(wanted)
        return None

    def _perform(self, client: int, wanted: Operation, timeout: timedelta) -> Result | str:
        handle = self._handles[client]
        if not isinstance(wanted, MAY_BLOCK) or not self._suite.concurrency:
            return handle.perform(wanted, timeout)
        call = Call(handle.perform, wanted, timeout)
        if not call.blocked(PROMPT_SECONDS):
            return call.result()
        self._release(wanted, self._handles[1 - client])
        call.blocked()
        return f"still blocked after {PROMPT_SECONDS} s, with a timeout of {timeout.total_seconds()} s"

    @staticmethod
    def _release(wanted: Operation, other: Handle) -> None:
        """End a call that does not end by itself, if another client can end it."""
        match wanted:
            case ref.Get(key) | ref.Barrier(key):
                other.perform(ref.Set(key, b""))
            case ref.MultiGet(several) | ref.Wait(several):
                other.perform(ref.MultiSet(several, (b"",) * len(several)))
            case ref.QueuePop(key):
                other.perform(ref.QueuePush(key, b""))

    def _replace(self, client: int) -> None:
        lost, other = self._handles[client].store, self._handles[1 - client].store
        other.set_timeout(AMPLE)  # the timeout of the clone's connection
        self._handles[client] = Handle(self._suite.clone(other), self._suite.deviations)
        self._suite.close_store(lost)

    def _look_at_everything(self, last: Operation) -> None:
        slow = Deviation.EMPTY_VALUES_ARE_SLOW in self._suite.deviations
        shown = tuple(sorted(key for key, value in self._contents.values.items() if value or not slow))
        missing = lacking(self._suite.deviations)
        looks: list[Operation] = [ref.MultiGet(shown)]
        looks += [ref.Check((key,)) for key in KEYS] if "list_keys" in missing else [ref.ListKeys()]
        if "queue_len" not in missing:
            named = getattr(last, "key", None)
            looks += [ref.QueueLen(key) for key in sorted({*self._contents.queues, *([named] if named else [])})]
        for look in looks:
            outcome = ref.apply(self._contents, look, above=self._above)[1]
            self._compare(look, outcome.result, self._perform(0, look, AMPLE), after=last)
        for watched in self._watched.values():
            watched.compare()

    def _compare(self, wanted: Operation, expected: Result, got: Result | str, after: Operation | None = None) -> None:
        if type(expected) is not type(got) or expected != got:
            then = f" after {after}" if after is not None else ""
            raise Disagreement(f"{wanted}{then}: expected {_shown(expected)}, got {_shown(got)}")


def _shown(result: Result | str) -> str:
    return f"a refusal ({result.value})" if isinstance(result, Refusal) else repr(result)


KEYS = ("a", "b", "a/b", "", "é\0")
VALUES = (
    b"", b"v", b"0", b"7", b"-1", b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808", b" 12abc",
    b"+3", b"007", b"v\0w", b"\xff\x00\x80", "ü".encode(), b"1" * 5000, b"x" * 2000,
)  # fmt: skip
AMOUNTS = (1, 0, -1, 10, INT64_MAX, INT64_MIN)

keys = st.sampled_from(("a", "a", *KEYS))  # one key is frequent, so operations often find what others have left
values = st.one_of(st.sampled_from(VALUES), st.binary(max_size=2))
amounts = st.one_of(st.sampled_from(AMOUNTS), st.integers(INT64_MIN, INT64_MAX))
several_keys = st.lists(keys, max_size=3).map(tuple)


def _cut(drawn: tuple[list[tuple[str, bytes]], list[bytes]]) -> tuple[tuple[str, ...], tuple[bytes, ...]]:
    both, more = drawn
    return tuple(k for k, _ in both), (*(v for _, v in both), *more)


# Keys, and as many values or one more. Never fewer values: these have crashed processes.
pairs = st.tuples(st.lists(st.tuples(keys, values), max_size=3), st.lists(values, max_size=1)).map(_cut)

# The name of a store's method -> the class of the operation, and the strategies of its arguments.
ARGUMENTS: Mapping[str, tuple[type[Operation], Mapping[str, st.SearchStrategy[Any]]]] = {
    "set": (ref.Set, {"key": keys, "value": values}),
    "get": (ref.Get, {"key": keys}),
    "add": (ref.AddTo, {"key": keys, "amount": amounts}),
    "compare_set": (ref.CompareAndSet, {"key": keys, "expected": values, "desired": values}),
    "append": (ref.Append, {"key": keys, "value": values}),
    "delete_key": (ref.DeleteKey, {"key": keys}),
    "take": (ref.Take, {"key": keys}),
    "multi_set": (ref.MultiSet, {"pairs": pairs}),
    "multi_get": (ref.MultiGet, {"keys": several_keys}),
    "check": (ref.Check, {"keys": several_keys}),
    "wait": (ref.Wait, {"keys": several_keys}),
    "num_keys": (ref.NumKeys, {}),
    "list_keys": (ref.ListKeys, {}),
    "queue_push": (ref.QueuePush, {"key": keys, "value": values}),
    "queue_pop": (ref.QueuePop, {"key": keys, "block": st.booleans()}),
    "queue_len": (ref.QueueLen, {"key": keys}),
    "barrier": (ref.Barrier, {"key": keys, "world_size": st.integers(1, 2)}),
}
BLOCKING = ("get", "multi_get", "wait", "queue_pop", "barrier")  # operations that take a timeout


def operation(name: str, arguments: Mapping[str, Any]) -> Operation:
    """The operation of a rule with this name; `pairs` are the two lists of multi_set."""
    made, _ = ARGUMENTS[name]
    if name == "multi_set":
        return ref.MultiSet(*arguments["pairs"])
    return made(**arguments)

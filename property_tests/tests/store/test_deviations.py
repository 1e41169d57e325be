"""The deviations are exact: they are what tells the editions apart, and without one of them the suite finds it.

Rule: what the suite finds is asserted as the steps that it prints, so that shrinking is tested with it.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trystate.model.store import reference as ref
from trystate.model.store.operations import OPERATIONS
from trystate.model.store.reference import Contents, Operation
from trystate.model.store.vocabulary import Edition
from trystate.property_tests.adapters.stores.servers import emptied, torch_client
from trystate.property_tests.adapters.torch_release import require
from trystate.property_tests.adapters.torch_store.server import TorchServer
from trystate.property_tests.harness.stores.deviations import rows_above
from trystate.property_tests.harness.stores.handles import c10d
from trystate.property_tests.harness.stores.operations import AMOUNTS, VALUES
from trystate.property_tests.harness.stores.sequences import shortest_failure
from trystate.property_tests.support.nightly import by_night
from trystate.testing import TORCH_FILE, TORCH_HASH, TORCH_LIBUV, Deviation, Disagreement, StoreConformance

EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "planted_bug_store.py"


def cases() -> Iterator[tuple[Contents, Operation]]:
    """One key with every value, with and without a queue of its name, and every operation on it."""
    operations: list[Operation] = [
        *(ref.AddTo("a", n) for n in AMOUNTS),
        *(ref.CompareAndSet("a", e, b"new") for e in VALUES),
        *(ref.QueuePop("a", block) for block in (True, False)),
        *(ref.Barrier("a", n) for n in (1, 2)),
        *(one("a") for one in (ref.Get, ref.DeleteKey, ref.Take)),
        *(one(keys) for one in (ref.MultiGet, ref.Check, ref.Wait) for keys in ((), ("a",), ("a", "b"))),
        *(ref.MultiSet(("a",), values) for values in ((b"new",), (b"new", b"surplus"))),
        *(one("a", b"new") for one in (ref.Set, ref.Append, ref.QueuePush)),
        *(ref.Append("a", value) for value in VALUES),
        ref.QueueLen("a"), ref.NumKeys(), ref.ListKeys(),
    ]  # fmt: skip
    for value, queued in itertools.product((None, *VALUES), (False, True)):
        values = {} if value is None else {"a": value}
        queues = {"a": (b"item",)} if queued else {}
        yield from ((Contents(values, queues), one) for one in operations)


def test_the_deviations_of_libuv_are_the_difference_between_the_editions() -> None:
    above = rows_above(TORCH_LIBUV)
    for contents, operation in cases():
        if operation.table != "take":
            theirs = ref.apply(contents, operation, Edition.TORCH)
            assert ref.apply(contents, operation, above=above) == theirs, (contents, operation)


@pytest.mark.parametrize("edition", [Edition.TORCH, Edition.TRYSTATE])
def test_each_row_of_each_table_decides_in_some_case(edition: Edition) -> None:
    used: dict[str, set[int]] = {name: set() for name in OPERATIONS[edition]}
    for contents, operation in cases():
        if operation.table in used:
            used[operation.table].add(OPERATIONS[edition][operation.table].winner(operation.look(contents)))
    assert used == {name: set(range(len(table.rows))) for name, table in OPERATIONS[edition].items()}


def test_a_refused_operation_changes_nothing() -> None:
    refused = [(c, o) for c, o in cases() if isinstance(ref.apply(c, o)[1].result, ref.Refusal)]
    assert refused
    for contents, operation in refused:
        assert ref.apply(contents, operation)[0] == contents


def test_what_watchers_are_told_is_what_changed() -> None:
    for contents, operation in cases():
        after, _ = ref.apply(contents, operation)
        told = ref.changes(contents, operation, after)
        shown = {key: new for _, key, _, new in told if new is not None}
        assert {**contents.values, **shown}.items() >= after.values.items(), (contents, operation)
        assert told or contents.values == after.values


@pytest.mark.parametrize("deviation", [d for d in Deviation if d.value.table], ids=lambda d: d.name)
def test_the_rows_of_a_deviation_change_what_their_table_decides(deviation: Deviation) -> None:
    above = rows_above([deviation])
    beside = [(Contents(c.values, c.queues, 1, ("x",)), o) for c, o in cases()]
    assert any(ref.apply(c, o) != ref.apply(c, o, above=above) for c, o in beside)


class HashStore(StoreConformance):
    deviations = TORCH_HASH

    def make_store(self) -> Any:
        return c10d.HashStore()


class FileStore(StoreConformance):
    deviations = TORCH_FILE

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make_store(self) -> Any:
        return c10d.FileStore(tempfile.mktemp(dir=self.folder), 1)


class Libuv(StoreConformance):
    deviations = TORCH_LIBUV

    def __init__(self, port: int) -> None:
        self.port = port

    def make_store(self) -> Any:
        return emptied(torch_client(self.port))


@pytest.fixture(scope="module")
def libuv() -> Iterator[Libuv]:
    with TorchServer() as server:
        yield Libuv(server.port)


def found_without(suite: StoreConformance, deviation: Deviation) -> tuple[str, list[str]]:
    """The defect that the suite finds when one deviation is taken from the list."""
    without(suite, deviation)
    return shortest_failure(suite)


def without(suite: StoreConformance, deviation: Deviation) -> None:
    assert deviation in suite.deviations
    suite.deviations = suite.deviations - {deviation}  # type: ignore[misc]  # of this object only


D = Deviation

SHRUNK = by_night("deviations that are shrunk", 3)
# Those whose shortest sequence is the only one of its length; the others differ in how a key gets its value.
FOUND_IN_FEWEST_STEPS: list[tuple[str, Deviation, list[str]]] = [
    ("hash", D.BARRIER_COUNTS_IN_TWO_KEYS, ["barrier(client=0, key='a', timeout_ms=5, world_size=1)"]),
    ("file", D.DELETE_PRETENDS, ["delete_key(client=0, key='a')"]),
    ("file", D.LISTS_WHAT_LIES_BESIDE, ["list_keys(client=0)"]),
    ("libuv", D.BARRIER_COUNTS_IN_THE_KEY, ["barrier(client=0, key='a', timeout_ms=5, world_size=1)"]),
    ("libuv", D.GET_OF_A_QUEUE_IS_EMPTY,
     ["queue_push(client=0, key='a', value=b'')", "get(client=0, key='a', timeout_ms=5)"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("store", "deviation", "steps"), FOUND_IN_FEWEST_STEPS[:SHRUNK], ids=lambda x: getattr(x, "name", None)
)
def test_what_is_not_listed_is_found_in_the_fewest_steps(
    store: str, deviation: Deviation, steps: list[str], libuv: Libuv, tmp_path: Path
) -> None:
    require("barrier")  # a store that lacks an operation fails with that one
    suite = {"hash": HashStore(), "file": FileStore(tmp_path), "libuv": Libuv(libuv.port)}[store]
    assert found_without(suite, deviation)[1] == steps


@pytest.mark.skipif(len(FOUND_IN_FEWEST_STEPS) > SHRUNK, reason="shrinks for half a minute")
def test_a_value_that_is_not_a_number_takes_two_steps_to_find() -> None:
    text, steps = found_without(HashStore(), D.ADD_RESTARTS_AT_AN_EMPTY_VALUE)
    assert len(steps) == 2
    asked = re.fullmatch(r"add\(amount=1, client=0, key=(.*)\)", steps[-1])  # which key it is left to hypothesis
    assert asked is not None
    assert text == f"AddTo(key={asked[1]}, amount=1): expected a refusal (the value is not a number), got 1"


@pytest.mark.parametrize(
    ("deviation", "claim", "text"),
    [
        (
            D.FAILING_COMPARE_SET_WAKES,
            "a_compare_set_that_fails_and_a_delete_wake_nobody",
            "stores nothing wakes nobody",
        ),
        (D.WAIT_COUNTS_KEYS, "a_wait_needs_all_its_keys_together", "a wait goes on if a key was deleted"),
        (D.BARRIER_COUNTS_IN_THE_KEY, "a_barrier_can_be_used_again", "a used barrier holds again"),
    ],
)
def test_what_is_not_listed_fails_the_claim_about_it(deviation: Deviation, claim: str, text: str, libuv: Libuv) -> None:
    suite = Libuv(libuv.port)
    getattr(suite, f"test_{claim}")()
    without(suite, deviation)
    with pytest.raises(Disagreement, match=f"{text}.*: no; known as .*{deviation.name}"):
        getattr(suite, f"test_{claim}")()


def test_what_is_listed_and_holds_fails_as_well() -> None:
    suite = HashStore()
    suite.deviations = suite.deviations | {D.WAIT_COUNTS_KEYS}  # type: ignore[misc]  # of this object only
    with pytest.raises(Disagreement, match="yes, although WAIT_COUNTS_KEYS is listed; take it from the deviations"):
        suite.test_a_wait_needs_all_its_keys_together()


@pytest.mark.skipif(not EXAMPLE.is_file(), reason="needs a clone: a wheel holds packages only")
def test_the_planted_bug_of_the_example_is_found() -> None:
    spec = importlib.util.spec_from_file_location("planted_bug_store", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    require("barrier")  # which, as all else but add, the example leaves to torch's store
    text, steps = shortest_failure(module.TestCountingStore())
    needed = [step for step in steps if step != "num_keys(client=0)"]  # it changes nothing: shrinking may leave it
    assert needed[0] == "add(amount=1, client=0, key='a')" and len(needed) == 2
    assert re.fullmatch(r"MultiGet\(keys=\('a',\)\) after .*(Set|Append)\(.*\): expected .*, got \(b'1',\)", text)

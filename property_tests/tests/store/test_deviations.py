"""The listed deviations are exact: they are the differences between the editions, and the suite finds a missing one.

Rule: a test asserts the steps that the suite prints, so it tests shrinking too.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from trystate.model.store import reference as ref
from trystate.model.store.reference import Contents
from trystate.model.store.vocabulary import Edition
from trystate.property_tests.adapters.stores.cases import contents, operations
from trystate.property_tests.adapters.stores.servers import emptied, torch_client
from trystate.property_tests.adapters.torch_release import require
from trystate.property_tests.adapters.torch_store.server import TorchServer
from trystate.property_tests.harness.stores.deviations import rows_above
from trystate.property_tests.harness.stores.handles import c10d
from trystate.property_tests.harness.stores.sequences import shortest_failure
from trystate.testing import TORCH_HASH, TORCH_LIBUV, Deviation, Disagreement, StoreConformance

EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "planted_bug_store.py"


# Every row of every table decides some case. One append repeats the value, which a store may drop.
CASES = tuple(product(contents(), (*operations(Edition.TRYSTATE), ref.Append("k", b"v"))))


def test_the_deviations_of_libuv_are_the_difference_between_the_editions() -> None:
    above = rows_above(TORCH_LIBUV)
    for before, operation in CASES:
        if operation.table != "take":
            theirs = ref.apply(before, operation, Edition.TORCH)
            assert ref.apply(before, operation, above=above) == theirs, (before, operation)


def test_a_refused_operation_changes_nothing() -> None:
    refused = [(c, o) for c, o in CASES if isinstance(ref.apply(c, o)[1].result, ref.Refusal)]
    assert refused
    for before, operation in refused:
        assert ref.apply(before, operation)[0] == before


def test_watchers_receive_exactly_the_changes() -> None:
    for before, operation in CASES:
        after, _ = ref.apply(before, operation)
        told = ref.changes(before, operation, after)
        shown = {key: new for _, key, _, new in told if new is not None}
        assert {**before.values, **shown}.items() >= after.values.items(), (before, operation)
        assert told or before.values == after.values


@pytest.mark.parametrize("deviation", [d for d in Deviation if d.value.table], ids=lambda d: d.name)
def test_the_rows_of_a_deviation_change_what_their_table_decides(deviation: Deviation) -> None:
    above = rows_above([deviation])
    beside = [(Contents(c.values, c.queues, 1, ("x",)), o) for c, o in CASES]
    assert any(ref.apply(c, o) != ref.apply(c, o, above=above) for c, o in beside)


class HashStore(StoreConformance):
    deviations = TORCH_HASH

    def make_store(self) -> Any:
        return c10d.HashStore()


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


def without(suite: StoreConformance, deviation: Deviation) -> None:
    assert deviation in suite.deviations
    suite.deviations = suite.deviations - {deviation}  # type: ignore[misc]  # of this object only


# Deviations with only one shortest sequence. The other deviations have several, in which different writes set the key.


@pytest.mark.parametrize(
    ("deviation", "claim", "text"),
    [
        (
            Deviation.FAILING_COMPARE_SET_WAKES,
            "a_compare_set_that_fails_and_a_delete_wake_nobody",
            "stores nothing wakes no client",
        ),
        (Deviation.WAIT_COUNTS_KEYS, "a_wait_needs_all_its_keys_together", "a wait continues if a key was deleted"),
        (Deviation.BARRIER_COUNTS_IN_THE_KEY, "a_barrier_can_be_used_again", "a used barrier holds again"),
    ],
)
def test_an_unlisted_deviation_fails_its_claim(deviation: Deviation, claim: str, text: str, libuv: Libuv) -> None:
    suite = Libuv(libuv.port)
    getattr(suite, f"test_{claim}")()
    without(suite, deviation)
    with pytest.raises(Disagreement, match=f"{text}.*: no; known as .*{deviation.name}"):
        getattr(suite, f"test_{claim}")()


def test_a_listed_deviation_that_is_gone_fails() -> None:
    suite = HashStore()
    suite.deviations = suite.deviations | {Deviation.WAIT_COUNTS_KEYS}  # type: ignore[misc]  # of this object only
    with pytest.raises(Disagreement, match="yes, although WAIT_COUNTS_KEYS is listed; take it from the deviations"):
        suite.test_a_wait_needs_all_its_keys_together()


@pytest.mark.skipif(not EXAMPLE.is_file(), reason="needs a clone: a wheel holds packages only")
def test_the_planted_bug_of_the_example_is_found() -> None:
    spec = importlib.util.spec_from_file_location("planted_bug_store", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    require("barrier")  # the example implements only `add`; torch's store does the other operations
    text, steps = shortest_failure(module.TestCountingStore())
    needed = [step for step in steps if step != "num_keys(client=0)"]  # changes nothing: shrinking may keep it
    assert needed[0] == "add(amount=1, client=0, key='a')" and len(needed) == 2
    assert re.fullmatch(r"MultiGet\(keys=\('a',\)\) after .*(Set|Append)\(.*\): expected .*, got \(b'1',\)", text)

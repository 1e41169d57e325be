"""Every case of every operation: torch's stores and ours follow the tables, and a faulty store is detected.

The listed deviations are exact, and each has a shortest sequence, which shows it with its last operation. The script of
each finding about TCPStore reproduces it on torch's server, and does not reproduce it on ours.
"""

from __future__ import annotations

import importlib.util
import re
from datetime import timedelta
from importlib.metadata import version
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from trystate.impl.store.client.calls import ExtendedCalls
from trystate.impl.torch_release import METHODS
from trystate.model import releases
from trystate.model.store import reference as ref
from trystate.model.store.findings import FINDINGS
from trystate.model.store.reference import Contents
from trystate.model.store.vocabulary import Edition
from trystate.property_tests.adapters.stores.cases import CHECKS, compare, contents, operations
from trystate.property_tests.adapters.stores.servers import MEETINGS, SHORTEST, STORES, shown
from trystate.property_tests.adapters.torch_release import require
from trystate.property_tests.adapters.torch_store.server import OurServer, OurServerAndClients, Server
from trystate.property_tests.harness.stores.deviations import rows_above
from trystate.property_tests.harness.stores.handles import c10d
from trystate.property_tests.harness.stores.sequences import shortest_failure
from trystate.property_tests.replays.schedules import SCHEDULES
from trystate.property_tests.support.nightly import a_third, by_verify
from trystate.store import HashStore
from trystate.store import TCPStore as Ours
from trystate.testing import TORCH_HASH, TORCH_LIBUV, Deviation, Disagreement, StoreConformance

COMPARED = {
    "store operations: torch's client and server": 396,
    "store operations: our client and server": 414,
    "store operations: our HashStore": 414,
    "store operations: our kept server, and answers that are lost": 166,
}


@by_verify
@pytest.mark.parametrize("name", COMPARED)
def test_a_store_does_what_the_tables_say(name: str) -> None:
    outcome = next(check for check in CHECKS if check.name == name).run(lambda _: None)
    assert not outcome.disagreements
    assert outcome.compared == COMPARED[name]


def test_a_client_that_sends_a_write_again_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant sends it again on a new connection; a write on an idle connection has another path."""
    monkeypatch.setattr(ExtendedCalls, "_again", lambda calls, operation, seconds: monotonic() + seconds)
    said = CHECKS[-1].run(lambda _: None).disagreements
    assert {line.partition("(")[0] for line in said} >= {"Set", "Append", "DeleteKey", "QueuePush", "AddTo", "Take"}


def test_every_check_is_pinned() -> None:
    assert [check.name for check in CHECKS] == list(COMPARED)


class Wrapping(HashStore):
    """Adds modulo 2⁶⁴, as torch does."""

    def add(self, key: str, amount: int) -> int:
        value = int(self.get(key)) if key in self.list_keys() else 0
        total = (value + amount + (1 << 63)) % (1 << 64) - (1 << 63)
        self.set(key, str(total))
        return total


def test_operations_that_a_release_of_torch_lacks_are_left_out() -> None:
    """Without these operations, as on torch 2.6, a wrong sum is found too."""
    assert compare(Edition.TRYSTATE, HashStore, lacking=METHODS).disagreements == ()
    said = compare(Edition.TRYSTATE, Wrapping, lacking=METHODS).disagreements
    assert said and all(line.startswith("AddTo") for line in said)


def test_the_counter_of_the_start_up_is_a_key_that_counts() -> None:
    """The counter is a key in our store and in torch's store."""
    with Ours("127.0.0.1", 0, 1, True, timedelta(seconds=30), True) as ours:
        assert ours.num_keys() == 1
    theirs = c10d.TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=30), True)
    assert theirs.num_keys() == 1


EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "planted_bug_store.py"


# Every row of every table decides some case. One append repeats the value, which a store may drop.
OPERATIONS = tuple(product(contents(), (*operations(Edition.TRYSTATE), ref.Append("k", b"v"))))


def test_the_deviations_of_libuv_are_the_difference_between_the_editions() -> None:
    above = rows_above(TORCH_LIBUV)
    for before, operation in OPERATIONS:
        if operation.table != "take":
            theirs = ref.apply(before, operation, Edition.TORCH)
            assert ref.apply(before, operation, above=above) == theirs, (before, operation)


def test_a_refused_operation_changes_nothing() -> None:
    refused = [(c, o) for c, o in OPERATIONS if isinstance(ref.apply(c, o)[1].result, ref.Refusal)]
    assert refused
    for before, operation in refused:
        assert ref.apply(before, operation)[0] == before


def test_watchers_receive_exactly_the_changes() -> None:
    for before, operation in OPERATIONS:
        after, _ = ref.apply(before, operation)
        told = ref.changes(before, operation, after)
        shown = {key: new for _, key, _, new in told if new is not None}
        assert {**before.values, **shown}.items() >= after.values.items(), (before, operation)
        assert told or before.values == after.values


@pytest.mark.parametrize("deviation", [d for d in Deviation if d.value.table], ids=lambda d: d.name)
def test_the_rows_of_a_deviation_change_what_their_table_decides(deviation: Deviation) -> None:
    above = rows_above([deviation])
    beside = [(Contents(c.values, c.queues, 1, ("x",)), o) for c, o in OPERATIONS]
    assert any(ref.apply(c, o) != ref.apply(c, o, above=above) for c, o in beside)


class TorchsHashStore(StoreConformance):
    deviations = TORCH_HASH

    def make_store(self) -> Any:
        return c10d.HashStore()


def test_an_unlisted_deviation_fails_its_claim() -> None:
    suite = TorchsHashStore()
    suite.test_a_push_wakes_the_one_who_waits_for_it()
    suite.deviations = suite.deviations - {Deviation.PUSH_WAKES_ONE}  # type: ignore[misc]  # of this object only
    with pytest.raises(Disagreement, match=r"a push wakes the client that pops.*: no; known as PUSH_WAKES_ONE"):
        suite.test_a_push_wakes_the_one_who_waits_for_it()


def test_a_listed_deviation_that_is_gone_fails() -> None:
    suite = TorchsHashStore()
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


OF_THE_CLIENT = {"frozen-server", "init-overwritten", "released-yet-raises", "write-lost-silently"}
OF_BOTH = {"barrier-counts-retries", "barrier-stays-open"}  # our clients send their own requests
ON_OURS = [(name, OurServer) for name in SCHEDULES if name not in OF_THE_CLIENT]
ON_OURS += [(name, OurServerAndClients) for name in SCHEDULES if name in OF_THE_CLIENT | OF_BOTH]


@pytest.mark.parametrize(("name", "serve"), ON_OURS, ids=lambda each: each if isinstance(each, str) else each.__name__)
def test_our_server_holds_what_torchs_violates(name: str, serve: type[Server]) -> None:
    observation = SCHEDULES[name](print, serve=serve)
    assert not observation.reproduced, observation


@pytest.mark.parametrize("name", a_third(tuple(SCHEDULES)))
def test_a_schedule_shows_its_finding_on_torch_and_a_benign_one_none(name: str) -> None:
    """So a property that holds on another server is a merit of that server, since the property can fail."""
    assert SCHEDULES[name](print).reproduced is releases.has(version("torch"), FINDINGS[name])
    assert not SCHEDULES[name](print, benign=True).reproduced


# ---- the shortest sequences of deviations


def test_each_difference_of_an_operation_is_shown_by_a_sequence() -> None:
    assert set(SHORTEST) == {d for d in Deviation if d.value.table}
    assert set(MEETINGS) == {d for d in Deviation if not d.value.table}


def test_each_sequence_is_shown_on_a_store_with_that_deviation() -> None:
    assert [d.name for d, (store, _) in SHORTEST.items() if d not in STORES[store]] == []


def test_each_difference_is_of_a_store_that_is_named() -> None:
    shown_somewhere = set().union(*STORES.values())
    assert [d.name for d in Deviation if d not in shown_somewhere and not d.value.lacks] == []


def test_a_sequence_shows_its_deviation_with_its_last_operation() -> None:
    require("barrier")
    for one in shown():
        agree = [expected == said for _, expected, said in one.steps]
        assert agree == [True] * (len(agree) - 1) + [False], one

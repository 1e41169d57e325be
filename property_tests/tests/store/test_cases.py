"""Every case of every operation: torch's stores and ours follow the tables, and a faulty store is detected."""

from __future__ import annotations

from datetime import timedelta
from time import monotonic

import pytest

from trystate.impl.store.client.calls import ExtendedCalls
from trystate.impl.torch_release import METHODS
from trystate.model.store.vocabulary import Edition
from trystate.property_tests.adapters.stores.cases import CHECKS, compare
from trystate.property_tests.harness.stores.handles import c10d
from trystate.property_tests.support.nightly import by_verify
from trystate.store import HashStore
from trystate.store import TCPStore as Ours

COMPARED = {
    "store operations: torch's client and server": 396,
    "store operations: our client and server": 414,
    "store operations: our HashStore": 414,
    "store operations: our FileStore": 414,
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


def test_a_store_that_wraps_is_found_out() -> None:
    said = compare(Edition.TRYSTATE, Wrapping).disagreements
    assert any("expected <Refusal.OVERFLOW" in line for line in said)
    assert all(line.startswith("AddTo") for line in said)


def test_operations_that_a_release_of_torch_lacks_are_left_out() -> None:
    """Without these operations, as on torch 2.6, a wrong sum is found too."""
    assert compare(Edition.TRYSTATE, HashStore, lacking=METHODS).disagreements == ()
    said = compare(Edition.TRYSTATE, Wrapping, lacking=METHODS).disagreements
    assert said and all(line.startswith("AddTo") for line in said)


class CountsQueues(HashStore):
    """Counts the name of a queue as a key."""

    def num_keys(self) -> int:
        return super().num_keys() + bool(self.queue_len("k"))


def test_a_store_that_counts_queues_is_found_out() -> None:
    said = compare(Edition.TRYSTATE, CountsQueues).disagreements
    assert said and all(line.startswith("NumKeys()") for line in said)


def test_the_counter_of_the_start_up_is_a_key_that_counts() -> None:
    """The counter is a key in our store and in torch's store."""
    with Ours("127.0.0.1", 0, 1, True, timedelta(seconds=30), True) as ours:
        assert ours.num_keys() == 1
    theirs = c10d.TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=30), True)
    assert theirs.num_keys() == 1


def test_torchs_tables_are_not_ours() -> None:
    assert compare(Edition.TORCH, HashStore, stop_after=1).disagreements

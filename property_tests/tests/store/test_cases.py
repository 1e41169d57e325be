"""Every case of every operation: what the tables say, torch's server does, and ours; a faulty store is found out."""

from __future__ import annotations

import pytest
from trystate.impl.torch_release import METHODS
from trystate.model.store.vocabulary import Edition
from trystate.property_tests.adapters.stores.cases import CHECKS, compare
from trystate.property_tests.support.marks import by_verify

from trystate.store import HashStore

COMPARED = {
    "store operations: torch's client and server": 396,
    "store operations: our client and server": 414,
    "store operations: our HashStore": 414,
    "store operations: our FileStore": 414,
}


@by_verify
@pytest.mark.parametrize("name", COMPARED)
def test_a_store_does_what_the_tables_say(name: str) -> None:
    outcome = next(check for check in CHECKS if check.name == name).run(lambda _: None)
    assert not outcome.disagreements
    assert outcome.compared == COMPARED[name]


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
    """As on torch 2.6: the wrong sum is found there too."""
    assert compare(Edition.TRYSTATE, HashStore, lacking=METHODS).disagreements == ()
    said = compare(Edition.TRYSTATE, Wrapping, lacking=METHODS).disagreements
    assert said and all(line.startswith("AddTo") for line in said)


def test_torchs_tables_are_not_ours() -> None:
    assert compare(Edition.TORCH, HashStore, stop_after=1).disagreements

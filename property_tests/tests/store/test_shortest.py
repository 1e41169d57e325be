"""Each deviation has a shortest sequence, which shows it with its last operation."""

from __future__ import annotations

from trystate.property_tests.adapters.stores.shortest import MEETINGS, SHORTEST, STORES, shown
from trystate.property_tests.adapters.torch_release import require
from trystate.testing import Deviation


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

"""The tables of a process's container agree with torch's and ours in every context."""

from __future__ import annotations

from functools import cache

import pytest

pytest.importorskip("torch", reason="the containers are torch's, and of the runtime on it")

from trystate import registry
from trystate.model.autograd.initialisation import CONTAINERS
from trystate.model.autograd.vocabulary import Edition
from trystate.property_tests.adapters.torch_autograd import initialisation
from trystate.property_tests.adapters.torch_rendezvous.conformance import gaps
from trystate.property_tests.adapters.torch_rendezvous.contexts import Observed, compare
from trystate.property_tests.support.rendezvous.tables import unnoticed

TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
# table, contexts
COMPARED = {
    (TORCH, "init_container"): 30, (TORCH, "use_container"): 6,
    (TRYSTATE, "init_container"): 4, (TRYSTATE, "use_container"): 4,
}  # fmt: skip
compared = pytest.mark.parametrize(("edition", "name"), COMPARED, ids=str)


@cache
def observed(edition: Edition) -> dict[str, Observed]:
    return initialisation.observed(edition)


@compared
def test_a_table_says_what_the_container_does_in_every_context(edition: Edition, name: str) -> None:
    seen, table = observed(edition)[name], CONTAINERS[edition][name]
    found = compare(table, seen)
    assert [*found.disagreements, *gaps(name, found)] == []
    assert seen.contexts == COMPARED[edition, name]


@compared
def test_every_wrong_row_is_noticed(edition: Edition, name: str) -> None:
    assert unnoticed(CONTAINERS[edition][name], observed(edition)[name]) == []


def test_every_table_is_compared_and_known_to_the_command_line() -> None:
    assert {*COMPARED} == {(edition, name) for edition, tables in CONTAINERS.items() for name in tables}
    for edition, tables in CONTAINERS.items():
        assert tables.items() <= registry.TABLES[edition.name].items()

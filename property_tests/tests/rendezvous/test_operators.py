"""Our operators decide as the tables do, in every context; a mutant of either is detected."""

from __future__ import annotations

from functools import cache, partial
from itertools import chain
from typing import Any

import pytest

from trystate.impl.rendezvous import operators
from trystate.impl.rendezvous.operators import View
from trystate.model.rendezvous.vocabulary import Membership
from trystate.property_tests.adapters.our_rendezvous.operators import (
    CHECKS,
    OURS,
    TABLES,
    asked,
    atoms_of,
    observe,
)
from trystate.property_tests.adapters.our_rendezvous.parts import settings
from trystate.property_tests.adapters.torch_rendezvous.contexts import Observed
from trystate.property_tests.support.mutants import generated, survivors
from trystate.property_tests.support.nightly import by_verify
from trystate.property_tests.support.rendezvous.tables import unnoticed


@by_verify
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_our_operators_do_what_the_tables_say(check: Any) -> None:
    outcome = check.run(lambda _: None)
    assert not outcome.disagreements
    assert (outcome.compared, outcome.unit) == (223_408, "contexts")


# ---- a mutant in a table


@cache
def answers() -> dict[str, Observed]:
    return {name: observe(name) for name in TABLES}


@pytest.mark.parametrize("name", TABLES)
def test_every_row_that_is_wrong_is_noticed(name: str) -> None:
    assert unnoticed(TABLES[name], answers()[name]) == []


# ---- a mutant in an operator

MUTATED: dict[Any, str] = {operators._join_in_time: "join", **{operator: name for name, operator in OURS.items()}}
ASKED = 16  # contexts of each valuation, at odd distances because neighbours differ in one flag


@cache
def expected() -> dict[str, list[tuple[View, Any]]]:
    """The answers of each operator in some distant contexts of each valuation."""
    out = {}
    for name, table in TABLES.items():
        alike: dict[tuple[bool, ...], list[tuple[View, Any]]] = {}
        for view, atoms in asked():
            alike.setdefault(tuple(atoms[a.name] for a in table.atoms), []).append((view, atoms))
        some = chain.from_iterable(group[:: len(group) // ASKED | 1] for group in alike.values())
        empty = (one for one in asked() if one[0].state is not None and not any(one[0].state.listed()))
        out[name] = [(view, table.decide(atoms)) for view, atoms in (*some, *empty)]
    return out


def answers_as_expected(*names: str) -> None:
    """The claims about these operators, but faster."""
    assert all(OURS[name](view) is then for name in names for view, then in expected()[name])
    assert View(None, "token", settings()).agrees


def test_every_mutant_of_an_operator_is_noticed() -> None:
    tried = 0
    for function, name in MUTATED.items():
        mutants = generated(function, ("Action.FINISH", "Action.SYNC"))
        assert survivors(mutants, partial(answers_as_expected, name)) == []
        tried += len(mutants)
    assert tried > 100


def test_every_mutant_of_what_an_operator_sees_is_noticed() -> None:
    for seen in (View.membership, View.agrees):
        assert isinstance(seen, property) and seen.fget is not None
        mutants = generated(seen.fget, ("Membership.OUTSIDE", "Membership.WAITING"))
        assert survivors(mutants, partial(answers_as_expected, *OURS)) == []


def test_a_view_without_a_state_is_that_of_a_node_outside() -> None:
    view = View(None, "token", settings())
    assert view.membership is Membership.OUTSIDE
    assert atoms_of(view)["seat"] and not atoms_of(view)["listed"]

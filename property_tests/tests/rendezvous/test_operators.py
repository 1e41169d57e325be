"""Our operators decide as the tables do, in every context; a mutant in either is noticed."""

from __future__ import annotations

from functools import cache, partial
from itertools import chain
from typing import Any

import pytest

from trystate.commands import verify
from trystate.impl.rendezvous import operators
from trystate.impl.rendezvous.encoding import decode, encode
from trystate.impl.rendezvous.errors import RendezvousStateError
from trystate.impl.rendezvous.observer import Lease
from trystate.impl.rendezvous.operators import View
from trystate.impl.rendezvous.state import LISTS, Settings, State
from trystate.model.rendezvous.vocabulary import Action, Membership
from trystate.property_tests.adapters.our_rendezvous.operators import (
    CHECKS,
    OURS,
    TABLES,
    asked,
    atoms_of,
    observe,
    states,
)
from trystate.property_tests.adapters.our_rendezvous.parts import participant, settings
from trystate.property_tests.adapters.torch_rendezvous.contexts import Observed
from trystate.property_tests.support.marks import by_verify
from trystate.property_tests.support.mutants import generated, survivors
from trystate.property_tests.support.rendezvous.tables import unnoticed

CONTEXTS = 223_408


@by_verify
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_our_operators_do_what_the_tables_say(check: Any) -> None:
    outcome = check.run(lambda _: None)
    assert not outcome.disagreements
    assert (outcome.compared, outcome.unit) == (CONTEXTS, "contexts")


def test_every_operator_of_the_edition_is_compared_and_by_verify() -> None:
    assert set(OURS) == set(TABLES)
    assert {check.name for check in CHECKS} <= {check.name for check in verify.conformance_checks()}


# ---- why what is declared impossible is so

REASONS = {
    "a node is in one list": ("participant", "expected", "waiting", "redundant"),
    "a complete round expects nobody": ("expected", "complete"),
    "ready means that nobody is expected": ("expected", "ready"),
    "a complete round has no last call": ("complete", "ready"),
    "who is listed has the settings": ("agrees", "participant", "expected", "waiting", "redundant"),
    "a lease is longer than an interval": ("lease", "beat_due"),
    "a spare has no deadline": ("late", "redundant"),
    "a mark is that of a listed node which is no participant": (
        "drained",
        "participant",
        "expected",
        "waiting",
        "redundant",
    ),
    "who is not listed has no lease": ("lease", "participant", "expected", "waiting", "redundant"),
}


def test_everything_that_is_declared_impossible_has_a_reason() -> None:
    """The tests below show the reasons, but for two that hold by the definition of an atom: no deadline, no lease."""
    for table in TABLES.values():
        for cube in table.impossible:
            assert any(set(cube) <= set(atoms) for atoms in REASONS.values()), cube


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("other", LISTS)
def test_no_store_holds_a_node_in_two_lists(name: str, other: str) -> None:
    one = (participant(1),)
    lists = {name: one, other: one} if name != other else {name: one * 2}
    with pytest.raises(RendezvousStateError, match="a node is listed twice"):
        decode(encode(State("life", settings(1, 4), **lists)))


def test_no_store_holds_a_complete_round_that_expects_somebody() -> None:
    state = State("life", settings(1, 3), complete=True, participants=(participant(1),), expected=(participant(2),))
    with pytest.raises(RendezvousStateError, match="a complete round expects somebody"):
        decode(encode(state))


@pytest.mark.parametrize("name", [*LISTS, ""])
def test_no_store_holds_a_mark_of_a_participant_or_of_nobody(name: str) -> None:
    lists: dict[str, Any] = {name: (participant(1),)} if name else {}
    state = State("life", settings(1, 3), **lists, draining=(participant(1).node.token,))
    if name in ("", "participants"):
        with pytest.raises(RendezvousStateError, match="draining has a node twice, a participant, or one that is not"):
            encode(state)
    else:
        assert decode(encode(state)) == state


def test_a_complete_round_has_no_last_call() -> None:
    complete = [state for state in states() if state.complete]
    assert complete
    assert not any(state.calling for state in complete)


@pytest.mark.parametrize("attempts", [2, 3, 10, 100])
def test_whoever_has_no_lease_has_a_heartbeat_to_write(attempts: int) -> None:
    lease = Lease(settings(keep_alive_max_attempt=attempts))
    assert not lease.holds(0.0)
    assert lease.beat_due(0.0)
    lease.confirm(0.0)
    moments = [k / 100 for k in range(attempts * 600)]
    assert {(True, False), (True, True), (False, True)} == {(lease.holds(t), lease.beat_due(t)) for t in moments}


def test_who_has_other_settings_is_refused_in_every_context_and_whatever_a_list_says() -> None:
    """That a listed node has those in force is shown of the changes; here: that nobody relies on it."""
    for state in states():
        view = View(state, participant(2).node.token, Settings(2, 4))
        if state.closed is None and any(state.listed()):
            assert operators.join(view) is Action.ERROR_SETTINGS


# ---- a mutant in a table


@cache
def answers() -> dict[str, Observed]:
    return {name: observe(name) for name in TABLES}


@pytest.mark.parametrize("name", TABLES)
def test_every_row_that_is_wrong_is_noticed(name: str) -> None:
    assert unnoticed(TABLES[name], answers()[name]) == []


# ---- a mutant in an operator

MUTATED: dict[Any, str] = {operators._join_in_time: "join", **{operator: name for name, operator in OURS.items()}}
ASKED = 16  # contexts of each valuation, at odd distances: neighbours differ in one flag


@cache
def expected() -> dict[str, list[tuple[View, Any]]]:
    """The answer of each operator in some contexts of each valuation, far from each other."""
    out = {}
    for name, table in TABLES.items():
        alike: dict[tuple[bool, ...], list[tuple[View, Any]]] = {}
        for view, atoms in asked():
            key = tuple(atoms[a.name] for a in table.atoms)
            alike.setdefault(key, []).append((view, atoms))
        some = chain.from_iterable(group[:: len(group) // ASKED | 1] for group in alike.values())
        empty = (one for one in asked() if one[0].state is not None and not any(one[0].state.listed()))
        out[name] = [(view, table.decide(atoms)) for view, atoms in (*some, *empty)]
    return out


def answers_as_expected(*names: str) -> None:
    """The claims about these operators, in less time."""
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

"""Decision tables: the first matching row wins, and a table that is built has no hole and no dead row."""

from __future__ import annotations

import enum
from itertools import product
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from trystate.model.checker.interpret import Interpreter
from trystate.model.errors import DeclarationError
from trystate.model.language import Atom, DecisionTable, SymbolicState, System, flag, row
from trystate.model.language.tables import noting
from trystate.property_tests.support.systems.declarations import assert_refused, declared


class Act(enum.Enum):
    STOP = "stop"
    WAIT = "wait"
    GO = "go"


RED, LATE = Atom("red", "light is red"), Atom("late", "we are late", "by more than a minute")


def crossing(**changes: Any) -> DecisionTable:
    rows = (row(Act.STOP, "rule 1", red=True), row(Act.GO, late=True), row(Act.WAIT))
    return DecisionTable("crossing", **{"atoms": (RED, LATE), "rows": rows, **changes})


GIVEN: dict[str, Any] = {"Act": Act, "ATOMS": (RED, LATE), "CROSSING": crossing()}


def test_the_audit_counts_decisions_and_names_rows_whose_order_matters() -> None:
    audit = crossing().audit
    assert audit.valuations == 4
    assert audit.hits == (2, 1, 1)
    assert audit.order_dependent == ((0, 1), (0, 2), (1, 2))


def test_a_hole_is_an_error_that_names_what_holds_in_it() -> None:
    hole = "DecisionTable('crossing', atoms=ATOMS, rows=(row(Act.STOP, red=True),))"
    assert_refused(hole, "table crossing has a hole: no row for these true atoms: none", **GIVEN)


def test_a_dead_row_is_an_error_that_names_the_row() -> None:
    dead = "DecisionTable('crossing', atoms=ATOMS, rows=(row(Act.GO), row(Act.STOP, red=True)))"
    assert_refused(dead, "table crossing, row 2 is dead", **GIVEN)


@pytest.mark.parametrize("changes", [{"rows": (row(Act.GO, green=True),)}, {"impossible": ({"green": True},)}])
def test_an_unknown_atom_is_an_error_that_names_it(changes: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match="unknown atom 'green'"):
        crossing(**changes)


def test_an_impossible_case_has_no_row() -> None:
    table = crossing(rows=(row(Act.GO, red=False), row(Act.STOP)), impossible=({"red": True, "late": True},))
    assert list(table.valuations()) == [
        {"red": False, "late": False}, {"red": False, "late": True}, {"red": True, "late": False},
    ]  # fmt: skip
    partial = crossing(rows=(row(Act.GO, red=False),), impossible=({"red": True},))
    with pytest.raises(LookupError, match="crossing: no row for"):
        partial.decide({"red": True, "late": False})


def test_a_condition_wants_an_expression_for_every_atom() -> None:
    assert_refused("CROSSING.when(Act.GO, {'red': True})", "table crossing: no expression for the atom 'late'", **GIVEN)


def test_a_condition_is_printed_as_the_outcome_of_its_table() -> None:
    state = SymbolicState(Lights())
    assert str(crossing().when(Act.GO, {"red": state.a, "late": state.b})) == "crossing → GO"


class Lights(System):
    """Three flags to be atoms."""

    a = flag()
    b = flag()
    c = flag()


ATOMS = tuple(Atom(name, name) for name in "abc")
CUBES = st.dictionaries(st.sampled_from("abc"), st.booleans(), max_size=3)
ROWS = st.lists(st.tuples(CUBES, st.sampled_from(list(Act))), min_size=1, max_size=5)


@given(ROWS, st.lists(CUBES.filter(bool), max_size=2))
def test_a_table_is_refused_exactly_for_holes_and_dead_rows(
    rows: list[tuple[dict[str, bool], Act]], impossible: list[dict[str, bool]]
) -> None:
    def matches(cube: dict[str, bool], values: dict[str, bool]) -> bool:
        return all(values[k] is v for k, v in cube.items())

    everything = [dict(zip("abc", bits, strict=True)) for bits in product((False, True), repeat=3)]
    possible = [v for v in everything if not any(matches(cube, v) for cube in impossible)]
    winners = [next((k for k, (cube, _) in enumerate(rows) if matches(cube, v)), None) for v in possible]
    sound = None not in winners and set(winners) == set(range(len(rows)))
    event("sound" if sound else "refused")
    arguments: dict[str, Any] = {
        "rows": tuple(row(act, **cube) for cube, act in rows),
        "impossible": tuple(impossible),
    }
    if not sound:
        with pytest.raises(DeclarationError, match=r"hole|dead"):
            DecisionTable("random", atoms=ATOMS, **arguments)
        return
    table = DecisionTable("random", atoms=ATOMS, **arguments)
    assert table.outcomes() == tuple(dict.fromkeys(act for _, act in rows))
    system = Lights()
    interpreter, state = Interpreter(system), SymbolicState(system)
    for values, winner in zip(possible, winners, strict=True):
        assert (table.winner(values), table.decide(values)) == (winner, rows[winner or 0][1])
        for act in Act:
            condition = table.when(act, {k: getattr(state, k) for k in "abc"})
            assert interpreter.holds(condition, tuple(map(int, values.values()))) is (table.decide(values) is act)


def test_a_decision_in_a_tree_is_noted_with_its_atoms() -> None:
    text = "red, late = flag(), flag()\n@transition()\ndef go(self, s):\n    'Cross.'\n    s.when(DECIDES(s))\n"
    street = declared(
        f"{text}    s.late = False", System, DECIDES=lambda s: crossing().when(Act.GO, {"red": s.red, "late": s.late})
    )
    street()  # outside of a block nothing is noted
    with noting() as noted:
        system = street()
    ((condition, decision),) = noted.items()
    assert condition is system.transition("go").conditions[0]
    assert (decision.table.name, decision.outcome) == ("crossing", Act.GO)
    assert {name: str(atom) for name, atom in decision.atoms.items()} == {"red": "red", "late": "late"}

"""`trystate prove` prints which properties are proved for any size, and exits with the code of this result."""

import re
import sys
from types import MappingProxyType

import pytest

from trystate.exits import Exit
from trystate.model.language import *
from trystate.model.prover.formulas import load
from trystate.property_tests.support.published.protocols import LockServer
from trystate.property_tests.tests.command_line.setting import Command


class Stamps(System):
    """A counter takes the number of one of three values; the wrong counter exceeds them."""

    sizes_in_proofs = MappingProxyType({"value": 3})

    value = index(2)
    client = index(2)
    limit = constant(1)
    last = integer(0, 3, per="client")

    @transition(each=("client", "value"))
    def stamp(self, s: SymbolicState, client: Expr, value: Expr) -> None:
        """A client takes a value."""
        s.last[client] = ord_(value) + 1

    @sometimes()
    def somebody_has_one(self, s: SymbolicState) -> Expr:
        """A client has a value."""
        return any_(x > 0 for x in s.last)

    @always(witness="somebody_has_one")
    def each_is_one_of_them(self, s: SymbolicState) -> Expr:
        """A client has the number of a value, or none."""
        return all_((x == 0) | any_(x == ord_(v) + 1 for v in s.value) for x in s.last)

    @leads_to(each="client")
    def each_gets_one(self, s: SymbolicState, client: Expr) -> tuple[Expr, Expr]:
        """A client has a value at last."""
        return s.last[client] == 0, s.last[client] > 0


class Runaway(Stamps):
    """A client takes the value after the one that it should take."""

    @transition(each=("client", "value"))
    def stamp(self, s: SymbolicState, client: Expr, value: Expr) -> None:
        """A client takes the value after one."""
        s.last[client] = ord_(value) + 2


def test_a_size_that_is_not_any_and_liveness_are_said(command: Command) -> None:
    code, out, err = command("prove", f"{__name__}:Stamps")
    assert code == Exit.OK, err
    assert out.startswith("Stamps: any number of clients; no faults\nany limit\nnot any number of values: 3\n")
    assert "\nproved (1)\n  each_is_one_of_them (follows from the others)\n" in out
    assert "\nnot proved: liveness is not asked (1)\n  each_gets_one\n" in out


def test_a_number_that_may_leave_its_range_is_said_with_a_state(command: Command) -> None:
    code, out, err = command("prove", f"{__name__}:Runaway")
    assert code == Exit.FAILED, err
    assert "\nnothing is proved, since a number may leave its range:\n  range of last\n" in out
    assert "\nproved" not in out
    assert re.search(r"range of last: a counterexample to induction.*The step stamp breaks it here:\n", out)
    assert re.search(r"^  value  2$", out, re.M), out


def test_a_missing_solver_is_named_with_its_remedy(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    load.cache_clear()
    monkeypatch.setitem(sys.modules, "z3", None)
    try:
        code, out, err = command("prove", f"{LockServer.__module__}:LockServer")
    finally:
        load.cache_clear()
    assert (code, out) == (Exit.INCOMPLETE, "")
    assert "pip install 'trystate[prove]'" in err

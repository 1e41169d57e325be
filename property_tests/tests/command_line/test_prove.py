"""`trystate prove` prints which properties are proved for any size, and exits with the code of this result."""

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


def test_a_missing_solver_is_named_with_its_remedy(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    load.cache_clear()
    monkeypatch.setitem(sys.modules, "z3", None)
    try:
        code, out, err = command("prove", f"{LockServer.__module__}:LockServer")
    finally:
        load.cache_clear()
    assert (code, out) == (Exit.INCOMPLETE, "")
    assert "pip install 'trystate[prove]'" in err

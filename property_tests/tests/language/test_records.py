"""Records and derived columns: a record that was read is a value, and a column is shown but is not in the state."""

from __future__ import annotations

from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.errors import UsageError
from trystate.model.language import *
from trystate.model.prover.sizes import any_size
from trystate.property_tests.support.proofs import proved
from trystate.property_tests.support.systems.declarations import Base, assert_refused, declared
from trystate.property_tests.tests.language.refusals import refused

S = SymbolicState


class Swapped(System, deadlock=False):
    """Two records are exchanged, through a name, and one is changed through its name."""

    node = index(2)
    slot = record(round=integer(0, 3, initial=lambda node: node + 1), on=bool, per=node)
    spare = record(on=bool, round=(0, 3))

    @transition()
    def swap(self, s: S) -> None:
        """Exchanged; then the name of the first shows its assignment."""
        first, second = s.slot[0], s.slot[1]
        s.slot[0], s.slot[1] = second, first
        first.on = True
        s.spare = first

    @step(witness="is_swapped")
    def keeps_both(self, before: S, after: S) -> Any:
        """Both records are there afterwards."""
        same = (after.slot[1] == before.slot[0]) & (after.slot[0] == self.slot(round=before.slot[1].round, on=True))
        return same & (after.spare == {"round": before.slot[0].round, "on": True})

    @sometimes()
    def is_swapped(self, s: S) -> Any:
        """The first is the second."""
        return s.slot[0].round == 2


def test_a_record_that_was_read_is_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant reads components when they are used, and so a record gets its own components back."""
    assert not check(Swapped()).violated
    monkeypatch.setattr(SymbolicState, "fork", lambda state: state)
    assert [v.property.name for v in check(Swapped()).violated] == ["keeps_both"]


GIVEN = {
    "slot": "slot = record(round=integer(0, 3, initial=(1, 2)), who=one_of('node', optional=True), per='node')\n",
    "one": "one = record(round=(0, 3), mood=Mood)\n",
    "total": "@derived\ndef total(self, s): return s.level + 1\n",
    "twice": "@derived\ndef twice(self, s, node): return ~s.seen[node]\n",
}
REFUSED = refused("records and columns")


@pytest.mark.parametrize("text", REFUSED)
def test_a_misuse_of_a_record_or_a_column_is_refused_with_its_line(text: str) -> None:
    base = declared("".join(GIVEN[name] for name in GIVEN), Base)
    assert_refused(text, REFUSED[text], base)


class Ledger(System, deadlock=False):
    """Coins move between two nodes; the columns count them."""

    node = index(2)
    coins = integer(0, 2, per=node, initial=lambda node: 2 - 2 * node)
    marked = flag(per=node)

    @derived
    def total(self, s: S) -> Any:
        """All coins."""
        return sum_(s.coins)

    @derived
    def is_poor(self, s: S, node: Expr) -> Any:
        """A node has fewer coins than half of all."""
        return s.coins[node] < s.total - s.coins[node]

    @transition()
    def give(self, s: S, node: Expr) -> None:
        """A node that is not poor gives a coin; a node that is poor afterwards is marked."""
        s.when(~s.is_poor[node], s.coins[node] > 0)
        s.coins[node] = s.coins[node] - 1
        s.coins[s.node.after(node)] = s.coins[s.node.after(node)] + 1
        for j in s.node:
            s.marked[j] = s.is_poor[j]

    @fault("theft")
    def steal(self, s: S, node: Expr) -> None:
        """A coin is stolen."""
        s.when(s.coins[node] > 0)
        s.coins[node] = s.coins[node] - 1

    @sometimes()
    def second_is_poor(self, s: S) -> Any:
        """The second node is poor."""
        return s.is_poor[1]

    @step(witness="second_is_poor", on=("give",))
    def the_poor_are_marked(self, before: S, after: S) -> Any:
        """The marks are right after each gift."""
        return all_(after.marked[j] == after.is_poor[j] for j in after.node)

    @always(witness="second_is_poor")
    def nothing_is_lost(self, s: S) -> Any:
        """There are two coins."""
        return s.total == 2


def test_a_column_has_the_value_of_the_fields_where_it_is_read() -> None:
    report = check(Ledger())
    assert not report.violated and report.exploration.distinct == 4
    assert str(report.system.transition("give").conditions[0]) == "¬is_poor[node]"


def test_records_and_columns_are_proved_as_their_fields_are() -> None:
    text = """
lit = record(on=bool, often=(0, 2), per='node')
@derived
def is_right(self, s, node): return s.lit[node].often == as_int(s.lit[node].on)
@transition()
def light(self, s, node): 'On.'; s.when({guard}); s.lit[node] = dict(on=True, often=s.lit[node].often + 1)
@sometimes()
def all_are_lit(self, s): 'All.'; return s.lit.on.all()
@always(witness='all_are_lit')
def lit_once(self, s): 'Lit once.'; return s.is_right.all()
"""
    once, again = (declared(text.format(guard=guard), Base) for guard in ("~s.lit[node].on", "s.level == 0"))
    assert proved(any_size(once)).complete and not proved(any_size(again)).complete
    assert check(declared("knows = None", once)(), engine="explicit", symmetry=True).exploration.distinct == 3


def test_members_as_components_exclude_symmetry() -> None:
    cls = declared("slot = record(who=one_of('node'), per='node')", Base)
    with pytest.raises(UsageError, match="the values of slot_who are members of node; explore without symmetry"):
        check(declared("knows = None", cls)(), engine="explicit", symmetry=True)

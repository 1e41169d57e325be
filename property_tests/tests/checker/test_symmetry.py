"""Symmetry over named indices keeps one state of each orbit and every verdict of safety."""

from __future__ import annotations

from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.explicit.symmetry import Permutations, _Move, permutable, renamed
from trystate.model.checker.kernel import Kernel
from trystate.model.errors import UsageError
from trystate.model.language import *
from trystate.property_tests.support.mutants import rewritten, survivors
from trystate.property_tests.support.published.agreement import Voting
from trystate.property_tests.support.runs import assert_runs_show_what_they_claim, orbits, reachable
from trystate.property_tests.support.systems.declarations import declared

S = SymbolicState


class Chiefs(System, deadlock=False):
    """Nodes choose a chief. A node has an edge to another or not, and trusts a key or none."""

    node = index(3)
    key = index(2)
    chief = one_of("node", optional=True)
    edge = flag(per=("node", "node"))
    trusts = one_of("key", per="node", optional=True)
    spare = one_of("key", initial=ANY)
    terms = integer(0, 2)

    @transition()
    def connect(self, s: S, node0: Expr, node1: Expr) -> None:
        """An edge between two nodes is made."""
        s.when(node0 != node1, s.terms == 0, ~s.edge[node1, node0])
        s.edge[node0, node1] = True

    @transition()
    def choose(self, s: S, node: Expr) -> None:
        """A node with edges from two others is chosen, or any node if there was a chief before."""
        s.when(s.chief.absent, s.terms < 2, (count(s.edge[j, node] for j in s.node) == 2) | (s.terms == 1))
        s.chief, s.terms = node, s.terms + 1

    @transition()
    def trust(self, s: S) -> None:
        """The chief trusts any key that is not spare, and resigns."""
        key = s.choose(s.key)
        s.when(~s.chief.absent, key != s.spare)
        s.trusts[s.chief], s.chief = key, None

    @sometimes()
    def two_trust(self, s: S) -> Any:
        """Two nodes trust a key."""
        return count(~s.trusts[j].absent for j in s.node) == 2

    @always(witness="two_trust")
    def no_spare_key_is_trusted(self, s: S) -> Any:
        """No node trusts the spare key."""
        return all_(s.trusts[j] != s.spare for j in s.node)

    @always(witness="two_trust")
    def a_chief_has_edges(self, s: S) -> Any:
        """Two nodes have an edge to each chief: this is wrong in the second term."""
        return s.chief.absent | any_((s.chief == j) & (count(s.edge[k, j] for k in s.node) == 2) for j in s.node)


REFUSED = {
    "kind = choice(Mood)": (("node", "lock"), "symmetry has 'lock': give indices of Bad, each once: node, key"),
    "rank = integer(0, 2, per='node', initial=lambda node: node)": (("node",), "rank begin with different values"),
    "home = one_of('node', per='node', initial=lambda node: node)": (("node",), "home begin with different values"),
    "home = one_of('node', per='key', initial=lambda key: (0, 1) if key == 0 else (1, 2))":
        (("node",), "home begins with some members of node"),
    "first = one_of('key', initial=0)": (("key",), "first begins with some members of key: give all"),
    "@sometimes()\ndef last(self, s): 'Last.'; return s.chief == 2": (("node",), "last names node 2, so the members"),
    "@sometimes()\ndef after(self, s): 'Next.'; return s.chief == s.node.after(s.chief)": (("node",), "after .*node"),
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_members_that_are_not_interchangeable_are_refused(text: str) -> None:
    names, message = REFUSED[text]
    with pytest.raises(UsageError, match=message):
        check(declared(text, Chiefs)(), engine="explicit", symmetry=names)
    if names == ("node",) and "lambda" not in text:
        check(declared(text, Chiefs)(), engine="explicit", symmetry=("key",))  # the other index is interchangeable


MUTANTS = {
    "members as values keep their names": rewritten(renamed, "_named(names, cell.sort, value)", "value"),
    "values of moved cells are not replaced": rewritten(_Move.__call__, "old == before, after", "old == before, new"),
    "words are compared in the wrong order": rewritten(Permutations.canonical, "less = (a < b) | ((a == b) & less)",
                                                       "less = less"),
    "members of the start are not judged": rewritten(permutable, "not in (0, slot.sort.high + 1)", "< 0"),
}  # fmt: skip


class Wide(Chiefs):
    """Chiefs of two words."""

    weights = integer(0, 1 << 55)

    @transition()
    def weigh(self, s: S, node: Expr) -> None:
        """A chief that is trusted is heavy."""
        s.when(s.terms == 2, s.weights == 0, ~s.trusts[node].absent)
        s.weights = ite(s.trusts[node] == s.spare, 1, 1 << 55)


def test_a_wrong_rule_of_renaming_is_noticed() -> None:
    wide, partly = Wide(), declared("first = one_of('key', initial=0)", Chiefs)()
    assert Permutations(Kernel(wide), ("node", "key")).layout.words == 2
    expected = len(orbits(wide, reachable(wide), ("node", "key")))

    def judge() -> None:
        report = check(wide, engine="explicit", symmetry=("node", "key"))
        assert report.exploration.distinct == expected
        assert_runs_show_what_they_claim(report)
        with pytest.raises(UsageError):
            check(partly, engine="explicit", symmetry=("key",))

    assert survivors(MUTANTS, judge) == []


def test_voting_has_the_states_that_tlc_counts_under_symmetry() -> None:
    report = check(Voting(ballot=2), engine="explicit", symmetry=("acceptor", "value"))
    assert report.exploration.distinct == 77

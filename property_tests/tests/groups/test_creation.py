"""The system of groups: what each edition violates, that everything happens, and that each property can be violated."""

from __future__ import annotations

from typing import Any

from trystate.model.checker.check import check
from trystate.model.groups import creation
from trystate.model.groups.creation import Groups
from trystate.model.groups.findings import FINDINGS, PLAN
from trystate.model.groups.vocabulary import Edition
from trystate.model.language import Expr, SymbolicState, ite
from trystate.property_tests.support.pinned import Asked, bare, model_tests, violated

S = SymbolicState
SEED, TORCH, LOCAL, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.LOCAL, Edition.TRYSTATE
TRIO, PAIR = "process=3 group=2 outsiders=1", "process=2 group=2 outsiders=0"
PAIRS = "process=4 group=2 outsiders=2 others=2"  # no process is in both
CHAIN = "process=3 group=2 outsiders=1 others=1"  # one is
HANGS, MIXED = "creation_ends called_means_created deadlock_freedom", "a_communicator_is_of_one_group"
STALE = "names_are_fresh called_means_created"
LIVES = ("again", "restart")
# fmt: off
ASKED = (
    Asked(Groups, SEED, TRIO, 122),
    Asked(Groups, SEED, TRIO, 158, HANGS, ("skip",)),
    Asked(Groups, TORCH, TRIO, 103),
    Asked(Groups, TORCH, TRIO, 175, HANGS, ("skip",)),
    Asked(Groups, TORCH, PAIRS, 1511, f"{MIXED} {HANGS}", ("skip",)),
    Asked(Groups, TORCH, CHAIN, 257, f"{MIXED} {HANGS}", ("skip",)),
    Asked(Groups, TORCH, PAIR, 117, MIXED, ("threads",)),
    Asked(Groups, TORCH, TRIO, 427, f"{MIXED} {HANGS}", ("threads",)),
    Asked(Groups, TORCH, PAIR, 120, STALE, ("again",)),
    Asked(Groups, TORCH, TRIO, 1695, "names_are_fresh", ("restart",)),
    Asked(Groups, TORCH, TRIO, 5063, STALE, LIVES),
    Asked(Groups, LOCAL, PAIR, 27),
    Asked(Groups, LOCAL, TRIO, 168, HANGS, ("skip",)),
    Asked(Groups, TRYSTATE, TRIO, 223, HANGS, ("skip",)),
    Asked(Groups, TRYSTATE, PAIRS, 1359, HANGS, ("skip",)),
    Asked(Groups, TRYSTATE, CHAIN, 250, HANGS, ("skip",)),
    Asked(Groups, TRYSTATE, PAIR, 117, MIXED, ("threads",)),
    Asked(Groups, TRYSTATE, TRIO, 663, HANGS, ("threads",)),
    Asked(Groups, TRYSTATE, TRIO, 264, "", ("again",)),
    Asked(Groups, TRYSTATE, PAIR, 326, "", LIVES),
    Asked(Groups, TRYSTATE, TRIO, 2358, "", LIVES),
)
# fmt: on


class KeepsItsCounter(creation.Ours):
    """Every group of a process has the first name."""

    def next_number(self, s: S, process: Expr, group: Expr) -> Any:
        return 1


class SharesItsKeys(creation.Ours):
    """The keys of the second life are not below a prefix of their own."""

    same_name = Groups.same_name
    finds_no_other_life = Groups.finds_no_other_life


class ComparesNoRanks(creation.Ours):
    """A member does not look at the ranks that another has written below the name."""

    of_named = Groups.of_named


class WaitsForTheDead(creation.Ours):
    """A member does not notice that another is gone."""

    fail = None  # type: ignore[assignment]


class LosesCount(creation.Ours):
    """An outsider's call does not count."""

    def next_count(self, s: S, process: Expr, group: Expr) -> Any:
        return s.named[process] + ite(self.is_member(process, group), 1, 0)

    def next_number(self, s: S, process: Expr, group: Expr) -> Any:
        return ite(self.is_member(process, group), s.named[process] + 1, 0)


class DrawsItsOwn(creation.Seed):
    """A member that is not rank 0 draws a sequence number too."""

    def read(self, s: S, process: Expr, group: Expr) -> Any:
        return 1


# fmt: off
MUTANTS = (
    ("a_communicator_is_of_one_group", KeepsItsCounter, PAIR, ()),
    ("a_communicator_is_of_one_group", ComparesNoRanks, PAIRS, ("skip",)),
    ("names_are_fresh", SharesItsKeys, PAIR, ("again",)),
    ("called_means_created", SharesItsKeys, PAIR, ("again",)),
    ("called_means_created", LosesCount, TRIO, ()),
    ("creation_ends", LosesCount, TRIO, ()),
    ("creation_ends", WaitsForTheDead, PAIR, LIVES),
    ("deadlock_freedom", WaitsForTheDead, PAIR, LIVES),
)
# fmt: on

TestModel = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 170])


def test_the_seed_s_sequence_numbers_agree_because_rank_0_alone_draws() -> None:
    """It is a property of that edition alone: later ones of torch write none."""
    wrong = bare(DrawsItsOwn)
    assert "sequence_numbers_agree" in violated(check(wrong(process=2, group=2, outsiders=0)))
    assert "sequence_numbers_agree" not in violated(check(Groups(edition=SEED, process=2, group=2, outsiders=0)))


def test_every_finding_is_shown_by_a_planned_run() -> None:
    assert {name for run in PLAN for names in run.findings.values() for name in names} == {*FINDINGS}

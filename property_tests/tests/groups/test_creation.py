"""The system of groups: the violations of each edition, each step happens, and each property can be violated."""

from __future__ import annotations

from trystate.model.checker.check import check
from trystate.model.groups import creation
from trystate.model.groups.creation import Groups
from trystate.model.groups.findings import FINDINGS, PLAN
from trystate.model.groups.vocabulary import Edition
from trystate.property_tests.support.mutants import wrong
from trystate.property_tests.support.pinned import Asked, bare, model_tests, of_plan, violated

SEED, TRYSTATE = Edition.SEED, Edition.TRYSTATE
TRIO, PAIR = "process=3 group=2 outsiders=1", "process=2 group=2 outsiders=0"
PAIRS = "process=4 group=2 outsiders=2 others=2"  # no process is in both
HANGS, LIVES = "creation_ends called_means_created deadlock_freedom", ("again", "restart")
ASKED = (*of_plan(Groups), Asked(Groups, TRYSTATE, TRIO, 663, HANGS, ("threads",)))


# The keys of the second life have no prefix that separates them.
SharesItsKeys = wrong(
    "SharesItsKeys", creation.Ours, same_name=Groups.same_name, finds_no_other_life=Groups.finds_no_other_life
)


# A member does not notice that another has ended.
WaitsForTheDead = wrong("WaitsForTheDead", creation.Ours, fail=None)


# A member that is not rank 0 draws a sequence number too.
DrawsItsOwn = wrong("DrawsItsOwn", creation.Seed, read=lambda self, s, process, group: 1)


# fmt: off
MUTANTS = (
    ("a_communicator_is_of_one_group", wrong("KeepsItsCounter", creation.Ours,
     next_number=lambda self, s, process, group: 1), PAIR, ()),
    ("a_communicator_is_of_one_group", wrong("ComparesNoRanks", creation.Ours, of_named=Groups.of_named), PAIRS,
     ("skip",)),
    ("names_are_fresh", SharesItsKeys, PAIR, ("again",)),
    ("called_means_created", SharesItsKeys, PAIR, ("again",)),
    ("creation_ends", WaitsForTheDead, PAIR, LIVES),
    ("deadlock_freedom", WaitsForTheDead, PAIR, LIVES),
)
# fmt: on

TestModel = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 170])


def test_the_seed_s_sequence_numbers_agree_because_rank_0_alone_draws() -> None:
    """Only that edition has this property: later releases of torch do not write such a number."""
    assert "sequence_numbers_agree" in violated(check(bare(DrawsItsOwn)(process=2, group=2, outsiders=0)))
    assert "sequence_numbers_agree" not in violated(check(Groups(edition=SEED, process=2, group=2, outsiders=0)))


def test_every_finding_is_shown_by_a_planned_run() -> None:
    assert {name for run in PLAN for names in run.findings.values() for name in names} == {*FINDINGS}


def test_the_first_member_of_a_group_draws_its_number() -> None:
    assert not violated(check(Groups(edition=SEED, process=3, group=2, outsiders=1, others=1)))

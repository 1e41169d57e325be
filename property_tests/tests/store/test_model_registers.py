"""The system of registers: what each edition violates, and that each property can be violated.

Every property is checked on servers of ours with one mistake: a property that no mistake violates would be worthless.
"""

from __future__ import annotations

from trystate.model.language import SymbolicState, not_
from trystate.model.store.registers import Ours, Registers
from trystate.model.store.vocabulary import Edition
from trystate.property_tests.support.pinned import Asked, model_tests, of_plan
from trystate.property_tests.support.systems.changed import changed

S = SymbolicState
SEED, TORCH, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TRYSTATE
HALVES = "answers_are_those_of_one_moment multi_sets_are_seen_whole requests_are_whole"
# fmt: off
ASKED = (
    Asked(Registers, SEED, "client=1 value=1", 62, "", ("drop",)),
    Asked(Registers, TORCH, "client=1 value=1", 84, "requests_are_whole", ("drop",)),
    Asked(Registers, TORCH, "client=2 value=1", 17792, HALVES),
    Asked(Registers, TRYSTATE, "client=1 value=1", 82, "", ("drop",)),
    Asked(Registers, TRYSTATE, "client=3 value=1", 199186, "", ("drop",)),
    *of_plan(Registers, most=400_000),
)
# fmt: on


# fmt: off
SaysItIsStored = changed(Ours, "SaysItIsStored", reply=lambda self, value, expected, desired, matches: desired)
ComparesNothing = changed(Ours, "ComparesNothing", is_match=lambda *_: not_(False))
TakesHalves = changed(Ours, "TakesHalves", takes_half=lambda self, s, value: self.stores(s, 1, value))
NeverAnswers = changed(Ours, "NeverAnswers", read_answer=None)
MUTANTS = (
    ("answers_are_those_of_one_moment", ComparesNothing, "client=1", ()),
    ("at_most_one_wins", ComparesNothing, "client=2", ()),
    ("desired_means_it_is_there", SaysItIsStored, "client=1", ()),
    ("failing_changes_nothing", ComparesNothing, "client=1", ()),
    ("multi_sets_are_seen_whole", TakesHalves, "client=2 value=1", ()),
    ("requests_are_whole", TakesHalves, "client=1 value=1", ("drop",)),
    ("operations_return", NeverAnswers, "client=1 value=1", ()),
    ("deadlock_freedom", NeverAnswers, "client=1 value=1", ()),
)
# fmt: on


TestModel = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 100])

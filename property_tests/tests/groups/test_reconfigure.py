"""The reconfigure of torchcomms: the violations of each edition, and each property can be violated."""

from __future__ import annotations

from trystate.model.groups import reconfigure
from trystate.model.groups.reconfigure import Reconfigure
from trystate.property_tests.support.mutants import altered, wrong
from trystate.property_tests.support.pinned import model_tests, of_plan

ASKED = of_plan(Reconfigure)
MENDED = reconfigure.Mended
TRIO = "process=3 configuration=3 unordered=0"
ALL = ("die", "replace")

# A handle shows the communicator that the process has given up.
ShowsTheOld = wrong("ShowsTheOld", MENDED, handle=Reconfigure.handle)
# Two new processes take their ranks from a counter.
CountsEqualHandles = wrong("CountsEqualHandles", MENDED, new_rank=Reconfigure.new_rank)
# Only the waits at the store end.
WaitsForTheDead = wrong("WaitsForTheDead", MENDED, waits_in_vain=Reconfigure.waits_in_vain)
# All have rank 0.
AllAreFirst = altered("AllAreFirst", MENDED, "connect", "self.grown_rank(before, q)", "0")
# fmt: off
MUTANTS = (
    ("the_quorum_stays", ShowsTheOld, TRIO, ("die",)),
    ("ranks_differ", CountsEqualHandles, TRIO, ALL),
    ("one_communicator", AllAreFirst, TRIO, ALL),
    ("places_are_ranks", wrong("KeepsTheOrder", MENDED, grown_rank=Reconfigure.grown_rank), TRIO, ALL),
    ("calls_end", WaitsForTheDead, TRIO, ("die",)),
    ("deadlock_freedom", WaitsForTheDead, TRIO, ("die",)),
)
# fmt: on

TestModel = model_tests(ASKED, MUTANTS, [asked for asked in ASKED if asked.states < 100])

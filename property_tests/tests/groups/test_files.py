"""The system of a store in a file: the violations of each edition."""

from __future__ import annotations

from trystate.model.groups import files
from trystate.model.groups.files import Files
from trystate.property_tests.support.mutants import wrong
from trystate.property_tests.support.pinned import model_tests, of_plan

# A process that opens the file does not check whether its users still live.
KeepsTheFile = wrong("KeepsTheFile", files.Mended, left_over=lambda self, s: False)


# The last process does not delete the file.
NeverDeletes = wrong("NeverDeletes", files.Mended, is_last=lambda self, s: False)


# The wait for the lock has no limit.
WaitsForTheLock = wrong("WaitsForTheLock", files.Mended, lock_times_out=None)


# fmt: off
MUTANTS = (
    ("one_writes_at_a_time", wrong("TakesAnyLock", files.Mended, is_free=lambda self, s: True), "process=2", ()),
    ("addresses_are_of_this_job", KeepsTheFile, "process=2", ("another_job", "die")),
    ("the_last_one_deletes", NeverDeletes, "process=2", ()),
    ("half_a_record_stops_nobody", wrong("ReadsHalves", files.Mended, may_not_read=Files.may_not_read), "process=2",
     ("die",)),
    ("operations_end", WaitsForTheLock, "process=2", ("stop",)),
    ("deadlock_freedom", WaitsForTheLock, "process=2", ("stop",)),
)
# fmt: on

TestModel = model_tests(of_plan(Files), MUTANTS, [asked for asked in of_plan(Files) if asked.states < 300])

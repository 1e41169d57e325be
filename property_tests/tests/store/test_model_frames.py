"""The systems of frames, start-ups and registers: what each edition violates, and that each property can be violated.

Every property is checked on servers of ours with one mistake: a property that no mistake violates would be worthless.
"""

from __future__ import annotations

from typing import Any

from trystate.model.language import SymbolicState, all_, not_
from trystate.model.store import frames, startup
from trystate.model.store.frames import Frames
from trystate.model.store.registers import Ours as OurRegisters
from trystate.model.store.registers import Registers
from trystate.model.store.startup import StartUps
from trystate.model.store.vocabulary import Connection, Edition, Fragment, Serving, StartUp
from trystate.property_tests.support.pinned import Asked, model_tests, of_plan
from trystate.property_tests.support.systems.changed import before, both, changed, puts, then, when

S = SymbolicState
SEED, TORCH, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TRYSTATE
STRANGER = "only_the_validated_are_served"
WRONGED, LEFT = "who_keeps_the_rules_stays", "nothing_is_left_of_the_closed"
EARLY, MISCOUNTED = "started_means_enough_are_counted", "only_the_start_up_counts"
NEVER, ENDLESS = "enough_counted_means_started", "the_constructor_ends deadlock_freedom"
FOUR = ("crash", "freeze", "overwrite", "stop")
EVERY = ("again", *FOUR)
# fmt: off
ASKED = (
    Asked(Frames, SEED, "connection=1", 15, STRANGER),
    Asked(Frames, TORCH, "connection=1", 358, f"requests_are_whole {STRANGER} {WRONGED} {LEFT}"),
    Asked(Frames, TRYSTATE, "connection=1", 43, "", ("stop",)),
    Asked(StartUps, SEED, "client=2", 27, EARLY),
    Asked(StartUps, SEED, "client=3", 4331, f"{EARLY} {MISCOUNTED} {ENDLESS}", FOUR),
    Asked(StartUps, TORCH, "client=2", 18),
    Asked(StartUps, TORCH, "client=2", 31, ENDLESS, ("freeze",)),
    Asked(StartUps, TORCH, "client=2", 47, f"{EARLY} {MISCOUNTED} {NEVER}", ("overwrite",)),
    Asked(StartUps, TRYSTATE, "client=2", 411, "", EVERY),
    Asked(StartUps, TRYSTATE, "client=3", 166, "", ("again",)),
    *of_plan(Frames, StartUps),
)
# fmt: on


def holds_nothing(self: Any, s: S) -> Any:
    return all_(held == Fragment.NOTHING for held in s.held)


WantsValidateWhole = changed(
    frames.Ours,
    "WantsValidateWhole",
    begin_to_validate=both(
        when(lambda self, s, connection: s.at[connection] == Connection.CONNECTING),
        lambda self, s, connection: self.close(s, connection, breaks_a_rule=False),
    ),
)
ServesStrangers = changed(
    frames.Ours,
    "ServesStrangers",
    stranger_is_refused=both(
        when(lambda self, s, connection: s.at[connection] == Connection.CONNECTING), puts(at=Connection.READY)
    ),
)
LeavesThemOpen = changed(
    frames.Ours,
    "LeavesThemOpen",
    finish=both(when(lambda self, s: s.serving == Serving.ENDING), puts(serving=Serving.ENDED)),
)
TakesAnyNumber = changed(
    startup.Ours, "TakesAnyNumber", overwrite=lambda self, s, number: setattr(s, "counter", number)
)
WritesWhatItHas = changed(frames.Ours, "WritesWhatItHas", set_begins=then(frames.Ours.set_begins, frames.Ours.write))
ReadsWithoutEnd = changed(startup.Ours, "ReadsWithoutEnd", counting_times_out=None)

# fmt: off
MUTANTS = (
    ("requests_are_whole", WritesWhatItHas, "connection=1", ()),
    ("nothing_is_undone", WritesWhatItHas, "connection=2", ()),
    ("only_the_validated_are_served", ServesStrangers, "connection=1", ()),
    ("who_keeps_the_rules_stays", WantsValidateWhole, "connection=1", ()),
    ("nothing_is_left_of_the_closed", changed(frames.Ours, "ForgetsNothing", forget=lambda *_: None), "connection=1",
        ()),
    ("what_returned_has_happened", changed(frames.Ours, "AnswersFirst",
        ask=then(frames.Ours.ask, puts(returned=True))), "connection=1", ("stop",)),
    ("requests_are_served", changed(frames.Ours, "ReadsToTheEnd", is_free=holds_nothing), "connection=2", ()),
    ("an_end_is_reached", changed(frames.Ours, "WaitsForHalves",
        finish=before(frames.Ours.finish, when(holds_nothing))), "connection=1", ("end",)),
    ("an_end_leaves_nothing", LeavesThemOpen, "connection=1", ("end",)),
    ("deadlock_freedom", changed(frames.Ours, "NeverCleansUp", clean_up=None), "connection=1", ()),
    ("started_means_enough_are_counted", TakesAnyNumber, "client=2", ("overwrite",)),
    ("only_the_start_up_counts", TakesAnyNumber, "client=2", ("overwrite",)),
    ("a_master_that_failed_serves_nobody", changed(startup.Ours, "ServesOn", fails=puts(phase=StartUp.FAILED)),
        "client=2", ()),
    ("a_constructor_that_failed_leaves_nothing", changed(startup.Ours, "KeepsItsConnection", closes=lambda *_: None),
        "client=2", ()),
    ("enough_counted_means_started", TakesAnyNumber, "client=2", ("overwrite",)),
    ("the_constructor_ends", ReadsWithoutEnd, "client=2", ("freeze",)),
    ("deadlock_freedom", ReadsWithoutEnd, "client=2", ("freeze",)),
)
# fmt: on


TestModel = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 500])


# ---- registers

HALVES = "answers_are_those_of_one_moment multi_sets_are_seen_whole requests_are_whole"
# fmt: off
REGISTERS = (
    Asked(Registers, SEED, "client=1 value=1", 62, "", ("drop",)),
    Asked(Registers, TORCH, "client=1 value=1", 84, "requests_are_whole", ("drop",)),
    Asked(Registers, TORCH, "client=2 value=1", 17792, HALVES),
    Asked(Registers, TRYSTATE, "client=1 value=1", 82, "", ("drop",)),
    Asked(Registers, TRYSTATE, "client=3 value=1", 199186, "", ("drop",)),
    *of_plan(Registers, most=400_000),
)
# fmt: on


# fmt: off
SaysItIsStored = changed(OurRegisters, "SaysItIsStored", reply=lambda self, value, expected, desired, matches: desired)
ComparesNothing = changed(OurRegisters, "ComparesNothing", is_match=lambda *_: not_(False))
TakesHalves = changed(OurRegisters, "TakesHalves", takes_half=lambda self, s, value: self.stores(s, 1, value))
NeverAnswers = changed(OurRegisters, "NeverAnswers", read_answer=None)
OF_REGISTERS = (
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


TestRegisters = model_tests(REGISTERS, OF_REGISTERS, [a for a in REGISTERS if a.states < 100])

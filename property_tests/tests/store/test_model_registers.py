"""The system of registers: what each edition violates, and that each property can be violated.

Every property is asked of a server of ours that is wrong in one place: a property that nothing violates says nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trystate.model.language import SymbolicState, ite, not_
from trystate.model.language.expressions import lift
from trystate.model.store.registers import Ours, Registers
from trystate.model.store.vocabulary import Edition
from trystate.property_tests.support.pinned import Asked, model_tests

S = SymbolicState
SEED, TORCH, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TRYSTATE
HALVES = "answers_are_those_of_one_moment multi_sets_are_seen_whole requests_are_whole"
# fmt: off
ASKED = (
    Asked(Registers, SEED, "client=1 value=1", 62, "", ("drop",)),
    Asked(Registers, SEED, "client=2", 48663, "", ("drop",)),
    Asked(Registers, TORCH, "client=1 value=1", 84, "requests_are_whole", ("drop",)),
    Asked(Registers, TORCH, "client=2 value=1", 17792, HALVES),
    Asked(Registers, TORCH, "client=2", 300380, HALVES, ("drop",)),
    Asked(Registers, TRYSTATE, "client=1 value=1", 82, "", ("drop",)),
    Asked(Registers, TRYSTATE, "client=2", 69271, "", ("drop",)),
    Asked(Registers, TRYSTATE, "client=3 value=1", 199186, "", ("drop",)),
)
# fmt: on


def test_what_the_oldest_edition_does_not_have_is_not_asked_of_it() -> None:
    absent = {p.name for p in Registers(edition=TORCH).properties}
    absent -= {p.name for p in Registers(edition=SEED).properties}
    assert absent == {"all_are_read", "multi_sets_are_seen_whole"}


class AnswersWithTheOldValue(Ours):
    """compare_set is answered with what the key held before."""

    def reply(self, value: Any, expected: Any, desired: Any, matches: Any) -> Any:
        return value


class SaysItIsStored(Ours):
    """compare_set is answered with the desired value, stored or not."""

    def reply(self, value: Any, expected: Any, desired: Any, matches: Any) -> Any:
        return desired


class ComparesNothing(Ours):
    """compare_set stores whatever the value is."""

    def is_match(self, value: Any, expected: Any) -> Any:
        return not_(False)


class StoresAndDenies(Ours):
    """A compare_set that does not match stores as well, and is answered as if it had not."""

    def reply(self, value: Any, expected: Any, desired: Any, matches: Any) -> Any:
        return ite(value == expected, desired, ite(value == 0, expected, value))

    is_match = ComparesNothing.is_match


class DeletesAll(Ours):
    """delete_key deletes every key."""

    def stores(self, s: S, number: Any, value: Any, when: Any = True) -> None:
        super().stores(s, ite(lift(value) == 0, 0, number), value, when)


class TakesHalves(Ours):
    """The server carries out what it has of a MULTI_SET."""

    def takes_half(self, s: S, value: Any) -> None:
        self.stores(s, 1, value)


class SetsTheFirstOnly(Ours):
    """Only the first pair of a MULTI_SET is carried out."""

    def stores(self, s: S, number: Any, value: Any, when: Any = True) -> None:
        super().stores(s, ite(lift(number) == 0, 1, number), value, when)


class NeverTakes(Ours):
    """The server may leave a request unread for ever."""

    take_compare_set = replace(Ours.take_compare_set, fair=False)


class NeverAnswers(Ours):
    """The server reads a DELETE, and answers nothing."""

    read_answer = None  # type: ignore[assignment]


# fmt: off
MUTANTS = (
    ("answers_are_those_of_one_moment", AnswersWithTheOldValue, "client=1 value=1", ()),
    ("answers_are_those_of_one_moment", ComparesNothing, "client=1", ()),
    ("answers_are_those_of_one_moment", TakesHalves, "client=2 value=1", ()),
    ("at_most_one_wins", ComparesNothing, "client=2", ()),
    ("desired_means_it_is_there", SaysItIsStored, "client=1", ()),
    ("failing_changes_nothing", ComparesNothing, "client=1", ()),
    ("failing_changes_nothing", StoresAndDenies, "client=1", ()),
    ("multi_sets_are_seen_whole", TakesHalves, "client=2 value=1", ()),
    ("multi_sets_are_seen_whole", SetsTheFirstOnly, "client=1 value=1", ()),
    ("requests_are_whole", TakesHalves, "client=1 value=1", ("drop",)),
    ("requests_are_whole", DeletesAll, "client=1 value=1", ()),
    ("operations_return", NeverTakes, "client=1 value=1", ()),
    ("operations_return", NeverAnswers, "client=1 value=1", ()),
    ("deadlock_freedom", NeverAnswers, "client=1 value=1", ()),
)
# fmt: on


TestModel = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 100])

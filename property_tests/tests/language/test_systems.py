"""A system for given sizes, edition and faults: what it has, and what it refuses."""

from __future__ import annotations

import enum
from collections.abc import Callable
from copy import copy
from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import *
from trystate.property_tests.support.lines import blamed
from trystate.property_tests.support.systems.declarations import Base, Mood, Other, refusal


def declare(**body: Any) -> str:
    return refusal(lambda: type("Bad", (Base,), body)())


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (lambda: integer(0, "tpo"), "x: the bound 'tpo' is neither a constant nor an index of the system"),
        (lambda: integer(3, 1), "x: no value from 3 to 1"),
        (lambda: integer(0, 3, initial=4), "x: initial value 4 is outside 0..3"),
        (lambda: integer(0, 3, initial=(1, -1)), "x: initial value -1 is outside 0..3"),
        (lambda: flag(per="nod"), "x: per='nod' is not an index of the system (node)"),
        (lambda: choice(Mood, initial=Other.ONE), "x: initial value ONE is of sort"),
        (lambda: choice(Mood, initial=1), "x: initial value 1 is of sort int"),
        (lambda: flag(initial=1), "x: initial value 1 is of sort int, not bool"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_field_is_an_error_at_its_declaration(declared: Callable[[], Any], words: str) -> None:
    field = declared()
    message = declare(x=field)
    assert message.startswith(f"{field.at}: {words}")
    assert field.at.startswith(__file__ + ":")


@pytest.mark.parametrize("default", [0, -1, True, 1.5, None])
def test_a_default_size_is_one_that_a_system_takes(default: Any) -> None:
    message = refusal(lambda: index(default))  # blamed: index default
    assert message == blamed("index default") + (
        f"the default of an index is {default!r}: give a whole number of at least 1"
    )
    if default != 0:
        assert f"a constant is {default!r}: give a whole number of at least 0" in refusal(lambda: constant(default))


def test_a_field_is_blamed_where_it_was_declared() -> None:
    field = integer(5, 4)  # blamed: empty range
    assert declare(x=field).startswith(blamed("empty range"))


def test_a_field_cannot_hide_an_attribute_of_systems_or_states() -> None:
    names = {name for name in (*dir(System()), *dir(SymbolicState(System()))) if not name.startswith("__")}
    assert {"cells", "initial_states", "transition", "name", "faults", "_sizes", "when", "fork", "_trace"} <= names
    for name in names:
        field = flag()
        message = declare(**{name: field})
        assert message.startswith(f"{field.at}: a field cannot be called {name!r}: a s")
        assert message.endswith(" has that already, rename it")


def whatever(self: Any, s: Any, *_: Any) -> Any:  # blamed: whatever
    """Anything."""
    return s.seen[0]


OF_EACH_KIND: dict[str, tuple[Callable[[], Any], str]] = {
    "sequence": (lambda: sequence(1, full=bool), ""),
    "index": (lambda: index(2), ""),
    "constant": (lambda: constant(2), ""),
    "transition": (lambda: transition()(whatever), "whatever"),
    "machine": (lambda: machine(Mood)(whatever), "whatever"),
    "property": (lambda: sometimes()(whatever), "whatever"),
    "terminal condition": (lambda: terminal(whatever), "whatever"),
}


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_no_declaration_can_hide_an_attribute_of_systems(kind: str) -> None:
    declared, line = OF_EACH_KIND[kind]
    for name in ("cells", "label", "sizes"):
        message = declare(**{name: declared()})
        assert message.startswith(blamed(line) if line else __file__ + ":")
        assert message.endswith(f" {kind} cannot be called {name!r}: a system has that already, rename it")


def test_a_property_may_have_a_name_of_states_and_an_index_may_not() -> None:
    system = type("Good", (Base,), {"fork": sometimes()(whatever)})()
    assert system.claim("fork").doc == "Anything."
    assert "an index cannot be called 'fork': a state has that already" in declare(fork=index(2))


def test_a_field_of_a_sequence_cannot_hide_an_index() -> None:
    assert "a field cannot be called 'wire_length'" in declare(wire=sequence(1, full=bool), wire_length=index(2))


class Edition(enum.Enum):
    OLD = "old"
    NEW = "new"


class Full(Base):
    """Has editions, faults and a switch."""

    Edition = Edition

    @transition(editions=[Edition.NEW])
    def improve(self, s: Any) -> None:
        """Only in the new edition."""
        s.level = 1

    @fault("crash", each="node", bound=2)
    def crash(self, s: Any, node: Any) -> None:
        """A node crashes."""
        s.when(~s.seen[node])
        s.seen[node] = True

    @environment(switch="rain")
    def rain(self, s: Any) -> None:
        """It rains, once."""
        s.mood = Mood.CROSS

    @sometimes(needs="rain")
    def cross(self, s: Any) -> Any:
        """Somebody is cross."""
        return s.mood == Mood.CROSS


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"nodes": 2}, "Full has no size 'nodes': it has node, top"),
        ({"node": 0}, "Full: node is 0; give a whole number of at least 1"),
        ({"node": True}, "Full: node is True; give a whole number"),
        ({"node": 1.5}, "Full: node is 1.5; give a whole number"),
        ({"top": -1}, "Full: top is -1; give a whole number of at least 0"),
        ({"edition": "newest"}, "Full has no edition 'newest': it has OLD, NEW"),
        ({"faults": ["fire"]}, "Full has no fault 'fire': it has crash, rain"),
        ({"faults": {"crash": 0}}, "Full: fault crash at most 0 times; give at least 1, or leave it out"),
    ],
)
def test_an_unknown_size_edition_or_fault_is_a_usage_error_with_what_there_is(arguments: Any, words: str) -> None:
    with pytest.raises(UsageError) as error:
        Full(**arguments)
    assert words in str(error.value)


def test_a_system_without_editions_takes_none() -> None:
    with pytest.raises(UsageError, match="Base has no editions: leave edition='old' out"):
        Base(edition="old")


@pytest.mark.parametrize(("edition", "names"), [("new", ["improve"]), (Edition.OLD, []), (None, [])])
def test_an_edition_has_its_own_transitions_and_the_first_is_the_default(edition: Any, names: list[str]) -> None:
    assert [t.name for t in Full(edition=edition).transitions] == names


def test_a_field_is_a_variable_only_of_the_editions_that_it_names() -> None:
    class Editions(Full):
        dry = flag(per="node", editions=[Edition.OLD])
        depth = integer(0, "top", editions=[Edition.NEW])
        temper = choice(Mood, editions=[Edition.OLD, Edition.NEW])

        @transition(editions=[Edition.NEW])
        def sink(self, s: Any) -> None:
            """Deeper."""
            s.depth = 1

    old, new = (set(Editions(edition=e).slots) - set(Full(edition=e).slots) for e in Edition)
    assert (old, new) == ({"dry", "temper"}, {"depth", "temper"})


class Varied(Base):
    """Each edition has a class of its own."""

    Edition = Edition

    def rise(self) -> int:
        return 1

    @transition()
    def climb(self, s: Any) -> None:
        """Higher."""
        s.when(s.level == 0)
        s.level = self.rise()


class Old(Varied, edition=Edition.OLD):
    """Falls again."""

    @fault("fall")
    def fall(self, s: Any) -> None:
        """Back to the ground."""
        s.level = 0


class New(Varied, edition=Edition.NEW):
    """Climbs by two."""

    def rise(self) -> int:
        return 2


def test_an_edition_is_built_as_its_class_and_keeps_the_name_of_its_family() -> None:
    assert [type(Varied(edition=e)) for e in (None, "new", Edition.OLD)] == [Old, New, Old]
    old, new = Varied(faults=["fall"]), New()
    assert [t.name for t in old.transitions] == ["climb", "fall"] and [t.name for t in new.transitions] == ["climb"]
    assert (old.label, new.label) == ("Varied(node=2, top=3) OLD with fall", "Varied(node=2, top=3) NEW")
    assert new.family is Varied and new.faults == {} and Varied(edition="new", faults=["fall"]).faults == {"fall": 1}


def test_a_class_of_an_unknown_edition_is_an_error() -> None:
    assert "Bad: Other.ONE is not an edition of the system" in refusal(
        lambda: type("Bad", (Varied,), {}, edition=Other.ONE)
    )


def test_a_subclass_of_the_family_changes_every_edition_and_one_of_an_edition_only_that() -> None:
    class Higher(Varied):
        def rise(self) -> int:
            return super().rise() + 1

    class Highest(New):
        def rise(self) -> int:
            return super().rise() + 1

    for edition, last in ((Edition.OLD, 2), (Edition.NEW, 3)):
        built = Higher(edition=edition)
        assert isinstance(built, Varied.for_edition(edition)) and built.name == "Higher" and built.rise() == last
    assert Highest().rise() == 3 and Highest().edition is Edition.NEW and copy(Highest()).rise() == 3
    with pytest.raises(UsageError, match=r"Highest is of the edition Edition.NEW: leave edition='old' out"):
        Highest(edition="old")


def test_a_step_that_uses_a_field_of_another_edition_is_an_error() -> None:
    class Editions(Full):
        depth = integer(0, "top", editions=[Edition.NEW])

        @transition()
        def sink(self, s: Any) -> None:
            """Deeper, also where there is no depth."""
            s.depth = 1

    Editions(edition=Edition.NEW)
    with pytest.raises(DeclarationError, match="depth"):
        Editions(edition=Edition.OLD)


def test_a_transition_of_an_edition_that_the_system_lacks_is_an_error() -> None:
    def body(self: Any, s: Any) -> None:  # blamed: edition
        """Never there."""
        s.level = 0

    assert declare(bad=transition(editions=[Other.ONE])(body)) == (
        blamed("edition") + "bad: Other.ONE is not an edition of the system"
    )


class Moody(Base):
    """Gets cross in any edition, and then goes in the new one only."""

    Edition = Edition

    @machine(Mood)
    def mood_state(self, s: Any) -> Any:
        """The mood."""
        return s.mood

    @transition(moves=[arc(Mood.CALM, Mood.CROSS), may(Mood.CROSS, Mood.GONE, editions=[Edition.NEW])])
    def worsen(self, s: Any) -> None:
        """The mood gets worse."""
        s.when(s.mood != Mood.GONE)
        s.mood = ite(s.mood == Mood.CALM, Mood.CROSS, Mood.GONE)


def test_a_move_is_claimed_of_the_editions_that_it_names() -> None:
    assert not check(Moody(edition="new"), engine="interpret").unreached
    with pytest.raises(DeclarationError, match=r"worsen moves the machine mood_state in a way .*CROSS -> GONE"):
        check(Moody(edition="old"), engine="interpret")


def test_a_move_of_an_unknown_edition_is_an_error() -> None:
    def body(self: Any, s: Any) -> None:  # blamed: move
        """Never there."""
        s.mood = Mood.CROSS

    moves = [may(Mood.CALM, Mood.CROSS, editions=[Other.ONE])]
    assert declare(bad=transition(moves=moves)(body)) == (
        blamed("move") + "bad: Other.ONE is not an edition of the system"
    )


def test_a_property_of_an_unknown_edition_is_an_error() -> None:
    def other(self: Any, s: Any) -> Any:  # blamed: other
        """Other."""
        return s.level == 0

    assert declare(other=sometimes(editions=[Other.ONE])(other)) == (
        blamed("other") + "other: Other.ONE is not an edition of the system"
    )


def test_a_property_is_asked_only_of_the_editions_that_it_names() -> None:
    class Editions(Base):
        Edition = Other

        @sometimes(editions=[Other.TWO])
        def low(self, s: Any) -> Any:
            """It is low."""
            return s.level == 0

        @always(witness="low", editions=[Other.TWO])
        def never_high(self, s: Any) -> Any:
            """It is never high."""
            return s.level < 3

        @step(witness="low", editions=[Other.TWO])
        def never_falls(self, before: Any, after: Any) -> Any:
            """It never falls."""
            return after.level >= before.level

        @leads_to(editions=[Other.TWO])
        def rises(self, s: Any) -> Any:
            """It rises."""
            return s.level == 0, s.level > 0

        @sometimes()
        def calm(self, s: Any) -> Any:
            """It is calm."""
            return s.mood == Mood.CALM

    assert [p.name for p in Editions(edition=Other.ONE).properties] == ["calm"]
    asked = [p.name for p in Editions(edition=Other.TWO).properties]
    assert asked == ["low", "never_high", "never_falls", "rises", "calm"]


def test_faults_are_off_unless_switched_on_and_happen_no_more_often_than_bound() -> None:
    assert [t.name for t in Full().transitions] == []
    system = Full(faults=["crash", "rain"])
    assert [t.name for t in system.transitions] == ["crash", "rain"]
    assert {k: s.initial for k, s in system.slots.items() if k.endswith("_left")} == {
        "crash_left": (2,), "rain_left": (1,),
    }  # fmt: skip
    assert Full(faults={"crash": 5}).slots["crash_left"].sort.high == 5
    once = check(Full(faults={"crash": 1}), engine="interpret")
    assert once.exploration.distinct == 3
    assert check(Full(faults={"crash": 2}), engine="interpret").exploration.distinct == 4


def test_a_property_is_asked_only_where_its_faults_are_on() -> None:
    assert [p.name for p in Full().properties] == []
    assert [p.name for p in Full(faults=["rain"]).properties] == ["cross"]


def test_the_label_of_a_system_names_its_sizes_edition_and_faults() -> None:
    assert Full(node=3, edition="new", faults=["rain"]).label == "Full(node=3, top=3) NEW with rain"


def test_asking_for_an_unknown_transition_or_property_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="Full has no transition 'impove': it has improve"):
        Full(edition="new").transition("impove")
    with pytest.raises(UsageError, match="Full has no property 'crss': it has cross"):
        Full(faults=["rain"]).claim("crss")


def test_a_subclass_inherits_and_replaces_declarations() -> None:
    class Wider(Full):
        """More levels; no rain."""

        level = integer(0, 9)
        rain = None  # type: ignore[assignment]

    system = Wider(edition="new")
    assert system.slots["level"].sort.high == 9
    assert [t.name for t in system.transitions] == ["improve"]
    with pytest.raises(UsageError, match="no fault 'rain': it has crash"):
        Wider(faults=["rain"])

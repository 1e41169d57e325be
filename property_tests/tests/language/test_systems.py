"""A system for given sizes, edition and faults: its attributes, and the values that it refuses."""

from __future__ import annotations

import enum
from copy import copy
from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import *
from trystate.property_tests.support.systems.declarations import Base, Mood, Other, assert_refused, declared, refusal
from trystate.property_tests.tests.language.refusals import refused

NAMED = {  # a declaration of each kind, for a reserved name
    "sequence": "{} = sequence(1, full=bool)",
    "transition": "@transition()\ndef {}(self, s): 'Any.'; s.level = 0",
    "machine": "@machine(Mood)\ndef {}(self, s): 'Any.'; return s.mood",
    "property": "@sometimes()\ndef {}(self, s): 'Any.'; return s.seen[0]",
    "terminal condition": "@terminal\ndef {}(self, s): return s.seen[0]",
}  # fmt: skip
REFUSED = {
    **refused("fields, sizes, editions and moves"),
    **{f"x = index({n})": f"the default of an index is {n}: give a whole number of at least 1"
       for n in (0, -1, True, 1.5, None)},
    **{f"x = constant({n})": f"the default of a constant is {n}: give a whole number of at least 0"
       for n in (-1, True, 1.5, None)},
    **{text.format(name): f"a {kind} cannot be called {name!r}: a system already has that name, "
       "rename it" for kind, text in NAMED.items() for name in ("cells", "label", "sizes")},
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_a_bad_declaration_is_an_error_at_its_line(text: str) -> None:
    assert_refused(text, REFUSED[text])


def test_a_range_of_a_size_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"test_systems\.py:.*write the index itself, as in per=node"):
        range(index(2))


def test_a_field_cannot_hide_an_attribute_of_systems_or_states() -> None:
    names = {name for name in (*dir(System()), *dir(SymbolicState(System()))) if not name.startswith("__")}
    assert {"cells", "initial_states", "transition", "name", "faults", "_sizes", "when", "fork", "_trace"} <= names
    for name in names:
        assert_refused(f"{name} = flag()", f"a field cannot be called {name!r}: a s … already has that name, rename it")


def test_a_property_may_have_a_name_of_states_and_an_index_may_not() -> None:
    for name, of, words in (("cells", index, "n index"), ("label", constant, " constant"), ("fork", index, "n index")):
        message = refusal(type("Bad", (Base,), {name: of(2)}))
        assert f": a{words} cannot be called {name!r}: a s" in message
    assert declared(NAMED["property"].format("fork"))().claim("fork").doc == "Any."


class Edition(enum.Enum):
    OLD = "old"
    NEW = "new"


class Full(Base):
    """Has editions, faults and a switch."""

    Edition = Edition

    @transition(editions=[Edition.NEW])
    def improve(self, s: Any) -> None:
        """Only the new edition improves."""
        s.level = 1

    @fault("crash", bound=2)
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
        """The mood is cross."""
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
        ({"faults": {"crash": 0}}, "Full: the bound of fault crash is 0; give at least 1, or leave it out"),
    ],
)
def test_an_unknown_size_edition_or_fault_is_refused_with_the_known_ones(arguments: Any, words: str) -> None:
    with pytest.raises(UsageError) as error:
        Full(**arguments)
    assert words in str(error.value)
    with pytest.raises(UsageError, match="Base has no editions: leave edition='old' out"):
        Base(edition="old")


def test_asking_for_an_unknown_transition_or_property_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="Full has no transition 'impove': it has improve"):
        Full(edition="new").transition("impove")
    with pytest.raises(UsageError, match="Full has no property 'crss': it has cross"):
        Full(faults=["rain"]).claim("crss")


def test_declarations_are_there_in_the_editions_that_they_name() -> None:
    assert [[t.name for t in Full(edition=e).transitions] for e in ("new", Edition.OLD, None)] == [["improve"], [], []]
    editions = declared(
        "dry = flag(per='node', editions=[Edition.OLD])\ndepth = integer(0, 'top', editions=[Edition.NEW])\n"
        "temper = choice(Mood, editions=[Edition.OLD, Edition.NEW])\n"
        "@sometimes(editions=[Edition.NEW])\ndef low(self, s): 'Low.'; return s.level == 0\n"
        "@always(witness='low', editions=[Edition.NEW])\ndef never_high(self, s): 'Low.'; return s.level < 3\n"
        "@step(witness='low', editions=[Edition.NEW])\ndef rises(self, before, after): 'Up.'; return after.level >= 0\n"
        "@leads_to(editions=[Edition.NEW])\ndef leads(self, s): 'Up.'; return s.level == 0, s.level > 0\n"
        "@sometimes()\ndef calm(self, s): 'Calm.'; return s.mood == Mood.CALM",
        Full, Edition=Edition,
    )  # fmt: skip
    old, new = (editions(edition=e) for e in Edition)
    added = [set(of.slots) - set(Full(edition=of.edition).slots) for of in (old, new)]
    assert added == [{"dry", "temper"}, {"depth", "temper"}]
    assert [p.name for p in old.properties] == ["calm"]
    assert [p.name for p in new.properties] == ["low", "never_high", "rises", "leads", "calm"]
    uses = declared("@transition()\ndef sink(self, s): 'Down.'; s.depth = 1", editions)
    uses(edition=Edition.NEW)
    with pytest.raises(DeclarationError, match="depth"):
        uses(edition=Edition.OLD)


class Varied(Base):
    """Each edition has its own class."""

    Edition = Edition

    def rise(self) -> int:
        return 1

    @transition()
    def climb(self, s: Any) -> None:
        """The level rises."""
        s.when(s.level == 0)
        s.level = self.rise()


class Old(Varied, edition=Edition.OLD):
    """Old also falls."""

    @fault("fall")
    def fall(self, s: Any) -> None:
        """The level returns to 0."""
        s.level = 0


class New(Varied, edition=Edition.NEW):
    """New climbs by two."""

    def rise(self) -> int:
        return 2


def test_an_edition_is_built_as_its_class_and_keeps_the_name_of_its_family() -> None:
    assert [type(Varied(edition=e)) for e in (None, "new", Edition.OLD)] == [Old, New, Old]
    old, new = Varied(faults=["fall"]), New()
    assert [t.name for t in old.transitions] == ["climb", "fall"] and [t.name for t in new.transitions] == ["climb"]
    assert (old.label, new.label) == ("Varied(node=2, top=3) OLD with fall", "Varied(node=2, top=3) NEW")
    assert new.family is Varied and new.faults == {} and Varied(edition="new", faults=["fall"]).faults == {"fall": 1}
    unknown = refusal(lambda: type("Bad", (Varied,), {}, edition=Other.ONE))
    assert "Bad: Other.ONE is not an edition of the system" in unknown


def test_a_subclass_changes_every_edition_or_only_its_own() -> None:
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
    with pytest.raises(UsageError, match=r"Highest belongs to the edition Edition.NEW: leave edition='old' out"):
        Highest(edition="old")
    alone = type("Alone", (declared("Edition = Other"),), {}, edition=Other.ONE)
    with pytest.raises(UsageError, match=r"Alone belongs to the edition Other.ONE: leave edition='two' out"):
        alone(edition="two")


def test_a_move_is_claimed_of_the_editions_that_it_names() -> None:
    moody = declared(
        "@machine(Mood)\ndef mood_state(self, s): 'The mood.'; return s.mood\n"
        "@transition(moves=[arc(Mood.CALM, Mood.CROSS), may(Mood.CROSS, Mood.GONE, editions=[Edition.NEW])])\n"
        "def worsen(self, s):\n    'Worse.'\n    s.when(s.mood != Mood.GONE)\n"
        "    s.mood = ite(s.mood == Mood.CALM, Mood.CROSS, Mood.GONE)",
        Varied, Edition=Edition,
    )  # fmt: skip
    assert not check(moody(edition="new"), engine="interpret").unreached
    with pytest.raises(DeclarationError, match=r"worsen moves the machine mood_state in a way .*CROSS -> GONE"):
        check(moody(edition="old"), engine="interpret")


def test_faults_are_off_by_default_and_happen_at_most_as_often_as_bound() -> None:
    assert [t.name for t in Full().transitions] == [p.name for p in Full().properties] == []
    system = Full(faults=["crash", "rain"])
    assert [t.name for t in system.transitions] == ["crash", "rain"]
    assert [p.name for p in system.properties] == ["cross"]
    left = {k: s.initial for k, s in system.slots.items() if k.endswith("_left")}
    assert left == {"crash_left": (2,), "rain_left": (1,)}
    assert Full(faults={"crash": 5}).slots["crash_left"].sort.high == 5
    assert [check(Full(faults={"crash": n}), engine="interpret").exploration.distinct for n in (1, 2)] == [3, 4]
    assert Full(node=3, edition="new", faults=["rain"]).label == "Full(node=3, top=3) NEW with rain"

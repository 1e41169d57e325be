"""A finer system refines a coarser one, or a step that does not is named; a step may be several coarser steps."""

from __future__ import annotations

from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.kernel import Limits
from trystate.model.checker.refinement import Refinement, refines
from trystate.model.checker.verdicts import Status
from trystate.model.errors import DeclarationError, LimitReached, UsageError
from trystate.model.language import SymbolicState, System, as_int, fault, flag, index, named, transition
from trystate.model.language.properties import refines as declared_refinement
from trystate.model.language.state import trace_of
from trystate.property_tests.support.systems.declarations import FILE, declared
from trystate.walking import Standing, Walk

# Stairs are climbed one by one, up to the fourth, or by halves.
CLIMB = "{0} = integer(0, {1})\n@transition()\ndef climb(self, s): 'Up.'; s.when(s.{0} < {2}); s.{0} += 1"
OneByOne = declared(CLIMB.format("stair", 6, 4), System)
Halves = declared(CLIMB.format("half", 12, 8), System, name="Halves")


def refined(fine: System, several: bool = False, limits: Limits | None = None) -> Refinement:
    """The map takes the highest stair that is reached completely."""
    s, target = SymbolicState(fine, frozen="the map"), OneByOne()
    t = SymbolicState(target)
    t.stair = sum((as_int(s.half >= 2 * k) for k in range(2, 7)), start=as_int(s.half >= 2))
    return refines(fine, target, trace_of(t).bodies, limits, several=several)


def test_a_finer_step_is_a_coarser_one_or_none() -> None:
    seen = refined(Halves())
    assert (seen.fine_states, seen.fine_steps, seen.coarse_states, seen.visible_steps, seen.broken) == (9, 8, 5, 4, ())


LEAP = "@transition()\ndef leap(self, s): 'More than half a stair.'; s.when(s.half == {}); s.half += {}"
BROKEN = {
    LEAP.format(6, -2): "leap has no counterpart: stair: 3 -> 2",
    LEAP.format(7, 4): "leap has no counterpart: stair: 3 -> 5",
    LEAP.format(1, 6): "leap has no counterpart: stair: 0 -> 3",  # a path through other values is not searched
    "half = integer(0, 12, initial=2)": "initial state {'stair': '1'}",
}


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("text", BROKEN)
def test_a_step_or_a_beginning_without_a_counterpart_is_named(text: str, several: bool) -> None:
    assert refined(declared(text, Halves)(), several).broken == (BROKEN[text],)


LIT = "lamp = index(3)\nlit = flag(per='lamp')\n"
Lamps = declared(  # lamps are lit one after the other, in order
    f"{LIT}@transition(each='lamp')\ndef light(self, s, lamp):\n    'A lamp is lit when those before it are.'\n"
    "    s.when(all_((ord_(k) >= ord_(lamp)) | s.lit[k] for k in s.lamp))\n    s.lit[lamp] = True",
    System,
)
Together = declared(
    f"{LIT}@transition()\ndef light_all(self, s):\n    'All at once.'\n    for k in s.lamp: s.lit[k] = True", System
)


def lamps_broken(fine: System, several: bool) -> int:
    s, target = SymbolicState(fine, frozen="the map"), Lamps()
    t = SymbolicState(target)
    for k in s.lamp:
        t.lit[k] = named("lit", s.lit[k])
    return len(refines(fine, target, trace_of(t).bodies, several=several).broken)


def test_a_value_that_the_coarser_system_does_not_have_is_named() -> None:
    """The coarser system has no step from such a state, and its guards cannot be evaluated there."""
    at = "spot = index({0})\nat = one_of(spot)\nfull = flag(per='spot')\n@transition(each='spot')\n"
    go = "def go(self, s, spot): 'Goes.'; s.when(~s.full[s.at]); s.at = spot"
    fine, target = declared(f"{at.format(3)}{go}", System)(), declared(f"{at.format(2)}{go}", System)()
    s, t = SymbolicState(fine, frozen="the map"), SymbolicState(target)
    found = refines(fine, target, {"at": s.at}).broken
    assert "at is 2 in an image: it goes from 0 to 1" in found and t is not None


def test_a_finer_step_may_be_several_coarser_ones() -> None:
    assert lamps_broken(Together(), several=False) == 1
    assert lamps_broken(Together(), several=True) == 0
    last = (  # the later lamps are lit before the first: each step of the sequence has to be possible
        "@transition(each='lamp')\ndef last(self, s, lamp):\n    'Two.'\n    s.when(~s.lit[lamp], ord_(lamp) == 0)\n"
        "    for k in s.lamp: s.lit[k] = s.lit[k] | (ord_(k) > 0)"
    )
    assert lamps_broken(declared(last, Together)(), several=True) == 1


def test_the_finer_system_is_searched_whole_or_nothing_is_said() -> None:
    with pytest.raises(LimitReached, match="Halves"):
        refined(Halves(), limits=Limits(states=3))


Gate = declared(  # counts, and closes at two
    "n = integer(0, 3)\nclosed = flag()\n"
    "@transition()\ndef count(self, s): 'One more.'; s.when(s.n < 3, ~s.closed); s.n += 1; s.closed = s.n >= 2",
    System, name="Gate",
)  # fmt: skip


def test_a_map_that_does_not_fit_its_field_is_refused() -> None:
    s, lamps = SymbolicState(Gate(), frozen="the map"), SymbolicState(Lamps(), frozen="the map")
    with pytest.raises(UsageError, match=r"gives closed n, of sort int: closed is of sort bool"):
        refines(Gate(), Gate(), {"closed": s.n})
    with pytest.raises(UsageError, match=r"gives closed lit\[0\]: lit is not a field of Gate"):
        refines(Gate(), Gate(), {"closed": lamps.lit[0]})
    for lit in lamps.lit:
        with pytest.raises(UsageError, match=r"with the index lamp: the indices of closed are none"):
            refines(Lamps(), Gate(), {"closed": lit})
    assert refines(Gate(), Gate(), {"n": s.n, "closed": s.closed}).broken == ()


COUNT = "n = integer(0, {})\n@transition()\ndef count(self, s): 'One more.'; {}s.n += 1"
Further = declared(COUNT.format(9, "s.when(s.n < 9); "), System)  # continues where the coarser system ends
Unguarded = declared(COUNT.format(3, ""), System)  # counts beyond its own range


def test_a_finer_system_that_leaves_its_range_is_refused_with_the_line() -> None:
    s = SymbolicState(Unguarded(), frozen="the map")
    with pytest.raises(DeclarationError) as refused:
        refines(Unguarded(), Further(), {"n": s.n})
    assert str(refused.value) == f"{FILE}:3: count leaves the field's range after 4 steps: n has 0 to 3"


class Guard(System):
    """A lock of two clients."""

    client = index(2)
    held = flag(per="client")

    @transition()
    def take(self, s: SymbolicState, client: Any) -> None:
        """A client takes the free lock."""
        s.when(~s.held.any())
        s.held[client] = True

    @transition()
    def free(self, s: SymbolicState, client: Any) -> None:
        """A client gives the lock back."""
        s.when(s.held[client])
        s.held[client] = False

    @fault("loss")
    def lose(self, s: SymbolicState) -> None:
        """The lock is free although a client holds it."""
        s.when(s.held.any())
        for c in s.client:
            s.held[c] = False


class Entrance(System):
    """Clients first wish to enter; one enters at a time."""

    client = index(2)
    wishes, inside = flag(per="client"), flag(per="client")

    @transition()
    def wish(self, s: SymbolicState, client: Any) -> None:
        """A client wishes to enter."""
        s.when(~s.wishes[client])
        s.wishes[client] = True

    @transition()
    def enter(self, s: SymbolicState, client: Any) -> None:
        """A client enters."""
        s.when(s.wishes[client], ~s.inside.any())
        s.inside[client] = True

    @transition()
    def leave(self, s: SymbolicState, client: Any) -> None:
        """A client leaves."""
        s.when(s.inside[client])
        s.inside[client] = s.wishes[client] = False

    @fault("loss")
    def lose(self, s: SymbolicState, client: Any) -> None:
        """A client inside is lost."""
        s.when(s.inside[client])
        s.inside[client] = False

    @declared_refinement(Guard)
    def as_guard(self, s: SymbolicState, guard: SymbolicState) -> None:
        """A client inside holds the lock."""
        for c in s.client:
            guard.held[c] = s.inside[c]


HASTY = """
@transition()
def enter(self, s, client):
    'A client enters without looking.'
    s.when(s.wishes[client], ~s.inside[client])
    s.inside[client] = True
"""


@pytest.mark.parametrize("options", [{}, {"client": 3}, {"faults": ["loss"]}, {"faults": ["loss"], "max_faults": 2}])
def test_a_declared_refinement_shares_sizes_and_faults(options: Any) -> None:
    fine = Entrance(**options)
    coarse = fine.claim("as_guard").coarse
    assert coarse is not None and coarse.sizes == fine.sizes and coarse.faults == fine.faults
    assert check(fine).verdict("as_guard").status is Status.HOLDS


def test_a_shortest_run_shows_a_step_without_a_counterpart() -> None:
    hasty = declared(HASTY, Entrance)()
    assert check(hasty, engine="interpret").verdict("as_guard").status is Status.VIOLATED
    reduced = check(hasty, engine="explicit", symmetry=True).verdict("as_guard")
    assert reduced.status is Status.NOT_DECIDED and "run without it" in reduced.reason
    verdict = check(hasty, engine="explicit").verdict("as_guard")
    assert verdict.status is Status.VIOLATED and verdict.run is not None
    assert verdict.reason == "enter(0) has no counterpart: held[0]: no -> yes"
    assert len(verdict.run.path.steps) == 4
    walk = Walk(hasty)
    for label in ("wish(0)", "wish(1)", "enter(1)", "enter(0)"):
        assert walk.lights()[0].standing is Standing.HOLDS
        walk.take(label)
    assert walk.lights()[0].standing is Standing.VIOLATED


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("guard.when(s.inside.any())", "as_guard has a guard: each state has an image, so leave when"),
        ("guard", "as_guard assigns no held, which steps of Guard change"),
        ("return s.inside.any()", "as_guard returns a value: assign the fields of the state of Guard"),
        ("s.inside[0] = True", "inside is assigned in the property as_guard: only transitions change the state"),
    ],
)
def test_a_wrong_mapping_is_refused(body: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        declared(f"@refines(Guard)\ndef as_guard(self, s, guard): 'A lock.'; {body}", Entrance, Guard=Guard)()

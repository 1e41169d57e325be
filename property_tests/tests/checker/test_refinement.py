"""A finer system refines a coarser one, or a step that does not is named; a step may be several coarser steps."""

from __future__ import annotations

import pytest

from trystate.model.checker.kernel import Limits
from trystate.model.checker.refinement import Refinement, refines
from trystate.model.errors import DeclarationError, LimitReached, UsageError
from trystate.model.language import SymbolicState, System, as_int, named
from trystate.model.language.state import trace_of
from trystate.property_tests.support.systems.declarations import FILE, declared

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


def broken(fine: System, several: bool) -> list[str]:
    """The steps that have no counterpart, without the numbers of their states."""
    return [text.partition(" (finer state")[0] for text in refined(fine, several).broken]


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
    assert broken(declared(text, Halves)(), several) == [BROKEN[text]]


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
REOPEN = "@transition()\ndef reopen(self, s): 'Opens.'; s.when(s.closed); s.closed = False"


def test_a_map_with_a_field_that_is_not_there_is_refused() -> None:
    fine = declared(REOPEN, Gate)()
    s = SymbolicState(fine, frozen="the map")
    assert len(refines(fine, Gate(), {"n": s.n, "closed": s.closed}).broken) == 2
    with pytest.raises(UsageError, match=r"'clsoed', which is not a field of Gate: it has n, closed"):
        refines(fine, Gate(), {"n": s.n, "clsoed": s.closed})


def test_a_map_that_does_not_fit_its_field_is_refused() -> None:
    s, lamps = SymbolicState(Gate(), frozen="the map"), SymbolicState(Lamps(), frozen="the map")
    with pytest.raises(UsageError, match=r"gives closed n, of sort int: closed is of sort bool"):
        refines(Gate(), Gate(), {"closed": s.n})
    with pytest.raises(UsageError, match=r"gives closed lit\[0\]: lit is not a field of Gate"):
        refines(Gate(), Gate(), {"closed": lamps.lit[0]})
    with pytest.raises(UsageError, match=r"with the index lamp: the indices of closed are none"):
        refines(Lamps(), Gate(), {"closed": next(iter(lamps.lit))})
    assert refines(Gate(), Gate(), {"n": s.n, "closed": s.closed}).broken == ()


COUNT = "n = integer(0, {})\n@transition()\ndef count(self, s): 'One more.'; {}s.n += 1"
Further = declared(COUNT.format(9, "s.when(s.n < 9); "), System)  # continues where the coarser system ends
Unguarded = declared(COUNT.format(3, ""), System)  # counts beyond its own range


def test_an_image_out_of_the_coarser_range_is_broken() -> None:
    s = SymbolicState(Further(), frozen="the map")
    assert refines(Further(), Unguarded(), {"n": s.n}).broken == ("n is 4 in an image: it goes from 0 to 3",)


def test_a_finer_system_that_leaves_its_range_is_refused_with_the_line() -> None:
    s = SymbolicState(Unguarded(), frozen="the map")
    with pytest.raises(DeclarationError) as refused:
        refines(Unguarded(), Further(), {"n": s.n})
    assert str(refused.value) == f"{FILE}:3: count leaves the field's range after 4 steps"

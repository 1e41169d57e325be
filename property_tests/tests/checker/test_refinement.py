"""A finer system refines a coarser one, or the step that does not is named; a step may be several coarser ones."""

from __future__ import annotations

from typing import Any

import pytest

from trystate.model.checker.kernel import Limits
from trystate.model.checker.refinement import Refinement, refines
from trystate.model.errors import DeclarationError, LimitReached, UsageError
from trystate.model.language import SymbolicState, System, all_, as_int, flag, index, integer, named, ord_, transition
from trystate.model.language.state import trace_of
from trystate.property_tests.support.lines import blamed


class OneByOne(System):
    """Stairs are climbed one by one, up to the fourth."""

    stair = integer(0, 6)

    @transition()
    def climb(self, s: Any) -> None:
        """One stair up."""
        s.when(s.stair < 4)
        s.stair += 1


class Halves(System):
    """A stair is climbed by halves."""

    half = integer(0, 12)

    @transition()
    def climb(self, s: Any) -> None:
        """Half a stair up."""
        s.when(s.half < 8)
        s.half += 1


class Slips(Halves):
    """And once it goes down."""

    @transition()
    def slip(self, s: Any) -> None:
        """One stair down."""
        s.when(s.half == 6)
        s.half -= 2


class LeapsTooFar(Halves):
    """And once two at a time, beyond the fourth."""

    @transition()
    def leap(self, s: Any) -> None:
        """Two stairs up."""
        s.when(s.half == 7)
        s.half += 4


class BeginsAbove(Halves):
    """The lowest stair is left out."""

    half = integer(0, 12, initial=2)


def refined(fine: Halves, several: bool = False, limits: Limits | None = None) -> Refinement:
    """By the stair that is reached as a whole."""
    s, target = SymbolicState(fine, frozen="the map"), OneByOne()
    t = SymbolicState(target)
    t.stair = sum((as_int(s.half >= 2 * k) for k in range(2, 7)), start=as_int(s.half >= 2))
    return refines(fine, target, trace_of(t).bodies, limits, several=several)


def broken(fine: Halves, several: bool) -> list[str]:
    """The steps that have no counterpart, without the numbers of their states."""
    return [text.partition(" (finer state")[0] for text in refined(fine, several).broken]


def test_a_finer_step_is_a_coarser_one_or_none() -> None:
    seen = refined(Halves())
    assert (seen.fine_states, seen.fine_steps, seen.coarse_states, seen.visible_steps, seen.broken) == (9, 8, 5, 4, ())


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    ("fine", "text"),
    [
        (Slips(), "slip has no counterpart: stair: 3 -> 2"),
        (LeapsTooFar(), "leap has no counterpart: stair: 3 -> 5"),
        (BeginsAbove(), "initial state {'stair': '1'}"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_a_step_or_a_beginning_without_a_counterpart_is_named(fine: Halves, text: str, several: bool) -> None:
    assert broken(fine, several) == [text]


class Lamps(System):
    """Three lamps are lit one after the other, in their order."""

    lamp = index(3)
    lit = flag(per="lamp")

    @transition(each="lamp")
    def light(self, s: Any, lamp: Any) -> None:
        """A lamp is lit when those before it are."""
        s.when(all_((ord_(k) >= ord_(lamp)) | s.lit[k] for k in s.lamp))
        s.lit[lamp] = True


class Together(System):
    """Three lamps are lit at once."""

    lamp = index(3)
    lit = flag(per="lamp")

    @transition()
    def light_all(self, s: Any) -> None:
        """All of them."""
        for k in s.lamp:
            s.lit[k] = True


class TheLastFirst(Together):
    """And before that only the last two."""

    @transition(each="lamp")
    def light_the_last(self, s: Any, lamp: Any) -> None:
        """The first is not lit."""
        s.when(~s.lit[lamp], ord_(lamp) == 0)
        for k in s.lamp:
            s.lit[k] = s.lit[k] | (ord_(k) > 0)


def lamps_broken(fine: System, several: bool) -> int:
    s, target = SymbolicState(fine, frozen="the map"), Lamps()
    t = SymbolicState(target)
    for k in s.lamp:
        t.lit[k] = named("lit", s.lit[k])
    return len(refines(fine, target, trace_of(t).bodies, several=several).broken)


def test_a_finer_step_may_be_several_coarser_ones() -> None:
    assert lamps_broken(Together(), several=False) == 1
    assert lamps_broken(Together(), several=True) == 0


def test_each_step_in_a_row_has_to_be_possible() -> None:
    assert lamps_broken(TheLastFirst(), several=True) == 1


class Leaps(Halves):
    """And once three stairs at a time."""

    @transition()
    def leap(self, s: Any) -> None:
        """Three stairs up."""
        s.when(s.half == 1)
        s.half += 6


def test_a_row_through_other_values_is_not_looked_for() -> None:
    assert broken(Leaps(), several=True) == ["leap has no counterpart: stair: 0 -> 3"]


def test_the_finer_system_is_searched_whole_or_nothing_is_said() -> None:
    with pytest.raises(LimitReached, match="Halves"):
        refined(Halves(), limits=Limits(states=3))


class Gate(System):
    """Counts, and closes at the second."""

    n = integer(0, 3)
    closed = flag()

    @transition()
    def count(self, s: Any) -> None:
        """One more; from the second on it is closed."""
        s.when(s.n < 3, ~s.closed)
        s.n += 1
        s.closed = s.n >= 2


class Reopens(Gate):
    """And opens again, which the coarser one does not."""

    @transition()
    def reopen(self, s: Any) -> None:
        """It opens."""
        s.when(s.closed)
        s.closed = False


def test_a_map_with_a_field_that_is_not_there_is_refused() -> None:
    s = SymbolicState(Reopens(), frozen="the map")
    assert len(refines(Reopens(), Gate(), {"n": s.n, "closed": s.closed}).broken) == 2
    with pytest.raises(UsageError, match=r"'clsoed', which is not a field of Gate: it has n, closed"):
        refines(Reopens(), Gate(), {"n": s.n, "clsoed": s.closed})


def test_a_map_that_does_not_fit_its_field_is_refused() -> None:
    s, lamps = SymbolicState(Gate(), frozen="the map"), SymbolicState(Lamps(), frozen="the map")
    with pytest.raises(UsageError, match=r"gives closed n, of sort int: closed is of sort bool"):
        refines(Gate(), Gate(), {"closed": s.n})
    with pytest.raises(UsageError, match=r"gives closed lit\[0\]: lit is not a field of Gate"):
        refines(Gate(), Gate(), {"closed": lamps.lit[0]})
    with pytest.raises(UsageError, match=r"with the index lamp: the indices of closed are none"):
        refines(Lamps(), Gate(), {"closed": next(iter(lamps.lit))})
    assert refines(Gate(), Gate(), {"n": s.n, "closed": s.closed}).broken == ()


class Further(System):
    """Counts on where the coarser one ends."""

    n = integer(0, 9)

    @transition()
    def count(self, s: Any) -> None:
        """One more."""
        s.when(s.n < 9)
        s.n += 1


class Unguarded(Further):
    """Counts beyond its own range."""

    n = integer(0, 3)

    @transition()
    def count(self, s: Any) -> None:
        """One more, whatever it was."""
        s.n += 1  # blamed: unguarded


def test_an_image_out_of_the_coarser_range_is_broken() -> None:
    s = SymbolicState(Further(), frozen="the map")
    assert refines(Further(), Unguarded(), {"n": s.n}).broken == ("n is 4 in an image: it goes from 0 to 3",)


def test_a_finer_system_that_leaves_its_range_is_refused_with_the_line() -> None:
    s = SymbolicState(Unguarded(), frozen="the map")
    with pytest.raises(DeclarationError) as refused:
        refines(Unguarded(), Further(), {"n": s.n})
    assert str(refused.value) == blamed("unguarded") + "count leaves the field's range after 4 steps"

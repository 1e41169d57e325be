"""Systems whose numbers come near the ends of a machine word, and random ones that are stretched to get there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from trystate.model.language import *

from .random_systems import ALWAYS, COMPARE, Declaration, Drawing, Plan, Step, Variable

TERMS = 16
TERM_MAX = 1 << 60


class Totals(System):
    """Sixteen numbers: their sum needs 65 bits, and so does an intermediate result."""

    part = index(TERMS)
    amount = integer(0, TERM_MAX, per="part")
    lowest = integer(-TERM_MAX, 0)

    @transition()
    def fill(self, s: Any) -> None:
        """Every number takes its greatest value."""
        for k in s.part:
            s.amount[k] = TERM_MAX
        s.lowest = -TERM_MAX

    @sometimes()
    def all_together(self, s: Any) -> Any:
        """A sum that int64 takes for 0."""
        return sum(cells(s.amount, s.part)) == TERMS * TERM_MAX

    @always(witness="all_together")
    def the_total_is_not_negative(self, s: Any) -> Any:
        """The total is not negative unless something wraps."""
        return sum(cells(s.amount, s.part)) >= 0

    @always(witness="all_together")
    def the_difference_is_not_negative(self, s: Any) -> Any:
        """Nor does the other end wrap."""
        return sum(cells(s.amount, s.part)[:2]) - s.lowest >= 0


def cells(field: Any, of: Any) -> list[Any]:
    """Each member of a field by its number."""
    from trystate.model.language.expressions import const

    return [field[const(k, of.sort)] for k in range(of.sort.size)]


class TooWide(System):
    """A field of 62 bits, one more than a word of packed states has; two of its values are reached."""

    far = integer(0, 1 << 61)
    high = integer(1 << 70, (1 << 70) + 3)
    fixed = integer(0, 1 << 80, initial=1 << 79)

    @transition()
    def jump(self, s: Any) -> None:
        """To the other end."""
        s.far = 1 << 61
        s.high = (1 << 70) + 2

    @sometimes()
    def there(self, s: Any) -> Any:
        """After one step."""
        return (s.far == 1 << 61) & (s.high + s.far > s.fixed - s.fixed)

    @leads_to()
    def jumps(self, s: Any) -> Any:
        """It has to."""
        return s.far == 0, s.far == 1 << 61


class Starts(System):
    """More initial states than can be listed, 2^96; and one step."""

    place = index(96)
    begun = integer(0, 1, per="place", initial=(0, 1))

    @transition()
    def begin(self, s: Any, place: Any) -> None:
        """One begins."""
        s.begun[place] = 1

    @sometimes()
    def nobody(self, s: Any) -> Any:
        """At once, in one of them."""
        return ~s.begun.any(1)

    @leads_to()
    def begins(self, s: Any, place: Any) -> Any:
        """Each does."""
        return s.begun[place] == 0, s.begun[place] == 1


class Counters(System):
    """Wide counters that all count on: as many states as there is room for, at little cost each."""

    counter = index(8)
    count = integer(0, 1 << 40, per="counter")

    @transition()
    def rise(self, s: Any, counter: Any) -> None:
        """One counter goes up."""
        s.when(s.count[counter] < 1 << 40)
        s.count[counter] += 1

    @sometimes()
    def one_is_at_two(self, s: Any) -> Any:
        """Two steps away."""
        return s.count.any(2)

    @sometimes()
    def one_is_full(self, s: Any) -> Any:
        """2^40 steps away."""
        return s.count.any(1 << 40)

    @always(witness="one_is_at_two")
    def none_is_over(self, s: Any) -> Any:
        """True."""
        return all_(s.count[j] <= 1 << 40 for j in s.counter)


# ---- random systems, stretched

UNITS = (1 << 30, 1 << 40, 1 << 58, 1 << 59, 1 << 59, 1 << 60, 1 << 60, 1 << 62)  # most just fit a word
ORIGINS = (0, 0, 0, 0, 1 << 31, -(1 << 40), 1 << 62, -(1 << 62), (1 << 63) - 2, -(1 << 63) + 1, 1 << 64)


@dataclass(frozen=True)
class Stretch:
    """Turns a small number into a wide one: its number of units from the origin.

    Both sides of a comparison are doubled `doublings` times, which changes nothing unless something wraps. So is what
    an effect assigns, within limits. It may leave its field's range by `slack`.
    """

    unit: int
    origin: int
    doublings: int
    slack: int

    def bound(self, value: int) -> int:
        return value * self.unit + self.origin

    def plan(self, plan: Any) -> Any:
        """The same plan on wide numbers."""
        if not isinstance(plan, tuple):
            return plan
        if plan[:1] == ("const",):
            return ("const", self.constant(plan[1]))
        if plan[:1] == ("int",):
            _, number, low, high = plan
            slack = 0 if number[0] == "const" else self.slack  # a constant outside is refused at once
            return ("int", self.doubled(self.plan(number)), self.bound(low) - slack, self.bound(high) + slack)
        parts = tuple(map(self.plan, plan))
        return (parts[0], *map(self.doubled, parts[1:])) if plan[:1] and plan[0] in COMPARE else parts

    def doubled(self, number: Plan) -> Plan:
        for _ in range(self.doublings):
            number = ("doubled", number)
        return number

    def constant(self, value: int) -> int:
        """From the origin, as a field's value is, or from zero; that one not always by whole units."""
        return self.bound(value) if value % 2 else value * self.unit + value % 3 - 1


def stretched(declared: Declaration, by: Stretch) -> Declaration:
    """The declaration with every number's range, constants and limits of effects stretched; flags and hues stay."""
    variables = tuple(
        replace(v, low=by.bound(v.low), high=by.bound(v.high), initial=tuple(map(by.bound, v.initial)))
        if v.kind == "int"
        else v
        for v in declared.variables
    )
    steps = tuple(replace(s, guard=by.plan(s.guard), effects=by.plan(s.effects)) for s in declared.steps)
    asked = ("invariant", "witness", "change", "premise", "goal", "rest")
    plans: dict[str, Plan] = {name: by.plan(getattr(declared, name)) for name in asked}
    return replace(declared, variables=variables, steps=steps, **plans)


class Numbers(Drawing):
    """Draws comparisons of numbers, and now and then another condition around them."""

    def condition(self, depth: int, scope: int) -> Plan:
        if depth and self.draw(st.booleans()):
            return super().condition(depth, scope)
        return (self.draw(st.sampled_from(COMPARE)), self.number(min(1, depth), scope), self.number(0, scope))


@st.composite
def wide_declarations(draw: st.DrawFn) -> Declaration:
    """A small system of numbers near 2^31, 2^40, 2^60 or beyond, below zero as well as above."""
    ranges = [(low, low + draw(st.sampled_from((1, 1, 2, 3)))) for low in draw(st.tuples(*[st.integers(-2, 2)] * 3))]
    numbers = [
        Variable(f"n{k}", "int", dims, low, high, (low, high)[: draw(st.integers(1, 2))])
        for k, (dims, (low, high)) in enumerate(zip((0, 0, 1), ranges, strict=True))
    ]
    variables = (Variable("on", "flag", 0, 0, 1, (0, 1)), *numbers)
    plans = Numbers(draw, variables, numbered=True)
    steps = []
    for params in draw(st.lists(st.sampled_from((0, 1)), min_size=1, max_size=4)):
        kind = draw(st.sampled_from(("transition", "environment", "fault")))
        effects = tuple(plans.effect(params) for _ in range(draw(st.integers(1, 2))))
        guard = draw(st.sampled_from((ALWAYS, plans.condition(1, params))))
        steps.append(Step(kind, params, draw(st.booleans()), guard, effects))
    asked = (plans.condition(1, scope) for scope in (0, 0, 0, 1, 1, 0))
    declared = Declaration(variables, tuple(steps), *asked)
    unit, origin = draw(st.sampled_from(UNITS)), draw(st.sampled_from(ORIGINS))
    by = Stretch(unit, origin, draw(st.sampled_from((0, 3, 4))), draw(st.sampled_from((0, 2 * unit))))
    return stretched(declared, by)

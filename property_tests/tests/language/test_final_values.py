"""A step leaves a field's range where the value that it leaves behind does, and not one that it assigned on the way."""

from __future__ import annotations

import importlib.util
from itertools import product
from typing import Any

import pytest

from trystate.model.checker.check import ENGINES, check
from trystate.model.errors import DeclarationError
from trystate.model.language import System, flag, index, integer, ite, transition
from trystate.property_tests.support.lines import blamed

AVAILABLE = [e for e in ENGINES if e != "symbolic" or importlib.util.find_spec("dd") is not None]
engines = pytest.mark.parametrize("engine", AVAILABLE)


class Counters(System):
    """A counter for each node, and one for all."""

    node = index(2)
    load = integer(0, 1, per="node")
    total = integer(0, 2)
    lamp = flag(initial=(False, True))


def system(step: Any, each: Any = ("node", "node")) -> System:
    made: System = type("Stepping", (Counters,), {"step": transition(each=each)(step)})()
    return made


@engines
def test_a_value_that_a_later_line_replaces_is_not_judged(engine: str) -> None:
    def step(self: Any, s: Any, a: Any, b: Any) -> None:
        """One up, the other to 0; where they are the same, 0."""
        s.when((a == b) | (s.load[a] == 0))
        s.load[a] += 1
        s.load[b] = 0

    assert check(system(step), engine=engine).exploration.distinct == 2 * 3


@engines
def test_a_value_that_stays_is_judged_and_its_line_named(engine: str) -> None:
    def step(self: Any, s: Any, a: Any, b: Any) -> None:
        """One up without a limit, the other to 0."""
        s.load[a] += 1  # blamed: stays
        s.load[b] = 0

    with pytest.raises(DeclarationError, match="leaves the field's range after 2 steps") as error:
        check(system(step), engine=engine)
    assert str(error.value).startswith(blamed("stays") + "step(")


@engines
def test_a_loop_replaces_what_a_line_before_it_assigned(engine: str) -> None:
    def step(self: Any, s: Any, a: Any) -> None:
        """All to 1, one of them by way of 2."""
        s.load[a] += 2
        for j in s.node:
            s.load[j] = ite(s.load[j] > 0, 1, 0)

    assert check(system(step, "node"), engine=engine).exploration.distinct == 2 * 4


@engines
def test_a_line_replaces_one_member_of_what_a_loop_assigned(engine: str) -> None:
    def step(self: Any, s: Any, a: Any) -> None:
        """All up, and one of them to 0."""
        for j in s.node:
            s.load[j] += 1  # blamed: the other
        s.load[a] = 0

    with pytest.raises(DeclarationError, match="after 2 steps") as error:
        check(system(step, "node"), engine=engine)
    assert str(error.value).startswith(blamed("the other"))


@engines
def test_a_later_line_may_choose_its_member_by_the_state(engine: str) -> None:
    def step(self: Any, s: Any, a: Any, b: Any) -> None:
        """The first goes up; where the lamp is lit it goes to 0, else the other does."""
        s.when((s.load[a] == 0) | s.lamp)
        s.load[a] += ite(s.lamp, 2, 1)
        s.load[ite(s.lamp, a, b)] = 0

    lit, dark = 1, 3  # a lit lamp leaves all at 0; in the dark one of the two is 1 at a time
    assert check(system(step), engine=engine).exploration.distinct == lit + dark


@engines
def test_a_field_without_indices_is_judged_by_its_last_value(engine: str) -> None:
    def step(self: Any, s: Any) -> None:
        """Round and round."""
        s.total += 1
        s.total = ite(s.total > 2, 0, s.total)

    assert check(system(step, ()), engine=engine).exploration.distinct == 2 * 3


def test_a_step_is_refused_where_plain_python_leaves_the_range() -> None:
    """Every order of three lines over two members: refused where plain Python leaves the range, and nowhere else."""
    lines = (("up", 0), ("up", 1), ("zero", 0), ("zero", 1))
    for program in product(lines, repeat=3):

        def step(self: Any, s: Any, a: Any, b: Any, program: Any = program) -> None:
            """Three lines."""
            for what, which in program:
                here = (a, b)[which]
                s.load[here] = s.load[here] + 1 if what == "up" else 0

        for engine in ("interpret", "explicit"):
            try:
                check(system(step), engine=engine)
                left = False
            except DeclarationError:
                left = True
            assert (program, left) == (program, leaves(program))


def leaves(program: tuple[tuple[str, int], ...]) -> bool:
    """Does a reachable step, in plain Python, end outside of 0..1?"""
    seen, queue = {(0, 0)}, [(0, 0)]
    while queue:
        before = queue.pop()
        for pair in product(range(2), repeat=2):
            now = list(before)
            for what, which in program:
                now[pair[which]] = now[pair[which]] + 1 if what == "up" else 0
            if max(now) > 1:
                return True
            if tuple(now) not in seen:
                seen.add((now[0], now[1]))
                queue.append((now[0], now[1]))
    return False

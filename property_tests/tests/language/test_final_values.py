"""A step leaves a field's range if its final value does; an intermediate value may be outside."""

from __future__ import annotations

import enum
from itertools import product
from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.errors import DeclarationError
from trystate.model.language import System, flag, index, integer, ite, machine
from trystate.property_tests.support.runs import AVAILABLE
from trystate.property_tests.support.systems.declarations import FILE, declared


class Counters(System):
    """A counter for each node, and one for all."""

    node = index(2)
    load = integer(0, 1, per="node")
    total = integer(0, 2)
    lamp = flag(initial=(False, True))


HEAD = "@transition(each={})\ndef step(self, s{}):\n    'Some lines.'\n"
ONE, PAIR = HEAD.format("'node'", ", a"), HEAD.format("('node', 'node')", ", a, b")


@pytest.mark.parametrize("engine", AVAILABLE)
@pytest.mark.parametrize(
    ("text", "states"),
    [
        (f"{PAIR}    s.when((a == b) | (s.load[a] == 0))\n    s.load[a] += 1\n    s.load[b] = 0", 2 * 3),
        (f"{ONE}    s.load[a] += 2\n    for j in s.node: s.load[j] = ite(s.load[j] > 0, 1, 0)", 2 * 4),
        (f"{HEAD.format((), '')}    s.total += 1\n    s.total = ite(s.total > 2, 0, s.total)", 2 * 3),
        # A lit lamp leaves all loads at 0; in the dark one of the two is 1 at a time.
        (f"{PAIR}    s.when((s.load[a] == 0) | s.lamp)\n    s.load[a] += ite(s.lamp, 2, 1)\n"
         "    s.load[ite(s.lamp, a, b)] = 0", 1 + 3),
    ],
    ids=["later line", "loop", "no index", "member chosen by the state"],
)  # fmt: skip
def test_a_value_that_a_later_line_replaces_is_not_judged(text: str, states: int, engine: str) -> None:
    assert check(declared(text, Counters)(), engine=engine).exploration.distinct == states


@pytest.mark.parametrize("engine", AVAILABLE)
@pytest.mark.parametrize(
    "text",
    [
        f"{PAIR}    s.load[a] += 1  # here\n    s.load[b] = 0",
        f"{ONE}    for j in s.node:\n        s.load[j] += 1  # here\n    s.load[a] = 0",
    ],
)
def test_a_value_that_stays_is_judged_and_its_line_named(text: str, engine: str) -> None:
    line = next(n for n, of in enumerate(text.splitlines(), 1) if of.endswith("# here"))
    with pytest.raises(DeclarationError, match=rf"^{FILE}:{line}: step\(.*leaves the field's range after 2 steps"):
        check(declared(text, Counters)(), engine=engine)


def test_a_step_is_refused_where_plain_python_leaves_the_range() -> None:
    """Every order of three lines over two members is refused exactly if plain Python leaves the range."""
    for program in product(product(("up", "zero"), (0, 1)), repeat=3):
        lines = (f"    s.load[{'ab'[k]}] {'+= 1' if what == 'up' else '= 0'}\n" for what, k in program)
        system = declared(PAIR + "".join(lines), Counters)
        for engine in ("interpret", "explicit"):
            try:
                check(system(), engine=engine)
                left = False
            except DeclarationError:
                left = True
            assert (program, left) == (program, leaves(program))


def leaves(program: tuple[tuple[str, int], ...]) -> bool:
    """Does a reachable step, in plain Python, end outside 0..1?"""
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


class Height(enum.Enum):
    LOW = "the mark of the total is off"
    HIGH = "the mark of the total is on"


class Marks(System):
    """A machine that is read at a number which a step raises."""

    total = integer(0, 2)
    mark = flag(per=range(3))

    @machine(Height)
    def height(self, s: Any) -> Any:
        """The mark of the total."""
        return ite(s.mark[s.total], Height.HIGH, Height.LOW)


@pytest.mark.parametrize("engine", AVAILABLE)
@pytest.mark.parametrize("held", [False, True])
def test_a_machine_may_be_read_at_a_number_that_a_step_raises(engine: str, held: bool) -> None:
    body = "    'Raise.'\n" + "    s.when(s.total < 2)\n" * held + "    s.mark[s.total] = True\n    s.total += 1"
    raising = declared(f"@transition()\ndef step(self, s):\n{body}", Marks)
    if held:
        assert check(raising(), engine=engine).exploration.distinct == 3
    else:
        with pytest.raises(DeclarationError, match="step leaves the field's range after 3 steps"):
            check(raising(), engine=engine)

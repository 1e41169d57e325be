"""Small systems that between them use everything an engine has to get right."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from trystate.model.language import *

from .two_phase_commit import D, M, TwoPhaseCommit


class TwoWords(TwoPhaseCommit):
    """Padded to more than 64 bits, with a wide field that moves."""

    wide = integer(-7, 1 << 40, per="rm", initial=-7)

    @environment(each="rm")
    def jump(self, s: SymbolicState, rm: Expr) -> None:
        """A wide field takes its greatest value, then a small one."""
        s.when(s.state[rm] == M.COMMITTED)
        s.wide[rm] = ite(s.wide[rm] < 0, 1 << 40, 3)

    @sometimes()
    def all_settled(self, s: SymbolicState) -> Any:
        """Every wide field has had its greatest value."""
        return all_(s.wide[i] == 3 for i in s.rm)

    @step(witness="all_settled", each="rm")
    def a_jump_is_final(self, before: SymbolicState, after: SymbolicState, rm: Expr) -> Any:
        """A wide field is never negative again."""
        return (before.wide[rm] < 0) | (after.wide[rm] >= 0)


class ThreeWords(TwoWords):
    """Padded to more than 128 bits."""

    wider = integer(5, 1 << 50, per="rm")

    @environment(each="rm")
    def leap(self, s: SymbolicState, rm: Expr) -> None:
        """The wider field follows the wide one."""
        s.when(s.state[rm] == M.COMMITTED)
        s.wider[rm] = ite(s.wide[rm] < 0, 1 << 50, s.wide[rm] + 5)


class Ring(System):
    """A token goes round. Bounds that do not begin at 0, pairs, counts, faults, several initial states."""

    node = index(3)
    holder = integer(0, 2, initial=(0, 2))
    thirst = integer(-2, 1, per="node", initial=-2)
    trusts = flag(per=("node", "node"))
    asked = flag(per="node", initial=(False, True))
    level = integer(3, 6, initial=4)

    @transition(each="node")
    def pass_on(self, s: SymbolicState, node: Expr) -> None:
        """The holder hands the token to the next node."""
        s.when(s.holder == ord_(node))
        s.holder = ite(s.holder == 2, 0, s.holder + 1)

    @transition(each="node")
    def drink(self, s: SymbolicState, node: Expr) -> None:
        """A thirsty holder drinks."""
        s.when(s.holder == ord_(node), s.asked[node], s.thirst[node] > -2)
        s.thirst[node] = s.thirst[node] - 1
        s.asked[node] = s.thirst[node] > -2

    @environment(each="node")
    def grow(self, s: SymbolicState, node: Expr) -> None:
        """Thirst grows, and then it asks."""
        s.when(s.thirst[node] < 1, count(s.asked[j] for j in s.node) + as_int(s.asked[node]) < 3)
        s.thirst[node] = s.thirst[node] + 1
        s.asked[node] = True

    @environment(each=("node", "node"))
    def meet(self, s: SymbolicState, node0: Expr, node1: Expr) -> None:
        """Two nodes come to trust each other, when the level is high."""
        s.when(s.asked[node0], ~s.asked[node1], s.level > 4 + as_int(s.trusts[node1, node0]))
        s.trusts[node0, node1] = ~s.trusts[node0, node1]

    @transition()
    def move_level(self, s: SymbolicState) -> None:
        """The level follows the number of those who ask."""
        s.level = 3 + s.asked.count()

    @fault("loss", bound=1)
    def lose(self, s: SymbolicState) -> None:
        """The token returns to the start."""
        s.holder = 0
        for i in s.node:
            for j in s.node:
                s.trusts[i, j] = s.trusts[j, i]

    @sometimes()
    def full_trust(self, s: SymbolicState) -> Any:
        """One trusts two others."""
        return any_(s.trusts[i, j] & s.trusts[j, i] for i in s.node for j in s.node)

    @leads_to(each="node")
    def served(self, s: SymbolicState, node: Expr) -> Any:
        """A node that asks drinks."""
        return s.asked[node], s.thirst[node] == -2


class Overflowing(System):
    """An effect leaves its field's range."""

    n = integer(0, 3)
    up = flag()

    @transition()
    def rise(self, s: SymbolicState) -> None:
        """Rises without end."""
        s.n = s.n + 1

    @transition()
    def flip(self, s: SymbolicState) -> None:
        """Changes something else."""
        s.up = ~s.up


class Numbered(TwoPhaseCommit):
    """Names one of its members."""

    @sometimes()
    def first_commits(self, s: SymbolicState) -> Any:
        """The first one commits."""
        return s.state[0] == M.COMMITTED


class Ordered(TwoPhaseCommit):
    """Orders its members."""

    @transition(each=("rm", "rm"))
    def overtake(self, s: SymbolicState, rm0: Expr, rm1: Expr) -> None:
        """A lower one speaks for a higher one."""
        s.when(rm0 < rm1, s.sent[rm0])
        s.sent[rm1] = True


class Paired(TwoPhaseCommit):
    """A field per pair."""

    knows = flag(per=("rm", "rm"))


class TwoIndices(TwoPhaseCommit):
    """Fields per two indices."""

    key = index(2)
    locked = flag(per="key")


class _RandomTrees:
    """Random conditions, numbers and steps over the fields of a random system."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def number(self, s: SymbolicState, k: Expr) -> Any:
        two, one = ite(s.flag, 2, 2), ite(s.flag, -1, -1)
        a = self.rng.choice([s.small, s.per[k], s.off, two, count(s.up[j] for j in s.node), as_int(s.up[k])])
        b = self.rng.choice([s.small, s.per[k], one, as_int(s.flag)])
        return self.rng.choice([a, a + b, a - b, ite(s.flag, a, b)])

    def clamped(self, s: SymbolicState, k: Expr, low: int, high: int) -> Any:
        value = self.number(s, k)
        return ite(value < low, low, ite(value > high, high, value))

    def condition(self, s: SymbolicState, k: Expr, depth: int = 2) -> Any:
        if depth and self.rng.random() < 0.7:
            a, b = self.condition(s, k, depth - 1), self.condition(s, k, depth - 1)
            return self.rng.choice([a & b, a | b, ~a])
        choices = [
            s.flag == s.up[k],
            s.up[k],
            s.colour == self.rng.choice(list(D)),
            self.number(s, k) < self.number(s, k),
            self.number(s, k) == s.small,
            any_(s.up[j] for j in s.node),
            all_(s.per[j] < 2 for j in s.node),
            s.small == self.rng.randint(1, 4),
            ord_(k) < 1,
        ]
        return self.rng.choice(choices)

    def step(self, _: System, s: SymbolicState, node: Expr) -> None:
        """A random guard, and one to three random assignments."""
        s.when(self.condition(s, node, 1))
        for field in self.rng.sample(["flag", "small", "per", "up", "colour", "all"], self.rng.randint(1, 3)):
            if field == "flag":
                s.flag = self.condition(s, node)
            elif field == "small":
                s.small = self.clamped(s, node, 1, 4)
            elif field == "per":
                s.per[node] = self.clamped(s, node, -1, 2)
            elif field == "up":
                s.up[node] = ~s.up[node]
            elif field == "colour":
                s.colour = ite(self.condition(s, node), self.rng.choice(list(D)), s.colour)
            else:
                for j in s.node:
                    s.up[j] = s.per[j] > s.off


def random_system(seed: int) -> System:
    """Fields of every kind, and transitions with random guards and effects that stay within range."""
    trees = _RandomTrees(seed)

    def acts(number: int) -> Callable[[System, SymbolicState, Expr], None]:
        def act(self: System, s: SymbolicState, node: Expr) -> None:
            """Something random, the same whenever it runs."""
            _RandomTrees(100 * seed + number).step(self, s, node)

        return act

    def leads(self: System, s: SymbolicState, node: Expr) -> Any:
        """Something random, the same whenever it runs."""
        again = _RandomTrees(100 * seed)
        return again.condition(s, node, 1), again.condition(s, node, 1)

    members: dict[str, Any] = {
        "node": index(2),
        "flag": flag(),
        "small": integer(1, 4, initial=(2, 4)),
        "per": integer(-1, 2, per="node"),
        "off": integer(0, 0),
        "up": flag(per="node"),
        "colour": choice(D),
        "leads": leads_to(each="node")(leads),
    }
    for k in range(7):
        declare = transition(each="node") if trees.rng.random() < 0.5 else environment(each="node")
        members[f"act{k}"] = declare(acts(k + 1))
    made: type[System] = type(f"Random{seed}", (System,), members)
    return made()


class Odometer(System):
    """Digits that count up, each on its own: 10,000 states."""

    digit = index(4)
    shows = integer(0, 9, per="digit")

    @transition(each="digit")
    def turn(self, s: Any, digit: Any) -> None:
        """One digit goes up."""
        s.when(s.shows[digit] < 9)
        s.shows[digit] += 1

    @transition()
    def reset(self, s: Any) -> None:
        """All nines go back to zero."""
        s.when(all_(x == 9 for x in s.shows))
        for k in s.digit:
            s.shows[k] = 0

    @sometimes()
    def all_nines(self, s: Any) -> Any:
        """Far away."""
        return all_(x == 9 for x in s.shows)

    @always(witness="all_nines")
    def small(self, s: Any) -> Any:
        """Violated nearby."""
        return ~any_(x == 3 for x in s.shows)

    @always(witness="all_nines")
    def in_range(self, s: Any) -> Any:
        """True."""
        return all_(x <= 9 for x in s.shows) & (s.shows.count(9) <= 4)

    @leads_to(each="digit")
    def turns(self, s: Any, digit: Any) -> Any:
        """True."""
        return s.shows[digit] == 0, s.shows[digit] == 1

"""Small systems that together use every feature of an engine."""

from __future__ import annotations

from typing import Any

from trystate.model.language import *

from .declarations import declared
from .two_phase_commit import Manager, TwoPhaseCommit


class TwoWords(TwoPhaseCommit):
    """Padded to more than 64 bits, with a wide field that moves."""

    wide = integer(-7, 1 << 40, per="rm", initial=-7)

    @environment()
    def jump(self, s: SymbolicState, rm: Expr) -> None:
        """A wide field takes its greatest value, then a small one."""
        s.when(s.state[rm] == Manager.COMMITTED)
        s.wide[rm] = ite(s.wide[rm] < 0, 1 << 40, 3)

    @sometimes()
    def all_settled(self, s: SymbolicState) -> Any:
        """Every wide field has had its greatest value."""
        return s.wide.all(3)

    @step(witness="all_settled")
    def a_jump_is_final(self, before: SymbolicState, after: SymbolicState, rm: Expr) -> Any:
        """A wide field is never negative again."""
        return (before.wide[rm] < 0) | (after.wide[rm] >= 0)


class ThreeWords(TwoWords):
    """Padded to more than 128 bits."""

    wider = integer(5, 1 << 50, per="rm")

    @environment()
    def leap(self, s: SymbolicState, rm: Expr) -> None:
        """The wider field follows the wide one."""
        s.when(s.state[rm] == Manager.COMMITTED)
        s.wider[rm] = ite(s.wide[rm] < 0, 1 << 50, s.wide[rm] + 5)


class Ring(System):
    """A token goes round. Bounds that do not begin at 0, pairs, counts, faults, several initial states."""

    node = index(3)
    holder = integer(0, 2, initial=(0, 2))
    thirst = integer(-2, 1, per="node", initial=-2)
    trusts = flag(per=("node", "node"))
    asked = flag(per="node", initial=(False, True))
    level = integer(3, 6, initial=4)

    @transition()
    def pass_on(self, s: SymbolicState, node: Expr) -> None:
        """The holder hands the token to the next node."""
        s.when(s.holder == ord_(node))
        s.holder = ite(s.holder == 2, 0, s.holder + 1)

    @transition()
    def drink(self, s: SymbolicState, node: Expr) -> None:
        """A thirsty holder drinks."""
        s.when(s.holder == ord_(node), s.asked[node], s.thirst[node] > -2)
        s.thirst[node] = s.thirst[node] - 1
        s.asked[node] = s.thirst[node] > -2

    @environment()
    def grow(self, s: SymbolicState, node: Expr) -> None:
        """Thirst grows, and then the node requests a drink."""
        s.when(s.thirst[node] < 1, count(s.asked) + as_int(s.asked[node]) < 3)
        s.thirst[node] = s.thirst[node] + 1
        s.asked[node] = True

    @environment()
    def meet(self, s: SymbolicState, node0: Expr, node1: Expr) -> None:
        """Two nodes come to trust each other, when the level is high."""
        s.when(s.asked[node0], ~s.asked[node1], s.level > 4 + as_int(s.trusts[node1, node0]))
        s.trusts[node0, node1] = ~s.trusts[node0, node1]

    @transition()
    def move_level(self, s: SymbolicState) -> None:
        """The level follows the number of requesting nodes."""
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

    @leads_to()
    def served(self, s: SymbolicState, node: Expr) -> Any:
        """A node that has requested a drink drinks."""
        return s.asked[node], s.thirst[node] == -2


# An effect leaves its field's range.
Overflowing = declared(
    "n, up = integer(0, 3), flag()\n@transition()\ndef rise(self, s): 'Rises without end.'; s.n += 1\n"
    "@transition()\ndef flip(self, s): 'Changes something else.'; s.up = ~s.up",
    System,
)


class Odometer(System):
    """Digits that count up, each on its own: 10,000 states."""

    digit = index(4)
    shows = integer(0, 9, per="digit")

    @transition()
    def turn(self, s: Any, digit: Any) -> None:
        """One digit goes up."""
        s.when(s.shows[digit] < 9)
        s.shows[digit] += 1

    @transition()
    def reset(self, s: Any) -> None:
        """All nines go back to zero."""
        s.when(s.shows.all(9))
        for k in s.digit:
            s.shows[k] = 0

    @sometimes()
    def all_nines(self, s: Any) -> Any:
        """Far away."""
        return s.shows.all(9)

    @always(witness="all_nines")
    def small(self, s: Any) -> Any:
        """Violated nearby."""
        return ~s.shows.any(3)

    @always(witness="all_nines")
    def in_range(self, s: Any) -> Any:
        """True."""
        return all_(x <= 9 for x in s.shows) & (s.shows.count(9) <= 4)

    @leads_to()
    def turns(self, s: Any, digit: Any) -> Any:
        """True."""
        return s.shows[digit] == 0, s.shows[digit] == 1


def leaves(lines: int) -> System:
    """A system whose step leaves the range of its field, after some empty lines."""
    step = "x = integer(0, 2)\n@transition()\ndef up(self, s): 'Up.'; s.x = s.x + 1"
    return declared("\n" * lines + step, System)()

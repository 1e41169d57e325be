"""Two jugs without marks: measure 4 litres with 3 and 5 (the puzzle of "Die Hard with a Vengeance", 1995).

Rule: one step is one action of Lamport's DieHard.tla (tlaplus/Examples, specifications/DieHard). That module
has 16 reachable states; its invariant "big is not 4" fails after 6 steps, the solution that TLC prints and
the film shows. The largest distance of any state, and the edges, are as this package's engines count them.
"""

from __future__ import annotations

from typing import Any

from trystate.model.language import *


class Jugs(System):
    """A small and a big jug, a tap and a drain."""

    title = "The two jugs"

    small_litres = constant(3)
    big_litres = constant(5)
    goal_litres = constant(4)

    small = integer(0, "small_litres")
    big = integer(0, "big_litres")

    @transition()
    def fill_small(self, s: SymbolicState) -> None:
        """Fill the small jug at the tap."""
        s.small = self.small_litres

    @transition()
    def fill_big(self, s: SymbolicState) -> None:
        """Fill the big jug at the tap."""
        s.big = self.big_litres

    @transition()
    def empty_small(self, s: SymbolicState) -> None:
        """Empty the small jug."""
        s.small = 0

    @transition()
    def empty_big(self, s: SymbolicState) -> None:
        """Empty the big jug."""
        s.big = 0

    @transition()
    def small_to_big(self, s: SymbolicState) -> None:
        """Pour from the small jug until it is empty or the big one is full."""
        poured = self.least(s.small, self.big_litres - s.big)
        s.small -= poured
        s.big += poured

    @transition()
    def big_to_small(self, s: SymbolicState) -> None:
        """Pour from the big jug until it is empty or the small one is full."""
        poured = self.least(s.big, self.small_litres - s.small)
        s.big -= poured
        s.small += poured

    def least(self, a: Any, b: Any) -> Expr:
        return ite(a < b, a, b)

    @sometimes(cite="DieHard.tla, NotSolved")
    def measured(self, s: SymbolicState) -> Any:
        """The big jug holds the wanted litres."""
        return s.big == self.goal_litres

    @always(witness="measured")
    def one_jug_is_empty_or_full(self, s: SymbolicState) -> Any:
        """No state has water in both jugs with room left in both: that is why there are so few."""
        return s.small.isin((0, self.small_litres)) | s.big.isin((0, self.big_litres))


# (distinct states, edges, depth in steps), and the steps of the shortest solution
PINNED = (16, 58, 7)
SOLUTION = ("fill_big", "big_to_small", "empty_small", "big_to_small", "fill_big", "big_to_small")

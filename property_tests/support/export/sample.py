"""A small system with every kind of tree: each mistake of an exporter changes its states, steps or verdicts."""

from __future__ import annotations

from typing import Any

from trystate.model.language import *

from ..systems.random_systems import Hue


class Sample(System):
    """Nodes climb, meet, and fall; two numbers change places."""

    node = index(2)
    level = integer(-1, 3, per="node", initial=0)
    left = integer(0, 300, initial=1)
    right = integer(0, 300, initial=260)
    hue = choice(Hue)
    met = flag(per=("node", "node"))

    @transition(each="node")
    def climb(self, s: SymbolicState, node: Expr) -> None:
        """A node goes up if no node is below it."""
        s.when(s.level[node] < 2)
        s.when(all_(s.level[node] <= s.level[j] for j in s.node))
        s.level[node] += 1

    @transition()
    def swap(self, s: SymbolicState) -> None:
        """The numbers change places while the first is the lesser and a node is up."""
        s.when((s.left < s.right) & any_(s.level[j] > 0 for j in s.node))
        s.left, s.right = s.right - 1, s.left + 1

    @transition()
    def exchange(self, s: SymbolicState) -> None:
        """The levels change places, once the numbers have."""
        s.when(s.left > s.right)
        s.level[0], s.level[1] = s.level[1], s.level[0]

    @transition(each="node")
    def meet(self, s: SymbolicState, node: Expr) -> None:
        """A node that is up meets the nodes at its level; the hue advances to the last."""
        s.when(s.level[node] > 0)
        for k in s.node:
            s.met[node, k] = s.met[node, k] | (s.level[k] == s.level[node])
        s.hue = ite(s.hue == Hue.RED, Hue.GREEN, Hue.BLUE)

    @transition(each="node")
    def jump(self, s: SymbolicState, node: Expr) -> None:
        """The node with the highest number jumps to the top if it has met both nodes."""
        s.when(ord_(node) == len(s.node) - 1)
        s.when((count(s.met[node, j] for j in s.node) == 2) & (s.level[node] < 3))
        s.level[node] = 3

    @fault("fall", each="node", bound=2)
    def fall(self, s: SymbolicState, node: Expr) -> None:
        """A node falls by one."""
        s.when(s.level[node] > -1)
        s.level[node] -= 1

    @terminal
    def over(self, s: SymbolicState) -> Any:
        """The system may rest when the hue is the last, and all are up."""
        return (s.hue == Hue.BLUE) & all_(s.level[j] > 1 for j in s.node)

    @always(witness="somebody_is_at_the_top")
    def the_numbers_add_up(self, s: SymbolicState) -> Any:
        """One number gains as much as the other loses."""
        return s.left + s.right == 261

    @always(witness="somebody_is_at_the_top")
    def nobody_is_two_ahead(self, s: SymbolicState) -> Any:
        """Violated after a jump."""
        return all_(s.level[j] <= s.level[k] + 1 for j in s.node for k in s.node)

    @sometimes()
    def somebody_is_at_the_top(self, s: SymbolicState) -> Any:
        """A node is at the top."""
        return any_(s.level[j] == 3 for j in s.node)

    @sometimes()
    def the_hue_goes_back(self, s: SymbolicState) -> Any:
        """Never: all nodes are up, and the hue is the first again although all have met."""
        return (s.hue == Hue.RED) & any_(s.met[j, j] for j in s.node)

    @step(witness="somebody_is_at_the_top")
    def levels_change_by_one(self, before: SymbolicState, after: SymbolicState) -> Any:
        """Violated by a jump from the first level."""
        return all_(after.level[j] <= before.level[j] + 1 for j in before.node)

    @step(witness="somebody_is_at_the_top")
    def who_has_met_has_met(self, before: SymbolicState, after: SymbolicState) -> Any:
        """No node forgets a meeting."""
        return all_(after.met[j, k] | ~before.met[j, k] for j in before.node for k in before.node)

"""Two small systems for the command line: a lock that one edition forgets to take, and a waltz that never ends."""

from __future__ import annotations

import enum

from trystate.model.language import *

S = SymbolicState


class Edition(enum.Enum):
    """Two variants of a lock."""

    BROKEN = "nobody looks before entering"
    MENDED = "whoever enters looks first"


class Where(enum.Enum):
    """Where a node is."""

    OUTSIDE = "may enter"
    INSIDE = "is alone, if all is well"
    GONE = "has left for good"


class Lock(System):
    """A lock that one of its editions forgets to take."""

    title = "A lock"
    Edition = Edition
    node = index(2)
    min_nodes = constant(1)
    max_nodes = constant(2)
    at = choice(Where, per="node")

    whereabouts = machine_of(at, "Where a node is.")

    @transition(moves=[arc(Where.OUTSIDE, Where.INSIDE)], editions=(Edition.BROKEN,))
    def barge_in(self, s: S, node: Expr) -> None:
        """A node enters without looking."""
        s.when(s.at[node] == Where.OUTSIDE)
        s.at[node] = Where.INSIDE

    @transition(moves=[arc(Where.OUTSIDE, Where.INSIDE)], editions=(Edition.MENDED,))
    def enter(self, s: S, node: Expr) -> None:
        """A node enters an empty room."""
        s.when(s.at[node] == Where.OUTSIDE, all_(s.at[j] != Where.INSIDE for j in s.node))
        s.at[node] = Where.INSIDE

    @transition(moves=[arc(Where.INSIDE, Where.GONE)])
    def leave(self, s: S, node: Expr) -> None:
        """A node leaves."""
        s.when(s.at[node] == Where.INSIDE)
        s.at[node] = Where.GONE

    @fault("relapse", moves=[arc(Where.GONE, Where.OUTSIDE)])
    def come_again(self, s: S, node: Expr) -> None:
        """A node that left comes again."""
        s.when(s.at[node] == Where.GONE)
        s.at[node] = Where.OUTSIDE

    @terminal
    def at_rest(self, s: S) -> Condition:
        """All nodes have left."""
        return s.at.all(Where.GONE)

    @always(witness="somebody_enters")
    def one_at_a_time(self, s: S) -> Expr:
        """Never two inside."""
        inside: Expr = s.at.count(Where.INSIDE) <= 1
        return inside

    @sometimes()
    def somebody_enters(self, s: S) -> Condition:
        """A node is inside."""
        return s.at.any(Where.INSIDE)

    @leads_to()
    def everybody_leaves(self, s: S, node: Expr) -> tuple[Expr, Expr]:
        """A node that enters leaves."""
        return s.at[node] == Where.INSIDE, s.at[node] == Where.GONE


class Unclaimed(Lock):
    """A lock with a step that makes a move that it does not claim."""

    @transition()
    def vanish(self, s: S, node: Expr) -> None:
        """A node vanishes."""
        s.at[node] = Where.GONE


class Beat(enum.Enum):
    """A beat of a bar."""

    ONE = "heavy"
    TWO = "lighter"
    THREE = "light"
    LAST = "never played"


class Waltz(System):
    """Three beats, for ever."""

    beat = choice(Beat)

    @transition()
    def one(self, s: S) -> None:
        """The first beat is over."""
        s.when(s.beat == Beat.ONE)
        s.beat = Beat.TWO

    @transition()
    def two(self, s: S) -> None:
        """The second beat is over."""
        s.when(s.beat == Beat.TWO)
        s.beat = Beat.THREE

    @transition()
    def three(self, s: S) -> None:
        """The bar is over."""
        s.when(s.beat == Beat.THREE)
        s.beat = Beat.ONE

    @leads_to()
    def it_ends(self, s: S) -> tuple[Expr, Expr]:
        """The waltz ends."""
        return s.beat == Beat.ONE, s.beat == Beat.LAST

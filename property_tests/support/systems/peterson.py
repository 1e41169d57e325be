"""Peterson's lock for two: G. L. Peterson, "Myths about the mutual exclusion problem", 1981.

Rule: each step reads or writes as the paper's program does, with its `wait until` one atomic test. Two broken
variants show that neither half of the entry protocol can be left out. Without the turn both can wait for each
other for ever; with the turn given away *before* the wish is announced both can be in at once.

No published graph has these very steps; the counts are this package's, on which all its engines agree.
"""

from __future__ import annotations

import enum
from typing import Any

from trystate.model.language import *


class Lock(enum.Enum):
    """Peterson's lock, and two that look like it."""

    PETERSON = "announce the wish, give the turn away, wait"
    WITHOUT_TURN = "announce the wish, wait"
    TURN_FIRST = "give the turn away, announce the wish, wait"


class Process(enum.Enum):
    """Where a process is in its program."""

    OUTSIDE = "wants nothing"
    ENTERING = "has done the first half of the entry"
    WAITING = "waits until the other is out, or has given the turn away"
    CRITICAL = "is in the critical section"


P = Process


class Peterson(System):
    """Two processes, a flag for each, and whose turn it is."""

    title = "Peterson's lock"
    Edition = Lock

    process = index(2)

    at = choice(Process, per="process")
    wants = flag(per="process")
    turn = integer(0, 1, doc="who goes first if both want to")

    @machine(Process, each="process")
    def program(self, s: SymbolicState, process: Expr) -> Any:
        """One process."""
        return s.at[process]

    @environment(each="process", moves=[arc(P.OUTSIDE, P.ENTERING)])
    def begin(self, s: SymbolicState, process: Expr) -> None:
        """A process wants to enter; nothing says that it ever does."""
        s.when(s.at[process] == P.OUTSIDE)
        s.at[process] = P.ENTERING
        if self.edition is Lock.TURN_FIRST:
            s.turn = 1 - ord_(process)
        else:
            s.wants[process] = True

    @transition(each="process", moves=[arc(P.ENTERING, P.WAITING)])
    def go_on(self, s: SymbolicState, process: Expr) -> None:
        """The second half of the entry."""
        s.when(s.at[process] == P.ENTERING)
        s.at[process] = P.WAITING
        if self.edition is Lock.PETERSON:
            s.turn = 1 - ord_(process)
        elif self.edition is Lock.TURN_FIRST:
            s.wants[process] = True

    @transition(each="process", moves=[arc(P.WAITING, P.CRITICAL)])
    def enter(self, s: SymbolicState, process: Expr) -> None:
        """The other does not want to, or lets this one go first."""
        s.when(s.at[process] == P.WAITING)
        free = ~any_(s.wants[j] & (j != process) for j in s.process)
        s.when(free if self.edition is Lock.WITHOUT_TURN else free | (s.turn == ord_(process)))
        s.at[process] = P.CRITICAL

    @transition(each="process", moves=[arc(P.CRITICAL, P.OUTSIDE)])
    def leave(self, s: SymbolicState, process: Expr) -> None:
        """A process leaves the critical section: none stays for ever."""
        s.when(s.at[process] == P.CRITICAL)
        s.at[process] = P.OUTSIDE
        s.wants[process] = False

    @sometimes()
    def one_is_in_while_the_other_waits(self, s: SymbolicState) -> Any:
        """The lock is contended."""
        return any_(x == P.CRITICAL for x in s.at) & any_(x == P.WAITING for x in s.at)

    @always(witness="one_is_in_while_the_other_waits")
    def mutual_exclusion(self, s: SymbolicState) -> Any:
        """The two are never in the critical section at once."""
        return s.at.count(P.CRITICAL) <= 1

    @leads_to(each="process")
    def nobody_starves(self, s: SymbolicState, process: Expr) -> tuple[Expr, Expr]:
        """A process that waits gets in, under weak fairness."""
        return s.at[process].isin((P.ENTERING, P.WAITING)), s.at[process] == P.CRITICAL


# lock: (distinct states, edges, depth in steps)
PINNED = {
    Lock.PETERSON: (20, 34, 6), Lock.WITHOUT_TURN: (15, 24, 5), Lock.TURN_FIRST: (32, 60, 7),
}  # fmt: skip

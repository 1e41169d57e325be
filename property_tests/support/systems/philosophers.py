"""The dining philosophers: Dijkstra, "Hierarchical ordering of sequential processes", 1971 (EWD310).

Rule: a philosopher takes two forks one after the other, and keeps the first while it waits for the second.
If all take the fork at their own seat first, all can hold one and wait for ever: the deadlock. If one takes
its forks in the other order, forks are ordered and there is none (resource hierarchy, in the same paper).

Weak fairness does not feed everybody. A fork that a neighbour takes and returns again and again is never free
*for ever*, so a run in which a hungry philosopher never gets it is weakly fair: `the_hungry_eat` is violated
in both editions. Under weak fairness the order of forks does ensure that *somebody* eats.

No published graph has these very steps; the counts are this package's, on which all its engines agree.
"""

from __future__ import annotations

import enum
from typing import Any

from trystate.model.language import *


class Habit(enum.Enum):
    """In which order forks are taken."""

    ALIKE = "everybody takes the fork at their own seat first"
    ONE_TURNED = "the philosopher at seat 0 takes the next fork first"


class Philosopher(enum.Enum):
    """The state of a philosopher."""

    THINKING = "wants nothing"
    HUNGRY = "waits for the first fork"
    HOLDING = "has the first fork and waits for the second"
    EATING = "has both forks"


class Fork(enum.Enum):
    """Where a fork is."""

    FREE = "on the table"
    TAKEN = "in a hand"


P, F = Philosopher, Fork


class Philosophers(System):
    """Philosophers and forks around a table: fork k lies between the seats k - 1 and k."""

    title = "The dining philosophers"
    Edition = Habit

    seat = index(3)

    philosopher = choice(Philosopher, per="seat")
    forks = choice(Fork, per="seat")

    @machine(Philosopher, each="seat")
    def diner(self, s: SymbolicState, seat: Expr) -> Any:
        """One philosopher."""
        return s.philosopher[seat]

    @machine(Fork, each="seat")
    def cutlery(self, s: SymbolicState, seat: Expr) -> Any:
        """The fork at one seat."""
        return s.forks[seat]

    def follows(self, fork: Expr, seat: Expr) -> Expr:
        """The fork is the one at the next seat."""
        last = self.sizes["seat"] - 1
        return (ord_(fork) == ord_(seat) + 1) | ((ord_(seat) == last) & (ord_(fork) == 0))

    def is_first(self, fork: Expr, seat: Expr) -> Expr:
        turned = (ord_(seat) == 0) & (self.edition is Habit.ONE_TURNED)
        return (~turned & (fork == seat)) | (turned & self.follows(fork, seat))

    def is_second(self, fork: Expr, seat: Expr) -> Expr:
        return ((fork == seat) | self.follows(fork, seat)) & ~self.is_first(fork, seat)

    @environment(each="seat", moves=[arc(P.THINKING, P.HUNGRY)])
    def get_hungry(self, s: SymbolicState, seat: Expr) -> None:
        """A philosopher stops thinking; nothing says that it ever does."""
        s.when(s.philosopher[seat] == P.THINKING)
        s.philosopher[seat] = P.HUNGRY

    @transition(each="seat", moves=[arc(P.HUNGRY, P.HOLDING), arc(F.FREE, F.TAKEN), may(F.FREE, F.TAKEN, of="others")])
    def take_first(self, s: SymbolicState, seat: Expr) -> None:
        """A hungry philosopher takes its first fork."""
        s.when(s.philosopher[seat] == P.HUNGRY)
        s.when(any_(self.is_first(k, seat) & (s.forks[k] == F.FREE) for k in s.seat))
        s.philosopher[seat] = P.HOLDING
        for k in s.seat:
            s.forks[k] = self.taken(s.forks[k], self.is_first(k, seat))

    @transition(each="seat", moves=[arc(P.HOLDING, P.EATING), may(F.FREE, F.TAKEN), arc(F.FREE, F.TAKEN, of="others")])
    def take_second(self, s: SymbolicState, seat: Expr) -> None:
        """A philosopher with one fork takes the other, and eats."""
        s.when(s.philosopher[seat] == P.HOLDING)
        s.when(any_(self.is_second(k, seat) & (s.forks[k] == F.FREE) for k in s.seat))
        s.philosopher[seat] = P.EATING
        for k in s.seat:
            s.forks[k] = self.taken(s.forks[k], self.is_second(k, seat))

    @transition(
        each="seat",
        moves=[arc(P.EATING, P.THINKING), arc(F.TAKEN, F.FREE), arc(F.TAKEN, F.FREE, of="others")],
    )
    def put_down(self, s: SymbolicState, seat: Expr) -> None:
        """A philosopher has eaten, and returns both forks."""
        s.when(s.philosopher[seat] == P.EATING)
        s.philosopher[seat] = P.THINKING
        for k in s.seat:
            mine = (k == seat) | self.follows(k, seat)
            s.forks[k] = ite(mine, F.FREE, s.forks[k])

    def taken(self, fork: Expr, condition: Expr) -> Expr:
        return ite(condition, F.TAKEN, fork)

    @sometimes()
    def somebody_eats(self, s: SymbolicState) -> Any:
        """It is possible to eat."""
        return any_(x == P.EATING for x in s.philosopher)

    @always(witness="somebody_eats")
    def neighbours_do_not_eat_together(self, s: SymbolicState) -> Any:
        """Two philosophers who share a fork never eat at once."""
        return all_(
            implies(self.follows(k, j) & (s.philosopher[j] == P.EATING), s.philosopher[k] != P.EATING)
            for j in s.seat
            for k in s.seat
        )

    @leads_to(each="seat")
    def the_hungry_eat(self, s: SymbolicState, seat: Expr) -> tuple[Expr, Expr]:
        """A hungry philosopher eats: not so under weak fairness, neighbours can take turns for ever."""
        return s.philosopher[seat] == P.HUNGRY, s.philosopher[seat] == P.EATING

    @leads_to()
    def hunger_is_met_somewhere(self, s: SymbolicState) -> tuple[Expr, Expr]:
        """While anybody is hungry, somebody eats: true where forks are ordered."""
        return any_(x == P.HUNGRY for x in s.philosopher), any_(x == P.EATING for x in s.philosopher)


# (habit, seats): (distinct states, edges, depth in steps)
PINNED = {
    (Habit.ALIKE, 2): (13, 22, 4),
    (Habit.ALIKE, 3): (45, 111, 6),
    (Habit.ALIKE, 5): (573, 2_365, 10),
    (Habit.ONE_TURNED, 2): (12, 20, 4),
    (Habit.ONE_TURNED, 3): (42, 103, 6),
    (Habit.ONE_TURNED, 5): (534, 2_195, 10),
}

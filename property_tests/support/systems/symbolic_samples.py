"""Small systems that decision diagrams can get wrong: odd enums, negative numbers, many starts."""

from __future__ import annotations

import enum
from typing import Any

from trystate.model.language import (
    System,
    all_,
    any_,
    choice,
    count,
    environment,
    fault,
    flag,
    index,
    integer,
    ite,
    leads_to,
    sometimes,
    transition,
)
from trystate.model.language.expressions import and_, not_, or_


class Mood(enum.Enum):
    CALM = "calm"
    BUSY = "busy"
    TIRED = "tired"
    CROSS = "cross"
    GONE = "gone"


class Light(enum.Enum):
    GREEN = "green"
    AMBER = "amber"
    RED = "red"


class Market(System):
    """Numbers with lows of either sign, sums, differences, counts, and enums that do not fill their bits."""

    trader = index(2)
    purse = integer(-3, 3, per="trader", initial=(0, 1))
    stock = integer(2, 7, initial=(4, 5))
    mood = choice(Mood, per="trader")
    light = choice(Light, initial=(Light.GREEN, Light.RED))
    steady = flag()

    @transition(each="trader")
    def buy(self, s: Any, trader: Any) -> None:
        """One good for as much money as the market is short of five."""
        price = ite(s.stock < 5, 6 - s.stock, 1)
        s.when(s.purse[trader] - price >= -3, s.stock > 2, s.mood[trader] != Mood.GONE)
        s.purse[trader] = s.purse[trader] - price
        s.stock = s.stock - 1

    @transition(each=("trader", "trader"))
    def lend(self, s: Any, trader0: Any, trader1: Any) -> None:
        """The richer gives half of what divides them, at most one."""
        s.when(s.purse[trader0] - s.purse[trader1] > 1)
        s.purse[trader0] = s.purse[trader0] - 1
        s.purse[trader1] = s.purse[trader1] + 1

    @transition(each="trader", fair=False)
    def sell(self, s: Any, trader: Any) -> None:
        """A good comes back, if all purses together are not full."""
        s.when(s.purse[0] + s.purse[1] + 3 < s.stock, s.stock < 7, s.purse[trader] < 3)
        s.stock = s.stock + 1
        s.purse[trader] = s.purse[trader] + 1
        s.mood[trader] = ite(s.mood[trader] == Mood.CALM, Mood.BUSY, s.mood[trader])

    @transition(each="trader")
    def tire(self, s: Any, trader: Any) -> None:
        """Work tires, and then all the others who are busy."""
        s.when(s.mood[trader] == Mood.BUSY, s.stock + count(m == Mood.BUSY for m in s.mood) > 5)
        for j in s.trader:
            s.mood[j] = ite(s.mood[j] == Mood.BUSY, Mood.TIRED, s.mood[j])

    @transition(each="trader")
    def leave(self, s: Any, trader: Any) -> None:
        """A tired trader goes, unless the light is red."""
        s.when(s.mood[trader] == Mood.TIRED, s.light != Light.RED)
        s.mood[trader] = Mood.GONE

    @environment()
    def switch(self, s: Any) -> None:
        """The light goes round."""
        s.when(~s.steady, any_(m == Mood.TIRED for m in s.mood))
        s.light = ite(
            s.light == Light.GREEN,
            Light.AMBER,
            ite(s.light == Light.AMBER, Light.RED, Light.GREEN),
        )

    @fault("jam", bound=1)
    def jam(self, s: Any) -> None:
        """The light stays as it is."""
        s.steady = True

    @leads_to(each="trader")
    def goes(self, s: Any, trader: Any) -> Any:
        """Not so: the light may stay red."""
        return s.mood[trader] == Mood.TIRED, s.mood[trader] == Mood.GONE

    @leads_to(each="trader")
    def tires_or_waits(self, s: Any, trader: Any) -> Any:
        """Holds of the traders at a full market."""
        return and_(s.mood[trader] == Mood.BUSY, s.stock > 6), or_(s.mood[trader] != Mood.BUSY, s.stock < 7)


class Flags(System):
    """More states than a double can count."""

    switch = index(70)
    on = flag(per="switch")

    @transition(each="switch")
    def flip(self, s: Any, switch: Any) -> None:
        """A switch is flipped."""
        s.on[switch] = ~s.on[switch]


class Rooks(System):
    """Rooks on a board, none attacking another: beyond every memory, listed as well as in diagrams.

    No order of the squares helps: row by row a diagram has to remember which columns are taken, one of 2^12 sets.
    """

    line = index(12)
    rook = flag(per=("line", "line"))

    @transition(each=("line", "line"))
    def place(self, s: Any, row: Any, column: Any) -> None:
        """A rook is put where no other attacks it."""
        s.when(~any_(s.rook[row, k] | s.rook[k, column] for k in s.line))
        s.rook[row, column] = True

    @sometimes()
    def one_is_there(self, s: Any) -> Any:
        """One step away."""
        return any_(s.rook[i, j] for i in s.line for j in s.line)

    @sometimes()
    def every_row_has_one(self, s: Any) -> Any:
        """12 steps away."""
        return all_(any_(s.rook[i, j] for j in s.line) for i in s.line)


class Overflow(System):
    """A number that is counted beyond its range."""

    number = integer(1, 3)

    @transition()
    def grow(self, s: Any) -> None:
        """Nothing stops it."""
        s.number = s.number + 1


class Ring(System):
    """A token that goes round for ever past places that may be asleep: its fair runs are loops."""

    place = index(4)
    token = integer(1, 4, initial=(1, 2))
    asleep = flag(per="place", initial=(False, True))
    served = flag()

    @transition()
    def pass_on(self, s: Any) -> None:
        """The token moves on by one."""
        s.token = ite(s.token == 4, 1, s.token + 1)
        s.served = False

    @transition(each="place")
    def wake(self, s: Any, place: Any) -> None:
        """The place that has the token wakes up."""
        s.when(s.asleep[place], s.token == 1)
        s.asleep[place] = False

    @environment()
    def serve(self, s: Any) -> None:
        """Nobody has to."""
        s.when(s.token == 3)
        s.served = True

    @leads_to()
    def served_again(self, s: Any) -> Any:
        """Not so: the token goes round without."""
        return s.token == 2, s.served

    @leads_to(each="place")
    def wakes(self, s: Any, place: Any) -> Any:
        """Not so: the token may always leave before."""
        return s.asleep[place], not_(s.asleep[place])

    @leads_to()
    def moves(self, s: Any) -> Any:
        """The token comes to its last place."""
        return s.token == 1, s.token == 4

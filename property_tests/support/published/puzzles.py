"""Puzzles: the coffee can, the prisoners and the switch, the cigarette smokers."""

from __future__ import annotations

from typing import Any

from trystate.model.language import *

S = SymbolicState


class CoffeeCan(System):
    """Gries, "The Science of Programming", 1981: beans are drawn by two, and a bean is put back."""

    most = constant(100)
    black = integer(0, most, initial=ANY)
    white = integer(0, most, initial=ANY)

    @initial
    def some_beans(self, s: S) -> Any:
        return (s.black + s.white > 0) & (s.black + s.white <= self.most)

    @transition()
    def draw(self, s: S) -> None:
        """Two beans of one colour are replaced by a black bean, and two of different colours by a white bean."""
        black, white = s.choose(((2, 0), (1, 1), (0, 2)))
        s.when(s.black >= black, s.white >= white)
        s.black, s.white = s.black - black + ite(white == 1, 0, 1), s.white - white + white % 2

    @terminal
    def one_is_left(self, s: S) -> Any:
        return s.black + s.white == 1

    @sometimes()
    def white_is_left(self, s: S) -> Any:
        """The last bean is white."""
        return (s.black == 0) & (s.white == 1)

    @step(witness="white_is_left")
    def parity_stays(self, before: S, after: S) -> Any:
        """The number of white beans stays odd or even."""
        return before.white % 2 == after.white % 2


class Prisoner(System, deadlock=False):
    """The prisoners and one switch: one of them counts how often the light was on."""

    other = index(2)
    unknown = constant(0)  # 1: the light may be on at first
    total = integer(1, (other + 1) * (1 + unknown) + 1)
    announced = flag()
    signalled = integer(0, 1 + unknown, per=other)
    light = flag(initial=ANY)
    counter_came = flag()
    came = flag(per=other)

    @initial
    def known(self, s: S) -> Any:
        return ~s.light | bool(self.unknown)

    def wanted(self) -> Any:
        return (self.sizes["other"] + 1) * (1 + self.unknown) - self.unknown

    @transition()
    def counter(self, s: S) -> None:
        """The prisoner who counts turns the light off."""
        s.total = s.total + as_int(s.light)
        s.announced = s.total >= self.wanted()
        s.light, s.counter_came = False, True

    @transition()
    def enter(self, s: S, other: Expr) -> None:
        """Another prisoner turns the light on, as often as allowed."""
        signals = ~s.light & (s.signalled[other] < 1 + self.unknown)
        s.light, s.signalled[other] = s.light | signals, s.signalled[other] + as_int(signals)
        s.came[other] = True

    @sometimes()
    def is_announced(self, s: S) -> Any:
        """The prisoner who counts has announced it."""
        return s.announced

    @always(witness="is_announced")
    def victory(self, s: S) -> Any:
        """It is announced only after all have come."""
        return ~s.announced | (s.counter_came & s.came.all())


class CigaretteSmokers(System):
    """Patil, 1971: each smoker has one ingredient; a dealer offers all others to one of them."""

    ingredient = index(3)
    smoking = flag(per=ingredient)
    offer = flag(per=ingredient, initial=ANY)

    @initial
    def all_but_one(self, s: S) -> Any:
        return s.offer.count() == len(s.ingredient) - 1

    @transition()
    def start_smoking(self, s: S) -> None:
        """The smoker who has the ingredient that is not offered takes the offer and smokes."""
        s.when(s.offer.any())
        for i in s.ingredient:
            s.smoking[i] = all_((j == i) | s.offer[j] for j in s.ingredient)
        for i in s.ingredient:
            s.offer[i] = False

    @transition()
    def stop_smoking(self, s: S, ingredient: Expr) -> None:
        """The smoker stops, and the dealer makes an offer."""
        offer = s.subset(s.ingredient)
        s.when(~s.offer.any(), s.smoking[ingredient], count(offer) == len(s.ingredient) - 1)
        s.smoking[ingredient] = False
        for i in s.ingredient:
            s.offer[i] = offer[i]

    @sometimes()
    def one_smokes(self, s: S) -> Any:
        """A smoker smokes."""
        return s.smoking.any()

    @always(witness="one_smokes")
    def at_most_one(self, s: S) -> Any:
        """At most one smoker smokes."""
        return s.smoking.count() <= 1

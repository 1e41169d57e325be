"""Ids of contexts, messages and passes: some bits name the worker that gave out an id, the others count its ids.

The runtime's ids have 16 bits of worker and 48 bits of counter. Here the bits are few, so every id of every worker is
given out. torch keeps the worker's number as a signed number, and never gives out the last id, because it asserts that
an id is below it. torch's id for "no context" is -1; ours is not a number.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Counter, Edition

S = SymbolicState
NONE = -1  # torch's id for "no context"


class Ids(System):
    """The ids that each of several workers gives out, from its first id until it has no more."""

    title = "Ids"
    Edition = (Edition.TORCH, Edition.TRYSTATE)

    worker = index(4, "a power of 2: as many as the bits can number")
    numbers = constant(4, "a power of 2: as many ids as the counter can number")

    given = integer(0, "numbers", per="worker", doc="how many ids it has given out: the next one's counter")
    refused = flag(per="worker", doc="it was asked for an id and had none left")

    @machine(Counter)
    def counter(self, s: S, worker: Expr) -> Any:
        """The counter of a worker."""
        fresh = ite(s.given[worker] == 0, Counter.FRESH, Counter.COUNTING)
        return ite(s.refused[worker], Counter.EXHAUSTED, fresh)

    # ---- the value of an id

    def first(self, worker: Expr) -> Any:
        """The worker's number, followed by zeros."""
        return self.shifted(self.kept_number(worker))

    def shifted(self, number: Any) -> Any:
        return sum((number for _ in range(1, self.numbers)), start=number)

    def kept_number(self, worker: Expr) -> Any:
        """The worker's number, as read from the integer in which it is kept."""
        return ord_(worker)

    def largest(self, worker: Expr) -> Any:
        return self.first(worker) + self.numbers - 1

    def available(self) -> int:
        """The number of ids that a worker gives out."""
        room: int = self.sizes["numbers"]
        return room

    # ---- the steps

    @transition(
        moves=[arc(Counter.FRESH, Counter.COUNTING)],
        cite="distributed-autograd-contexts 2.2: newAutogradMessageId",
    )
    def give(self, s: S, worker: Expr) -> None:
        """A worker gives out a new id."""
        s.when(s.given[worker] < self.available())
        s.given[worker] = s.given[worker] + 1

    @transition(
        moves=[arc(Counter.COUNTING, Counter.EXHAUSTED)],
        cite="distributed-autograd-contexts 2.2: next_autograd_message_id_ < max_id_",
    )
    def refuse(self, s: S, worker: Expr) -> None:
        """A worker has no id left: torch's assertion fails, ours raises IdsExhaustedError."""
        move(s.refused, False, True, s.given[worker] >= self.available(), at=worker)

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """No worker has an id left."""
        return all_(s.refused)

    def last_given(self, s: S, worker: Expr) -> Any:
        return self.first(worker) + s.given[worker] - 1

    @sometimes()
    def somebody_has_no_more(self, s: S) -> Condition:
        """A worker has given out all its ids."""
        return any_(s.refused)

    @always(witness="somebody_has_no_more")
    def an_id_says_whose_it_is(self, s: S) -> Condition:
        """An id begins with the number of the worker that gave it out, and is not negative."""
        return all_(implies(s.given[j] > 0, self.is_of(self.last_given(s, j), j)) for j in s.worker)

    def is_of(self, number: Any, worker: Expr) -> Condition:
        begin = self.shifted(ord_(worker))
        return (number >= begin) & (number < begin + self.numbers)

    @always(witness="somebody_has_no_more")
    def ids_are_unique(self, s: S) -> Condition:
        """No two workers give out the same id."""
        differ = (
            all_(
                (ord_(i) == ord_(j))
                | (s.given[i] == 0)
                | (s.given[j] == 0)
                | (self.last_given(s, i) != self.last_given(s, j))
                for i in s.worker
            )
            for j in s.worker
        )
        return all_(differ)

    @always(witness="somebody_has_no_more")
    def no_id_means_none(self, s: S) -> Condition:
        """The largest id of a worker differs from the id that means "no context"."""
        return all_(self.largest(j) != NONE for j in s.worker)

    @always(witness="somebody_has_no_more")
    def every_id_is_given_out(self, s: S) -> Condition:
        """A worker without further ids has given out every id that fits the counter."""
        return all_(implies(s.refused[j], s.given[j] == self.numbers) for j in s.worker)


# ---- the editions


class Torch(Ids, edition=Edition.TORCH):
    """torch 2.13: signed numbers of workers (G9), and an id that means "no context" (G10)."""

    def kept_number(self, worker: Expr) -> Any:
        """The worker's number, as read from a signed integer with the bits of the number."""
        workers = self.sizes["worker"]
        return ord_(worker) - ite(ord_(worker) < workers // 2, 0, workers)

    def available(self) -> int:
        """The number of ids without the last, which is never given out."""
        return super().available() - 1


class Ours(Ids, edition=Edition.TRYSTATE):
    """Ours: every number is an id."""

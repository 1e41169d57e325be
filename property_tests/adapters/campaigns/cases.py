"""A kind of cases, the result of one, and the tally of many."""

from __future__ import annotations

import math
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from typing import Any, Self

from trystate.model.errors import UsageError

CANARY_TRIES = 40  # seeds that a planted fault may need: it need not show in every case
CONFIDENCE = 0.95
ENDS = "ends without"  # begins the name of an exception that no case expects
HELD = "every property held"  # begins the last line of a case that does not fail


@dataclass(frozen=True, slots=True)
class Case:
    """The result of one seed. `seconds` are of virtual time.

    `fails` names the property that does not hold, and `seen` contradicts it. `shown`: the findings of torch that the
    case shows. `settled_seconds`: the time from the last fault until everything was at rest.
    """

    seed: int
    steps: int = 0
    seconds: float = 0.0
    settled_seconds: float = 0.0
    faults: Mapping[str, int] = field(default_factory=dict)
    fails: str = ""
    seen: str = ""
    shown: tuple[str, ...] = ()


class Kind(ABC):
    """Cases of one kind. `batch`: the seeds of a piece, about two seconds. A piece is at most an hour of one core."""

    name: str
    title: str
    batch = 25
    settle_seconds = 0.0  # limit of the time until everything is at rest; 0: a case has no time

    @abstractmethod
    def case(self, seed: int, nodes: int | None = None) -> Case:
        """The case of a seed."""

    @abstractmethod
    def planted(self) -> AbstractContextManager[Any]:
        """While the block runs, the code under test has a fault."""

    def lines(self, seed: int, nodes: int | None = None, **how: bool | str) -> list[str]:
        """The case in words: of one that fails, the smallest that fails in the same way."""
        if how.get("on"):
            raise UsageError(f"--on {how['on']}: a case of kind {self.name} is not made smaller for one property")
        (done,) = self.each(range(seed, seed + 1), nodes)
        return [f"violated: {done.fails}: {done.seen}" if done.fails else f"{HELD}: {done.steps:,} steps"]

    def small(self, done: Case, nodes: int | None) -> list[str]:
        """The smallest case that fails like this one, in words; the case as it is, if its repetition does not fail.

        A case with real processes may fail only once, for example because the machine was slow.
        """
        try:
            lines = self.lines(done.seed, nodes)
        except Exception:
            return [done.seen]
        return [done.seen, "the same seed again:", *lines] if lines[-1].startswith(HELD) else lines

    def cases(self, seeds: Iterable[int], nodes: int | None = None) -> Iterator[Case]:
        return (self.case(seed, nodes) for seed in seeds)

    def each(self, seeds: range, nodes: int | None = None) -> Iterator[Case]:
        """The cases; an exception that no case expects is a case that fails, and the others follow.

        If several cases together raise one, each is taken alone, until one of them raises.
        """
        left, lost = list(seeds), list[Case]()
        while left:
            now, held = left[:1] if lost else [*left], list[Case]()
            try:
                for done in self.cases(now, nodes):
                    left = left[len(held) :]
                    yield from held
                    held = [done]
            except Exception as error:
                told = "".join(traceback.format_exception(error))
                held = [Case(left[0], fails=f"{ENDS} {type(error).__name__}", seen=told)]
                lost = held if len(now) > 1 else []
                if lost:
                    continue
            left = left[len(held) :]
            yield from held
        yield from lost

    def canary(self, seed: int) -> str:
        """The property that a planted fault violates, in the first case from this seed on that shows it."""
        with self.planted():
            found = (done.fails for done in self.each(range(seed, seed + CANARY_TRIES)))
            return next((name for name in found if name and not name.startswith(ENDS)), "")

    def problem(self) -> str:
        """Why no such case runs here; empty if it does."""
        return ""


def again(kind: str, seed: int, nodes: int | None) -> str:
    """The command that repeats a case."""
    return f"trystate simulate {kind} --seed {seed}" + (f" --nodes {nodes}" if nodes is not None else "")


@dataclass(slots=True)
class Tally:
    """The sums of some cases, and those that fail; `cpu_seconds` of one core."""

    seeds: int = 0
    steps: int = 0
    seconds: float = 0.0
    settled_seconds: float = 0.0  # the longest
    cpu_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    shown: Counter[str] = field(default_factory=Counter)
    canaries: int = 0
    silent: list[int] = field(default_factory=list)  # seeds whose canary was not reported
    found: list[dict[str, Any]] = field(default_factory=list)  # property, seed, and the lines of the smallest case

    def add(self, done: Case) -> None:
        self.seeds, self.steps, self.seconds = self.seeds + 1, self.steps + done.steps, self.seconds + done.seconds
        self.settled_seconds = max(self.settled_seconds, done.settled_seconds)
        self.faults.update(done.faults)
        self.shown.update(done.shown)

    def join(self, other: Tally) -> None:
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            setattr(self, each.name, max(mine, theirs) if each.name == "settled_seconds" else mine + theirs)

    @property
    def bound(self) -> float:
        """With 95 % confidence, at most this share of all seeds fails, if none of these does."""
        return -math.expm1(math.log(1 - CONFIDENCE) / self.seeds) if self.seeds else 1.0

    def data(self) -> dict[str, Any]:
        """Its values for JSON."""
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {name: dict(sorted(v.items())) if isinstance(v, Counter) else v for name, v in values}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**data, "faults": Counter(data["faults"]), "shown": Counter(data["shown"])})

"""A proof by induction: each condition given to a solver, and what is said of a property in the end.

*Theory of operation.* First each property is asked whether it follows from the others in one state; those that do need no
induction, and are not used in it. Then each condition that is left is asked: the assumptions, the guard and the
negation of the goal. A solver that finds them inconsistent has proved the condition. It is asked twice: without
the assumptions that need ranks or opaque counts, which are seldom needed and make a search long, and then with all.

A condition that is not proved takes its property out of the invariant, and the others are asked again without it, until
nothing changes. So what is called proved stands on nothing that is not. A property is

    proved        all its conditions are, or it follows from properties that are
    not proved    the solver has a model of a condition's negation, a counterexample to induction; it may not be
                  reachable, or not be finite
    not decided   the solver gave up on a condition, or the time was over

Limits. A question has an effort, the solver's own count of its work, which is the same on every machine; a proof has a
time. Questions are independent: their order does not matter, and another solver can be given each as a text.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..language import Expr, System, not_
from ..language.expressions import TRUE
from .conditions import INIT, Claims, Condition
from .formulas import Formulas, load

EFFORT = 6_000_000  # of one question, about five seconds; the longest that a proof of ours needs is a fifth of it
FOLLOWS_EFFORT = 300_000  # whether a property follows from the others is found soon, or is left to the induction
COSTLY = frozenset(("opaque", "ranks", "same members", "segments"))
FOLLOWS = "follows"

Term = Any


class Answer(enum.Enum):
    """What a solver says of the negation of a condition, under its assumptions."""

    REFUTED = "unsat"
    MODEL = "sat"
    UNKNOWN = "unknown"


class Status(enum.Enum):
    """What is said of a property."""

    PROVED = "proved"
    NOT_PROVED = "not proved"
    NOT_DECIDED = "not decided"


@dataclass(slots=True)
class Question:
    """A set of formulas; a condition is proved if they have no model.

    laws: the names of the laws among them. model: as text, if the solver found one.
    """

    condition: Condition
    answer: Answer
    seconds: float
    formulas: list[Term]
    laws: frozenset[str]
    model: Any = None

    @property
    def smt2(self) -> str:
        """The question in SMT-LIB 2.6: `unsat` proves the condition."""
        solver = load().Solver()
        solver.add(*self.formulas)
        head = f"; {self.condition.where}: {self.condition.what}\n; unsat: proved\n(set-logic ALL)\n"
        return f"{head}{solver.to_smt2()}"


@dataclass(slots=True)
class Proof:
    """The result: what is said of each property, and each question that was asked for it last."""

    system: System
    claims: Claims
    lemmas: frozenset[str]
    trivial: int = 0
    seconds: float = 0.0
    follows: dict[str, Question] = field(default_factory=dict)
    questions: dict[tuple[str, str], Question] = field(default_factory=dict)
    status: dict[str, Status] = field(default_factory=dict)
    out_of_time: bool = False

    @property
    def asked(self) -> list[Question]:
        return [*self.follows.values(), *self.questions.values()]

    @property
    def laws(self) -> frozenset[str]:
        """The laws of counting on which it stands."""
        return frozenset[str]().union(*(q.laws for q in self.asked if q.answer is Answer.REFUTED))

    def open(self, name: str) -> list[Question]:
        """The questions about a property that are not refuted."""
        return [q for q in self.asked if q.condition.what == name and q.answer is not Answer.REFUTED]

    @property
    def complete(self) -> bool:
        """Is each property proved, that is no lemma?"""
        return all(s is Status.PROVED for name, s in self.status.items() if name not in self.lemmas)


Told = Callable[[int, int, str], None]  # how many questions are answered, of how many, and the one that is asked now


class Prover:
    """The proof of one system of any size.

    clock: seconds, from any start. seconds: of the whole proof. effort: of one question, z3's `rlimit`.
    only: properties, to ask about these alone, where all others are assumed.
    """

    def __init__(
        self,
        system: System,
        lemmas: frozenset[str] = frozenset(),
        *,
        clock: Callable[[], float],
        seconds: float,
        effort: int = EFFORT,
        only: Iterable[str] = (),
        told: Told = lambda done, of, what: None,
    ) -> None:
        self.claims = Claims(system)
        self.proof = Proof(system, self.claims, lemmas)
        self._clock, self._effort, self._told = clock, effort, told
        self._only = frozenset(only)
        self._began = clock()
        self._until = self._began + seconds
        self._costly: frozenset[str] = frozenset()
        self._orders: dict[Expr, bool] = {}

    def prove(self) -> Proof:
        """Ask everything."""
        proof, claims = self.proof, self.claims
        self._costly = frozenset(name for name, tree in claims.invariant.items() if self._is_costly(tree))
        kept = dict(claims.invariant)
        if not self._only:
            kept = self._without_what_follows(kept)
        found = [c for c in claims.conditions() if c.what in {**kept, **claims.steps, **claims.ranges}]
        found = [c for c in found if not self._only or c.what in self._only]
        proof.trivial = sum(c.trivial for c in found)
        asked = [c for c in found if not c.trivial]
        while True:
            failed = self._ask_all(asked, kept)
            gone = {name for name in failed if name in kept}
            if not gone or self._only or proof.out_of_time:
                break
            for name in gone:
                del kept[name]
            for name in [n for n, q in proof.follows.items() if gone]:
                kept_too = proof.follows.pop(name)  # it may have followed from what is gone: by induction, then
                kept[name] = claims.invariant[name]
                again = [c for c in claims.conditions() if c.what == name and not c.trivial]
                asked += again
                del kept_too
            asked = [c for c in asked if c.what in {**kept, **claims.steps, **claims.ranges}]
        self._say()
        proof.seconds = self._clock() - self._began
        return proof

    def _is_costly(self, tree: Expr) -> bool:
        formulas = Formulas((), self._orders)
        formulas(tree)
        return any(name in COSTLY for name, _ in formulas.laws)

    def _without_what_follows(self, kept: dict[str, Expr]) -> dict[str, Expr]:
        """The invariant without the properties that follow from the rest of it."""
        kept = dict(kept)
        names = [n for n in kept if n not in self.proof.lemmas]
        for name in sorted(names, key=lambda n: n not in self._costly):
            goal = kept.pop(name)
            condition = Condition(FOLLOWS, name, (), TRUE, goal, trivial=False)
            self._told(0, 0, f"does {name} follow from the others")
            question = self._asked(self._base(condition, kept, ()), condition, FOLLOWS_EFFORT)
            if question.answer is Answer.REFUTED:
                self.proof.follows[name] = question
            else:
                kept[name] = goal
        return kept

    def _ask_all(self, conditions: list[Condition], kept: dict[str, Expr]) -> set[str]:
        """Ask each; the properties of which some condition is not proved."""
        bases: dict[tuple[str, bool], Base] = {}
        failed: set[str] = set()
        for number, condition in enumerate(conditions):
            if condition.where not in {where for where, _ in bases}:
                bases = {}  # conditions come step by step
            self._told(number, len(conditions), f"{condition.where}: {condition.what}")
            question: Question | None = None
            for costly in (False, True):
                key = condition.where, costly
                if key not in bases:
                    left_out = frozenset() if costly else self._costly
                    bases[key] = self._base(condition, kept, left_out)
                if costly and self._costly.isdisjoint(kept):
                    break
                own = () if costly or condition.what not in kept else (condition.what,)
                question = self._asked(bases[key], condition, self._effort, own)
                if question.answer is Answer.REFUTED or self.proof.out_of_time:
                    break
            assert question is not None
            self.proof.questions[condition.where, condition.what] = question
            if question.answer is not Answer.REFUTED:
                failed.add(condition.what)
        return failed

    def _base(self, condition: Condition, kept: dict[str, Expr], left_out: Iterable[str]) -> Base:
        """What all questions about one step have in common."""
        formulas = Formulas(condition.params, self._orders)
        given = [formulas(c) for c in self.claims.allowed]
        if condition.where != INIT:
            given += [formulas.range(slot) for slot in self.claims.ranges.values()]
            given += [formulas(tree) for name, tree in kept.items() if name not in left_out]
        given.append(formulas(condition.guard))
        return Base(formulas, given)

    def _asked(self, base: Base, condition: Condition, effort: int, own: Iterable[str] = ()) -> Question:
        formulas = base.formulas.fork()
        given = [*base.given, *(formulas(self.claims.invariant[name]) for name in own), formulas(not_(condition.goal))]
        everything = [*given, *(law for _, law in formulas.laws)]
        laws = frozenset(name for name, _ in formulas.laws)
        left = self._until - self._clock()
        if left <= 0:
            self.proof.out_of_time = True
            return Question(condition, Answer.UNKNOWN, 0.0, everything, laws)
        begin = self._clock()
        solver = load().Solver()
        solver.set("rlimit", effort)
        solver.set("timeout", max(1, int(left * 1000)))
        solver.add(*everything)
        answer = Answer(str(solver.check()))
        model = solver.model() if answer is Answer.MODEL else None
        return Question(condition, answer, self._clock() - begin, everything, laws, model)

    def _say(self) -> None:
        """What is said of each property."""
        proof = self.proof
        for name in self.claims.properties:
            if self._only and name not in self._only:
                continue
            answers = {q.answer for q in proof.open(name)}
            if not answers:
                proof.status[name] = Status.PROVED
            elif Answer.MODEL in answers:
                proof.status[name] = Status.NOT_PROVED
            else:
                proof.status[name] = Status.NOT_DECIDED


@dataclass(frozen=True, slots=True)
class Base:
    """The formulas that all questions about one step share."""

    formulas: Formulas
    given: list[Term]


def possible(claims: Claims, effort: int = EFFORT) -> Iterator[tuple[str, Answer]]:
    """Each step, and whether it is possible under the invariant: one that is not would make every proof of it idle."""
    for t in claims.system.transitions:
        formulas = Formulas(t.params)
        given = [formulas(c) for c in (*claims.allowed, *claims.invariant.values(), claims.guard(t))]
        given += [formulas.range(slot) for slot in claims.ranges.values()]
        solver = load().Solver()
        solver.set("rlimit", effort)
        solver.add(*given, *(law for _, law in formulas.laws))
        yield t.name, Answer(str(solver.check()))



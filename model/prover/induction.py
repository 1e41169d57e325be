"""A proof by induction: a solver checks each condition, and each property gets an answer.

*Theory of operation.* First the solver checks whether each property follows from the others in one state. The
properties that follow from others need no induction. The induction does not assume them. Then the solver checks each
remaining condition. It gets the assumptions, the guard and the negated goal. If it finds them inconsistent, the
condition is proved. Each condition is tried several times. The first attempts omit the assumptions that need ranks or
opaque counts, because these are seldom needed and slow the solver. One attempt replaces each long condition
of the goal by a Boolean variable. The last attempt uses everything.

If a condition is not proved, its property is removed from the invariant, and the others are checked again without it,
until nothing changes. So a proved property depends only on proved properties. The ranges of numbers are different: the
trees themselves rely on them, so nothing is proved if a number may leave its range. A property is

    proved        all its conditions are proved, or it follows from proved properties
    not proved    the solver found a counterexample to a condition; its state may be unreachable or infinite
    kept          all its conditions are proved, but the properties that they assume were not checked
    not decided   the solver gave up on a condition, or the time was over

Limits. A question has an effort, the solver's own count of its work, which is the same on every machine; a proof has a
time limit. Questions are independent: their order does not matter, and another solver can get each as a text.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import UsageError
from ..language import Expr, System, not_
from ..language.expressions import FALSE, TRUE, substitute
from .abbreviations import Abbreviations
from .conditions import INIT, Claims, Condition
from .counting import counted
from .formulas import Formulas, declared, load
from .sizes import constants

EFFORT = 5_000_000  # z3's `rlimit` for one question: about five seconds, four times what our questions need
COSTLY = frozenset(("opaque", "ranks", "same members", "segments", "parts"))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One form of a question: fewer assumptions and laws make a search short, and a proof with fewer is as valid.

    effort: a fraction of the question's effort. all_assumptions: include those that need ranks and opaque counts.
    without: laws to leave out. seed: the seed of the solver's choices, since an unlucky one can take all the effort.
    short: use flags instead of the long conditions of the goal; skipped if it has no long conditions.
    """

    effort: float
    all_assumptions: bool = False
    without: frozenset[str] = frozenset()
    seed: int = 0
    short: bool = False


FEW_LAWS = frozenset(("cells", "prefixes", "pointwise"))
SAME = frozenset(("same parts",))  # the law makes many terms
ATTEMPTS = (
    Attempt(0.1, without=FEW_LAWS),
    Attempt(0.4, short=True),
    Attempt(0.2),
    Attempt(0.2, True),
    Attempt(0.2, True, FEW_LAWS | SAME),
    Attempt(0.4, without=SAME, seed=1),
    Attempt(1.0, True, seed=2),
)
# Whether a property follows from the others is decided with little effort, or it is left to the induction.
FROM_OTHERS = (Attempt(0.2, True, FEW_LAWS | SAME), Attempt(0.2, True, SAME))
LONGER = tuple(Attempt(0.2, True, laws, seed) for seed in (1, 2, 3) for laws in (FEW_LAWS | SAME, SAME))
UNSAT = "; unsat: proved\n"  # the second line of each question
FOLLOWS = "from-the-others"  # no step has this name either

Term = Any


class Answer(enum.Enum):
    """The answer of a solver to the negation of a condition, under its assumptions."""

    REFUTED = "unsat"
    MODEL = "sat"
    UNKNOWN = "unknown"


class Status(enum.Enum):
    """The verdict on a property."""

    PROVED = "proved"
    KEPT = "kept by each step where all others hold"
    NOT_PROVED = "not proved"
    NOT_DECIDED = "not decided"


@dataclass(slots=True)
class Question:
    """A set of formulas; a condition is proved if they have no model.

    smt2: the formulas in SMT-LIB 2.6. laws: the names of the laws among them. model: a model, if the solver found one.
    """

    condition: Condition
    answer: Answer
    seconds: float
    smt2: str
    laws: frozenset[str]
    model: Any = None


@dataclass(slots=True)
class Proof:
    """The result: the status of each property, and the last form of each question."""

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
        """The laws of counting that the proof uses."""
        return frozenset[str]().union(*(q.laws for q in self.asked if q.answer is Answer.REFUTED))

    @property
    def ranges(self) -> list[str]:
        """The ranges of numbers that are not proved; if any is not, nothing is proved."""
        return [name for name in self.claims.ranges if self.open(name)]

    def open(self, name: str) -> list[Question]:
        """The questions about a property that are not refuted."""
        return [q for q in self.asked if q.condition.what == name and q.answer is not Answer.REFUTED]

    @property
    def complete(self) -> bool:
        """Whether each property in question, except lemmas, is proved or kept, and each range is proved."""
        return not self.ranges and all(
            s in (Status.PROVED, Status.KEPT) for name, s in self.status.items() if name not in self.lemmas
        )


Told = Callable[[int, int, str], None]  # the number of answered questions, the total, and the current question


class Prover:
    """The proof of one system of any size.

    clock: seconds, from any start. seconds: the limit of the whole proof. effort: z3's `rlimit` for one question.
    only: prove only these properties and assume all others. steps: prove only these steps, or INIT.
    stop: stop at the first condition that is not proved; the rest is not decided.
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
        steps: Iterable[str] = (),
        stop: bool = False,
        told: Told = lambda done, of, what: None,
    ) -> None:
        self.claims = Claims(system)
        self.proof = Proof(system, self.claims, lemmas)
        self._clock, self._effort, self._told = clock, effort, told
        self._only, self._steps, self._stop = frozenset(only), frozenset(steps), stop
        self._part = bool(self._only or self._steps)
        self._began = clock()
        self._until = self._began + seconds
        self._costly: frozenset[str] = frozenset()
        self._orders: dict[Expr, bool] = {}
        self._counted = counted(self.claims.invariant.values())

    def prove(self) -> Proof:
        """Run the whole proof.

        Raises UsageError: the system allows no sizes or has no initial state, so a proof would be empty.
        """
        proof, claims = self.proof, self.claims
        self._refuse_no_sizes()
        self._costly = frozenset(name for name, tree in claims.invariant.items() if self._is_costly(tree))
        kept = dict(claims.invariant)
        if not self._part:
            kept = self._without_what_follows(kept)
        found = [c for c in claims.conditions() if c.what in {**kept, **claims.steps, **claims.ranges}]
        found = [c for c in found if not self._only or c.what in self._only]
        found = [c for c in found if not self._steps or c.where in self._steps]
        proof.trivial = sum(c.trivial for c in found)
        asked = [c for c in found if not c.trivial]
        settled = False
        while not settled:
            failed = self._ask_all(asked, kept)
            gone = failed & set(kept)
            settled = not gone or self._part
            if proof.out_of_time or self._stop:
                break
            kept = {name: tree for name, tree in kept.items() if name not in gone}
            if gone:  # a property that followed from a removed one may no longer follow: it needs induction
                kept |= {name: claims.invariant[name] for name in proof.follows}
                proof.follows = {}
            asked = [
                c for c in claims.conditions() if not c.trivial and c.what in {**kept, **claims.steps, **claims.ranges}
            ]
        self._say(settled)
        proof.seconds = self._clock() - self._began
        return proof

    def _refuse_no_sizes(self) -> None:
        sizes = Condition(INIT, "sizes", (), TRUE, FALSE, trivial=False)
        if self._is_refuted(sizes):
            system = self.claims.system
            wanted = "; ".join(str(tree) for tree in self.claims.allowed)
            raise UsageError(
                f"{system.name} has no sizes: no constants satisfy its bounds, its initial values"
                f"{f', and sizes_allowed, which requires {wanted}' if wanted else ''}"
            )
        begins = replace(sizes, guard=self.claims.begins)
        if begins.guard is not TRUE and self._is_refuted(begins):
            raise UsageError(f"{self.claims.system.name} has no initial state: the conditions of @initial hold in none")

    def _is_refuted(self, condition: Condition) -> bool:
        """Whether the guard of a condition is refuted with little effort, without the invariant."""
        return self.asked(self.base(condition, {}, ()), condition, Attempt(0.1)).answer is Answer.REFUTED

    def _is_costly(self, tree: Expr) -> bool:
        formulas = Formulas((), self._counted, self._orders)
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
            put = self.base(condition, kept, ()).with_(not_(goal))
            attempts = (*FROM_OTHERS, *(LONGER if name in self._costly else ()))
            questions = (self.asked(put, condition, attempt) for attempt in attempts)
            found = next((q for q in questions if q.answer is Answer.REFUTED), None)
            if found is not None:
                self.proof.follows[name] = found
            else:
                kept[name] = goal
        return kept

    def _ask_all(self, conditions: list[Condition], kept: dict[str, Expr]) -> set[str]:
        """Give each condition to the solver; returns the properties with a condition that is not proved."""
        bases: dict[tuple[str, bool], Base] = {}
        failed: set[str] = set()
        for number, condition in enumerate(conditions):
            if condition.where not in {where for where, _ in bases}:
                bases = {}  # conditions come step by step
            self._told(number, len(conditions), f"{condition.where}: {condition.what}")
            question = Question(condition, Answer.UNKNOWN, 0.0, "", frozenset())
            if self._clock() >= self._until or (self._stop and failed):
                self.proof.out_of_time = not failed or not self._stop
                self.proof.questions[condition.where, condition.what] = question
                failed.add(condition.what)
                continue
            put: dict[tuple[bool, bool], Base] = {}
            for attempt in ATTEMPTS:
                goal, meanings = substitute(condition.goal, condition.members), dict[str, Expr]()
                if attempt.short:
                    abbreviated = Abbreviations()
                    goal = abbreviated(goal)
                    meanings = abbreviated.meanings()
                    if not meanings:
                        continue
                everything = attempt.all_assumptions
                key, way = (condition.where, everything), (everything, attempt.short)
                if key not in bases:
                    bases[key] = self.base(condition, kept, () if everything else self._costly)
                if way not in put:
                    own = () if everything else self._own(condition, kept)
                    put[way] = bases[key].with_(*own, not_(goal), *meanings.values())
                question = self.asked(put[way], condition, attempt)
                if question.answer is Answer.REFUTED or self.proof.out_of_time:
                    break
            self.proof.questions[condition.where, condition.what] = question
            if question.answer is not Answer.REFUTED:
                failed.add(condition.what)
        return failed

    def _own(self, condition: Condition, kept: dict[str, Expr]) -> tuple[Expr, ...]:
        """The property itself, an assumption before a step; nothing for an initial state, where it is the question."""
        mine = condition.where != INIT and condition.what in kept
        return (substitute(kept[condition.what], condition.members),) if mine else ()

    def base(self, condition: Condition, kept: dict[str, Expr], left_out: Iterable[str]) -> Base:
        """The formulas that all questions about one step share."""
        formulas = Formulas(condition.params, self._counted, self._orders)
        given = [formulas(self.claims.sizes)]
        given += [formulas.z3.Int(declared(name)) >= 0 for name in constants(self.claims.system)]  # systems check this
        if condition.where != INIT:
            given += [formulas.range(slot) for slot in self.claims.ranges.values()]
            trees = [tree for name, tree in kept.items() if name not in left_out]
            given += [formulas(substitute(tree, condition.members)) for tree in trees]
        given += [*formulas.chosen(condition.params), formulas(condition.guard)]
        return Base(formulas, given)

    def asked(self, put: Base, condition: Condition, attempt: Attempt, **options: Any) -> Question:
        """The answer to a question; `options` go to the solver."""
        used = [(name, law) for name, law in put.formulas.laws if name not in attempt.without]
        smt2 = _text(condition, [*put.given, *(law for _, law in used)])
        laws = frozenset(name for name, _ in used)
        left = self._until - self._clock()
        if left <= 0:
            self.proof.out_of_time = True
            return Question(condition, Answer.UNKNOWN, 0.0, smt2, laws)
        begin = self._clock()
        solver = _solver(smt2, int(attempt.effort * self._effort))
        solver.set(random_seed=attempt.seed, **options)
        solver.set("timeout", max(1, int(left * 1000)))
        answer = Answer(str(solver.check()))
        model = solver.model().translate(load().main_ctx()) if answer is Answer.MODEL else None
        return Question(condition, answer, self._clock() - begin, smt2, laws, model)

    def _say(self, settled: bool) -> None:
        """Set the verdict on each property. settled: no proved property assumes one that is not proved."""
        good = Status.KEPT if self._part else Status.PROVED
        settled = settled and not self.proof.ranges
        for name in self.claims.properties:
            if self._only and name not in self._only:
                continue
            answers = {q.answer for q in self.proof.open(name)}
            if Answer.MODEL in answers:
                self.proof.status[name] = Status.NOT_PROVED
            else:
                self.proof.status[name] = Status.NOT_DECIDED if answers or not settled else good


def _text(condition: Condition, formulas: list[Term]) -> str:
    """A question in SMT-LIB 2.6, made in a new context: z3 orders parts by everything that a context has seen."""
    context = load().Context()
    solver = load().Solver(ctx=context)
    solver.add(*(formula.translate(context) for formula in formulas))
    text = re.sub(r"\(_ (\S+) \1\)", r"\1", solver.to_smt2())  # z3's own form of a foreign enum value
    return f"; {condition.where}: {condition.what}\n{UNSAT}(set-logic ALL)\n{text}"


def _solver(smt2: str, effort: int) -> Any:
    """A solver for one question, in its own context: its answer depends only on the text."""
    solver = load().Solver(ctx=load().Context())
    solver.set("rlimit", effort)
    solver.from_string(smt2)
    return solver


@dataclass(frozen=True, slots=True)
class Base:
    """The formulas that all questions about one step share."""

    formulas: Formulas
    given: list[Term]

    def with_(self, *trees: Expr) -> Base:
        """These formulas and the formulas of some trees."""
        formulas = self.formulas.fork()
        return Base(formulas, [*self.given, *(formulas(tree) for tree in trees)])


def possible(claims: Claims, effort: int = EFFORT) -> Iterator[tuple[str, Answer]]:
    """Each step, and whether it is possible under the invariant: proofs about an impossible step would be empty."""
    split = counted(claims.invariant.values())
    for t in claims.system.transitions:
        formulas = Formulas(t.params, split)
        given = [formulas(c) for c in (claims.sizes, *claims.invariant.values(), claims.guard(t))]
        given += [*(formulas.range(slot) for slot in claims.ranges.values()), *formulas.chosen(t.params)]
        goal = Condition(t.name, "is possible", t.params, claims.guard(t), TRUE, trivial=False)
        solver = _solver(_text(goal, [*given, *(law for _, law in formulas.laws)]), effort)
        yield t.name, Answer(str(solver.check()))

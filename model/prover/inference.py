"""Lemmas that are not declared: candidates of one form, dropped and weakened until the rest is inductive.

*Theory of operation.* A candidate says of up to three conditions that they never hold together, for all members that
differ: `f[a] is x and g[b] is not y`. The conditions are those of flags and enums. Three stages follow each other.

    seen      the first states of small systems, breadth first: a candidate that is false in one of them is dropped
    kept      all candidates are assumed, with the properties of the system, and the solver is asked for a step that
              breaks one (Houdini: Flanagan and Leino 2001). The candidates that its model breaks are dropped, until no
              step breaks any
    weakened  a candidate that another implies is asked only when the stronger one is dropped

This search is not trusted: `induction` proves the properties and all that is kept, together. Then the lemmas on which
no property depends are left out. A property that needs a number, a count or more conditions is not proved in this way.
Each stage has a part of the time. Where that ends first, fewer states are seen, fewer candidates are asked, or the
proof is tried with those that are left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement, permutations, product, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checker.explicit.engine import ExplicitEngine
from ..checker.explicit.packing import CHUNK
from ..checker.explicit.vectorise import conditions
from ..checker.kernel import Kernel, Limits
from ..errors import UsageError
from ..language import Expr, Sort, SymbolicState, System, always, and_, not_
from ..language.expressions import FALSE, TRUE, const, equal, read
from ..language.fields import Index
from ..language.quantifiers import close, loop_variable
from .conditions import Condition
from .formulas import load
from .induction import EFFORT, FEW_LAWS, FOLLOWS, Answer, Attempt, Base, Proof, Prover, Question, Status
from .sizes import any_size, fault_names, lemma_names

SIZES = (2, 3)  # members of each index of the systems that are searched: a condition on two that differ needs two
STATES = 100_000  # of each, at most: more states drop more candidates, which the solver would drop one by one
OF_ONE_SORT, VARIABLES = 2, 3  # the members of which a candidate speaks, at most
ATOMS_OF_THREE = 40  # with so many conditions three are put together, with more only two
CANDIDATES_MAX = 2_000  # of one round
SEEING, CHOOSING, SEARCHING = 1 / 3, 1 / 2, 2 / 3  # of the time, where the stages end; the rest is for the proof

QUESTION = (Attempt(0.2, True, FEW_LAWS), Attempt(0.5, True))  # with all assumptions: a model may break several
MANY_TRUE = {"phase_selection": 1}  # the solver tries true first: its model breaks many candidates at a time

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True, order=True)
class Atom:
    """A condition on a field: it has a value, or has it not. `at` has the numbers of the variables of its indices."""

    field: str
    at: tuple[int, ...]
    value: int
    holds: bool = True

    def implies(self, other: Atom) -> bool:
        """By what they say: a field that has one value has not another."""
        if self == other:
            return True
        same = (self.field, self.at) == (other.field, other.at)
        return same and self.holds and not other.holds and self.value != other.value


@dataclass(frozen=True, slots=True)
class Clause:
    """Conditions that never hold together, for all members that differ: `sorts` are those of the variables."""

    sorts: tuple[str, ...]
    atoms: tuple[Atom, ...]

    @classmethod
    def of(cls, sorts: tuple[str, ...], atoms: Iterable[Atom]) -> Clause:
        """The one of those that differ in the names and order of variables and conditions alone."""
        some = set(atoms)
        used = sorted({k for atom in some for k in atom.at}, key=lambda k: (sorts[k], k))
        shape = tuple(sorts[k] for k in used)
        orders = [p for p in permutations(range(len(used))) if all(shape[k] == shape[p[k]] for k in range(len(p)))]
        names = ({used[k]: place for k, place in enumerate(order)} for order in orders)
        return cls(shape, min(tuple(sorted(replace(a, at=tuple(n[k] for k in a.at)) for a in some)) for n in names))

    def stronger(self, alike: Mapping[tuple[str, tuple[int, ...]], Collection[Atom]]) -> Iterator[Clause]:
        """The candidates that imply this one; `alike` has the conditions on each place."""
        choices = [[None, *(a for a in alike[mine.field, mine.at] if mine.implies(a))] for mine in self.atoms]
        for chosen in product(*choices):
            some = {a for a in chosen if a is not None}
            if some and some != {*self.atoms}:
                yield Clause.of(self.sorts, some)


class Vocabulary:
    """The fields of a system of which candidates speak, and how a candidate is a tree and a text."""

    def __init__(self, system: System) -> None:
        self.system = system
        counters = {system.fault_counter(fault) for fault in system.faults}
        self.slots = {n: s for n, s in system.slots.items() if n not in counters and s.sort.kind in ("bool", "enum")}

    def shapes(self) -> Iterator[tuple[str, ...]]:
        """The sorts of the variables of a candidate."""
        sorts = sorted(sort.name for sort in self.system.index_sorts.values())
        for count in range(VARIABLES + 1):
            for shape in combinations_with_replacement(sorts, count):
                if all(shape.count(sort) <= OF_ONE_SORT for sort in shape):
                    yield shape

    def atoms(self, shape: tuple[str, ...]) -> Iterator[Atom]:
        """The conditions over variables of these sorts."""
        for name, slot in self.slots.items():
            choices = [[k for k, sort in enumerate(shape) if sort == dim.name] for dim in slot.dims]
            for at in product(*choices):
                for value in _values(slot.sort):
                    yield Atom(name, at, value)
                    if slot.sort.kind == "bool" or slot.sort.size > 2:  # else it is the condition on the other value
                        yield Atom(name, at, value, holds=False)

    def clauses(self, shape: tuple[str, ...]) -> Iterator[Clause]:
        """All candidates with just these variables; one of those that differ in the names of variables alone."""
        atoms = list(self.atoms(shape))
        taken: set[Clause] = set()
        for count in range(1, 4 if len(atoms) <= ATOMS_OF_THREE else 3):
            for chosen in combinations(atoms, count):
                if len({(a.field, a.at) for a in chosen}) < count:
                    continue  # two conditions on one place say no more than one, or contradict each other
                clause = Clause.of(shape, chosen)
                if clause.sorts == shape and clause not in taken:
                    taken.add(clause)
                    yield clause

    def strongest(self, clauses: Collection[Clause]) -> list[Clause]:
        """Those that no other of them implies."""
        known = set(clauses)
        alike: dict[tuple[str, tuple[int, ...]], list[Atom]] = {}
        for atom in {atom for shape in {c.sorts for c in clauses} for atom in self.atoms(shape)}:
            alike.setdefault((atom.field, atom.at), []).append(atom)
        return [c for c in clauses if known.isdisjoint(c.stronger(alike))]

    def tree(self, clause: Clause) -> Expr:
        """The candidate as a condition on a state."""
        system = self.system
        loops = [loop_variable(system.index_sorts[sort]) for sort in clause.sorts]
        apart = (not_(equal(loops[i], loops[j])) for i, j in _alike(clause.sorts))
        wrong = and_(*(self.condition(atom, loops) for atom in clause.atoms), *apart)
        for loop in reversed(loops):
            wrong = close("any", loop, wrong)
        return not_(wrong)

    def condition(self, atom: Atom, members: Sequence[Expr]) -> Expr:
        """An atom of these members."""
        slot = self.slots[atom.field]
        place = read(slot.name, tuple(members[k] for k in atom.at), slot.sort)
        found = place if slot.sort.kind == "bool" else equal(place, const(atom.value, slot.sort))
        return found if atom.holds else not_(found)

    def text(self, clause: Clause) -> str:
        """The candidate as the body of an `always` property."""
        names = [f"{sort[0]}{clause.sorts[:k].count(sort) or ''}" for k, sort in enumerate(clause.sorts)]
        parts = [self._text(atom, names) for atom in clause.atoms]
        parts += [f"({names[i]} != {names[j]})" for i, j in _alike(clause.sorts)]
        body = f"~{parts[0]}" if len(parts) == 1 else f"~({' & '.join(parts)})"
        if not names:
            return body
        loops = " ".join(f"for {name} in s.{sort}" for name, sort in zip(names, clause.sorts, strict=True))
        return f"all_({body} {loops})"

    def _text(self, atom: Atom, names: Sequence[str]) -> str:
        slot = self.slots[atom.field]
        place = f"s.{atom.field}" + (f"[{', '.join(names[k] for k in atom.at)}]" if atom.at else "")
        if slot.sort.kind == "bool":
            return place if atom.holds else f"~{place}"
        return f"({place} {'==' if atom.holds else '!='} {_member(slot.sort, atom.value)})"


def _member(sort: Sort, value: int) -> str:
    return f"{sort.name.rpartition('.')[2]}.{sort.labels[value]}"


def _values(sort: Sort) -> Sequence[int]:
    return [1] if sort.kind == "bool" else range(sort.low, sort.high + 1)


def _alike(sorts: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """The pairs of variables of one sort: they are to differ."""
    return ((i, j) for j in range(len(sorts)) for i in range(j) if sorts[i] == sorts[j])


class Seen:
    """The conditions of the first states of a small system, each combination of them once.

    left: the seconds that are left for it; with fewer states more candidates remain.
    """

    def __init__(self, system: System, left: Callable[[], float]) -> None:
        self._vocabulary = Vocabulary(system)
        kernel = Kernel(system)
        engine = ExplicitEngine(kernel, Limits(states=STATES, seconds=left()))
        engine.explore(())
        self._rows: dict[Atom, int] = {}
        trees: list[Expr] = []
        for atom in self._places():
            self._rows[atom] = len(trees)
            trees.append(kernel.closed(self._condition(atom), {}))
        changing = [tree for tree in trees if tree is not TRUE and tree is not FALSE]
        holds = conditions(engine.layout, changing) if changing else None
        tables: list[NDArray[np.bool_]] = []
        self.states = 0
        for level in engine.levels:
            for start in range(0, len(level), CHUNK):
                if tables and not left():
                    break
                chunk = level[start : start + CHUNK]
                found = iter(holds(*engine.layout.columns(chunk)) if holds else ())
                rows = [np.full(len(chunk), t is TRUE) if t is TRUE or t is FALSE else next(found) for t in trees]
                tables.append(np.unique(np.array(rows, np.bool_), axis=1))
                self.states += len(chunk)
        self._table = np.unique(np.concatenate(tables, axis=1), axis=1)

    def _places(self) -> Iterator[Atom]:
        """Each field of each member, with each of its values."""
        for name, slot in self._vocabulary.slots.items():
            for at in product(*(range(dim.size) for dim in slot.dims)):
                for value in _values(slot.sort):
                    yield Atom(name, at, value)

    def _condition(self, atom: Atom) -> Expr:
        dims = self._vocabulary.slots[atom.field].dims
        members = [const(k, dim) for k, dim in zip(atom.at, dims, strict=True)]
        return self._vocabulary.condition(replace(atom, at=tuple(range(len(members)))), members)

    def never(self, clause: Clause) -> bool:
        """Is no state that was seen an example against the candidate?"""
        sizes = [range(self._vocabulary.system.index_sorts[sort].size) for sort in clause.sorts]
        return not any(
            np.logical_and.reduce([self._row(atom, members) for atom in clause.atoms]).any()
            for members in product(*sizes)
            if all(members[i] != members[j] for i, j in _alike(clause.sorts))
        )

    def _row(self, atom: Atom, members: tuple[int, ...]) -> NDArray[np.bool_]:
        row: NDArray[np.bool_] = self._table[
            self._rows[Atom(atom.field, tuple(members[k] for k in atom.at), atom.value)]
        ]
        return row if atom.holds else ~row


@dataclass(slots=True)
class Inferred:
    """The result: the proof, the lemmas that it has from here, each as a text, and how it came to them."""

    proof: Proof
    found: dict[str, str]
    states: int
    asked: int


class Inference:
    """The proof of a system with lemmas that are looked for.

    cls: the class of the system, or of one edition. lemmas: a class that adds properties to it. faults: as `any_size`
    takes them. clock, seconds, effort: as `Prover` does. told: is called with what is done now.
    """

    def __init__(
        self,
        cls: type[System],
        lemmas: type[System] | None = None,
        *,
        faults: Iterable[str] | None = None,
        clock: Callable[[], float],
        seconds: float,
        effort: int = EFFORT,
        told: Told = lambda what: None,
    ) -> None:
        self._cls, self._lemmas = cls, lemmas
        self._faults = None if faults is None else list(faults)
        self._clock, self._seconds, self._effort, self._told = clock, seconds, effort, told
        self._began = clock()
        self._asked = 0

    def prove(self) -> Inferred:
        """Look for lemmas, and prove the system with them.

        Raises UsageError as `any_size` and `Claims` do.
        """
        seen = list(self._seen())
        vocabulary = Vocabulary(self._system({}))
        self._told("candidates")
        clauses = (c for shape in vocabulary.shapes() for c in vocabulary.clauses(shape))
        in_time = takewhile(lambda _: self._left(CHOOSING), clauses)
        left = [c for c in in_time if all(s.never(c) for s in seen)]
        failed, cut = set(left), not self._left(CHOOSING)
        found: dict[str, Clause] = {}
        while failed and self._left(SEARCHING):
            asked = vocabulary.strongest(left)[:CANDIDATES_MAX]
            failed = self._weeded(asked)
            left = [c for c in left if c not in failed]
            found = _named(c for c in asked if c not in failed)
        cut = cut or not self._left(SEARCHING)
        prover = self._prover(found)
        proof = prover.prove()
        needed = self._needed(prover, proof, frozenset(found))
        if needed < found.keys():
            fewer = _named(clause for name, clause in found.items() if name in needed)
            again = self._prover(fewer).prove()
            if _proved(proof) - found.keys() <= _proved(again):  # a core is one of several, and the rest may miss it
                found, proof = fewer, again
        proof.out_of_time |= cut and not proof.complete
        texts = {name: vocabulary.text(clause) for name, clause in found.items()}
        return Inferred(proof, texts, sum(s.states for s in seen), self._asked)

    def _left(self, part: float = 1.0) -> float:
        """The seconds that are left of this part of the time."""
        return max(self._began + part * self._seconds - self._clock(), 0.0)

    def _seen(self) -> Iterator[Seen]:
        """The states of small systems: of the sizes that the system allows, or else of those that it declares."""
        faults = fault_names(self._cls) if self._faults is None else self._faults
        fixed = self._cls.sizes_in_proofs
        indices = [n for n, v in self._cls.declarations().items() if isinstance(v, Index) and n not in fixed]
        built = []
        for size in SIZES:
            with contextlib.suppress(UsageError):
                built.append(self._cls(faults=faults, **dict.fromkeys(indices, size), **fixed))
        for system in built or [self._cls(faults=faults, **fixed)]:
            self._told(f"states of {system.label}")
            yield Seen(system, lambda: self._left(SEEING))

    def _system(self, found: Mapping[str, Clause]) -> System:
        """The system of any size, with these lemmas."""
        base = self._lemmas or self._cls
        claims = {name: always(witness="")(_body(clause)) for name, clause in found.items()}
        made: type[System] = type(base.__name__, (base,), {**claims, "__doc__": base.__doc__, "__module__": __name__})
        made.__family__ = base.__family__
        return any_size(self._cls, made, faults=self._faults)

    def _prover(self, found: Mapping[str, Clause]) -> Prover:
        names = frozenset(found) | (lemma_names(self._lemmas) if self._lemmas else frozenset())
        return Prover(
            self._system(found), names, clock=self._clock, seconds=self._left(), effort=self._effort,
            told=lambda done, of, what: self._told(f"{done} of {of} questions, {what}" if of else what),
        )  # fmt: skip

    def _weeded(self, clauses: Sequence[Clause]) -> set[Clause]:
        """The candidates that some step breaks where all others hold, and those of which the solver cannot say it."""
        known = _named(clauses)
        prover = self._prover(known)
        claims, kept = prover.claims, dict(prover.claims.invariant)
        steps: dict[str, list[Condition]] = {}
        for condition in claims.conditions():
            if condition.what in known and not condition.trivial:
                steps.setdefault(condition.where, []).append(condition)
        settled = False
        while not settled and self._left(SEARCHING):
            settled = True
            for where, conditions_ in steps.items():
                if not self._left(SEARCHING):
                    break
                open_ = [c for c in conditions_ if c.what in kept]
                while open_ and (broken := self._broken(prover, open_, kept)):
                    settled = False
                    kept = {name: tree for name, tree in kept.items() if name not in broken}
                    open_ = [c for c in open_ if c.what in kept]
                self._told(f"{len(known.keys() & kept.keys())} of {len(known)} candidates after {where}")
        return {clause for name, clause in known.items() if name not in kept}

    def _broken(self, prover: Prover, conditions_: list[Condition], kept: dict[str, Expr]) -> set[str]:
        """Some of these candidates that the step breaks; none if it keeps them all."""
        base = prover.base(conditions_[0], kept, ())
        formulas = base.formulas.fork()
        z3 = load()
        signs = [z3.Bool(f"breaks {k}") for k in range(len(conditions_))]
        wrong = [z3.Implies(sign, formulas(not_(c.goal))) for sign, c in zip(signs, conditions_, strict=True)]
        put = Base(formulas, [*base.given, *wrong, z3.Or(*signs)])
        question = None
        for attempt in QUESTION:
            self._asked += 1
            question = prover.asked(put, conditions_[0], attempt, **MANY_TRUE)
            if question.answer is Answer.REFUTED:
                return set()
        if question is not None and question.answer is Answer.MODEL:
            known = {d.name(): d for d in question.model.decls()}
            names = [f"breaks {k}" for k in range(len(conditions_))]
            return {c.what for c, n in zip(conditions_, names, strict=True)
                    if n in known and z3.is_true(question.model.eval(known[n]()))}  # fmt: skip
        if not self._left(SEARCHING):
            return set()
        if len(conditions_) == 1:
            return {conditions_[0].what}
        half = len(conditions_) // 2
        return self._broken(prover, conditions_[:half], kept) | self._broken(prover, conditions_[half:], kept)

    def _needed(self, prover: Prover, proof: Proof, found: frozenset[str]) -> frozenset[str]:
        """The lemmas from here on which the proof of a property depends."""
        proved = _proved(proof)
        kept = {name: tree for name, tree in prover.claims.invariant.items() if name in proved}
        asked: dict[str, list[Question]] = {}
        for question in proof.asked:
            asked.setdefault(question.condition.what, []).append(question)
        needed: set[str] = set()
        todo = [name for name in (*proved, *prover.claims.ranges) if name not in found]
        while todo:
            name = todo.pop()
            for question in asked.get(name, ()):
                if not self._left():
                    return found
                others = kept if question.condition.where != FOLLOWS else {k: t for k, t in kept.items() if k != name}
                self._told(f"lemmas that {name} needs")
                new = (prover.core(question.condition, others) & found) - needed
                needed |= new
                todo += new
        return frozenset(needed)


def _named(clauses: Iterable[Clause]) -> dict[str, Clause]:
    return {f"found_{number}": clause for number, clause in enumerate(clauses, 1)}


def _proved(proof: Proof) -> frozenset[str]:
    return frozenset(name for name, status in proof.status.items() if status is Status.PROVED)


def _body(clause: Clause) -> Callable[..., Any]:
    def body(self: System, s: SymbolicState) -> Any:
        """A lemma that was found."""
        return Vocabulary(self).tree(clause)

    return body

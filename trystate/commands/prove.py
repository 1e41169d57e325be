"""`trystate prove`: prove the safety of a system for all sizes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from trystate.model.errors import UsageError, unknown
from trystate.model.language import Form, System
from trystate.model.prover import second
from trystate.model.prover.conditions import INIT
from trystate.model.prover.counting import LAWS
from trystate.model.prover.formulas import load
from trystate.model.prover.induction import Answer, Proof, Prover, Question, Status
from trystate.model.prover.models import state_lines
from trystate.model.prover.sizes import any_size, constants, fault_names, is_counter, lemma_names

from .. import registry
from ..choosing import SYSTEM_HELP, edition, positive
from ..exits import Exit
from ..progress import Reporter
from ..report.results import many, plural


def prove_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("system", metavar="SYSTEM", help=SYSTEM_HELP)
    p.add_argument("--edition", metavar="E", help="variant of the protocol (default: the one that has lemmas)")
    p.add_argument(
        "--fault", action="extend", nargs="+", default=[], metavar="F",
        help="faults that may happen, each any number of times, or none (default: all faults of the edition)",
    )  # fmt: skip
    p.add_argument(
        "--only", action="append", default=[], metavar="PROPERTY",
        help="prove only this property, and assume all others; may be repeated",
    )  # fmt: skip
    p.add_argument("--with", dest="second", choices=("cvc5",), help="send each question to a second solver too")
    p.add_argument(
        "--max-seconds", type=positive, default=600.0, metavar="S",
        help="stop after S seconds; the rest is not decided (default: %(default)g)",
    )  # fmt: skip


def prove(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    load()  # before anything takes time
    if args.second:
        second.load()
    system, lemmas = chosen(args, args.only)
    reporter = Reporter()
    with reporter.doing(f"proving {system.name}"):
        proof = proved(system, lemmas, args.only, args.max_seconds, reporter)
        agreed = _second(proof, args.max_seconds, reporter) if args.second else []
    for line in _report(proof, agreed):
        print(line)
    return _exit(proof, agreed)


def proved(system: System, lemmas: frozenset[str], only: list[str], seconds: float, reporter: Reporter) -> Proof:
    """Prove a system and report the progress."""

    def told(done: int, total: int, what: str) -> None:
        reporter.detail(f"{done} of {total} questions, {what}" if total else what)

    return Prover(system, lemmas, clock=time.monotonic, seconds=seconds, only=only, told=told).prove()


def _classes(args: argparse.Namespace) -> tuple[type[System], type[System] | None]:
    """The class of the chosen edition, and the class with its lemmas, if it has lemmas."""
    cls = registry.system_class(args.system)
    lemmas = registry.lemmas(cls)
    wanted = args.edition
    if wanted is None and lemmas is not None:
        wanted = lemmas.__family__.edition.name if lemmas.__family__.edition is not None else None
    its = cls.for_edition(edition(cls, wanted))
    return its, lemmas if lemmas is not None and lemmas.__family__.edition is its.__family__.edition else None


def chosen(args: argparse.Namespace, only: list[str]) -> tuple[System, frozenset[str]]:
    """The system of the arguments, of any size, and the names of its lemmas; `only` names properties of it.

    Raises UsageError for an unknown name, and for a system without a property to prove.
    """
    its, lemmas = _classes(args)
    names = lemma_names(lemmas) if lemmas is not None else frozenset()
    system = any_size(its, lemmas, faults=_faults(its, args.fault))
    known = [p.name for p in system.properties if p.form.value in ("always", "step")]
    for name in only:
        if name not in known:
            raise UsageError(unknown("property", name, known))
    if not known:
        raise UsageError(f"{its.__name__} has nothing to prove: no property is about states or steps")
    return system, names


def _faults(its: type[System], wanted: list[str]) -> list[str] | None:
    names = [part for item in wanted for part in item.split(",")]
    known = fault_names(its)
    for name in names:
        if name not in (*known, "none"):
            raise UsageError(unknown("fault", name, [*known, "none"]))
    return [name for name in names if name != "none"] if names else None


def _second(proof: Proof, seconds: float, reporter: Reporter) -> list[tuple[Question, Answer]]:
    """The answers of the second solver to the questions that the first has refuted."""
    until = time.monotonic() + seconds
    refuted = [q for q in proof.asked if q.answer is Answer.REFUTED]
    out = []
    for number, question in enumerate(refuted):
        reporter.detail(f"cvc5: {number} of {len(refuted)} questions")
        left = until - time.monotonic()
        out.append((question, second.answer(question.smt2, left) if left > 0 else Answer.UNKNOWN))
    return out


def _report(proof: Proof, agreed: list[tuple[Question, Answer]]) -> Iterator[str]:
    system = proof.system
    edition_ = f", edition {system.edition.name}" if system.edition is not None else ""
    count = sum(is_counter(system, field) for field in system.slots)
    faults = f"{plural(count, 'fault')}, each any number of times" if count else "no faults"
    indices = ", ".join(many(name) for name, sort in system.index_sorts.items() if sort.is_open)
    yield f"{system.name}{edition_}: any number of {indices or 'members'}; {faults}"
    if constants(system):
        limits = f" with {', '.join(map(str, proof.claims.allowed))}" if proof.claims.allowed else ""
        yield f"any {', '.join(constants(system))}{limits}"
    for name, size in {**system.sizes_in_proofs, **system.tables}.items():
        yield f"not any number of {many(name)}: {size}" if name in system.index_sorts else f"not any {name}: {size}"
    refuted = sum(q.answer is Answer.REFUTED for q in proof.asked)
    total = proof.trivial + len(proof.asked)
    yield (
        f"{plural(total, 'condition')}: {proof.trivial:,} hold as the declarations stand, "
        f"{refuted:,} of {len(proof.asked):,} refuted by z3 in {proof.seconds:.1f} s"
    )
    if agreed:
        yield f"cvc5: {sum(a is Answer.REFUTED for _, a in agreed):,} of {len(agreed):,} refuted"
        for question, answer in agreed:
            if answer is not Answer.REFUTED:
                yield f"  {question.condition.where}: {question.condition.what}: cvc5 answers {answer.value}"
    yield ""
    if proof.ranges:
        yield "nothing is proved, since a field may leave its range:"
        yield from (f"  {name}" for name in proof.ranges)
        yield ""
    for status in Status:
        names = [n for n, s in proof.status.items() if s is status]
        for what, some in (("", [n for n in names if n not in proof.lemmas]),
                           (", lemmas", [n for n in names if n in proof.lemmas])):  # fmt: skip
            if some:
                yield f"{status.value}{what} ({len(some)})"
                for name in some:
                    yield f"  {name}" + (" (follows from the others)" if name in proof.follows else "")
    if live := [p.name for p in system.properties if p.form.live]:
        yield f"not proved: liveness is not asked ({len(live)})"
        yield from (f"  {name}" for name in live)
    for form, what in ((Form.REFINES, "a refinement is searched"), (Form.SCENARIO, "a scenario is played")):
        if left := [p.name for p in system.properties if p.form is form]:
            yield f"not proved: {what} ({len(left)})"
            yield from (f"  {name}" for name in left)
    yield from _open(proof)
    if refuted:
        laws = ", and the laws of counting, which docs/proofs.md proves:" if proof.laws else ""
        yield f"trusted: the solver and the translation{laws}"
        yield from (f"  {name}: {LAWS[name]}" for name in LAWS if name in proof.laws)
    if proof.out_of_time:
        yield "the time was over: give --max-seconds more"


def _open(proof: Proof) -> Iterator[str]:
    """For each property that is not proved, an open condition, with the solver's state if it has one."""
    for name in (*proof.status, *proof.ranges):
        questions = sorted(proof.open(name), key=lambda q: q.answer is not Answer.MODEL)
        if not questions:
            continue
        question = questions[0]
        where = question.condition.where
        yield ""
        if question.answer is Answer.MODEL:
            broken = (
                "is false in this initial state"
                if where == INIT
                else f"a counterexample to induction, which may be unreachable. The step {where} breaks it here"
            )
            lines = [f"  {line}" for line in state_lines(proof.system, question)]
            yield from (f"{name}: {broken}{':' if lines else ''}", *lines)
        else:
            others = f", and of {plural(len(questions) - 1, 'other condition')}" if len(questions) > 1 else ""
            yield f"{name}: the solver does not decide its condition of the step {where}{others}"
    if any(proof.open(name) for name in (*proof.status, *proof.ranges)):
        yield ""


def _exit(proof: Proof, agreed: list[tuple[Question, Answer]]) -> int:
    asked = {s for name, s in proof.status.items() if name not in proof.lemmas}
    answers = {answer for _, answer in agreed}
    leaves = any(q.answer is Answer.MODEL for name in proof.ranges for q in proof.open(name))
    if Status.NOT_PROVED in asked or leaves or Answer.MODEL in answers:
        return Exit.FAILED
    if Status.NOT_DECIDED in asked or Answer.UNKNOWN in answers:
        return Exit.INCOMPLETE
    return Exit.OK

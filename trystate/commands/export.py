"""`trystate export`: writes a system as a model for Spin or TLC, as the questions of its proof, or as one run."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from trystate.model.checker.export.promela import promela
from trystate.model.checker.export.steps import SEARCHED, exported
from trystate.model.checker.export.tla import tla
from trystate.model.checker.verdicts import Status
from trystate.model.errors import UsageError
from trystate.model.language import Property, System
from trystate.model.prover.formulas import load
from trystate.model.prover.induction import UNSAT, Answer
from trystate.search.machine import decided

from .. import registry
from ..choosing import SYSTEM_HELP, add_system_options, build, given
from ..exits import Exit
from ..outputs import make_folder, try_file, write_text
from ..progress import Reporter
from ..report.itf import itf_trace
from ..report.results import plural
from . import prove

PROOF_S = 600.0  # the most that the proof of --to smt2 takes
MODULE = re.compile(r"[A-Za-z]\w*", re.ASCII)


def export_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("system", metavar="SYSTEM", help=SYSTEM_HELP)
    p.add_argument(
        "--to",
        choices=("promela", "tla", "smt2", "itf"),
        required=True,
        help="a model for Spin or TLC, the questions of the proof, or the run of a property",
    )
    p.add_argument("--out", type=Path, metavar="FILE", help="output file; for smt2 a folder (default: standard output)")
    p.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="NAME",
        help="export only this property; may be repeated, except for itf (default: all; of liveness only for tla)",
    )
    add_system_options(p)


def export(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    if args.to == "smt2":
        return _questions(args)
    system = build(registry.system_class(args.system), args)
    try_file(args.out, "--out")
    names: list[str] | None = args.property or None
    if args.to == "itf":
        _write(args.out, _trace(system, args.property))
        return Exit.OK
    if args.to == "promela":
        _write(args.out, promela(system, names))
    else:
        text, configuration = tla(system, names, system.name if args.out is None else _module(args.out))
        _write(args.out, text)
        _write(args.out and args.out.with_suffix(".cfg"), configuration)
    there = exported(system, None, live=args.to == "tla")
    left = [f"{p.name} ({_kind(p)})" for p in system.properties if p not in there]
    if names is None and left:
        print(f"not exported, `trystate verify` decides them: {', '.join(left)}", file=sys.stderr)
    return Exit.OK


def _kind(left: Property) -> str:
    """The reason why a property is not exported."""
    return SEARCHED.get(left.form) or ("liveness with a bound" if left.within else "liveness")


def _questions(args: argparse.Namespace) -> int:
    """Prove the system and write each question that the solver received as a file in a folder.

    Raises:
        UsageError: no folder is given, or it cannot be written; or a size is given, although a proof is for all sizes.
    """
    sized = [word for word in given(args) if word.startswith("--") and word not in ("--edition", "--fault")]
    if sized:
        raise UsageError(f"--to smt2 writes the proof for all sizes: leave {sized[0]} out")
    if args.out is None:
        raise UsageError("--to smt2 writes one file for each question: name a folder with --out")
    load()
    system, lemmas = prove.chosen(args, args.property)
    make_folder(args.out, "--out")
    reporter = Reporter()
    with reporter.doing(f"proving {system.name}"):
        proof = prove.proved(system, lemmas, args.property, PROOF_S, reporter)
    for old in args.out.glob("*.smt2"):
        if old.read_text(encoding="utf-8", errors="replace").partition("\n")[2].startswith(UNSAT):
            old.unlink()  # an earlier export wrote it: a solver reads all files of the folder
    written = [question for question in proof.asked if question.smt2]
    for question in written:
        name = f"{question.condition.where}-{question.condition.what}".replace(" ", "-")
        write_text(args.out / f"{name}.smt2", question.smt2, "--out")
    refuted = sum(question.answer is Answer.REFUTED for question in written)
    print(f"{plural(len(written), 'question')} in {args.out}: unsat proves one; z3 refutes {refuted:,}")
    if left := len(proof.asked) - len(written):
        print(f"not written: {plural(left, 'question')}, since the {PROOF_S:g} s of a proof were over", file=sys.stderr)
        return Exit.INCOMPLETE
    return Exit.OK


def _module(out: Path) -> str:
    """The name of a TLA+ module, which its file must have."""
    if out.suffix != ".tla" or not MODULE.fullmatch(out.stem):
        raise UsageError(f"--out {out}: a TLA+ module has the name of its file; use letters and digits: Round.tla")
    return out.stem


def _write(out: Path | None, text: str) -> None:
    if out is None:
        print(text, end="")
    else:
        write_text(out, text, "--out")


def _trace(system: System, properties: list[str]) -> str:
    """The run that shows a property's verdict: a counterexample, or the witness of a `sometimes`.

    Raises:
        UsageError: not exactly one property is named, or no run shows its verdict.
        LimitReached: it is not decided.
    """
    if len(properties) != 1:
        raise UsageError("--to itf writes the run of one property: name it with --property, once")
    verdict = decided(system, properties[0], Reporter().search)
    if verdict.run is None:
        why = f": {verdict.reason}" if verdict.reason else ""
        raise UsageError(f"no run to export: {properties[0]} {_WORDS[verdict.status]}{why}")
    trace = itf_trace(system, verdict.run, f"{verdict.property.name}: {verdict.property.doc}")
    return json.dumps(trace, indent=1, ensure_ascii=False) + "\n"


_WORDS = {Status.HOLDS: "holds", Status.VIOLATED: "is never true"}

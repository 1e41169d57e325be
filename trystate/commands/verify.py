"""`trystate verify`: check the plan, or what is asked for, and compare the model with the real torch."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from trystate.model.checker.check import ENGINES, check
from trystate.model.checker.expectations import Judgement, Run, adopt, judge, judge_adopted
from trystate.model.checker.kernel import Limits
from trystate.model.checker.verdicts import Verdict
from trystate.model.errors import LimitReached, UnavailableError, UsageError
from trystate.model.language import System
from trystate.property_tests.adapters.versions import prepare_for_torch, torch_problem
from trystate.property_tests.harness.checks import Check

from .. import registry
from ..choosing import build, chosen
from ..machine import machine_limits
from ..progress import Reporter
from ..report.files import write_report
from ..report.results import Checked, Conformed, Results, coverage_gaps
from ..report.summary import print_results

Judge = Callable[[Verdict, Run], Judgement]
CONFORMANCE = "conformance with torch"


@dataclass(frozen=True, slots=True)
class Job:
    """A run to check, and how its verdicts are judged. The system is built when its turn comes."""

    run: Run
    build: Callable[[], System]
    judge: Judge


def verify(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    if args.engine not in ("auto", *ENGINES):
        raise UsageError(registry.unknown("engine", args.engine, ("auto", *ENGINES)))
    started = time.perf_counter()
    planned = not args.systems and not chosen(args)
    jobs = [Job(run, run.build, judge) for run in registry.plan()] if planned else list(_asked_for(args))
    reporter = Reporter()
    results = Results()
    for number, job in enumerate(jobs, 1):
        results.checked.append(_checked(job, f"{number}/{len(jobs)}", args, reporter))
    if planned:
        results.gaps = coverage_gaps(results.checked)
        results.conformed = list(conformance(reporter))
    results.seconds = time.perf_counter() - started
    with reporter.doing(f"writing the report to {args.report}"):
        problem = write_report(results, args.report, json_file=args.json, junit_file=args.junit)
    print_results(results, args.report, problem)
    return results.exit


def _asked_for(args: argparse.Namespace) -> Iterator[Job]:
    names = args.systems or [next(iter(registry.SYSTEMS))]
    for system in [build(registry.system_class(name), args) for name in names]:
        planned = next((run for run in registry.plan() if _describes(run, system)), None)
        if planned is not None:
            yield Job(planned, partial(_given, system), judge)
        else:
            yield Job(adopt(system, registry.plan()), partial(_given, system), judge_adopted)


def _describes(run: Run, system: System) -> bool:
    """Is this system the run's very own?"""
    if (run.system, run.edition, set(run.faults)) != (system.family, system.edition, set(system.faults)):
        return False
    built = run.build()
    return (built.sizes, built.faults, built.max_faults) == (system.sizes, system.faults, system.max_faults)


def _given(system: System) -> System:
    return system


def _checked(job: Job, place: str, args: argparse.Namespace, reporter: Reporter) -> Checked:
    system = job.build()
    with reporter.doing(f"checking {place} {system.label}"):
        report = check(system, engine=args.engine, symmetry=args.symmetry, limits=limits(args), report=reporter.search)
    done = Checked(job.run, report, tuple((v, job.judge(v, job.run)) for v in report.verdicts))
    seen = report.exploration
    reporter.done(f"checked {place} {system.label}: {seen.distinct:,} states, {seen.seconds:.1f} s; {done.summary()}")
    return done


def limits(args: argparse.Namespace) -> Limits:
    """Where a search stops, from the options."""
    memory_bytes = args.max_memory << 20 if args.max_memory else machine_limits().memory_bytes
    return Limits(args.max_states, memory_bytes, args.max_seconds)


def conformance(reporter: Reporter) -> Iterator[Conformed]:
    """Compare the finer models with the coarser, and all with the torch that is installed and with our stores.

    A torch that is missing is said, not failed.
    """
    yield from _compared(refinement_checks(), reporter)
    problem = torch_problem()
    if problem is not None:
        yield Conformed(CONFORMANCE, skipped=problem)
        return
    yield from _compared(conformance_checks(), reporter)


def _compared(checks: Iterable[Check], reporter: Reporter) -> Iterator[Conformed]:
    for one in checks:
        with reporter.doing(f"comparing: {one.name}"):
            try:
                outcome = one.run(reporter.detail)
            except UnavailableError as error:
                yield Conformed(one.name, skipped=str(error))
                continue
            except (LimitReached, MemoryError) as error:
                yield Conformed(one.name, stopped=str(error) or "no more memory")
                continue
        reporter.done(f"compared: {one.name}: {outcome.compared:,} {outcome.unit}, {len(outcome.disagreements)} differ")
        yield Conformed(one.name, outcome)


def refinement_checks() -> tuple[Check, ...]:
    """The comparisons between the models themselves."""
    from trystate.property_tests.adapters.refinements import REFINEMENTS

    return REFINEMENTS


def conformance_checks() -> tuple[Check, ...]:
    """The comparisons with torch, of our own stores, and of our engine. Loads torch."""
    prepare_for_torch()
    from trystate.property_tests.adapters.our_autograd import conformance as autograd
    from trystate.property_tests.adapters.our_rendezvous import operators as operators
    from trystate.property_tests.adapters.our_store import conformance as store_models
    from trystate.property_tests.adapters.simulator import conformance as engine
    from trystate.property_tests.adapters.stores import cases
    from trystate.property_tests.adapters.torch_rendezvous import conformance as rendezvous

    return (
        *rendezvous.CHECKS,
        *cases.CHECKS,
        *store_models.CHECKS,
        *operators.CHECKS,
        *engine.CHECKS,
        *autograd.CHECKS,
    )

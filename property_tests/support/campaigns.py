"""Kinds of cases that parts of the tests make: programs of distributed autograd, random systems, histories of stores.

`adapters.campaigns.kinds` finds them here, in a checkout only.
"""

from __future__ import annotations

import contextlib
import operator
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis
import pytest

from trystate.impl.autograd.torch_graph import TorchGraph
from trystate.model.autograd.vocabulary import Mode
from trystate.model.checker.check import check
from trystate.model.checker.export.promela import promela
from trystate.model.checker.export.steps import Printer
from trystate.model.checker.verdicts import Status
from trystate.model.language import expressions
from trystate.model.prover.induction import Prover
from trystate.store import TCPStoreServer

from ..adapters.campaigns.cases import Case, Kind
from ..adapters.stores.proxies import CuttingProxy
from ..adapters.torch_store.server import TorchServer
from ..adapters.worlds import World
from .autograd.building import random_features, random_program
from .autograd.operations import Feature
from .autograd.outcomes import Outcome, differences
from .autograd.programs import Program
from .autograd.running import PRELOAD, SECONDS, Runs, leave, run_locally
from .autograd.sides import SIDES
from .autograd.simulated_tensors import TensorWorkers
from .export import spin, tlc
from .mutants import Mutant, planted, replaced, rewritten, wrapped
from .runs import AVAILABLE, assert_runs_show_what_they_claim, facts
from .stores.attacked import clients, disturb, finding, finish, read, unexplained
from .systems.random_meaning import LIVE, assert_trees_mean_what_their_plans_say, lively_holds
from .systems.random_proofs import judged
from .systems.random_systems import MEMBERS, Declaration, declarations, system


class Planting(Kind):
    """A kind with a mutant as its planted fault."""

    mutant: Mutant

    def planted(self) -> AbstractContextManager[Any]:
        return planted(self.mutant)


# ---- programs of distributed autograd


def drawn(seed: int, *features: Feature) -> Program:
    """A random program with these features, or with random ones."""
    rng = random.Random(seed)
    found = frozenset(features) or random_features(rng, list(Feature))
    return random_program(seed, rng.choice((2, 3, 4)), found)


def compare(seed: int, *features: Feature) -> tuple[int, list[str]]:
    """One program on the runtime, under a random schedule in each mode.

    Returns the number of gradients, and the differences from plain autograd and from the model's counts.
    """
    each, steps = drawn(seed, *features), 0
    expected, wrong = run_locally(each), list[str]()
    for mode in (Mode.SMART, Mode.FAST):
        workers = TensorWorkers(each, random.Random(seed))
        found = differences(each, expected, workers.run(mode))
        if workers.found != workers.expected:
            found.append(f"counted {workers.found}, by the model {workers.expected}")
        wrong += [f"seed {seed}, {mode.name}: {text}" for text in found]
        steps += sum(sum(counts.values()) for counts in workers.found)
        if workers.has_unused:
            break  # FAST fails
    return steps, wrong


class Programs(Planting):
    name, title, batch = "programs", "random programs on our distributed autograd, under simulated schedules", 50
    mutant = staticmethod(replaced(TorchGraph, "add", lambda graph, one, other: other))

    def case(self, seed: int, nodes: int | None = None) -> Case:
        steps, wrong = compare(seed)
        return Case(seed, steps, fails="gradients_are_those_of_autograd" * bool(wrong), seen="\n".join(wrong))


class Workers(Planting):
    """The same programs on worker processes of torch's distributed autograd, and of ours."""

    name, title, batch = "workers", "random programs on worker processes: torch's distributed autograd, and ours", 60
    size = 4
    mutant = staticmethod(wrapped(Runs, "run", lambda run: lambda *given, **how: [
        replace(one, gradients={}) if isinstance(one, Outcome) else one for one in run(*given, **how)]))  # fmt: skip

    def case(self, seed: int, nodes: int | None = None) -> Case:
        (done,) = self.cases([seed])
        return done

    def cases(self, seeds: Iterable[int], nodes: int | None = None) -> Iterator[Case]:
        seeds = list(seeds)
        features = [random_features(random.Random(seed), list(Feature)) - {Feature.UNUSED} for seed in seeds]
        known = frozenset({Feature.UNDEFINED})  # torch's workers are without: it passes them as zeros, or raises
        with tempfile.TemporaryDirectory() as folder, World(self.size, PRELOAD) as world:
            runs = Runs(world, folder, list(SIDES))
            mine = [random_program(s, 2 + s % 3, f) for s, f in zip(seeds, features, strict=True)]
            fair = [random_program(s, 2 + s % 3, f - known) for s, f in zip(seeds, features, strict=True)]
            ours, theirs = runs.run(mine, "ours", threads=8), runs.run(fair, "torch")
            for seed, one, our, other, their in zip(seeds, mine, ours, fair, theirs, strict=True):
                steps, wrong = sum(len(block.steps) for block in one.blocks), [str(our)]
                if isinstance(our, Outcome):
                    wrong = differences(one, run_locally(one), our)
                shown = self.shown(other, their) if isinstance(their, Outcome) else ("an error",)
                fails = "gradients_are_those_of_autograd" * bool(wrong)
                yield Case(seed, steps, fails=fails, seen="\n".join([*wrong, str(one)] * bool(wrong)), shown=shown)
            world.do(leave, list(SIDES), seconds=SECONDS)

    def shown(self, program: Program, found: Outcome) -> tuple[str, ...]:
        """The findings of torch's that its outcome shows."""
        local = run_locally(program)
        blind = replace(found, seen=local.seen, shared=())
        zeros = bool(differences(program, local, blind)) and not differences(program, local, blind, True)
        other = bool(differences(program, local, blind, True))
        seen = [Outcome({}, (), seen=each.seen) for each in (local, found)]
        hooks = bool(differences(program, seen[0], seen[1]))
        named = {"G7": zeros, "G8": hooks, "gradients that share memory": bool(found.shared), "other gradients": other}
        return tuple(name for name, is_shown in named.items() if is_shown)


# ---- random systems


class Systems(Planting):
    """Examples that hypothesis draws from a seed, and makes smaller if one fails."""

    phases = (hypothesis.Phase.generate, hypothesis.Phase.shrink)

    def __init__(self, name: str, title: str, claim: Callable[[Declaration], int], examples: int, mutant: Mutant,
                 problem: Callable[[], str] = str) -> None:  # fmt: skip
        self.name, self.title, self.mutant, self._claim, self._examples = name, title, mutant, claim, examples
        self.batch, self._problem = 1, problem

    def problem(self) -> str:
        return self._problem()

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        with planted(self.mutant), mock.patch.object(self, "phases", self.phases[:1]):
            yield

    def case(self, seed: int, nodes: int | None = None) -> Case:
        steps, last = 0, list[Declaration]()

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=self._examples, database=None, deadline=None, report_multiple_bugs=False,
            suppress_health_check=list(hypothesis.HealthCheck), print_blob=False,
            phases=self.phases,
        )  # fmt: skip
        @hypothesis.given(declarations())
        def claimed(declared: Declaration) -> None:
            nonlocal steps
            last[:] = [declared]
            steps += self._claim(declared)

        try:
            with contextlib.redirect_stdout(None):
                claimed()
        except AssertionError as error:
            return Case(seed, steps, fails="engines_and_oracles_agree", seen=f"{last[0]}: {error}")
        return Case(seed, steps)


def engines_agree(declared: Declaration) -> int:
    """Every engine, and plain Python, decide alike. Returns the number of states."""
    assert_trees_mean_what_their_plans_say(declared)
    reports = {engine: check(system(declared), engine=engine) for engine in AVAILABLE}
    expected = facts(reports["interpret"])
    for engine, report in reports.items():
        assert facts(report) == expected, engine
        assert_runs_show_what_they_claim(report)
    for name in LIVE:
        holds = reports["interpret"].verdict(name).status is Status.HOLDS
        assert holds is lively_holds(declared, MEMBERS, name), name
    return int(expected["graph"][0])


def spin_agrees(declared: Declaration) -> int:
    of = system(declared)
    report = check(of, engine="interpret")
    with tempfile.TemporaryDirectory() as folder:
        assert (found := spin.differences(report, spin.verify(promela(of), Path(folder)))) == [], found
    return report.exploration.distinct


def tlc_agrees(declared: Declaration) -> int:
    of = system(declared)
    with tempfile.TemporaryDirectory() as folder:
        assert (found := tlc.differences(of, Path(folder), tlc.tlc_jar())) == [], found
    return check(of).exploration.distinct


def _no_spin() -> str:
    missing = [name for name in ("spin", "gcc") if shutil.which(name) is None]
    return f"{' and '.join(missing)} not found: apt-get install spin gcc" if missing else ""


def _no_tlc() -> str:
    try:
        tlc.tlc_jar()
    except pytest.skip.Exception as why:
        return str(why)
    return ""


class Proofs(Planting):
    name, title, batch = "proofs", "proofs of random systems of any size, searched at small sizes", 2
    mutant = staticmethod(rewritten(Prover.base, "condition.where != INIT", "True"))

    def case(self, seed: int, nodes: int | None = None) -> Case:
        found = judged(seed)
        seen = f"{found.refuted}\n{found.text}" if found.refuted else ""
        return Case(seed, found.searches, fails="what_is_proved_holds" * bool(found.refuted), seen=seen)


# ---- histories of stores


class Histories(Kind):
    """Clients of a store in processes, which are stopped, killed and cut off; their history is linearizable.

    `of_torch`: the server is torch's, and a history that no order explains is a finding of torch's.
    """

    batch, lasts_seconds, stopped_seconds = 1, 2.5, 0.6

    def __init__(self, name: str, title: str, server: Callable[[], Any], make: str, *, of_torch: bool = False) -> None:
        self.name, self.title, self._server, self.make, self.of_torch = name, title, server, make, of_torch

    def case(self, seed: int, nodes: int | None = None) -> Case:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            server = stack.enter_context(self._server())
            proxy = stack.enter_context(CuttingProxy(server.port, seed))
            living = stack.enter_context(clients(Path(folder), self.make, str(proxy.port), seed, 3))
            faults = disturb(random.Random(seed), living, self.lasts_seconds, self.stopped_seconds, server.pid)
            proxy.calm = True
            faults["cut"] += proxy.cuts
            finish(living)
            history = read(sorted(Path(folder).glob("*.diary")))
        wrong = unexplained(history)
        done = Case(seed, len(history), faults=faults)
        if wrong and self.of_torch:
            return replace(done, shown=tuple(sorted({finding(each) for each in wrong})))
        fails = "histories_are_linearizable" * bool(wrong)
        return replace(done, fails=fails, seen="\n".join(map(str, wrong[0].calls)) if wrong else "")

    def planted(self) -> AbstractContextManager[Any]:
        """Clients of our server, which has no findings, return the first value of a key for ever."""
        return mock.patch.multiple(self, make="remembers", of_torch=False, _server=TCPStoreServer)


KINDS: tuple[Kind, ...] = (
    Programs(), Workers(),
    Systems("systems", "random systems in each engine and in plain Python", engines_agree, 12,
            lambda patch: patch.setitem(expressions.BINARY, "lt", operator.le)),
    Systems("spin", "random systems in Spin", spin_agrees, 2,
            lambda patch: patch.setitem(expressions.BINARY, "lt", operator.le), _no_spin),
    Systems("tlc", "random systems in TLC", tlc_agrees, 2,
            rewritten(Printer._show, "map(show, operands)", "map(show, operands[op == 'and' :])"), _no_tlc),
    Proofs(),
    Histories("histories", "clients of our server, disturbed", TCPStoreServer, "trystate"),
    Histories("torch-histories", "torch's clients of torch's server, disturbed", TorchServer, "torch", of_torch=True),
)  # fmt: skip

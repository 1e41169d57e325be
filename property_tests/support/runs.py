"""Checks of a run that an engine reports: each step is possible, and a lasso is closed and weakly fair.

Rule: judged by the interpreter alone, one state at a time.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, permutations, product
from typing import Any

from trystate.model.checker.check import ENGINES
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Instance, Lasso, Limits, Path
from trystate.model.checker.verdicts import Counterexample, Report
from trystate.model.checker.walks import Walk, walked
from trystate.model.language import Form, Property, State, System

from ..harness.side_by_side import SideBySide
from ..harness.subjects import Subject


def assert_is_a_run(system: System, path: Path, begins: State | None = None) -> None:
    """The path begins in `begins`, or in an initial state, and each of its steps is the one that it names."""
    interpreter = Interpreter(system)
    assert path.states[0] in (system.initial_states if begins is None else (begins,))
    assert len(path.states) == len(path.steps) + 1
    for (before, after), number in zip(pairwise(path.states), path.steps, strict=True):
        assert interpreter.step(interpreter.kernel.instances[number], before) == after


def replay(walk: Walk, make: Callable[[Any], Subject]) -> int:
    """Take the steps of a walk, and those before it, on a subject of its system; returns how many states were compared.

    Raises:
        Disagreement: the subject differs from the model after one of them.
    """
    system = walk.run.build()
    interpreter = Interpreter(system)
    whole = walked(replace(walk, before="", steps=walk.all_steps), system).path
    both = SideBySide(interpreter, make(system))
    both.reset()
    both.compare(whole.states[0])
    for number, state in zip(whole.steps, whole.states[1:], strict=True):
        both.take(interpreter.kernel.instances[number])
        both.compare(state)
    return len(whole.states)


def allowed(system: System, state: State) -> set[str]:
    """The labels of the enabled steps of a state."""
    return {instance.label for instance, _ in Interpreter(system).successors(state)}


def assert_is_a_fair_lasso(system: System, run: Counterexample | Lasso) -> None:
    """The run is closed, and in its loop a step of each group is taken, or none is enabled.

    None is enabled at some point if the group is weak, and at all points if it is strong. The groups are read from
    `fair=` here, and not from the kernel.
    """
    interpreter = Interpreter(system)
    path, loop = run.path, run.loop
    assert loop is not None
    assert_is_a_run(system, path)
    assert path.states[-1] == path.states[loop]
    around = path.states[loop:]
    groups: dict[str, list[Instance]] = {}
    for instance in interpreter.kernel.instances:
        if instance.fair:
            declared = str(instance.transition.fair)
            strength, _, group = declared.partition(":")
            member = [k for p, k in instance.binding.items() if group.endswith(f"[{p.sort.name}]")][:1]
            own = f"{instance.transition.name} {instance.indices[: len(instance.transition.own)]}"  # not its choices
            groups.setdefault(f"{declared} {member}" if group else f"{strength} {own}", []).append(instance)
    for name, group_ in groups.items():
        taken = {instance.number for instance in group_} & {*path.steps[loop:]}
        enabled = [any(interpreter.step(instance, state) for instance in group_) for state in around]
        possible = any(enabled) if name.startswith("strong") else all(enabled)
        assert taken or not possible, f"{name}: it is enabled again and again, and never taken"


def refutes(system: System, run: Counterexample, claim: Property) -> bool:
    """For some member the run is without what the property of liveness claims."""
    interpreter = Interpreter(system)
    premise, goal = claim.exprs
    states, loop = run.path.states, run.loop or 0
    for indices in product(*(range(p.sort.size) for p in claim.params)):
        binding = dict(zip(claim.params, indices, strict=True))
        reached = [interpreter.holds(goal, s, binding) for s in states]
        begins = [k for k, s in enumerate(states) if interpreter.holds(premise, s, binding)]
        if claim.form is Form.EVENTUALLY:
            begins = [0]
        if run.loop is None:
            counted = [interpreter.kernel.instances[n].transition.name for n in run.path.steps]
            if any(not any(reached[k:]) and _spent(claim, counted[k:]) for k in begins):
                return True
            continue
        if claim.form is not Form.LEADS_TO:
            if not (all(reached[loop:]) if claim.form is Form.STABLE else any(reached)):
                return True
            continue
        if any(not any(reached[min(k, loop) :]) for k in begins):
            return True
    return False


def _spent(claim: Property, steps: list[str]) -> bool:
    """Whether these are as many steps as the bound of the property allows."""
    assert claim.within is not None, "a finite run refutes a property of liveness only if it has a bound"
    return claim.within.times == (steps.count(claim.within.step) if claim.within.step else len(steps))


def renamed_plainly(of: System, state: State, names: dict[str, Any]) -> State:
    """A renaming, cell by cell, by the names of cells and the meaning of their values."""
    found = {}
    for cell, value in zip(of.cells, state, strict=True):
        dims = [names.get(d.name, range(d.size))[k] for d, k in zip(cell.slot.dims, cell.indices, strict=True)]
        is_member = cell.sort.kind == "index" and cell.sort.name in names and value >= 0
        found[cell.slot.name, tuple(dims)] = names[cell.sort.name][value] if is_member else value
    return tuple(found[cell.key] for cell in of.cells)


def orbits(of: System, states: set[State], names: tuple[str, ...]) -> set[State]:
    """One state of each set of states that are equal under a renaming of the members of these indices."""
    ways = [dict(zip(names, way, strict=True)) for way in product(*(permutations(range(of.sizes[n])) for n in names))]
    return {min(renamed_plainly(of, state, way) for way in ways) for state in states}


def reachable(of: System) -> set[State]:
    """The states that the interpreter reaches."""
    interpreter, found, todo = Interpreter(of), {*of.initial_states}, [*of.initial_states]
    while todo:
        for _, after in interpreter.successors(todo.pop()):
            if after not in found:
                found.add(after)
                todo.append(after)
    return found


def does(of: System, shown: Callable[[dict[str, int]], Any], after: Callable[[Any], set[Any]]) -> bool:
    """Whether each reachable state, as `shown` has its cells, is one state and has the steps of plain Python."""
    interpreter, names, states = Interpreter(of), [cell.name for cell in of.cells], reachable(of)

    def plain(state: State) -> Any:
        return shown(dict(zip(names, state, strict=True)))

    steps = ({plain(then) for _, then in interpreter.successors(state)} == after(plain(state)) for state in states)
    return len({*map(plain, states)}) == len(states) and all(steps)


AVAILABLE = [e for e in ENGINES if e != "symbolic" or importlib.util.find_spec("dd") is not None]


def facts(report: Report) -> dict[str, Any]:
    """The results that do not depend on which of several shortest paths an engine found."""
    seen = report.exploration
    return {
        "graph": (seen.distinct, seen.edges, seen.depth),
        "verdicts": {v.property.name: v.status for v in report.verdicts},
        "lengths": {
            v.property.name: len(v.run.path.steps)
            for v in report.verdicts
            if v.run is not None and not v.property.form.live
        },
        "found": sorted(seen.found),
        "never fired": report.never_fired,
    }


def assert_runs_show_what_they_claim(report: Report) -> None:
    interpreter = Interpreter(report.system)
    for verdict in report.verdicts:
        if verdict.run is None:
            continue
        if verdict.property.form.live:
            if verdict.run.loop is None:
                assert_is_a_run(report.system, verdict.run.path)
            else:
                assert_is_a_fair_lasso(report.system, verdict.run)
            assert refutes(report.system, verdict.run, verdict.property)
            continue
        path = verdict.run.path
        assert_is_a_run(report.system, path)
        if verdict.property.form in (Form.ALWAYS, Form.SOMETIMES):
            wanted = verdict.property.form is Form.SOMETIMES
            assert interpreter.holds(verdict.property.exprs[0], path.states[-1]) is wanted
        elif verdict.property.form is Form.DEADLOCK:
            moves = [i for i, _ in interpreter.successors(path.states[-1]) if not i.transition.fault]
            assert not moves and not interpreter.holds(report.system.terminal, path.states[-1])


MANY = Limits(states=20_000, seconds=30.0)

"""The engine of the page, run by node, and the reference interpreter.

Without node, or what `npm ci` in page/ installs, tests are skipped; with TRYSTATE_BROWSER=required, as in the gate,
that is a failure.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from trystate.model.checker.check import DEADLOCK_FREEDOM, decided
from trystate.model.checker.interpret import Interpreter
from trystate.model.language import Form, Kind, State, System
from trystate.page.contents import Choice, Contents, Result
from trystate.page.export import export
from trystate.page.trees import CODE

PAGE = Path(__file__).resolve().parents[2] / "page"
ASK = Path(__file__).resolve().parents[1] / "tests" / "page" / "ask.mjs"
NODE_SECONDS = 900.0

Json = Any
EMPTY: Mapping[str, Json] = {  # a run of a report, without its faults
    "number": 0, "label": "", "engine": "", "states": 0, "edges": 0, "depth": 0, "seconds": 0, "complete": True,
    "stopped": "", "properties": [],
}  # fmt: skip


def needed() -> str:
    """The program or package that these tests lack, and the remedy; or ""."""
    if shutil.which("node") is None:
        return "there is no node: apt-get install nodejs npm"
    return "" if (PAGE / "node_modules" / "esbuild").is_dir() else "page/node_modules is empty: npm ci --prefix page"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The bundled engine. It draws nothing: Graphviz need not lay out a hundred charts."""
    if missing := needed():
        assert os.environ.get("TRYSTATE_BROWSER") != "required", missing
        pytest.skip(missing)
    bundle = tmp_path_factory.mktemp("engine") / "engine.mjs"
    command = ["node", "build.mjs", "--engine", str(bundle), str(PAGE / "source")]
    subprocess.run(command, cwd=PAGE, check=True, timeout=NODE_SECONDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trystate.page.export.chart", lambda machine: None)
        yield bundle


def ask(engine: Path, data: Json, questions: Sequence[Json]) -> list[Json]:
    """The engine's answers; a failed one is {"error": ...}."""
    files = {"data.json": data, "questions.json": questions}
    for name, value in files.items():
        (engine.parent / name).write_text(json.dumps(value))
    command = ["node", str(ASK), str(engine), *(str(engine.parent / name) for name in files)]
    found = subprocess.run(command, check=True, timeout=NODE_SECONDS, capture_output=True, text=True)
    answers: list[Json] = json.loads(found.stdout)
    return answers


class Pair:
    """A system of the page, and the same system of Python. The page's may have counters of faults that are off."""

    def __init__(self, data: Json, place: int, system: System) -> None:
        self.data, self.place, self.system = data, place, system
        self.interpreter = Interpreter(system)
        self.written = data["systems"][place]
        names = [name for number in self.written["slots"] for name in self._cells(data["slots"][number])]
        self.cells = names
        self.ours = [system.positions.get(name) for name in names]

    def _cells(self, slot: Json) -> Iterator[str]:
        names = [slot["name"]]
        for dim in slot["dims"]:
            names = [f"{name}[{k}]" for name in names for k in self._members(dim)]
        yield from names

    def _members(self, dim: str) -> range:
        return range(self.written["sizes"].get(dim) or len(self.written["finite"][dim]))

    def question(self, **asked: Json) -> Json:
        return {"system": self.place, "faults": self.system.faults, "max": self.system.max_faults, **asked}

    def to_page(self, state: State) -> list[int]:
        return [0 if at is None else state[at] for at in self.ours]

    def to_python(self, state: Sequence[int]) -> State:
        found = [0] * len(self.system.cells)
        for at, value in zip(self.ours, state, strict=True):
            if at is None:
                assert value == 0, "a counter of a fault that is off"
            else:
                found[at] = value
        return tuple(found)

    def expected(self, state: State) -> Json:
        """The answer of the reference for a state, in the form of `ask.mjs`."""
        python, system = self.interpreter, self.system
        successors = list(python.successors(state))
        enabled = {instance.number for instance, _ in successors}
        return {
            "state": self.to_page(state),
            "steps": [[instance.label, self.to_page(after)] for instance, after in successors],
            "failing": [
                "".join(str(int(python.holds(c, state, i.binding))) for c in i.transition.conditions)
                for i in python.kernel.instances
            ],
            "lights": [*self._lights(state), *self._deadlock(state, enabled)],
            "judged": [
                "".join(
                    str(int(i.transition.name not in (p.conditions or {})
                            or python.holds((p.conditions or {})[i.transition.name], state, i.binding)))
                    for i, _ in successors
                )
                for p in system.properties
                if p.form is Form.STEP
            ],
            "controls": [
                list(m.states)[python.value(m.control, state, dict.fromkeys(m.params, 0))].name
                for m in system.machines.values()
            ],
            "rests": python.holds(system.terminal, state),
            "refused": "".join(str(int(i.number not in enabled)) for i in python.kernel.instances),
            "derived": [
                f"{cell.name} = {cell.sort.show(value)}"
                for cell, value in system.shown_cells(state)[len(system.cells):]
            ],
        }  # fmt: skip

    def _deadlock(self, state: State, enabled: set[int]) -> list[str]:
        if DEADLOCK_FREEDOM not in decided(self.system):
            return []
        kinds = {self.interpreter.kernel.instances[number].transition.kind for number in enabled}
        deadlocked = kinds <= {Kind.FAULT} and not self.interpreter.holds(self.system.terminal, state)
        return ["violated" if deadlocked else "holds"]

    def _lights(self, state: State) -> Iterator[str]:
        for p in self.system.properties:
            if p.form is Form.ALWAYS:
                yield "holds" if self.interpreter.holds(p.exprs[0], state) else "violated"
            elif p.form is Form.SOMETIMES:
                yield "reached" if self.interpreter.holds(p.exprs[0], state) else "not here"
            elif p.form.live:
                (premise, goal), holds = p.exprs, self.interpreter.holds
                indices = product(*(range(v.sort.size) for v in p.params))
                bindings = [dict(zip(p.params, each, strict=True)) for each in indices]
                is_open = any(holds(premise, state, b) and not holds(goal, state, b) for b in bindings)
                yield "waiting" if is_open else "holds"

    @cached_property
    def operators(self) -> frozenset[str]:
        """The operators in the trees of its guards and effects."""
        nodes, found = self.data["nodes"], set[int]()
        steps = [self.data["transitions"][number] for number in self.written["transitions"]]
        todo = [tree for t in steps for tree in (*t["conditions"], *t["effects"].values())]
        while todo:
            number = todo.pop()
            if number not in found:
                found.add(number)
                op, *args = nodes[number]
                leaves = op in (CODE["const"], CODE["var"], CODE["bound"])
                todo += [] if leaves else [x for x in args if isinstance(x, int)]
        return frozenset(op for op, code in CODE.items() if any(nodes[number][0] == code for number in found))

    def walk(self, chance: random.Random, steps: int) -> list[State]:
        """The states of a random walk."""
        states = [chance.choice(self.system.initial_states)]
        for _ in range(steps):
            following = [after for _, after in self.interpreter.successors(states[-1])]
            if not following:
                break
            states.append(chance.choice(following))
        return states


def exported(choices: Sequence[Choice]) -> Json:
    """The data of a page that has a run of each choice, without results."""
    results = [Result(c, {**EMPTY, "faults": c.faults, "max_faults": c.max_faults}) for c in choices]
    return export(Contents("test", results=results))

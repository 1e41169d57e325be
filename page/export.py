"""A page's contents as the JSON that `page/source/types.ts` describes.

*Theory of operation.* A system is written once for its edition and sizes, with all its faults compiled in. A run then
only lists which faults are on, and the page drops the steps of the others. That is sound if the trees do not depend on
the choice of faults. So each run's own system is built as well and compared, tree by tree. If one of them differs (a
property is another with a fault), if a declaration reads `self.faults`, or if all faults share one counter, each run's
own system is written instead and marked `fixed`. No state is written: the page computes states from the actions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import trystate.model
from trystate.model import releases
from trystate.model.checker.check import decided
from trystate.model.checker.expectations import Finding
from trystate.model.checker.story import main_index
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import Cell, Expr, Machine, Property, Slot, System, Transition, source
from trystate.model.language.beginnings import beginnings
from trystate.model.language.expressions import TRUE, Role
from trystate.model.language.properties import Claim
from trystate.model.language.tables import Decision, noting
from trystate.model.language.transitions import Rule
from trystate.model.messages import TEXTS, Message

from .charts import chart
from .contents import Choice, Contents, Result, Shown
from .owners import owners
from .trees import Pool, dimension

FORMAT = 1
BEGINS_MAX = 1_000  # initial states that a page lists
STEPS_MAX = 100_000  # steps of a walk: a page replays it when it is opened
HOUSE = Path(trystate.model.__file__).parent.parent

Json = dict[str, Any]


def export(contents: Contents) -> Json:
    """Everything that a page needs, as values of JSON.

    contents: what to show.

    Raises:
        UsageError: a walk has too many steps, or begins where its system cannot.
    """
    return _Export(contents).data()


class _Export:
    """One page's lists while they are filled."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.pool = Pool()
        self.built: list[System] = []
        self.systems: list[Json] = []
        self.traces: list[Json] = []
        self._places: dict[object, int] = {}
        self._chosen: dict[object, int] = {}
        self._wholes: dict[object, tuple[System, Mapping[Expr, Decision]]] = {}
        self._alike: dict[object, bool] = {}

    def data(self) -> Json:
        given = self.contents
        runs = [self._run(number, result) for number, result in enumerate(given.results)]
        for shown in given.shown:
            self._walk(shown)
        for choice in given.choices:
            self.system(choice)
        there = {f.number: releases.has(given.torch, f) for f in given.findings} if given.torch else {}
        return {
            "format": FORMAT, "trystate": given.version, "heading": given.heading,
            "view": given.view or self._explorer(given.choices[0]),
            "torch": {"version": given.torch, "findings": [n for n, has in there.items() if has]} if there else None,
            "summary": given.summary, "comparisons": [_comparison(one) for one in given.comparisons],
            "systems": self.systems, "runs": runs, "traces": self.traces,
            "findings": [self._finding(f, runs, there.get(f.number)) for f in given.findings],
            "messages": [_message(m) for m in given.messages], **self.pool.lists(),
        }  # fmt: skip

    # ---- systems

    def system(self, choice: Choice) -> int:
        """The place of a choice's system among the systems."""
        key = _key(choice, choice.faults)
        if key not in self._chosen:
            self._chosen[key] = self._find(choice)
        return self._chosen[key]

    def _explorer(self, choice: Choice) -> str:
        """The link that explores a choice's system, as page/source/links.ts reads it."""
        together = "" if choice.max_faults is None else f"~{choice.max_faults}"
        faults = "+".join(f"{name}={n}" if n > 1 else name for name, n in sorted(choice.faults.items())) or "none"
        return f"#/explore/{quote(self.systems[self.system(choice)]['id'])}/{faults}{together}"

    def _find(self, choice: Choice) -> int:
        if choice.max_faults is not None:
            return self._written(choice, choice.faults, fixed=True)
        key = _key(choice, _whole_faults(choice))
        if key not in self._alike:
            self._alike[key] = self._is_one_for_all(choice, key)
        faults = _whole_faults(choice) if self._alike[key] else choice.faults
        return self._written(choice, faults, fixed=not self._alike[key])

    def _is_one_for_all(self, choice: Choice, key: object) -> bool:
        """Whether the system with all faults has the trees of each choice of faults."""
        given = self.contents
        choices = [*(r.choice for r in given.results), *(s.choice for s in given.shown), *given.choices]
        own = {_key(c, c.faults): c for c in choices if c.max_faults is None and _key(c, _whole_faults(c)) == key}
        try:
            with _reads_of_faults() as read:
                whole, _ = self._wholes[key] = _noted(choice, _whole_faults(choice))
        except DeclarationError:  # it has faults that exclude each other
            return False
        return not any(read) and all(_agree(whole, _build(c)) for c in own.values())

    def _written(self, choice: Choice, faults: Mapping[str, int], *, fixed: bool) -> int:
        known = _key(choice, faults)
        if known not in self._places:
            system, decisions = self._wholes.get(known) or _noted(choice, faults)
            self._places[known] = len(self.systems)
            self.built.append(system)
            self.systems.append(self._system(choice, system, decisions, fixed))
        return self._places[known]

    def _system(self, choice: Choice, system: System, decisions: Mapping[Expr, Decision], fixed: bool) -> Json:
        main = main_index(system)
        edition = choice.edition.name if choice.edition is not None else ""
        used = {t.fault for t in system.transitions}
        return {
            "id": _id(choice, system, fixed), "name": choice.name, "title": choice.cls.__name__,
            "doc": first_line(choice.cls.__doc__), "edition": edition, "sizes": dict(system.sizes),
            "faults": {name: bound for name, bound in system.faults.items() if name in used}, "fixed": fixed,
            "together": system.max_faults is not None, "main": main.name if main is not None else "",
            "slots": [self.pool.put("slots", self._slot(slot)) for slot in system.slots.values()],
            "owners": owners(system),
            "transitions": [self.pool.put("transitions", self._transition(t)) for t in system.transitions],
            "machines": [self.pool.put("machines", self._machine(m)) for m in system.machines.values()],
            "properties": [
                self.pool.put("properties", self._property(system, p)) for p in decided(system)
            ],
            "terminal": self.pool.tree(system.terminal),
            "decisions": [self.pool.decision(condition, one) for condition, one in decisions.items() if _whole(one)],
            **_begins(system), **_finite(system), **self._columns(system),
        }  # fmt: skip

    def _columns(self, system: System) -> Json:
        """The members of the derived columns: name, tree and sort."""
        found = [[c.name, self.pool.tree(tree), self.pool.sort(c.sort)] for c, tree in system.column_cells]
        return {"columns": found} if found else {}

    def _slot(self, slot: Slot) -> Json:
        return {
            "name": slot.name, "sort": self.pool.sort(slot.sort), "low": slot.sort.low, "high": slot.sort.high,
            "dims": [dimension(dim) for dim in slot.dims], "initial": list(slot.initial), "doc": slot.doc,
        }  # fmt: skip

    def _transition(self, t: Transition) -> Json:
        from trystate.diagrams.moves import effect_parts

        return {
            "name": t.name, "kind": t.kind.value, "params": _params(t.params), "own": len(t.own),
            "conditions": [self.pool.tree(c) for c in t.conditions],
            "effects": {field: self.pool.tree(body) for field, body in t.effects.items()},
            "assigns": effect_parts(t, budget=False),
            "arcs": [
                {"machine": type(a.source).__name__, "from": a.source.name, "to": a.dest.name, "of": a.of}
                for a in t.arcs
            ],
            "fair": str(t.fair or ""), "fault": t.fault, "doc": t.doc, "cite": t.cite, "at": _at(t.at),
        }  # fmt: skip

    def _machine(self, m: Machine) -> Json:
        laid_out = chart(m)
        return {
            "name": m.name, "doc": m.doc, "states_name": m.states.__name__,
            "states": [[state.name, state.value if isinstance(state.value, str) else ""] for state in m.states],
            "param": _params(m.params)[0] if m.params else None, "control": self.pool.tree(m.control),
            "chart": None if laid_out is None else self.pool.put("charts", laid_out),
        }  # fmt: skip

    def _property(self, system: System, p: Property) -> Json:
        claim = system.declarations().get(p.name)
        return {
            "name": p.name, "form": p.form.value, "doc": p.doc, "cite": p.cite, "params": _params(p.params),
            "within": p.within,
            "exprs": [self.pool.tree(x) for x in p.exprs],
            "conditions": {name: self.pool.tree(x) for name, x in (p.conditions or {}).items()},
            "witness": p.witness, "needs": list(claim.needs) if isinstance(claim, Claim) else [],
        }  # fmt: skip

    # ---- results

    def _run(self, number: int, result: Result) -> Json:
        run, place = result.run, self.system(result.choice)
        results = []
        for prop in run["properties"]:
            found = prop["counterexample"]
            trace = None if found is None else self._counterexample(number, place, run, prop)
            results.append({
                "name": prop["name"], "status": prop["status"], "judgement": prop["judgement"],
                "findings": prop["findings"], "trace": trace,
            })  # fmt: skip
        names = ("number", "label", "faults", "max_faults", "engine", "states", "edges", "depth", "seconds", "complete")
        return {**{name: run[name] for name in names}, "stopped": run["stopped"], "system": place, "results": results}

    def _counterexample(self, number: int, place: int, run: Mapping[str, Any], prop: Mapping[str, Any]) -> int:
        found, system = prop["counterexample"], self.built[place]
        cells = {cell.name: cell for cell in system.cells}
        start = {name: _value(cells[name], text) for name, text in found["initial"].items() if name in cells}
        return self._trace(system, place, {
            "kind": "counterexample", "title": prop["name"], "faults": run["faults"], "max_faults": run["max_faults"],
            "run": number, "property": prop["name"], "findings": prop["findings"], "notes": [],
            "steps": [step["label"] for step in found["steps"]], "loop": found["loop"], "breaks": None,
            "lanes": [], "set": {},
        }, start)  # fmt: skip

    def _walk(self, shown: Shown) -> None:
        place, choice = self.system(shown.choice), shown.choice
        self._trace(self.built[place], place, {
            "kind": shown.kind, "title": shown.title, "faults": dict(choice.faults), "max_faults": choice.max_faults,
            "run": None, "property": shown.property, "findings": list(shown.findings), "notes": list(shown.notes),
            "steps": list(shown.steps), "loop": shown.loop, "breaks": shown.breaks,
            "lanes": list(shown.lanes),
            "set": {step: [*map(list, cells.items())] for step, cells in shown.set.items()},
        }, shown.start)  # fmt: skip

    def _trace(self, system: System, place: int, trace: Json, start: Mapping[str, int]) -> int:
        if len(trace["steps"]) > STEPS_MAX:
            raise UsageError(f"a walk of {len(trace['steps']):,} steps: a page shows at most {STEPS_MAX:,}")
        budget = {system.fault_counter(fault) for fault in system.faults}
        unknown = sorted(set(start) - set(system.positions))
        if unknown:
            raise UsageError(f"{system.label} has no cell {unknown[0]!r} for a walk to begin with")
        first = next(beginnings(system.cells, system.initial_condition))
        other = [
            [name, value]
            for name, value in start.items()
            if value != first[system.positions[name]] and name.partition("[")[0] not in budget
        ]
        self.traces.append({**trace, "system": place, "start": other})
        return len(self.traces) - 1

    # ---- findings

    def _finding(self, finding: Finding, runs: Iterable[Json], installed: bool | None) -> Json:
        shown = [
            (run, result) for run in runs for result in run["results"] if finding.number in result["findings"]
        ]  # fmt: skip
        systems = [self.systems[run["system"]] for run, _ in shown]
        return {
            "number": finding.number, "name": finding.name, "title": finding.title, "seen": finding.seen,
            "exposed": finding.exposed, "workaround": finding.workaround, "remedy": finding.remedy,
            "releases": releases.span(finding), "since": finding.since, "until": finding.until,
            "installed": installed,
            "editions": list(dict.fromkeys(f"{s['title']} {s['edition']}".strip() for s in systems)),
            "violates": list(dict.fromkeys(result["name"] for _, result in shown)),
            "trace": self._showcase(finding), "replay": f"trystate replay {finding.number}",
        }  # fmt: skip

    def _showcase(self, finding: Finding) -> int | None:
        """The walk that shows a finding best: the finding alone, on torch's edition, and the shortest."""
        found = [
            (len(t["findings"]), not self.systems[t["system"]]["edition"].startswith("TORCH"), len(t["steps"]), k)
            for k, t in enumerate(self.traces)
            if finding.number in t["findings"]
        ]
        return min(found)[-1] if found else None


def _finite(system: System) -> Json:
    """The values of each sort, other than an index, that a field or a step is per."""
    params = [p for t in system.transitions for p in t.params] + [v for p in system.properties for v in p.params]
    sorts = dict.fromkeys((*(d for slot in system.slots.values() for d in slot.dims), *(p.sort for p in params)))
    found: dict[str, list[str]] = {}
    for sort in sorts:
        if sort.kind != "index":
            values = [sort.show(k) for k in range(sort.size)]
            if found.setdefault(dimension(sort), values) != values:
                raise UsageError(f"{system.label} has two enums {dimension(sort)}, and a page one: rename one of them")
    return {"finite": found} if found else {}


def _begins(system: System) -> Json:
    """The list of initial states, if they are not the product of the fields' initial values."""
    if system.initial_condition is TRUE and not any(slot.own for slot in system.slots.values()):
        return {}
    states = [*islice(beginnings(system.cells, system.initial_condition), BEGINS_MAX + 1)]
    if len(states) > BEGINS_MAX:
        raise UsageError(f"{system.label} has more than {BEGINS_MAX:,} initial states, which a page lists: allow fewer")
    return {"begins": states}


def first_line(text: str | None) -> str:
    """The first line of a docstring."""
    return (text or "").strip().split("\n")[0]


def _bounds(cls: type[System]) -> dict[str, int]:
    """The faults of a system, in any edition, and how often each may happen."""
    rules = (value for value in cls.all_declarations().values() if isinstance(value, Rule) and value.fault)
    return {rule.fault: rule.bound for rule in rules}


def _whole_faults(choice: Choice) -> dict[str, int]:
    return {**_bounds(choice.cls), **choice.faults}


def _noted(choice: Choice, faults: Mapping[str, int]) -> tuple[System, Mapping[Expr, Decision]]:
    with noting() as decisions:
        return _build(choice, faults), decisions


@contextmanager
def _reads_of_faults() -> Iterator[list[bool]]:
    """Of each read of `self.faults` meanwhile, whether a declaration has it: trees may then depend on the faults."""
    read: list[bool] = []

    def faults(system: System) -> Any:
        read.append(not source.is_ours(sys._getframe(1).f_code.co_filename))
        return vars(system)["faults"]

    System.faults = property(faults, lambda system, given: vars(system).update(faults=given))  # type: ignore[assignment]
    try:
        yield read
    finally:
        del System.faults  # type: ignore[misc]


def _key(choice: Choice, faults: Mapping[str, int]) -> tuple[object, ...]:
    return (choice.cls, choice.edition, *sorted(choice.sizes.items()), *sorted(faults.items()), choice.max_faults)


def _build(choice: Choice, faults: Mapping[str, int] | None = None) -> System:
    given = choice.faults if faults is None else faults
    return choice.cls(
        edition=choice.edition, faults=[*given] if choice.max_faults is not None else dict(given),
        max_faults=choice.max_faults, **choice.sizes,
    )  # fmt: skip


def _agree(whole: System, own: System) -> bool:
    """Whether a system with some faults is the one with all of them, without the steps of the others."""
    steps = [t for t in whole.transitions if not t.fault or t.fault in own.faults]
    claims = whole.declarations()
    asked = [p for p in whole.properties if set(claims[p.name].needs) <= set(own.faults)]
    return _trees(whole, steps, asked) == _trees(own, own.transitions, own.properties)


def _trees(system: System, steps: Sequence[Transition], claims: Sequence[Property]) -> list[object]:
    """The trees of a system with these steps and properties, by identity: equal trees are one object."""
    names = {t.name for t in steps}
    return [
        [
            id(tree)
            for tree in (system.terminal, system.initial_condition, *(m.control for m in system.machines.values()))
        ],
        [(t.name, [*map(id, t.conditions)], {name: id(x) for name, x in t.effects.items()}) for t in steps],
        [
            (p.name, [*map(id, p.exprs)], {name: id(x) for name, x in (p.conditions or {}).items() if name in names})
            for p in claims
        ],
    ]


def _whole(decision: Decision) -> bool:
    """Whether it is outside quantifiers, whose indices have no value."""
    return not any(v.role is Role.LOOP for atom in decision.atoms.values() for v in atom.free)


def _id(choice: Choice, system: System, fixed: bool) -> str:
    """The name of a system in links: its name, edition, sizes and unusual bounds; of a fixed system its faults too."""
    edition = choice.edition.name if choice.edition is not None else ""
    parts = [choice.name, edition, "-".join(map(str, system.sizes.values()))]
    usual = {} if system.max_faults is not None else _bounds(choice.cls)
    others = [f"{name}={n}" for name, n in system.faults.items() if usual.get(name, n) != n]
    if fixed:
        together = f"any{system.max_faults}" if system.max_faults is not None else ""
        parts.append("+".join(filter(None, (together, *system.faults))) or "none")
    parts += others
    return ".".join(filter(None, parts))


def _params(params: tuple[Expr, ...]) -> list[list[str]]:
    return [[p.name, dimension(p.sort)] for p in params]


def _at(line: str) -> str:
    """The line of a source, below the house or by its file's name: a page holds no path of the machine that made it."""
    path, _, number = line.rpartition(":")
    place = Path(path)
    shown = place.relative_to(HOUSE).as_posix() if place.is_relative_to(HOUSE) else place.name
    return f"{shown}:{number}"


def _value(cell: Cell, text: str) -> int:
    if cell.sort.kind == "bool":
        return int(text == "yes")
    return cell.sort.labels.index(text) if cell.sort.labels else -1 if text == "none" else int(text)


def _message(one: Message) -> Json:
    """A row of the messages; a text is the list of its fixed parts."""
    causes = [{"sign": c.sign, "why": c.why, "remedy": c.remedy, "findings": [*c.findings]} for c in one.causes]
    return {
        "name": one.name, "texts": [[*text.parts] for text in TEXTS[one.name]], "kind": one.kind.value,
        "meaning": one.meaning, "causes": causes, "next": one.next, "beyond": one.beyond,
    }  # fmt: skip


def _comparison(one: Mapping[str, Any]) -> Json:
    """A comparison of `report.json` in words."""
    skipped = one.get("skipped") or one.get("stopped")
    if skipped:
        return {"name": one["name"], "told": skipped, "agrees": None}
    wrong = one["disagreements"]
    of = f" of {one['of']:,}" if one.get("of") else ""
    told = f"{one['compared']:,}{of} {one['unit']}" + (f": {'; '.join(wrong[:3])}" if wrong else "")
    return {"name": one["name"], "told": told, "agrees": not wrong}

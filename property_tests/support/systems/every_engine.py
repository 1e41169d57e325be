"""One system in every engine and export: they count the same states and decide the same."""

from __future__ import annotations

from pathlib import Path

from trystate.model.checker.check import check
from trystate.model.checker.export.promela import promela
from trystate.model.checker.export.tla import tla
from trystate.model.checker.verdicts import Report
from trystate.model.language import System
from trystate.page.contents import Choice

from ..export import spin, tlc
from ..page import Pair, ask, exported
from ..runs import AVAILABLE

STATES_MAX = 100_000


def assert_engines_agree(system: System) -> Report:
    """The engines of Python count the same states and steps, and give the same verdicts; the report of the last."""
    reports = [check(system, engine=engine) for engine in AVAILABLE]
    found = [(r.exploration.distinct, r.exploration.edges, r.exploration.depth) for r in reports]
    assert len({*found}) == 1, dict(zip(AVAILABLE, found, strict=True))
    assert len({tuple((v.property.name, v.status) for v in r.verdicts) for r in reports}) == 1
    return reports[-1]


def assert_exports_agree(system: System, folder: Path) -> None:
    """Spin and TLC count the states of the system and decide its properties as the engines do."""
    report = check(system)
    spin.require_spin()
    assert spin.differences(report, spin.verify(promela(system), folder)) == []
    always = [v.property.name for v in report.verdicts if v.property.form.name == "ALWAYS"]
    seen = tlc.explore(tla(system, always, "Exported"), folder, tlc.tlc_jar())
    assert (seen.violated, seen.states) == ("", report.exploration.distinct)


def assert_page_agrees(system: System, engine: Path) -> None:
    """The page's engine finds the states of the system, and in each the steps and the properties that hold."""
    data = exported([Choice.of(system, "named")])
    pair = Pair(data, 0, system)
    trees = [tree for t in system.transitions for tree in (*t.conditions, *t.effects.values())]
    steps = [data["transitions"][k] for k in pair.written["transitions"]]
    nodes = [node for t in steps for node in (*t["conditions"], *t["effects"].values())]
    answer, texts = ask(engine, data, [pair.question(states=STATES_MAX), pair.question(texts=nodes)])
    assert texts == list(map(str, trees))
    assert answer["labels"] == [i.label for i in pair.interpreter.kernel.instances]
    assert len(answer["states"]) == check(system).exploration.distinct
    for found in answer["states"]:
        assert found == pair.expected(pair.to_python(found["state"]))

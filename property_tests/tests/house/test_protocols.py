"""docs/protocols.md: its cells are verdicts of properties that exist, and its requests are counted again."""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trystate import registry
from trystate.__main__ import main
from trystate.model.nvrx.barrier import NvrxBarrier
from trystate.property_tests.adapters.nvrx import shipped
from trystate.property_tests.adapters.simulator.handlers import SUBJECTS, crowd

DOCS = Path(__file__).resolve().parents[3] / "docs"
CONNECTION = "open"  # is not a request

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="needs a clone: a wheel has no docs")


@pytest.fixture(scope="module")
def tool() -> Iterator[SimpleNamespace]:
    """The names of docs/protocols.py."""
    sys.path.insert(0, str(DOCS))
    yield SimpleNamespace(**runpy.run_path(str(DOCS / "protocols.py")))
    sys.path.remove(str(DOCS))


def unknown(tool: Any) -> Iterator[str]:
    """The properties of docs/protocols.toml that do not exist, and the keys that a protocol lacks."""
    rows, protocols = tool.declared()
    for name, one in protocols.items():
        if one.keys() != {*rows, "title", "system", "requests"}:
            yield f"{name}: {one.keys() ^ {*rows, 'title', 'system', 'requests'}}"
        for key in rows:
            if isinstance(one[key], list):
                system, edition, names = tool.asked_of(one, one[key])
                built = system(edition=edition, faults=registry.fault_bounds(system))
                known = {each.name for each in built.properties} | {"deadlock_freedom"}
                yield from (f"{name}: {each}" for each in names if each not in known)


def test_every_property_of_the_table_exists(tool: Any) -> None:
    assert [*unknown(tool)] == []


def test_a_property_that_does_not_exist_is_found(tool: Any) -> None:
    rows, protocols = tool.declared()
    wrong = {**protocols, "torch": {**protocols["torch"], "stay": ["live_nodes_leave"]}}
    changed = SimpleNamespace(declared=lambda: (rows, wrong), asked_of=tool.asked_of)
    assert [*unknown(changed)] == ["torch: live_nodes_leave"]


def test_a_cell_shows_the_worst_of_its_verdicts(tool: Any, tmp_path: Path) -> None:
    run = next(run for run in registry.plan() if run.label.startswith("Rendezvous(node=2, min_nodes=1, max_nodes=2"))
    sizes = ["--nodes", "2", "--min", "1", "--max", "2"]
    written = ["--out", str(tmp_path), "--json", str(tmp_path / "report.json")]
    main(["verify", "rendezvous", "--edition", "TORCH", *sizes, *written])
    (found,) = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["runs"]
    claims = {each["name"]: each for each in found["properties"]}
    checked = SimpleNamespace(run=run, found=found, claims=claims, is_idle=lambda name: False)

    def cell(*names: str, proved: tuple[str, ...] = ()) -> str:
        one, proofs = {"system": "rendezvous TORCH", "row": [*names]}, {"Rendezvous TORCH": proved}
        shown: str = tool._cell(one, "row", [checked], proofs)
        return shown

    assert cell("at_most_max") == "holds at the sizes searched: 2 nodes, up to 221 states"
    assert cell("at_most_max", proved=("at_most_max",)) == "holds for any size"
    steps = len(claims["agree_on_master"]["counterexample"]["steps"])
    wanted = rf"\*\*violated\*\*: \[R2\]\(findings\.md#r2-stale-master\) in {steps} steps"
    assert re.fullmatch(wanted, cell("at_most_max", "agree_on_master"))
    assert cell("agree_on_master", "two_return").startswith("**violated**: `two_return` is reached; [R2](")


@pytest.mark.parametrize(("name", "subject"), [("torch", "torch"), ("documents", "ours"), ("rooms", "rooms")])
def test_the_requests_of_a_round_are_counted_again(tool: Any, name: str, subject: str) -> None:
    runs = (crowd(size, SUBJECTS[subject]) for size in tool.NODES)
    counted = [sum(run.asked.values()) - run.asked.get(CONNECTION, 0) for run in runs]
    assert counted == tool.declared()[1][name]["requests"]


@pytest.mark.skipif(shipped.problem() is not None, reason=str(shipped.problem()))
def test_the_requests_of_nvrxs_file_are_counted_again(tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("greenlet", reason="launchers are greenlets")
    from trystate.property_tests.adapters.nvrx.nodes import Job, Process
    from trystate.property_tests.adapters.nvrx.replaying import settle, told

    asked, operate = list[str](), Process._operate

    def noted(process: Process, name: str, *given: Any) -> Any:
        asked.append(name)
        return operate(process, name, *given)

    monkeypatch.setattr(Process, "_operate", noted)
    counted = []
    for size in tool.NODES:
        job = Job(NvrxBarrier(node=size, slot=size, world=size, most=size))
        asked.clear()
        job.reset()
        settle(job)
        assert [*told(job)] == [f"machine {number}: rank {number}" for number in range(size)]
        counted.append(len(asked))
    assert counted == tool.declared()[1]["nvrx"]["requests"]

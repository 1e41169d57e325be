"""The commands that write a page: what is in it, and what they refuse."""

from __future__ import annotations

import base64
import json
import re
import webbrowser
import zlib
from pathlib import Path
from typing import Any

import pytest

from trystate import registry
from trystate.exits import Exit
from trystate.property_tests.support.recorded import unpacked
from trystate.property_tests.tests.command_line.setting import HERE, Command, says
from trystate.report.page import contents

BYTES_MAX = 2_000_000


def data_of(page: Path) -> Any:
    """The data in a page."""
    text = page.read_text(encoding="utf-8")
    assert len(text.encode()) <= BYTES_MAX
    found = re.search(r'<script type="application/json" id="data" data-form="(\w+)">([^<]*)</script>', text)
    assert found is not None
    packed = found[2].encode()
    return json.loads(zlib.decompress(base64.b64decode(packed)) if found[1] == "deflate" else packed)


def test_verify_writes_a_page_that_needs_nothing_beside_itself(command: Command, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert command("verify", HERE, "--edition", "BROKEN", "--html", str(page))[0] == Exit.FAILED
    skeleton = page.read_text(encoding="utf-8").partition('id="data"')[0]
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#)|@import|url\((?!["']?data:)""", skeleton)
    data = data_of(page)
    (run,) = data["runs"]
    assert (data["systems"][run["system"]]["name"], data["view"]) == (HERE, "#/overview")
    (broken,) = [result for result in run["results"] if result["status"] == "violated"]
    assert data["traces"][broken["trace"]]["property"] == broken["name"] == "one_at_a_time"


ROOMS = """
import enum
from trystate.language import System, flag
E = enum.Enum("E", "TORCH OURS")
class Room(System, deadlock=False): Edition, light = E, flag()
class Ours(Room, edition=E.OURS): heat = flag()
"""


def test_a_class_of_one_edition_is_built_as_it_and_has_its_own_page(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("rooms_1", "rooms_2"):
        Path(f"{name}.py").write_text(ROOMS)
    monkeypatch.syspath_prepend(Path.cwd())
    names = ["rooms_1:Room", "rooms_1:Ours", "rooms_2:Ours"]
    says(command, Exit.OK, "verify", *names, "--html", "page.html")
    found = [(each["name"], each["edition"], len(each["slots"])) for each in data_of(tmp_path / "page.html")["systems"]]
    assert found == [*zip(names, ("TORCH", "OURS", "OURS"), (1, 2, 2), strict=True)]
    says(command, Exit.OK, "diagram", "rooms_1:Ours", "--out", "here")
    assert "no edition 'TORCH'" in says(command, Exit.USAGE, "explore", "rooms_1:Ours", "--edition", "TORCH")


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (None, "report.json cannot be read: .*; give the folder of trystate verify --out"),
        ("{}", "report.json cannot be read: 'trystate'; give the folder of trystate verify --out"),
        (
            '{"trystate": "0.1.0", "runs": [{"system": "Elsewhere", "properties": []}]}',
            "the report has a system 'Elsewhere' that trystate does not have: write its page with trystate",
        ),
    ],
)
def test_page_refuses_what_is_no_report(command: Command, tmp_path: Path, report: str | None, why: str) -> None:
    if report is not None:
        (tmp_path / "report.json").write_text(report)
    assert re.search(why, says(command, Exit.USAGE, "page", str(tmp_path / "page.html"), "--report", str(tmp_path)))
    assert not (tmp_path / "page.html").exists()


def test_explore_opens_a_page_of_ones_own_system_and_a_counterexample(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    page = tmp_path / "page.html"
    assert command("explore", HERE, "--edition", "BROKEN", "--fault", "relapse", "--web", str(page))[0] == Exit.OK
    assert opened == [page.as_uri()]
    data = data_of(page)
    (system,) = data["systems"]
    assert (system["name"], system["edition"]) == (HERE, "BROKEN")
    assert re.fullmatch(r"#/explore/[^/]+Lock\.BROKEN\.2-1-2/relapse", data["view"])
    command("explore", HERE, "--edition", "BROKEN", "--counterexample", "one_at_a_time", "--web", str(page))
    data = data_of(page)
    assert data["view"] == "#/trace/0"
    assert [trace["property"] for trace in data["traces"]] == ["one_at_a_time"]


def test_explain_writes_a_page_of_the_recorded_run(command: Command, tmp_path: Path) -> None:
    record, page = tmp_path / "job.jsonl", tmp_path / "page.html"
    record.write_bytes(unpacked("torch-R1"))
    code, _, err = command("explain", str(record), "--html", str(page))
    assert (code, "the page is" in err) == (Exit.FAILED, True)
    data = data_of(page)
    (trace,) = data["traces"]
    assert (trace["kind"], trace["property"], trace["findings"]) == ("recorded", "members_learn_the_master", ["R1"])
    assert trace["lanes"] == ["127.0.0.2_32369_0", "127.0.0.3_32594_0"]
    assert {"return_to_connect(1)", "crash(0)"} <= {*trace["steps"]}
    assert all("job.jsonl:" in note for note in trace["notes"])
    assert str(tmp_path) not in json.dumps(data)


def test_a_page_knows_each_planned_system_by_a_name_that_a_command_takes() -> None:
    for cls, name in registry.planned_names().items():
        assert registry.system_class(name) is cls
    run = next(run for run in registry.plan() if run.system not in registry.SYSTEMS.values())
    row = {"system": run.system.__name__, "edition": "TRYSTATE", "sizes": run.sizes, "faults": {}, "max_faults": None}
    report = {"runs": [{**row, "properties": []}], "summary": "", "conformance": []}
    assert [result.choice.cls for result in contents(report).results] == [run.system]

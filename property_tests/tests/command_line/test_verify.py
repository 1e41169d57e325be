"""`trystate verify` compares each property with the declared findings, returns the exit code, and writes its report."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from trystate import registry
from trystate.check import check
from trystate.exits import Exit
from trystate.model.checker.expectations import Run
from trystate.model.errors import LimitReached, UsageError
from trystate.model.language import Expr, SymbolicState, transition
from trystate.property_tests.harness.checks import Check, Outcome
from trystate.property_tests.support.systems.lock import Edition, Lock, Where
from trystate.property_tests.support.systems.wide_systems import Counters
from trystate.property_tests.tests.command_line.setting import (
    AGREES,
    BROKEN,
    DIFFERS,
    HERE,
    KNOWN,
    MENDED,
    WHOLE,
    Command,
    report,
    says,
)
from trystate.report.files import Places
from trystate.report.junit import results_junit
from trystate.report.results import Compared, Results
from trystate.search import plans

# ---- verify: the plan


def test_the_small_plan_has_the_cheapest_run_of_each_finding(
    command: Command, plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    larger = Run(Lock, {"node": 3, "max_nodes": 3}, Edition.BROKEN, ("relapse",), KNOWN)
    monkeypatch.setattr(plans, "states", lambda: {larger.label: 54, BROKEN.label: 18, MENDED.label: 8})
    plan(larger, BROKEN, MENDED)
    assert command("verify", "--jobs", "1")[0] == Exit.OK
    assert [(run["edition"], run["sizes"]["node"]) for run in report()["runs"]] == [("BROKEN", 2), ("MENDED", 2)]
    assert command(*WHOLE)[0] == Exit.OK
    assert len(report()["runs"]) == 3


IDLE = """
from trystate.language import *
class Lamp(System):
    node = index(2)
    lit = flag(per="node")
    @transition()
    def light(self, s, node): s.when(~s.lit[node]); s.lit[node] = True
    @transition()
    def dim(self, s, node):
        s.when(s.lit[node], ~s.lit[node])
        s.lit[node] = False
    @transition()
    def blow(self, s): s.when(s.lit.all()); s.lit[0] = {last}
"""


def test_steps_that_never_happen_in_a_system_of_a_user_are_named(command: Command) -> None:
    Path("lamp.py").write_text(IDLE.format(last=False), encoding="utf-8")
    assert "\nLamp(node=2): never happens: dim\n" in command("verify", "lamp:Lamp")[1]
    assert "never happens" not in command("verify", "lamp:Lamp", "--max-states", "1")[1], "not all states were visited"
    assert "never happens" not in command("verify", HERE)[1]


NO_TORCH = "torch is not installed: pip install 'trystate[torch]'"
PLANS: dict[str, tuple[tuple[Run, ...], dict[str, Any], Exit, tuple[str, ...]]] = {
    "an undeclared violation": (
        (Run(Lock, {"node": 2}, Edition.BROKEN, ("relapse",)),), {}, Exit.FAILED,
        ("one_at_a_time: violated: Never two inside. (the counterexample has 2 steps)", "barge_in(1)"),
    ),
    "a declared finding that is not found": (
        (replace(MENDED, findings=KNOWN),), {}, Exit.FAILED,
        ("one_at_a_time: known violation not found: holds, but it is known as R1 two-inside",),
    ),
    "a comparison of nothing": (
        (MENDED,), {"checks": (Check("empty", lambda report: Outcome(0, "edges", (), 0.0)),)}, Exit.FAILED,
        ("conformance: empty: nothing was compared", "1 conformance disagreement\n"),
    ),
    "comparisons without torch": (
        (MENDED,), {"problem": NO_TORCH}, Exit.OK, (f"SKIPPED: {NO_TORCH}", "1 comparison skipped"),
    ),
    "an empty plan": ((), {}, Exit.INCOMPLETE, ()),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_judged_by_what_is_declared_and_compared(command: Command, plan: Any, name: str) -> None:
    runs, found, expected, said = PLANS[name]
    plan(*runs, **found)
    out = says(command, expected, *WHOLE)
    assert [text for text in said if text not in out] == []


def test_a_transition_that_fires_in_no_run_exits_with_1(command: Command, plan: Any) -> None:
    plan(Run(Lock, {"node": 1, "min_nodes": 1}, Edition.MENDED, idle=("somebody_enters",)), MENDED)
    assert command(*WHOLE)[0] == Exit.FAILED  # the property is declared idle, but a node enters

    class Barred(Lock):
        """A lock that no node can open a second time."""

        @transition(each="node")
        def knock(self, s: SymbolicState, node: Expr) -> None:
            """Nothing that can happen."""
            s.when(s.at[node] == Where.INSIDE, s.at[node] == Where.GONE)
            s.at[node] = Where.GONE

    plan(Run(Barred, {}, Edition.MENDED))
    assert "coverage: Barred MENDED: knock fired in no run" in says(command, Exit.FAILED, *WHOLE)
    assert report()["gaps"] == [{"system": "Barred", "edition": "MENDED", "never_fired": ["knock"], "unreached": []}]


def test_a_conformance_disagreement_exits_with_1_and_is_named(command: Command, plan: Any) -> None:
    plan(MENDED, checks=(AGREES, DIFFERS))
    assert "conformance: edges: step 3: the model says A, torch B" in says(
        command, Exit.FAILED, *WHOLE, "--junit", "all.xml"
    )
    assert report()["conformance"][1]["disagreements"] == ["step 3: the model says A, torch B"]
    assert len(ElementTree.parse("all.xml").findall("testsuite[@name='conformance']/testcase/failure")) == 1


@pytest.mark.parametrize(
    ("limit", "why"),
    [(MemoryError(), "no more memory"), (LimitReached("Graph(n=9): stopped at 3 states"), "stopped at 3 states")],
)
def test_a_comparison_that_meets_a_limit_leaves_the_report_of_all_else(
    command: Command, plan: Any, limit: Exception, why: str
) -> None:
    def stops(_: object) -> Outcome:
        raise limit

    plan(BROKEN, checks=(Check("edges", stops),))
    out = says(command, Exit.INCOMPLETE, "verify", "--junit", "all.xml")
    assert f"NOT DECIDED: {why}" in out.replace("Graph(n=9): ", "") and "conformance not decided" in out
    found = report()
    assert {p["judgement"] for p in found["runs"][0]["properties"]} == {"holds", "violated, known"}
    assert why in found["conformance"][0]["stopped"]
    assert "not decided" in Path("trystate-report/report.md").read_text()
    assert 'type="not decided"' in Path("all.xml").read_text()


def test_a_command_whose_memory_ends_is_incomplete_and_no_internal_error(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends() -> None:
        raise MemoryError

    monkeypatch.setattr(registry, "plan", ends)
    assert command("verify") == (Exit.INCOMPLETE, "", "trystate: no more memory: free some, or ask for less\n")


# ---- what verify writes


def test_the_report_has_each_counterexample_in_every_format(command: Command) -> None:
    Path("copy").mkdir()
    assert command(*WHOLE, "--json", "copy/all.json", "--junit", "all.xml")[0] == Exit.OK
    found = report()
    assert json.loads(Path("copy/all.json").read_text()) == found
    run = found["runs"][0]
    assert (run["states"], run["complete"]) == (9 * 2, True)
    assert run["sizes"] == {"node": 2, "min_nodes": 1, "max_nodes": 2}
    prop = next(p for p in run["properties"] if p["name"] == "one_at_a_time")
    assert (prop["status"], prop["judgement"], prop["findings"]) == ("violated", "violated, known", ["R1"])
    steps = prop["counterexample"]["steps"]
    assert sorted(s["label"] for s in steps) == ["barge_in(0)", "barge_in(1)"]
    who = steps[0]["label"][-2]
    assert steps[0]["changes"] == [{"cell": f"at[{who}]", "old": "OUTSIDE", "new": "INSIDE"}]
    endings = {Path(f).name.partition(".")[2] for f in prop["counterexample"]["files"]}
    assert endings == {"dot", "itf.json", "mmd", "svg", "txt"}
    assert all((Path("trystate-report") / f).is_file() for f in found["files"])
    assert "(01-lock-broken/one_at_a_time.svg)" in Path("trystate-report/report.md").read_text()


def test_the_itf_trace_gives_every_variable_in_every_state(command: Command) -> None:
    command(*WHOLE)
    trace = json.loads(Path("trystate-report/01-lock-broken/one_at_a_time.itf.json").read_text())
    assert trace["vars"] == ["at", "relapse_left"]
    assert all(set(trace["vars"]) < set(state) for state in trace["states"])
    assert trace["states"][0]["#meta"] == {"index": 0, "action": "initially"}
    assert trace["states"][2]["at"] == {"#map": [[0, "INSIDE"], [1, "INSIDE"]]}
    assert {state["#meta"]["action"] for state in trace["states"][1:]} == {"barge_in(0)", "barge_in(1)"}
    assert "loop" not in trace


def test_junit_has_one_test_case_per_run_and_property(command: Command, plan: Any) -> None:
    plan(Run(Lock, {"node": 2}, Edition.BROKEN, ("relapse",)), MENDED)
    command(*WHOLE, "--junit", "all.xml")
    first, second, conformance = ElementTree.parse("all.xml").getroot().findall("testsuite")
    assert [case.get("name") for case in first] == [
        "one_at_a_time", "somebody_enters", "everybody_leaves", "deadlock_freedom",
    ]  # fmt: skip
    assert (first.get("tests"), first.get("failures"), second.get("failures")) == ("4", "1", "0")
    failure = first.find("testcase[@name='one_at_a_time']/failure")
    assert failure is not None
    assert "barge_in(1)" in (failure.text or "")
    assert conformance.get("name") == "conformance"
    command("verify", HERE, "--engine", "explicit", "--symmetry", "--edition", "MENDED", "--junit", "all.xml")
    assert len(ElementTree.parse("all.xml").findall("testsuite/testcase/error")) == 1


def test_junit_has_no_character_that_xml_lacks() -> None:
    wrong = Compared(name="control", outcome=Outcome(1, "steps", ("at\x1b[0m\x00\ud800",), 0.0))
    assert "at\ufffd[0m" in results_junit(Results(checked=[], compared=[wrong]))
    ElementTree.fromstring(results_junit(Results(checked=[], compared=[wrong])).partition("?>")[2])


def test_a_report_of_another_program_and_a_link_stay(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("mine")
    (tmp_path / "report.json").write_text('{"tool": "other", "files": ["mine.py"]}')
    (tmp_path / "link").symlink_to(tmp_path / "mine.py")
    (tmp_path / "dangling").symlink_to(tmp_path / "new.xml")
    Places(tmp_path, json=tmp_path / "link", junit=tmp_path / "dangling").prepare()
    assert (tmp_path / "mine.py").read_text() == "mine" and (tmp_path / "link").is_symlink()
    assert (tmp_path / "dangling").is_symlink() and not (tmp_path / "dangling").exists()


def test_a_new_report_removes_what_the_old_one_wrote_and_nothing_else(command: Command) -> None:
    command(*WHOLE)
    old = Path("trystate-report/01-lock-broken/one_at_a_time.txt")
    notes = Path("trystate-report/notes.txt")
    notes.write_text("mine")
    outside = Path("outside.txt")
    outside.write_text("not ours")
    listed = report()
    listed["files"].append("../outside.txt")
    Path("trystate-report/report.json").write_text(json.dumps(listed))
    assert old.is_file()
    command("verify", HERE, "--edition", "MENDED")
    assert not old.parent.exists()
    assert notes.is_file() and outside.is_file()


# ---- how verify runs


def hear_ctrl_c() -> None:
    """Make Ctrl-C interrupt this process, which ignores it if the tests run in the background of a shell."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(
    ("sent", "code", "jobs"), [(signal.SIGINT, Exit.INTERRUPTED, "2"), (signal.SIGTERM, Exit.TERMINATED, "1")]
)
def test_a_signal_leaves_a_report_of_what_was_done_and_says_so(
    tmp_path: Path, sent: signal.Signals, code: Exit, jobs: str
) -> None:
    systems = (f"{Lock.__module__}:Waltz", f"{Counters.__module__}:Counters")
    often = "import sys; from trystate import progress; from trystate.__main__ import main; progress.LINE_SECONDS = 0.1"
    argv = [sys.executable, "-c", f"{often}; sys.exit(main(sys.argv[1:]))", "verify", *systems, "--jobs", jobs]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, cwd=tmp_path, preexec_fn=hear_ctrl_c, **pipes) as process:
        assert process.stderr is not None
        assert any("1 of 2 done" in line for line in process.stderr)
        process.send_signal(sent)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    found = json.loads((tmp_path / "trystate-report" / "report.json").read_text())
    assert [run["system"] for run in found["runs"]] == ["Waltz"]
    assert found["interrupted"] == sent.name
    assert len(found["left"]) == 1 and found["left"][0].startswith("Counters(")
    assert f"1 not done: ended by {sent.name}" in out


PLACES = {
    "verify": ("--out", "--json", "--junit", "--html"),
    "page": ("OUT.html",),
    "diagram": ("--out",),
    f"export {HERE} --to promela": ("--out",),
    f"export {HERE} --to smt2": ("--out",),
    f"explore {HERE} --counterexample one_at_a_time": ("--web",),
    "explain torch-R1.jsonl": ("--html", "--diagram"),
}


@pytest.mark.parametrize(("line", "option"), [(line, option) for line, options in PLACES.items() for option in options])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    command: Command, monkeypatch: pytest.MonkeyPatch, line: str, option: str
) -> None:
    Path("taken").write_text("")
    for work in (
        "searching.searched", "page._search", "diagram.diagrams.generate", "diagram._runs", "export.promela",
        "export.prove.proved", "explore.decided", "rendezvous.Runs",
    ):  # fmt: skip
        monkeypatch.setattr(f"trystate.commands.{work}", None)
    before = set(Path().rglob("*"))
    argv = [*line.split(), *([option] if option.startswith("--") else [])]
    for place, why in (
        ("taken/below", "Not a directory;"),
        ("mistyped/reports/below", "there is no folder mistyped: make it, or"),
    ):
        code, _, err = command(*argv, place)
        said = f"trystate: cannot write {place}: {why} choose another {option}"
        assert (code, err.splitlines()[-1]) == (Exit.USAGE, said)
    assert set(Path().rglob("*")) - before <= {Path("trystate-report")}


def test_a_printed_report_tells_each_verdict_and_each_counterexample() -> None:
    lines = str(check(Lock(node=2, edition="BROKEN"))).splitlines()
    assert lines[0].startswith("Lock(node=2, min_nodes=1, max_nodes=2) BROKEN: 9 states")
    assert lines[1].split() == ["one_at_a_time", "violated"]
    assert "      at[0]: OUTSIDE → INSIDE" in lines
    expected = check(Lock(node=2, edition="BROKEN"), expect={"one_at_a_time": "nobody looks", "everybody_leaves": ""})
    assert "violated, expected: nobody looks" in str(expected)
    assert (expected.violated, [v.property.name for v in expected.missing]) == ([], ["everybody_leaves"])
    with pytest.raises(UsageError, match="has no property 'nothing'"):
        check(Lock(), expect={"nothing": ""})


def test_the_small_plan_is_chosen_by_what_the_whole_one_found() -> None:
    runs = registry.plan()
    assert set(plans.states()) == {run.label for run in runs}  # docs/generate.py rewrites them
    small = plans.small(runs)
    assert sum(map(plans.cost, small)) < sum(map(plans.cost, runs)) / 5
    assert {(run.system, run.edition) for run in small} == {(run.system, run.edition) for run in runs}
    assert {f for run in small for fs in run.findings.values() for f in fs} == {
        f for run in runs for fs in run.findings.values() for f in fs
    }

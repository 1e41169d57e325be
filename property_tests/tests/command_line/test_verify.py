"""`trystate verify` judges each property by what is known, exits with what that means, and writes its report."""

import importlib
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from trystate import registry
from trystate.check import check
from trystate.exits import Exit
from trystate.model.checker.expectations import Run
from trystate.model.errors import UsageError
from trystate.model.language import Expr, SymbolicState, transition
from trystate.property_tests.harness.checks import Check, Outcome
from trystate.property_tests.support.systems.lock import Edition, Lock, Where
from trystate.property_tests.tests.command_line.setting import (
    AGREES,
    BROKEN,
    DIFFERS,
    HERE,
    KNOWN,
    MENDED,
    WHOLE,
    Command,
    Endless,
    report,
)
from trystate.search import machine, plans

S = SymbolicState


# ---- verify: the plan


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_plan_with_known_violations_only_exits_with_0(command: Command, jobs: str) -> None:
    code, out, err = command("verify", "--all", "--jobs", jobs)
    assert code == Exit.OK, err
    assert "3 hold, 1 violated (known: R1)" in out
    assert re.search(r"operators +12 contexts +all agree", out)
    assert "violated in Lock BROKEN, known as R1 two-inside: trystate replay R1" in out
    assert re.search(r"2 runs in [\d.]+ s: 7 hold, 1 violated \(known: 1 finding\)", out)
    assert "report: trystate-report" in out
    assert "\x1b" not in out + err


def test_the_small_plan_has_the_cheapest_run_of_each_finding_and_an_edition_without_one(
    command: Command, plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    larger = Run(Lock, {"node": 3, "max_nodes": 3}, Edition.BROKEN, ("relapse",), KNOWN)
    monkeypatch.setattr(plans, "states", lambda: {larger.label: 54, BROKEN.label: 18, MENDED.label: 8})
    plan(larger, BROKEN, MENDED)
    assert command("verify", "--jobs", "1")[0] == Exit.OK
    assert [(run["edition"], run["sizes"]["node"]) for run in report()["runs"]] == [("BROKEN", 2), ("MENDED", 2)]
    assert command(*WHOLE)[0] == Exit.OK
    assert len(report()["runs"]) == 3


def test_the_whole_plan_and_a_system_exclude_each_other(command: Command) -> None:
    code, _, err = command("verify", HERE, "--all")
    assert code == Exit.USAGE
    assert "--all is the whole plan: leave it out, or the system" in err


def test_an_undeclared_violation_exits_with_1_and_is_named(command: Command, plan: Any) -> None:
    plan(Run(Lock, {"node": 2}, Edition.BROKEN, ("relapse",)))
    code, out, _ = command(*WHOLE)
    assert code == Exit.FAILED
    assert "one_at_a_time: violated: Never two inside. (the counterexample has 2 steps)" in out
    assert re.search(r"after barge_in\([01]\)", out) or "barge_in(1)" in out


def test_a_declared_finding_that_is_not_found_exits_with_1(command: Command, plan: Any) -> None:
    plan(Run(Lock, {"node": 2}, Edition.MENDED, ("relapse",), KNOWN))
    code, out, _ = command(*WHOLE)
    assert code == Exit.FAILED
    assert "one_at_a_time: known violation not found: holds, but it is known as R1 two-inside" in out


def test_a_transition_that_fires_in_no_run_exits_with_1(command: Command, plan: Any) -> None:
    plan(Run(Lock, {"node": 1, "min_nodes": 1}, Edition.MENDED, idle=("somebody_enters",)), MENDED)
    assert command(*WHOLE)[0] == Exit.FAILED  # somebody does enter: declared idle, and reached

    class Barred(Lock):
        """A lock that nobody can open a second time."""

        @transition(each="node")
        def knock(self, s: S, node: Expr) -> None:
            """Nothing that can happen."""
            s.when(s.at[node] == Where.INSIDE, s.at[node] == Where.GONE)
            s.at[node] = Where.GONE

    plan(Run(Barred, {}, Edition.MENDED))
    code, out, _ = command(*WHOLE)
    assert code == Exit.FAILED
    assert "coverage: Barred MENDED: knock fired in no run" in out
    assert report()["gaps"] == [{"system": "Barred", "edition": "MENDED", "never_fired": ["knock"], "unreached": []}]


def test_a_conformance_disagreement_exits_with_1_and_is_named(command: Command, plan: Any) -> None:
    plan(MENDED, checks=(AGREES, DIFFERS))
    code, out, _ = command(*WHOLE, "--junit", "all.xml")
    assert code == Exit.FAILED
    assert "conformance: edges: step 3: the model says A, torch B" in out
    assert report()["conformance"][1]["disagreements"] == ["step 3: the model says A, torch B"]
    assert len(ElementTree.parse("all.xml").findall("testsuite[@name='conformance']/testcase/failure")) == 1


def test_a_comparison_of_nothing_does_not_pass(command: Command, plan: Any) -> None:
    plan(MENDED, checks=(Check("empty", lambda report: Outcome(0, "edges", (), 0.0)),))
    code, out, _ = command(*WHOLE, "--junit", "all.xml")
    assert code == Exit.FAILED
    assert "conformance: empty: nothing was compared" in out
    assert "1 conformance disagreement\n" in out
    assert report()["conformance"][0]["disagreements"] == ["nothing was compared"]


def test_conformance_without_torch_is_skipped_aloud_and_changes_nothing(command: Command, plan: Any) -> None:
    plan(MENDED, problem="torch is not installed: pip install 'trystate[torch]'")
    code, out, _ = command(*WHOLE)
    assert code == Exit.OK
    assert "SKIPPED: torch is not installed: pip install 'trystate[torch]'" in out
    assert "conformance skipped" in out


def test_what_is_not_decided_exits_with_3_and_says_which_limit(command: Command) -> None:
    options = ("--engine", "explicit", "--symmetry", "--edition", "MENDED", "--junit", "all.xml")
    code, out, _ = command("verify", HERE, *options)
    assert code == Exit.INCOMPLETE
    assert len(ElementTree.parse("all.xml").findall("testsuite/testcase/error")) == 1
    assert "everybody_leaves: not decided: liveness is never decided under symmetry" in out


def test_an_empty_plan_is_not_a_success(command: Command, plan: Any) -> None:
    plan()
    assert command(*WHOLE)[0] == Exit.INCOMPLETE


# ---- verify: one system


def test_a_system_alone_is_judged_by_what_the_plan_declares(command: Command) -> None:
    code, out, _ = command("verify", HERE, "--nodes", "3", "--fault", "relapse", "--edition", "broken")
    assert code == Exit.OK
    assert "3 hold, 1 violated (known: R1)" in out
    assert "Conformance" not in out


def test_what_was_found_with_a_fault_is_not_excused_without_it(command: Command) -> None:
    assert command("verify", HERE, "--edition", "BROKEN")[0] == Exit.FAILED


def test_a_system_that_the_plan_has_is_judged_as_there(command: Command, plan: Any) -> None:
    sizes = {"node": 2}
    plan(Run(Lock, sizes, Edition.MENDED, ("relapse",), KNOWN), Run(Lock, sizes, Edition.MENDED))
    assert command("verify", HERE, "--edition", "MENDED", "--fault", "relapse")[0] == Exit.FAILED
    assert command("verify", HERE, "--edition", "MENDED", "--fault", "relapse=2")[0] == Exit.OK
    assert command("verify", HERE, "--edition", "MENDED")[0] == Exit.OK


def test_a_declared_finding_may_be_missing_from_a_smaller_system(command: Command) -> None:
    assert command("verify", HERE, "--nodes", "1", "--fault", "relapse", "--edition", "BROKEN")[0] == Exit.OK


@pytest.mark.parametrize("engine", ["interpret", "explicit", "symbolic"])
def test_every_engine_gives_the_same_counts(command: Command, engine: str) -> None:
    assert command("verify", HERE, "--edition", "MENDED", "--fault", "relapse=2", "--engine", engine)[0] == 0
    run = report()["runs"][0]
    assert (run["engine"], run["states"], run["faults"]) == (engine, 8 * 3, {"relapse": 2})


def test_the_registered_systems_are_checked_by_name_and_by_machine(command: Command) -> None:
    for name in ("rendezvous", "round_state"):
        command("verify", name, "--nodes", "1", "--min", "1", "--max", "1", "--engine", "explicit")
        run = report()["runs"][0]
        assert (run["system"], run["edition"]) == ("Rendezvous", "TORCH")


def test_a_wrong_declaration_exits_with_1_in_one_line(command: Command) -> None:
    code, _, err = command("verify", f"{Lock.__module__}:Unclaimed")
    assert code == Exit.FAILED
    assert "vanish(0) moves the machine whereabouts in a way that it does not claim" in err.splitlines()[-1]


@pytest.mark.parametrize(("jobs", "asked", "each"), [(1, None, 8), (2, None, 4), (5, None, 1), (9, None, 1), (2, 3, 3)])
def test_the_searches_that_run_at_a_time_share_the_cores(
    jobs: int, asked: int | None, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "available_cores", lambda: 8)
    monkeypatch.setattr("trystate.search.cores.Cores", lambda cores: cores)
    shared: object = machine.SearchOptions(searches=jobs, cores=asked).workers()[0]
    assert shared == each


def test_a_search_on_two_cores_says_the_same(command: Command) -> None:
    options = ("--engine", "explicit", "--edition", "MENDED", "--fault", "relapse=2")
    said = [command("verify", HERE, *options, "--cores", cores)[:2] for cores in ("1", "2")]
    one, two = (re.sub(r"[\d.]+ s\b", "", out) for _, out in said)
    assert one == two
    assert command("verify", HERE, "--cores", "0")[0] == Exit.USAGE


def test_a_search_on_tensors_says_the_same(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    options = ("--engine", "explicit", "--edition", "MENDED", "--fault", "relapse=2")
    device = importlib.import_module("trystate.search.device")
    monkeypatch.setattr(device, "LEVEL_MIN", 1)
    said = [command("verify", HERE, *options, "--device", name)[:2] for name in ("cpu", "torch-cpu")]
    one, two = (re.sub(r"[\d.]+ s\b", "", out) for _, out in said)
    assert one == two
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name, engine, wrong in (
        ("cuda", "auto", "finds no CUDA device"), ("card", "auto", "device is 'card': give cpu"),
        ("torch-cpu", "interpret", "the engine interpret has none"),
    ):  # fmt: skip
        code, _, err = command("verify", HERE, "--device", name, "--engine", engine)
        assert code == Exit.USAGE and wrong in err


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
    page = Path("trystate-report/report.md").read_text()
    assert "(01-lock-broken/one_at_a_time.svg)" in page


def test_the_itf_trace_gives_every_variable_in_every_state(command: Command) -> None:
    command(*WHOLE)
    trace = json.loads(Path("trystate-report/01-lock-broken/one_at_a_time.itf.json").read_text())
    assert trace["vars"] == ["at", "relapse_left"]
    assert all(set(trace["vars"]) < set(state) for state in trace["states"])
    assert trace["states"][0]["#meta"] == {"index": 0, "action": "initially"}
    assert trace["states"][2]["at"] == {"#map": [[0, "INSIDE"], [1, "INSIDE"]]}
    assert {state["#meta"]["action"] for state in trace["states"][1:]} == {"barge_in(0)", "barge_in(1)"}
    assert "loop" not in trace


def test_an_itf_loop_does_not_repeat_its_first_state(command: Command) -> None:
    command("verify", f"{Lock.__module__}:Waltz")
    trace = json.loads(Path("trystate-report/01-waltz/it_ends.itf.json").read_text())
    assert trace["loop"] == 0
    assert [state["beat"] for state in trace["states"]] == ["ONE", "TWO", "THREE"]


def test_junit_has_one_test_case_per_run_and_property(command: Command, plan: Any) -> None:
    plan(Run(Lock, {"node": 2}, Edition.BROKEN, ("relapse",)), MENDED)
    command(*WHOLE, "--junit", "all.xml")
    root = ElementTree.parse("all.xml").getroot()
    first, second, conformance = root.findall("testsuite")
    assert [case.get("name") for case in first] == [
        "one_at_a_time", "somebody_enters", "everybody_leaves", "deadlock_freedom",
    ]  # fmt: skip
    assert (first.get("tests"), first.get("failures"), second.get("failures")) == ("4", "1", "0")
    failure = first.find("testcase[@name='one_at_a_time']/failure")
    assert failure is not None
    assert "barge_in(1)" in (failure.text or "")
    assert conformance.get("name") == "conformance"


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


def test_the_report_is_the_same_in_one_process_and_in_two(command: Command, plan: Any) -> None:
    plan(BROKEN, MENDED, Run(Lock, {"node": 3, "max_nodes": 3}, Edition.MENDED))

    def found(jobs: str) -> Any:
        assert command("verify", "--all", "--jobs", jobs)[0] == Exit.OK
        text = re.sub(r'"(seconds|bytes_per_state)": [\d.]+', "", json.dumps(report()))
        return re.sub(r"in [\d.]+ s", "", text)

    assert found("1") == found("2")


def hear_ctrl_c() -> None:
    """A shell's job in the background ignores it, and so does all that the job starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, Exit.TERMINATED)])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_signal_leaves_a_report_of_what_was_done_and_says_so(
    tmp_path: Path, sent: signal.Signals, code: Exit, jobs: str
) -> None:
    systems = (f"{Lock.__module__}:Waltz", f"{Endless.__module__}:Endless")
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
    assert len(found["left"]) == 1 and found["left"][0].startswith("Endless(")
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
        "export.prove.proved", "explore.decide", "rendezvous.Runs",
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


def test_what_a_caller_expects_is_no_failure_and_must_be_found(command: Command, plan: Any) -> None:
    plan()
    broken = ("verify", HERE, "--edition", "BROKEN", "--jobs", "1", "--expect")
    code, out, _ = command(*broken, "one_at_a_time=nobody looks")
    assert code == Exit.OK
    assert "3 hold, 1 violated (known: expected)" in out
    assert "expected: nobody looks" in out
    code, out, _ = command("verify", HERE, "--edition", "MENDED", "--expect", "one_at_a_time=nobody looks")
    assert code == Exit.FAILED
    assert "one_at_a_time: known violation not found: holds, but it is expected: nobody looks" in out
    code, out, _ = command("verify", HERE, "--edition", "MENDED", "--expect", "deadlock_freedom=it rests")
    assert code == Exit.FAILED
    code, _, err = command(*broken, "one_at_a_tim")
    assert code == Exit.USAGE
    assert "did you mean one_at_a_time?" in err


@pytest.mark.parametrize("options", [(), ("--all",)])
def test_an_expectation_without_a_system_is_refused(command: Command, options: tuple[str, ...]) -> None:
    code, _, err = command("verify", *options, "--expect", "one_at_a_time=nobody looks")
    assert code == Exit.USAGE
    assert "--expect one_at_a_time=nobody looks is of a system: name it" in err


def test_a_printed_report_tells_each_verdict_and_each_counterexample() -> None:
    found = check(Lock(node=2, edition="BROKEN"))
    lines = str(found).splitlines()
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
    assert set(plans.states()) == {run.label for run in runs}  # docs/generate.py writes them anew
    small = plans.small(runs)
    assert sum(map(plans.cost, small)) < sum(map(plans.cost, runs)) / 5
    assert {(run.system, run.edition) for run in small} == {(run.system, run.edition) for run in runs}
    assert {f for run in small for fs in run.findings.values() for f in fs} == {
        f for run in runs for fs in run.findings.values() for f in fs
    }

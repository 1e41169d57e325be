"""The command line answers with the right exit code, says what is wrong in a line, and writes its report."""

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from trystate.model.checker.expectations import Finding, Run
from trystate.model.language import Expr, SymbolicState, transition
from trystate.property_tests.adapters.replays import Observation, Scenario
from trystate.property_tests.harness.checks import Check, Outcome
from trystate.property_tests.support.systems.lock import Edition, Lock, Where

import trystate
from trystate import registry
from trystate.__main__ import main
from trystate.commands import verify
from trystate.deciding import showcase
from trystate.exits import Exit
from trystate.manual import PAGES

S = SymbolicState


FINDING = Finding("two-inside", "R1", "Two nodes are inside at once", "look before entering")
KNOWN = {"one_at_a_time": ("two-inside",)}
BROKEN = Run(Lock, {"node": 2}, Edition.BROKEN, ("relapse",), KNOWN)
MENDED = Run(Lock, {"node": 2}, Edition.MENDED, ("relapse",))
HERE = f"{Lock.__module__}:Lock"
AGREES = Check("operators", lambda report: Outcome(12, "contexts", (), 0.1))
DIFFERS = Check("edges", lambda report: Outcome(7, "edges", ("step 3: the model says A, torch B",), 0.1))

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the plan, and what conformance finds."""

    def install(*runs: Run, checks: tuple[Check, ...] = (AGREES,), problem: str | None = None) -> None:
        monkeypatch.setattr(registry, "plan", lambda: runs)
        monkeypatch.setattr(registry, "findings", lambda: {FINDING.name: FINDING})
        monkeypatch.setattr(verify, "torch_problem", lambda: problem)
        monkeypatch.setattr(verify, "conformance_checks", lambda: checks)
        monkeypatch.setattr(verify, "refinement_checks", lambda: ())

    install(BROKEN, MENDED)
    return install


@pytest.fixture
def command(
    plan: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    """Runs a command line in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*argv: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = main(argv)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def report(folder: Path = Path("trystate-report")) -> Any:
    return json.loads((folder / "report.json").read_text())


# ---- verify: the plan


def test_a_plan_that_is_as_declared_exits_with_0(command: Command) -> None:
    code, out, err = command("verify")
    assert code == Exit.OK, err
    assert "3 hold, 1 as declared (R1)" in out
    assert re.search(r"operators +12 contexts +all agree", out)
    assert "report: trystate-report" in out
    assert "checked 2/2 Lock(node=2, min_nodes=1, max_nodes=2) MENDED with relapse" in err
    assert "\x1b" not in out + err


def test_an_undeclared_violation_exits_with_1_and_is_named(command: Command, plan: Any) -> None:
    plan(Run(Lock, {"node": 2}, Edition.BROKEN, ("relapse",)))
    code, out, _ = command("verify")
    assert code == Exit.FAILED
    assert "undeclared violation: one_at_a_time: Never two inside. (its counterexample has 2 steps)" in out


def test_a_declared_finding_that_is_not_found_exits_with_1(command: Command, plan: Any) -> None:
    plan(Run(Lock, {"node": 2}, Edition.MENDED, ("relapse",), KNOWN))
    code, out, _ = command("verify")
    assert code == Exit.FAILED
    assert "declared finding not found: one_at_a_time (R1) is declared, but holds" in out


def test_a_transition_that_fires_in_no_run_exits_with_1(command: Command, plan: Any) -> None:
    plan(Run(Lock, {"node": 1, "min_nodes": 1}, Edition.MENDED, idle=("somebody_enters",)), MENDED)
    assert command("verify")[0] == Exit.FAILED  # somebody does enter: declared idle, and reached

    class Barred(Lock):
        """A lock that nobody can open a second time."""

        @transition(each="node")
        def knock(self, s: S, node: Expr) -> None:
            """Nothing that can happen."""
            s.when(s.at[node] == Where.INSIDE, s.at[node] == Where.GONE)
            s.at[node] = Where.GONE

    plan(Run(Barred, {}, Edition.MENDED))
    code, out, _ = command("verify")
    assert code == Exit.FAILED
    assert "coverage: Barred MENDED: knock fired in no run" in out
    assert report()["gaps"] == [{"system": "Barred", "edition": "MENDED", "never_fired": ["knock"], "unreached": []}]


def test_a_conformance_disagreement_exits_with_1_and_is_named(command: Command, plan: Any) -> None:
    plan(MENDED, checks=(AGREES, DIFFERS))
    code, out, _ = command("verify", "--junit", "all.xml")
    assert code == Exit.FAILED
    assert "conformance: edges: step 3: the model says A, torch B" in out
    assert report()["conformance"][1]["disagreements"] == ["step 3: the model says A, torch B"]
    assert len(ElementTree.parse("all.xml").findall("testsuite[@name='conformance']/testcase/failure")) == 1


def test_a_comparison_of_nothing_does_not_pass(command: Command, plan: Any) -> None:
    plan(MENDED, checks=(Check("empty", lambda report: Outcome(0, "edges", (), 0.0)),))
    code, out, _ = command("verify", "--junit", "all.xml")
    assert code == Exit.FAILED
    assert "conformance: empty: nothing was compared" in out
    assert "1 conformance disagreement\n" in out
    assert report()["conformance"][0]["disagreements"] == ["nothing was compared"]


def test_conformance_without_torch_is_skipped_aloud_and_changes_nothing(command: Command, plan: Any) -> None:
    plan(MENDED, problem="torch is not installed: pip install 'trystate[torch]'")
    code, out, _ = command("verify")
    assert code == Exit.OK
    assert "SKIPPED: torch is not installed: pip install 'trystate[torch]'" in out
    assert "conformance skipped" in out


def test_what_is_not_decided_exits_with_3_and_says_which_limit(command: Command) -> None:
    options = ("--engine", "explicit", "--symmetry", "--edition", "MENDED", "--junit", "all.xml")
    code, out, _ = command("verify", HERE, *options)
    assert code == Exit.INCOMPLETE
    assert len(ElementTree.parse("all.xml").findall("testsuite/testcase/error")) == 1
    assert "not decided: everybody_leaves: liveness is never decided under symmetry" in out


def test_an_empty_plan_is_not_a_success(command: Command, plan: Any) -> None:
    plan()
    assert command("verify")[0] == Exit.INCOMPLETE


# ---- verify: one system


def test_a_system_alone_is_judged_by_what_the_plan_declares(command: Command) -> None:
    code, out, _ = command("verify", HERE, "--nodes", "3", "--fault", "relapse", "--edition", "broken")
    assert code == Exit.OK
    assert "3 hold, 1 as declared (R1)" in out
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


# ---- arguments


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("verfy", "invalid choice: 'verfy'"),
        ("verify --bogus", "unrecognized arguments: --bogus"),
        ("verify rendezvos", "no system 'rendezvos': did you mean rendezvous?"),
        ("verify nowhere:Thing", "No module named 'nowhere'"),
        ("verify trystate.registry:plan", "is not a system"),
        ("verify --engine symbol", "no engine 'symbol': did you mean symbolic?"),
        ("verify --edition tork", "no edition 'tork': did you mean TORCH?"),
        ("verify --fault crsh", "no fault 'crsh': did you mean crash?"),
        ("verify --fault crash=0", "--fault crash=0: give a whole number of at least 1"),
        ("verify --fault crash rendezvous", "a system's name stands before the options"),
        ("verify --min 3 --max 2", "--min 3 is more than --max 2"),
        ("verify --nodes 0", "'0' is not a whole number of at least 1"),
        ("verify --size rouns=2", "no size 'rouns': did you mean rounds?"),
        ("verify --max-seconds soon", "'soon' is not a number above 0"),
        ("verify --engine symbolic --symmetry", "the engine symbolic does not reduce by symmetry"),
        ("explore rendezvous --counterexample agree_on_wrld", "did you mean agree_on_world?"),
        ("table jon", "no table 'jon': did you mean join?"),
        ("table join --edition sed", "no edition 'sed': did you mean SEED?"),
        ("replay two-insid", "no finding 'two-insid': did you mean two-inside?"),
        ("replay", "replay --list shows them"),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_code_2(command: Command, argv: str, said: str) -> None:
    code, out, err = command(*argv.split())
    assert code == Exit.USAGE
    assert out == ""
    assert said in err.splitlines()[-1]
    assert err.splitlines()[-1].startswith("trystate: ")


def test_a_report_that_cannot_be_written_is_a_usage_error(command: Command) -> None:
    Path("taken").write_text("")
    code, _, err = command("verify", HERE, "--edition", "MENDED", "--out", "taken")
    assert code == Exit.USAGE
    assert "choose another place with --out" in err


def test_an_internal_error_is_one_line_and_leaves_a_traceback(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def burst() -> None:
        raise ZeroDivisionError("burst")

    monkeypatch.setattr(registry, "plan", burst)
    code, _, err = command("verify", "--out", "here")
    assert code == Exit.INTERNAL
    assert err == ("trystate: internal error: ZeroDivisionError('burst'); the traceback is in here/traceback.txt\n")
    assert "in burst" in Path("here/traceback.txt").read_text()


@pytest.mark.parametrize("name", ["", *PAGES])
def test_every_command_explains_itself_its_exit_codes_and_gives_examples(command: Command, name: str) -> None:
    code, out, _ = command(*name.split(), "--help")
    assert code == Exit.OK
    assert "exit codes:\n  0  " in out
    assert f"examples:\n  trystate {name}" in out


# ---- what verify writes


def test_the_report_has_each_counterexample_in_every_format(command: Command) -> None:
    assert command("verify", "--json", "copy/all.json", "--junit", "all.xml")[0] == Exit.OK
    found = report()
    assert json.loads(Path("copy/all.json").read_text()) == found
    run = found["runs"][0]
    assert (run["states"], run["complete"]) == (9 * 2, True)
    assert run["sizes"] == {"node": 2, "min_nodes": 1, "max_nodes": 2}
    prop = next(p for p in run["properties"] if p["name"] == "one_at_a_time")
    assert (prop["status"], prop["judgement"], prop["findings"]) == ("violated", "as declared", ["R1"])
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
    command("verify")
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
    command("verify", "--junit", "all.xml")
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
    command("verify")
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


# ---- explore


def explored(command: Command, *lines: str, options: tuple[str, ...] = ()) -> str:
    code, out, err = command("explore", HERE, "--edition", "BROKEN", *options, stdin="\n".join(lines))
    assert code == Exit.OK, err
    return out


def test_explore_shows_the_state_what_changed_and_what_can_happen(command: Command) -> None:
    out = explored(command, "1", "q")
    assert "1. barge_in(0): A node enters without looking." in out
    assert "\nafter barge_in(0)\n* at  INSIDE* OUTSIDE\n" in out


def test_explore_names_the_invariants_that_do_not_hold(command: Command) -> None:
    assert "VIOLATED" not in explored(command, "1")
    assert "VIOLATED one_at_a_time: Never two inside." in explored(command, "1", "1")


def test_explore_goes_back_and_restarts(command: Command) -> None:
    out = explored(command, "1", "b", "b", "1", "r")
    assert out.count("\ninitially\n") == 3
    assert "nothing to go back to" in out


def test_explore_follows_a_counterexample_and_says_where_it_is(command: Command) -> None:
    out = explored(command, "c one_at_a_time", "n", "n", "n", "i 1", "2", "n", "i 9")
    assert "loaded its counterexample of 2 steps" in out
    assert re.search(r"after barge_in\([01]\), step 2 of 2", out)
    assert "the loaded run ends here" in out
    assert "you have left the loaded run" in out
    assert "no step of the loaded run '9': choose 0 to 2" in out


def test_explore_goes_round_a_lasso_by_the_numbers_of_its_steps_too(command: Command) -> None:
    for steps in ("n\n" * 4, "1\n" * 4):
        _, out, _ = command("explore", f"{Lock.__module__}:Waltz", "--counterexample", "it_ends", stdin=steps)
        assert re.findall(r"step (\d) of 3", out) == ["0", "0", "1", "2", "3", "1"]


def test_explore_loads_a_counterexample_that_is_asked_for_at_once(command: Command) -> None:
    out = explored(command, "n", options=("--counterexample", "one_at_a_time"))
    assert re.search(r"after barge_in\([01]\), step 1 of 2", out)


def test_explore_answers_a_wrong_command_and_goes_on(command: Command) -> None:
    out = explored(command, "9", "x", "n", "c nothing", "s", "h", "1")
    assert "no step 9: choose 1 to 2" in out
    assert "no command 'x'" in out
    assert "no run is loaded" in out
    assert "no property 'nothing'" in out
    assert "  at[0]  OUTSIDE" in out
    assert "NUMBER      take that step" in out
    assert "after barge_in(0)" in out


def test_explore_says_whether_a_rest_is_a_deadlock(command: Command) -> None:
    assert "nothing can happen: the system rests here" in explored(command, "1", "1", "1", "1")


# ---- the other commands


def test_a_table_is_markdown_where_there_is_no_terminal(command: Command) -> None:
    code, out, _ = command("table", "join", "--edition", "seed")
    assert code == Exit.OK
    assert out.startswith("| # | closed |")
    assert "`TYPE_ERROR`" in out
    assert "`TYPE_ERROR`" not in command("table", "join")[1]


def test_a_table_of_one_edition_is_found_without_naming_it_and_refused_for_another(command: Command) -> None:
    assert "`NOTHING`" in command("table", "take")[1]
    code, _, err = command("table", "take", "--edition", "torch")
    assert code == Exit.USAGE
    assert "no table 'take' in the edition TORCH: give --edition TRYSTATE" in err


def test_every_table_of_every_edition_is_drawn_once() -> None:
    drawn = registry.titled_tables()
    assert len({id(table) for table in drawn.values()}) == len(drawn)
    assert {id(t) for tables in registry.TABLES.values() for t in tables.values()} == {id(t) for t in drawn.values()}
    assert {"take", "add, SEED and TORCH edition", "add, TRYSTATE edition"} <= {*drawn}


def test_the_transitions_of_a_system_are_a_table_too(command: Command) -> None:
    code, out, _ = command("table", "rendezvous")
    assert code == Exit.OK
    assert "`crash(node)`" in out


def test_diagram_writes_what_its_check_then_finds_up_to_date(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SYSTEMS", {"lock": Lock})
    code, out, err = command("diagram")
    assert code == Exit.OK, err
    assert Path("trystate-diagrams/two-inside.dot").is_file()
    assert Path("trystate-diagrams/lock-mended.md").is_file()
    assert command("diagram", "--check")[0] == Exit.OK
    Path("trystate-diagrams/two-inside.dot").write_text("old")
    code, out, _ = command("diagram", "--check")
    assert code == Exit.FAILED
    assert "stale: trystate-diagrams/two-inside.dot" in out


@pytest.mark.parametrize(("reproduced", "code"), [(True, Exit.OK), (False, Exit.FAILED)])
def test_replay_shows_the_model_then_what_torch_did(
    command: Command, monkeypatch: pytest.MonkeyPatch, reproduced: bool, code: Exit
) -> None:
    from trystate.property_tests.adapters.torch_rendezvous import scenarios

    def run(say: Callable[[str], None]) -> Observation:
        say("both enter")
        return Observation(reproduced, ("2 inside",), "verdict on two-inside")

    monkeypatch.setattr(scenarios, "SCENARIOS", {"two-inside": Scenario("two-inside", "R1", "", run)})
    answer, out, _ = command("replay", "r1")
    assert answer == code
    parts = ["Two nodes are inside at once", "barge_in(1)", "both enter", "2 inside", "verdict"]
    places = [out.index(part) for part in parts]
    assert places == sorted(places)


def test_replay_without_torch_exits_with_3_and_the_remedy(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from trystate.commands import replay as replaying

    monkeypatch.setattr(replaying, "torch_problem", lambda: "torch is not installed: pip install it")
    code, out, err = command("replay", "two-inside")
    assert code == Exit.INCOMPLETE
    assert "barge_in(1)" in out
    assert "not replayed: torch is not installed: pip install it" in err


def test_a_finding_is_shown_where_it_alone_explains_a_property() -> None:
    both = Run(Lock, {"node": 2}, Edition.BROKEN, findings={"one_at_a_time": ("R2", "R1")})
    alone = Run(Lock, {"node": 3}, Edition.BROKEN, findings=KNOWN)
    assert showcase(FINDING, [MENDED, both, alone]) == (alone, "one_at_a_time")
    assert showcase(FINDING, [MENDED, both]) == (both, "one_at_a_time")
    assert showcase(FINDING, [MENDED]) is None


def test_replay_lists_the_findings(command: Command) -> None:
    code, out, _ = command("replay", "--list")
    assert code == Exit.OK
    assert re.search(r"R1 +two-inside +Two nodes are inside at once", out)


def test_doctor_names_versions_and_what_works(command: Command) -> None:
    code, out, _ = command("doctor")
    assert code == Exit.OK
    assert re.search(rf"trystate +│ {re.escape(trystate.__version__)}", out)
    assert re.search(r"engine explicit +│ yes", out)

"""The command line answers with the right exit code, says what is wrong in a line, and writes its report."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import trystate
from trystate import diagrams, registry
from trystate.exits import Exit
from trystate.manual import PAGES
from trystate.model.checker.expectations import Run
from trystate.model.checker.interpret import Interpreter
from trystate.property_tests import replays
from trystate.property_tests.support.systems.lock import Edition, Lock
from trystate.property_tests.tests.command_line.setting import (
    FINDING,
    HERE,
    KNOWN,
    MENDED,
    Command,
)
from trystate.search.plans import showcase

# ---- arguments


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("verfy", "invalid choice: 'verfy'"),
        ("verify --bogus", "unrecognized arguments: --bogus"),
        ("verify rendezvos", "no system 'rendezvos': did you mean rendezvous or etcd-rendezvous?"),
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
        ("explore rendezvous --counterexample agree_on_wrld", "did you mean agree_on_world"),
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


@pytest.mark.parametrize(
    ("module", "text", "said"),
    [
        ("without_a_witness", "@always()\ndef holds(self, s): ...", "'witness'\"), at {}/without_a_witness.py:2: "),
        ("not_python", "def f(:", "importing not_python raises SyntaxError("),
        ("out_of_order", "class Mine(System):\n    a = integer(3, 1)", "{}/out_of_order.py:3: a: no value"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_the_line(
    command: Command, monkeypatch: pytest.MonkeyPatch, module: str, text: str, said: str
) -> None:
    Path(f"{module}.py").write_text(f"from trystate.language import System, always, integer\n{text}\n")
    monkeypatch.syspath_prepend(Path.cwd())
    code, _, err = command("verify", f"{module}:Mine")
    assert code in (Exit.USAGE, Exit.FAILED)  # the last is of a declaration
    assert said.format(Path.cwd()) in err.splitlines()[-1]


def test_a_report_that_cannot_be_written_is_a_usage_error(command: Command) -> None:
    Path("taken").write_text("")
    code, _, err = command("verify", HERE, "--edition", "MENDED", "--out", "taken")
    assert code == Exit.USAGE
    assert "choose another --out" in err


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
    assert f"trystate {name}" in out.partition("examples:\n  ")[2]


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
    assert "no step of the loaded run 9: choose 0 to 2" in out


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


def test_the_last_line_of_explore_repeats_the_walk_in_another_process(command: Command) -> None:
    given = ("--edition", "broken", "--nodes", "3", "--size", "min_nodes=2", "--fault", "relapse=2")
    _, out, _ = command("explore", HERE, *given, stdin="w 9\nb\ns\n")
    words = shlex.split(out.splitlines()[-1].removeprefix("this walk again: "))
    assert words[0] == "trystate"
    code, again, err = command(*words[1:], stdin="s\n")
    assert (code, err) == (Exit.OK, "")
    state = [line.removeprefix("> ") for line in out.splitlines() if "  at[" in line]
    assert len(state) == 3 and state == [line.removeprefix("> ") for line in again.splitlines() if "  at[" in line]
    assert again.splitlines()[-1] == out.splitlines()[-1]


def test_explore_takes_the_option_lines_and_says_that_it_changes_nothing(command: Command) -> None:
    code, out, err = command("explore", HERE, "--edition", "broken", "--lines", stdin="barge_in(0)\nl\n")
    assert code == Exit.OK
    assert err.startswith("trystate explore: --lines changes nothing, leave it out")
    again = f"trystate explore {HERE} --edition broken --walk 'barge_in(0)'"
    assert out.splitlines()[-1] == f"this walk again: {again}"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--walk", "leave(0)"), "step 1 of 1 of the walk: leave(0) is not enabled here: at[0] = INSIDE"),
        (("--walk", "leave(0)", "--counterexample", "one_at_a_time"), "both say where to begin, give one of them"),
        (("--initial", "1"), "no initial state 1: choose 0 to 0"),
        (("--initial", "-1"), "'-1' is not a whole number from 0 on"),
    ],
)
def test_a_walk_that_cannot_begin_is_refused(command: Command, options: tuple[str, ...], why: str) -> None:
    code, _, err = command("explore", HERE, *options)
    assert (code, why in err) == (Exit.USAGE, True), err


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


def test_the_transitions_of_a_class_are_a_table(command: Command) -> None:
    assert "`barge_in(node)`" in command("table", HERE)[1]


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


def test_diagram_draws_what_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SYSTEMS", {})
    code, _, err = command("diagram", HERE, "two-inside", "take", "--out", "here")
    assert code == Exit.OK, err
    names = {path.stem for path in Path("here").glob("*.dot")}
    assert names == {"lock-broken-whereabouts", "lock-mended-whereabouts", "two-inside", "take"}
    code, _, err = command("diagram", "takes")
    assert (code, "no picture 'takes': did you mean take?" in err) == (Exit.USAGE, True)
    code, _, err = command("diagram", "take", "--check")
    assert (code, "--check compares all" in err) == (Exit.USAGE, True)


def test_diagram_draws_the_shortest_witness_of_a_sometimes(command: Command) -> None:
    code, _, err = command("diagram", HERE, "--witness", "somebody_enters", "--nodes", "3", "--out", "here")
    assert code == Exit.OK, err
    (page,) = (path for path in Path("here").glob("*.md") if path.stem != "README")
    assert page.stem == "lock-broken-somebody-enters"
    text = page.read_text()
    assert re.search(r"Lock\(node=3\b.*\) BROKEN", text)
    assert [line.split()[0] for line in text.splitlines() if re.match(r" +\d+ ", line)] == ["0", "1"]


def test_the_picture_of_a_witness_ends_where_it_is_true(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[diagrams.Run] = []

    def generate(out: Path, systems: object, tables: object, runs: list[diagrams.Run], *others: object) -> list[Path]:
        drawn.extend(runs)
        return []

    monkeypatch.setattr(diagrams, "generate", generate)
    for argv in (("agents", "--witness", "two_run", "--nodes", "2"), (HERE, "--witness", "somebody_enters")):
        code, _, err = command("diagram", *argv)
        assert code == Exit.OK, err
        run = drawn.pop()
        assert run.ends is not None
        assert run.ends.name == argv[2]
        holds = Interpreter(run.system).holds
        *before, last = (holds(run.ends.exprs[0], state) for state in run.run.path.states)
        assert last, "the run ends in a state that the `sometimes` asks for"
        assert not any(before), "and comes there in its last step: it is the shortest"


def test_diagram_lists_what_can_be_drawn(command: Command) -> None:
    code, out, _ = command("diagram", "--list")
    assert code == Exit.OK
    heads = {" ".join(line.split()[:2]) for line in out.splitlines()}
    assert {"walks: executor-runs", "structures: structure-agent-and-rendezvous", "findings: two-inside"} <= heads
    assert "graphs: graph-local" in heads
    assert "    --witness the_server_stops [stop]: The server has died" in out
    of_one = command("diagram", "--list", "frames")[1]
    assert "both_keys_are_written [TORCH, TRYSTATE]" in of_one
    assert not re.search("walks:|two_run", of_one)
    assert not Path("trystate-diagrams").exists()


def test_diagram_draws_a_graph_and_a_structure_by_their_names(command: Command) -> None:
    code, _, err = command("diagram", "graph-note", "structure-torch-ids", "--out", "here")
    assert code == Exit.OK, err
    assert {"graph-note.dot", "structure-torch-ids.dot"} <= {path.name for path in Path("here").iterdir()}
    assert "did you mean graph-note" in command("diagram", "graph-notes")[2]


def test_diagram_switches_on_the_fault_and_the_edition_that_a_witness_needs(command: Command) -> None:
    code, _, err = command("diagram", "--witness", "the_server_stops", "--edition", "seed", "--out", "here")
    assert code == Exit.OK, err
    assert "Frames(connection=2) SEED with stop" in Path("here/frames-seed-the-server-stops.md").read_text()
    code, _, err = command("diagram", "--witness", "both_keys_are_written", "--out", "here")
    assert code == Exit.OK, err
    assert "TORCH" in Path("here/frames-torch-both-keys-are-written.md").read_text()


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("--witness", "somebody_leaves"), "no witness 'somebody_leaves': did you mean"),
        ((HERE, "--witness", "nobody"), "no witness 'nobody': known are somebody_enters"),
        (("frames", "--witness", "two_run"), "no witness 'two_run': known are both_are_ready"),
        (("--witness", "two_run"), "several systems have a witness 'two_run': name rendezvous or agents"),
        (("agents", "--witness", "a_round_is_replaced"), "no run of Agents(node=2, min_nodes=2"),
        (("frames", "--nodes", "2"), "sizes, editions and faults are those of a --witness"),
        (("--witness", "two_run", "--check"), "--check compares all"),
        (("--list", "agnts"), "no system 'agnts': did you mean agents"),
        (("--list", "--nodes", "2"), "--list prints names and draws nothing"),
    ],
)
def test_diagram_refuses_a_witness_that_there_is_not(command: Command, argv: tuple[str, ...], why: str) -> None:
    code, _, err = command("diagram", *argv)
    assert (code, why in err) == (Exit.USAGE, True), err
    assert not Path("trystate-diagrams").exists()


@pytest.mark.parametrize(("reproduced", "code"), [(True, Exit.OK), (False, Exit.FAILED)])
def test_replay_shows_the_model_then_what_torch_did(
    command: Command, script: Callable[[bool], None], reproduced: bool, code: Exit
) -> None:
    script(reproduced)
    answer, out, _ = command("replay", "r1")
    assert answer == code
    parts = ["Two nodes are inside at once", "barge_in(1)", "  both enter", "reproduced: ", " inside\n"]
    places = [out.index(part) for part in parts]
    assert places == sorted(places)


def test_replay_exits_with_3_when_a_script_ends_without_a_result(
    command: Command, script: Callable[[bool], None]
) -> None:
    script(True)
    (replays.FOLDER / "R01-two-inside.py").write_text("print('both enter')", encoding="utf-8")
    code, out, err = command("replay", "r1")
    assert code == Exit.INCOMPLETE and "  both enter" in out
    assert "not replayed: the schedule could not be brought about: R01-two-inside.py ended with exit code 0" in err


def test_a_finding_of_torch_1_has_no_report(command: Command) -> None:
    code, _, err = command("replay", "r1", "--report")
    assert code == Exit.USAGE and "R1 has no report: it is of torch 1, and has no script" in err


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
    assert re.search(r"R1 +two-inside +all +Two nodes are inside at once", out)


def test_doctor_names_versions_and_what_works(command: Command) -> None:
    code, out, _ = command("doctor")
    assert code == Exit.OK
    assert re.search(rf"trystate +│ {re.escape(trystate.__version__)}", out)
    assert re.search(r"engine explicit +│ yes", out)

"""The command line: exit codes, errors of one line, reports, pictures, replays, and messages that it explains."""

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from trystate import registry
from trystate.exits import Exit
from trystate.manual import PAGES
from trystate.model.checker.expectations import Run
from trystate.monitor import logs
from trystate.property_tests import replays
from trystate.property_tests.support.systems.lock import Edition, Lock
from trystate.property_tests.tests.command_line.setting import FINDING, HERE, KNOWN, MENDED, Command, says
from trystate.search import machine
from trystate.search.plans import showcase

# ---- arguments


@pytest.mark.parametrize(
    ("module", "text", "words"),
    [
        (
            "without_a_division",
            "high = 1 // 0",
            "ZeroDivisionError('integer division or modulo by zero'), at {}/without_a_division.py:2: ",
        ),
        ("not_python", "def f(:", "importing not_python raises SyntaxError("),
        ("not_guarded", "raise SystemExit(0)", "importing not_guarded raises SystemExit(0), at {}/not_guarded.py:2: "),
        ("out_of_order", "class Mine(System):\n    a = integer(3, 1)", "{}/out_of_order.py:3: a: the range from 3"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_the_line(
    command: Command, monkeypatch: pytest.MonkeyPatch, module: str, text: str, words: str
) -> None:
    Path(f"{module}.py").write_text(f"from trystate.language import System, integer\n{text}\n")
    monkeypatch.syspath_prepend(Path.cwd())
    code, _, err = command("verify", f"{module}:Mine")
    assert code in (Exit.USAGE, Exit.FAILED)  # the last case, an error in a declaration, is FAILED
    assert words.format(Path.cwd()) in err.splitlines()[-1]


def test_a_system_without_properties_is_reported_as_not_checked(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "class Mine(System, deadlock=False):\n    a = integer(0, 3)\n"
    Path("without_properties.py").write_text(f"from trystate.language import System, integer\n{text}")
    monkeypatch.syspath_prepend(Path.cwd())
    code, out, _ = command("verify", "without_properties:Mine")
    assert code == Exit.OK and "1 run in" in out and ": no property was checked" in out


def test_an_internal_error_is_one_line_and_leaves_a_traceback(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def burst() -> None:
        raise ZeroDivisionError("burst")

    monkeypatch.setattr(registry, "plan", burst)
    err = says(command, Exit.INTERNAL, "verify", "--out", "here")
    assert err == ("trystate: internal error: ZeroDivisionError('burst'); the traceback is in here/traceback.txt\n")
    assert "in burst" in Path("here/traceback.txt").read_text()
    monkeypatch.setattr(registry, "findings", burst)
    says(command, Exit.INTERNAL, "replay", "r1", "--report")


@pytest.mark.parametrize("words", [
    f"export {HERE} --to itf --property one_at_a_time", f"explore {HERE} --counterexample one_at_a_time",
    f"explore {HERE} --counterexample one_at_a_time --web page.html", f"explore {HERE}", "replay r1",
])  # fmt: skip
def test_a_property_that_is_not_decided_exits_with_3_and_the_reason(
    command: Command, script: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    script(True)
    monkeypatch.setattr(machine, "SearchOptions", partial(machine.SearchOptions, states=1))
    code, out, err = command(*words.split(), stdin="c one_at_a_time")
    assert code == (Exit.OK if words.endswith(HERE) else Exit.INCOMPLETE)
    assert "(limit 1; raise it with --max-states)" in out + err


@pytest.mark.parametrize("name", ["", *PAGES])
def test_every_command_explains_itself_its_exit_codes_and_gives_examples(command: Command, name: str) -> None:
    out = says(command, Exit.OK, *name.split(), "--help")
    assert "exit codes:\n  0  " in out
    assert f"trystate {name}" in out.partition("examples:\n  ")[2]


# ---- explore


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


# ---- the other commands


def test_every_table_of_every_edition_is_drawn_once() -> None:
    drawn = registry.titled_tables()
    assert len({id(table) for table in drawn.values()}) == len(drawn)
    assert {id(t) for tables in registry.TABLES.values() for t in tables.values()} == {id(t) for t in drawn.values()}
    assert {"take", "add, SEED and TORCH edition", "add, TRYSTATE edition"} <= {*drawn}


def test_diagram_writes_what_its_check_then_finds_up_to_date(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SYSTEMS", {"lock": Lock})
    for name in ("WALKS", "GRAPHS", "STRUCTURES"):
        monkeypatch.setattr(registry, name, getattr(registry, name)[:1])
    says(command, Exit.OK, "diagram")
    assert Path("trystate-diagrams/two-inside.dot").is_file()
    assert Path("trystate-diagrams/lock-mended.md").is_file()
    assert command("diagram", "--check")[0] == Exit.OK
    Path("trystate-diagrams/two-inside.dot").write_text("old")
    Path("trystate-diagrams/lock-mended.md").rename("trystate-diagrams/of-an-earlier-model.md")
    Path("trystate-diagrams/mine.md").write_text("mine")
    out = says(command, Exit.FAILED, "diagram", "--check")
    assert "stale: trystate-diagrams/two-inside.dot" in out
    says(command, Exit.OK, *out.rpartition(": trystate ")[2].split())
    assert command("diagram", "--check")[0] == Exit.OK and Path("trystate-diagrams/mine.md").is_file()


def test_diagram_draws_what_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SYSTEMS", {})
    code, _, err = command("diagram", HERE, "two-inside", "take", "--out", "here")
    assert code == Exit.OK, err
    names = {path.stem for path in Path("here").glob("*.dot")}
    assert names == {"lock-broken-whereabouts", "lock-mended-whereabouts", "two-inside", "take"}


def test_diagram_draws_the_shortest_witness_of_a_sometimes(command: Command) -> None:
    code, _, err = command("diagram", HERE, "--witness", "somebody_enters", "--nodes", "3", "--out", "here")
    assert code == Exit.OK, err
    (page,) = (path for path in Path("here").glob("*.md") if path.stem != "README")
    assert page.stem == "lock-broken-somebody-enters"
    text = page.read_text()
    assert re.search(r"Lock\(node=3\b.*\) BROKEN", text)
    assert [line.split()[0] for line in text.splitlines() if re.match(r" +\d+ ", line)] == ["0", "1"]


@pytest.mark.parametrize(("reproduced", "code"), [(True, Exit.OK), (False, Exit.FAILED)])
def test_replay_shows_the_model_then_what_torch_did(
    command: Command, script: Callable[[bool], None], reproduced: bool, code: Exit
) -> None:
    script(reproduced)
    out = says(command, code, "replay", "r1")
    last = "reproduced: 2 inside" if reproduced else "not reproduced"
    places = [out.index(part) for part in ("Two nodes are inside at once", "barge_in(1)", "  both enter", last)]
    assert places == sorted(places)


def test_replay_exits_with_3_when_a_script_ends_without_a_result(
    command: Command, script: Callable[[bool], None]
) -> None:
    script(True)
    (replays.FOLDER / "R01-two-inside.py").write_text("print('both enter')", encoding="utf-8")
    code, out, err = command("replay", "r1")
    assert code == Exit.INCOMPLETE and "  both enter" in out
    assert "not replayed: torch did not follow the schedule: R01-two-inside.py ended with exit code 0" in err


def test_replay_without_torch_exits_with_3_and_the_remedy(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from trystate.commands import replay as replaying

    monkeypatch.setattr(replaying, "torch_problem", lambda: "torch is not installed: pip install it")
    code, out, err = command("replay", "two-inside")
    assert code == Exit.INCOMPLETE
    assert "barge_in(1)" in out
    assert "not replayed: torch is not installed: pip install it" in err


def test_a_finding_that_no_torch_can_replay_is_shown_in_the_model(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = replace(FINDING, since="1.9", until="1.9")
    monkeypatch.setattr(registry, "findings", lambda: {old.name: old})
    out = says(command, Exit.OK, "replay", "r1")
    assert "barge_in(1)" in out
    assert out.endswith("\nNot replayed: it was last seen in torch 1.9, and no torch that can be installed has it.\n")
    err = says(command, Exit.USAGE, "replay", "r1", "--report")
    assert err.startswith("trystate: R1 has no report and no script: it was last seen in torch 1.9, and no torch")


def test_a_finding_is_shown_where_it_alone_explains_a_property() -> None:
    both = Run(Lock, {"node": 2}, Edition.BROKEN, findings={"one_at_a_time": ("R2", "R1")})
    alone = Run(Lock, {"node": 3}, Edition.BROKEN, findings=KNOWN)
    assert showcase(FINDING, [MENDED, both, alone]) == (alone, "one_at_a_time")
    assert showcase(FINDING, [MENDED, both]) == (both, "one_at_a_time")
    assert showcase(FINDING, [MENDED]) is None


# ---- messages


LOG = """\
[rank0]:[W1127 11:34:32.108 TCPStore.cpp:141] [c10d] recvValue failed on SocketImpl(fd=3): Connection reset by peer
[rank1]:Traceback (most recent call last):
[rank1]:  File "train.py", line 3, in <module>
[rank1]:torch.distributed.DistStoreError: wait timeout after 60000ms, keys: /torch.rendezvous.j.1/role_info/1
[rank0]:Failed to check the "should dump" flag on TCPStore, with error: Broken pipe
[rank0]:Failed to check the "should dump" flag on TCPStore, with error: Broken pipe
"""


def test_a_log_is_given_by_its_path_or_by_standard_input(said: Command, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(LOG, encoding="utf-8")
    out = says(said, Exit.OK, "explain", "--message", str(path))
    assert "the first error, in line 1: connection-reset" in out
    assert "errors that come later, and may follow from it\n    line 4: wait-timeout" in out
    assert "what follows from it\n    line 5, 2 times: should-dump" in out
    _, piped, _ = said("explain", "--message", "-", stdin=LOG)
    assert piped.splitlines()[1:] == out.splitlines()[1:]


def test_a_log_above_the_limit_is_refused_with_the_limit(said: Command, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    with path.open("wb") as file:
        file.truncate(logs.LOG_BYTES_MAX + 1)
    err = says(said, Exit.USAGE, "explain", "--message", str(path))
    assert "the limit of 64 MiB" in err and "grep" in err


def test_no_control_character_of_a_text_reaches_the_terminal(said: Command) -> None:
    out = says(said, Exit.OK, "explain", "--message", "Socket Timeout\x1b[2J\x07\x1b]0;x\x07\x9b31m \u202e\x00verdict")
    assert all(c == "\n" or c.isprintable() for c in out), out
    assert "\\x07" in out and "\\u202e" in out

"""The command of a node as the other nodes see it: enough to see a difference, and nothing secret."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.run import run_script_path
from trystate.impl.rendezvous import plugin, torchrun
from trystate.impl.rendezvous.command import PROGRAM_LENGTH_MAX, SUMMARY_LENGTH_MAX, UNKNOWN, Command, split
from trystate.impl.rendezvous.errors import RendezvousSettingsError
from trystate.impl.rendezvous.options import Options
from trystate.impl.rendezvous.state import Settings

PYTHON = "/opt/venv/bin/python3"
SECRET = "sk-live-0123456789abcdef"


def command(*args: Any, entrypoint: Any = PYTHON, run_id: str = "job", nproc: int = 2) -> Command:
    return Command.of(run_id, entrypoint, args, nproc)


@pytest.mark.parametrize(
    ("entrypoint", "args", "wanted"),
    [
        (PYTHON, ["-u", "train.py", "--lr", "1"], ("train.py", ["--lr", "1"])),
        (PYTHON, ["-u", "-m", "a.b", "x"], ("a.b", ["x"])),
        (PYTHON, ["-c", "print(1)"], (PYTHON, ["-c", "print(1)"])),
        (PYTHON, [], (PYTHON, [])),
        ("./train.sh", ["-u"], ("./train.sh", ["-u"])),
        (run_script_path, ["train.py", "x"], ("train.py", ["x"])),
        (len, [3], ("len", [3])),
        (partial(len), [], ("partial", [])),
    ],
)
def test_the_program_is_what_the_user_wrote_and_no_interpreter(entrypoint: Any, args: Any, wanted: Any) -> None:
    assert split(entrypoint, args) == wanted


@pytest.mark.parametrize(
    ("arg", "shown"),
    [
        ("--lr", "--lr"), (f"--key={SECRET}", "--key=*"), (SECRET, "*"), (f"-p{SECRET}", "-p*"), ("-v", "-v"),
        (f"--{SECRET * 3}", "*"), (f"--{SECRET} x", "*"), ("-5", "*"), ("", "''"), (f"https://u:{SECRET}@h", "*"),
        (f"--a\n={SECRET}", "*"), (f"--a={SECRET}\n", "--a=*"),
    ],
)  # fmt: skip
def test_the_name_of_an_option_is_shown_and_its_value_is_not(arg: str, shown: str) -> None:
    words = command("train.py", arg).arguments.partition(": ")[2]
    assert words.startswith(shown)
    assert len(words) == len(shown) + 2 * shown.endswith("*")


ARGS = st.lists(st.text(max_size=8) | st.sampled_from(["--lr", "--lr=1", "-p1", "", "=", "--", "-", "\ud800", "é"]))


@given(ARGS, ARGS)
def test_arguments_that_differ_are_seen_to_differ_and_the_same_ones_are_the_same(
    one: list[str], two: list[str]
) -> None:
    first, second = command("train.py", *one), command("train.py", *two)
    assert (first == second) == (one == two)
    assert len(first.arguments) <= SUMMARY_LENGTH_MAX + 10


@given(st.lists(st.text(alphabet="abcdef0123456789", min_size=16, max_size=40), min_size=1, max_size=4))
def test_no_value_is_in_the_shared_state(values: list[str]) -> None:
    shown = command("train.py", *(word for v in values for word in (v, f"--key={v}", f"-k{v}"))).arguments
    assert all(value not in shown for value in values)


def test_a_digest_of_one_job_says_nothing_of_another() -> None:
    assert command("t.py", SECRET).arguments != command("t.py", SECRET, run_id="other").arguments


def test_what_is_long_is_cut_and_differs_still() -> None:
    one, two = (command(f"{'x' * 300}{middle}{'x' * 300}.py", *["--a"] * 200) for middle in "ab")
    assert one.program != two.program
    assert {len(one.program), len(two.program)} == {PROGRAM_LENGTH_MAX}
    assert one.arguments == two.arguments and len(one.arguments) <= SUMMARY_LENGTH_MAX + 10


def test_an_argument_of_a_function_is_known_by_its_value_or_its_kind() -> None:
    assert command(3, entrypoint=len) != command(4, entrypoint=len)
    assert command(object(), entrypoint=len) == command(object(), entrypoint=len)


# ---- what nodes agree on


def options(**config: Any) -> Options:
    ours = command("train.py", "--lr=1")
    return Options.of(RendezvousParameters("trystate", "host:1", "job", 1, 2, None, **config), ours)


def test_all_of_it_is_agreed_on_or_parts_or_nothing() -> None:
    whole = command("train.py", "--lr=1")
    assert options().settings.command == whole
    assert options(agree_on="nproc").settings.command == Command(nproc=2)
    assert options(agree_on=" Program + nproc ").settings.command == Command(program="train.py", nproc=2)
    assert options(agree_on="nothing").settings.command == UNKNOWN


@pytest.mark.parametrize("value", ["", "script", "program,nproc", "nothing+nproc", "1"])
def test_what_is_no_part_is_refused_with_those_that_are(value: str) -> None:
    with pytest.raises(RendezvousSettingsError, match=r"agree_on=.*give program\+arguments\+nproc, fewer of these"):
        options(agree_on=value)


def test_a_difference_is_said_with_both_values() -> None:
    ours, theirs = (Settings(1, 2, command=command(name, f"--lr={name}", nproc=n)) for name, n in (("a", 1), ("b", 2)))
    program, arguments, nproc = ours.differences(theirs)
    assert (program, nproc) == ("program is 'b', not 'a'", "nproc is 2, not 1")
    assert arguments == f"arguments are {theirs.command.arguments!r}, not {ours.command.arguments!r}"
    assert Settings(1, 2).differences(Settings(2, 2)) == ["min_nodes is 2, not 1"]
    assert "an --rdzv-id of its own" in ours.refusal(theirs)
    assert "Start this node with them" in Settings(1, 2).refusal(Settings(2, 2))
    assert "nproc is not agreed on (agree_on), not 1" in ours.differences(Settings(1, 2))


# ---- torchrun's command line

TORCHRUN = ["--nproc-per-node=3", "--rdzv-backend=trystate", "--rdzv-id=j", "--rdzv-endpoint=h:1"]
PARAMS = RendezvousParameters("trystate", "h:1", "j", 1, 1)


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        ([*TORCHRUN, "train.py", "--lr=1"], Command.of("j", "python", ["train.py", "--lr=1"], 3)),
        ([*TORCHRUN, "-m", "a.b", "x"], Command.of("j", "python", ["a.b", "x"], 3)),
        ([*TORCHRUN, "--no-python", "./a.sh", "x"], Command.of("j", "./a.sh", ["x"], 3)),
        ([*TORCHRUN, "--run-path", "train.py", "x"], Command.of("j", "python", ["train.py", "x"], 3)),
        (["--rdzv-id=other", *TORCHRUN[:2], "train.py"], None),
        ([*TORCHRUN, "--nproc-per-node=many", "train.py"], None),
        ([*TORCHRUN, "--no-such-option", "train.py"], None),
        ([*TORCHRUN, "--help"], None),
    ],
)
def test_what_torchrun_runs_is_on_its_command_line(
    argv: list[str], wanted: Command | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch tells a handler nothing of it."""
    monkeypatch.setattr(sys, "argv", ["/usr/bin/torchrun", *argv])
    assert torchrun.command(PARAMS) == wanted


def test_another_program_has_a_command_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/srv/launcher.py", *TORCHRUN, "train.py"])
    assert torchrun.command(PARAMS) is None
    params = RendezvousParameters("trystate", "m", "j", 1, 1, store_type="memory")
    made: Any = plugin.create(params)
    with made:
        assert made.for_torchrun is False
        assert made._options.settings.command == UNKNOWN

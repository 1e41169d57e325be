"""The command of a node as other nodes read it: it shows differences and no secrets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.elastic.rendezvous import RendezvousParameters, rendezvous_handler_registry
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.distributed.run import parse_args, run, run_script_path

from trystate.impl.rendezvous import plugin
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
def test_different_arguments_differ_and_equal_ones_are_equal(one: list[str], two: list[str]) -> None:
    first, second = command("train.py", *one), command("train.py", *two)
    assert (first == second) == (one == two)
    assert len(first.arguments) <= SUMMARY_LENGTH_MAX + 10


def test_a_long_description_is_cut_and_still_differs() -> None:
    one, two = (command(f"{'x' * 300}{middle}{'x' * 300}.py", *["--a"] * 200) for middle in "ab")
    assert one.program != two.program
    assert {len(one.program), len(two.program)} == {PROGRAM_LENGTH_MAX}
    assert one.arguments == two.arguments and len(one.arguments) <= SUMMARY_LENGTH_MAX + 10


# ---- the parts on which nodes agree


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
def test_an_unknown_part_is_refused_with_the_known_ones(value: str) -> None:
    with pytest.raises(RendezvousSettingsError, match=r"agree_on=.*give program\+arguments\+nproc, fewer of these"):
        options(agree_on=value)


def test_a_difference_is_said_with_both_values() -> None:
    ours, theirs = (Settings(1, 2, command=command(name, f"--lr={name}", nproc=n)) for name, n in (("a", 1), ("b", 2)))
    program, arguments, nproc = ours.differences(theirs)
    assert (program, nproc) == ("program is 'b', not 'a'", "nproc is 2, not 1")
    assert arguments == f"arguments are {theirs.command.arguments!r}, not {ours.command.arguments!r}"
    assert Settings(1, 2).differences(Settings(2, 2)) == ["min_nodes is 2, not 1"]
    assert "its own --rdzv-id" in ours.refusal(theirs)
    assert "Start this node with them" in Settings(1, 2).refusal(Settings(2, 2))
    assert "nproc is not agreed on (agree_on), not 1" in ours.differences(Settings(1, 2))


# ---- the command of a launcher


class _Stopped(Exception):
    """Replaces a rendezvous, so nothing is started."""


def launched(launch: Callable[[], object]) -> list[Any]:
    """The command of a launch, as torch's launcher passes it to a handler of its id, and to one of another id."""
    found: list[Any] = []

    def create(params: RendezvousParameters) -> Any:
        other = RendezvousParameters(params.backend, params.endpoint, "other", params.min_nodes, params.max_nodes)
        found.extend((plugin.launched(params), plugin.launched(other)))
        raise _Stopped

    with patch.dict(rendezvous_handler_registry._registry, {"spy": create}), pytest.raises(_Stopped):
        launch()
    return found


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (["train.py", "--lr=1"], Command.of("j", "python", ["train.py", "--lr=1"], 3)),
        (["-m", "a.b", "x"], Command.of("j", "python", ["a.b", "x"], 3)),
        (["--no-python", "./a.sh", "x"], Command.of("j", "./a.sh", ["x"], 3)),
        (["--run-path", "train.py", "x"], Command.of("j", "python", ["train.py", "x"], 3)),
    ],
)
def test_a_launchers_command_is_read_from_its_frame(argv: list[str], wanted: Command) -> None:
    """torch does not pass the command to a handler."""
    options = ["--rdzv-backend=spy", "--rdzv-id=j", "--rdzv-endpoint=h:1", "--nproc-per-node=3", *argv]
    assert launched(lambda: run(parse_args(options))) == [wanted, None]  # type: ignore[no-untyped-call]


def test_a_function_that_is_launched_is_a_command_too() -> None:
    config = LaunchConfig(1, 2, 4, run_id="j", rdzv_backend="spy", rdzv_endpoint="h:1")
    assert launched(lambda: elastic_launch(config, len)([3])) == [Command.of("j", len, [[3]], 4), None]

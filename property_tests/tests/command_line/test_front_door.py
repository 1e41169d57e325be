"""The package as it is imported and started: loading it costs nothing, and its names are all there."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import trystate
from trystate.exits import Exit


def test_importing_the_package_loads_no_engine_and_no_heavy_package() -> None:
    heavy = ("torch", "numpy", "dd", "rich", "graphviz", "transitions", "trystate.model.checker.check")
    program = (
        "import sys, trystate, trystate.model; "
        f"print([m for m in {heavy!r} if m in sys.modules]); "
        "import trystate.model.rendezvous; trystate.language.System; "
        f"print([m for m in {heavy[:6]!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n[]\n"


def test_verify_and_replay_need_no_pytest() -> None:
    """The README does not install it before its first command."""
    program = (
        "import sys; sys.modules['pytest'] = None\n"
        "from trystate.commands import replay, verify\n"
        "import trystate.property_tests.adapters.seed_store.scenarios\n"
        "print(len(verify.refinement_checks()) > 1, len(verify.conformance_checks()) > 10)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True True\n", "")


def test_the_console_script_and_the_module_are_the_same() -> None:
    done = subprocess.run([sys.executable, "-m", "trystate", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"trystate {trystate.__version__}\n")


def test_a_terminal_that_knows_only_ascii_and_a_reader_who_leaves_are_no_errors() -> None:
    program = [sys.executable, "-m", "trystate", "table", "rendezvous"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    done = subprocess.run(program, capture_output=True, env=ascii_only)
    assert (done.returncode, done.stderr) == (0, b"")
    short = [*program[:-1], "close"]  # fits the buffer, so that it is first written when it is flushed
    with subprocess.Popen(short, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as left:
        assert left.stdout is not None and left.stderr is not None
        left.stdout.close()
        assert left.stderr.read() == b""


@pytest.mark.parametrize(
    ("line", "code", "err"),
    [
        ("table close >&-", Exit.FAILED, "trystate: standard output cannot be written: Bad file descriptor; "),
        ("table close >/dev/full", Exit.FAILED, "trystate: standard output cannot be written: No space left on "),
        ("--help >/dev/full", Exit.FAILED, "trystate: standard output cannot be written: No space left on "),
        ("table clos 2>&-", Exit.USAGE, ""),  # and its error is not among the output
        ("table clos 2>/dev/full", Exit.USAGE, ""),
        ("explain --message - <&-", Exit.USAGE, "trystate: standard input is empty: "),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_stream_that_cannot_be_used_is_no_internal_error(
    line: str, code: int, err: str, unbuffered: str, tmp_path: Path
) -> None:
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    shell = f"{shlex.quote(sys.executable)} -m trystate {line}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr[: len(err)]) == (code, "", err)
    assert bool(done.stderr) == bool(err)

"""The package is imported without the packages that it does not need, and started in any terminal."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import trystate
from trystate.exits import Exit
from trystate.impl import torch_release

PROGRAMS = {  # claim -> program and its output
    "verify and replay need no pytest, which the README does not install before its first command": (
        "import sys; sys.modules['pytest'] = None\n"
        "from trystate.commands import replay, verify\n"
        "print(len(verify.refinement_checks()) > 1, len(verify.conformance_checks()) > 10)",
        "True True",
    ),
    "a server starts and a system is checked without torch": (
        "import sys; sys.modules['torch'] = None\n"
        "from trystate.check import check\n"
        "from trystate.store import TCPStoreServer\n"
        "from trystate.systems import Ids\n"
        "with TCPStoreServer() as server: print(server.port > 0, check(Ids()).exploration.complete)",
        "True True",
    ),
    "each public system has its editions in a program that loads no other": (
        "import os\n"
        "from trystate import systems\n"
        "for name in systems.__all__:\n"
        "    if not os.fork():\n"
        "        cls = getattr(systems, name)\n"
        "        [cls(edition=edition) for edition in getattr(cls, 'Edition', ())] or cls()\n"
        "        os._exit(0)\n"
        "print({os.wait()[1] for _ in systems.__all__})",
        "{0}",
    ),
    "asking for the range of torch imports none": (
        "import sys, trystate.impl.torch_release as r; print(r.TESTED, 'torch' in sys.modules)",
        f"{torch_release.TESTED} False",
    ),
}


@pytest.mark.parametrize("claim", PROGRAMS)
def test_a_program_without_a_package_works(claim: str) -> None:
    program, printed = PROGRAMS[claim]
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{printed}\n", "")


def test_the_console_script_and_the_module_are_the_same() -> None:
    done = subprocess.run([sys.executable, "-m", "trystate", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"trystate {trystate.__version__}\n")


def test_an_ascii_terminal_and_a_reader_that_leaves_are_not_errors() -> None:
    program = [sys.executable, "-m", "trystate", "table", "rendezvous"]
    done = subprocess.run(program, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii:strict"})
    assert (done.returncode, done.stderr) == (0, b"")
    short = [*program[:-1], "close"]  # the output fits the buffer: only the flush writes it
    with subprocess.Popen(short, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as left:
        assert left.stdout is not None and left.stderr is not None
        left.stdout.close()
        assert left.stderr.read() == b""


UNWRITTEN = "trystate: standard output cannot be written"


@pytest.mark.parametrize(
    ("line", "code", "err"),
    [
        ("trystate table close >&-", Exit.FAILED, f"{UNWRITTEN}: Bad file descriptor; "),
        ("trystate table close >/dev/full", Exit.FAILED, f"{UNWRITTEN}: No space left on "),
        ("PYTHONUNBUFFERED=1 trystate --help >/dev/full", Exit.FAILED, f"{UNWRITTEN}: No space left on "),
        ("trystate table clos 2>&-", Exit.USAGE, ""),  # the error is not printed to the output either
        ("PYTHONUNBUFFERED=1 trystate table clos 2>/dev/full", Exit.USAGE, ""),
        ("trystate explain --message - <&-", Exit.USAGE, "trystate: standard input is empty: "),
    ],
)
def test_a_stream_that_cannot_be_used_is_no_internal_error(line: str, code: int, err: str, tmp_path: Path) -> None:
    shell = line.replace("trystate", f"{shlex.quote(sys.executable)} -m trystate")
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr[: len(err)]) == (code, "", err)
    assert bool(done.stderr) == bool(err)

"""`trystate explain --message`: a text, a log or standard input is explained; a hostile or long one does no harm."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from trystate.__main__ import main
from trystate.exits import Exit
from trystate.monitor import logs
from trystate.property_tests.tests.command_line.setting import Command

LOG = """\
[rank0]:[W1127 11:34:32.108 TCPStore.cpp:141] [c10d] recvValue failed on SocketImpl(fd=3): Connection reset by peer
[rank1]:Traceback (most recent call last):
[rank1]:  File "train.py", line 3, in <module>
[rank1]:torch.distributed.DistStoreError: wait timeout after 60000ms, keys: /torch.rendezvous.j.1/role_info/1
[rank0]:Failed to check the "should dump" flag on TCPStore, with error: Broken pipe
[rank0]:Failed to check the "should dump" flag on TCPStore, with error: Broken pipe
"""


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command line with the real findings: (exit code, stdout, stderr)."""

    def run(*argv: str, stdin: str = "") -> tuple[int, str, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin.encode())))
            code = main(argv)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_message_is_explained_with_its_finding_and_the_sign(command: Command) -> None:
    code, out, _ = command("explain", "--message", "Timed out after 9 seconds waiting for clients. 4/3 clients joined.")
    assert code == Exit.OK
    assert "here: the first number is not below the second" in out
    assert "S16 init-overwritten" in out and "Keep the port reachable" in out
    assert "to record next:" in out and "where trystate cannot help:" in out


def test_a_log_is_given_by_its_path_or_by_standard_input(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(LOG, encoding="utf-8")
    code, out, _ = command("explain", "--message", str(path))
    assert code == Exit.OK
    assert "the first error, in line 1: connection-reset" in out
    assert "errors that come later, and may follow from it\n    line 4: wait-timeout" in out
    assert "what follows from it\n    line 5, 2 times: should-dump" in out
    _, piped, _ = command("explain", "--message", "-", stdin=LOG)
    assert piped.splitlines()[1:] == out.splitlines()[1:]


def test_a_program_gets_the_rows_as_json(command: Command) -> None:
    code, out, _ = command("explain", "--json", "--message", "RendezvousClosedError")
    found = json.loads(out)
    assert (code, found["first"]) == (Exit.OK, "rendezvous-closed")
    assert found["messages"][0]["causes"][1]["findings"] == ["A2", "R10", "A16"]
    code, out, _ = command("explain", "--json", "--message", "all is well here")
    assert (code, json.loads(out)["messages"]) == (Exit.INCOMPLETE, [])


def test_a_text_of_no_row_is_said_with_what_to_do_next(command: Command) -> None:
    code, out, err = command("explain", "--message", "KeyError: 'loss'")
    assert (code, out) == (Exit.INCOMPLETE, "")
    assert "no known message is in this text" in err and "docs/troubleshooting.md" in err


def test_a_log_of_consequences_alone_names_no_first_error(command: Command) -> None:
    _, out, _ = command("explain", "--message", "sendBytes failed on a: Broken pipe\nChildFailedError: \n")
    assert "each of them is a consequence: the first error is in the log of another rank or node" in out
    assert "the first error," not in out


@pytest.mark.parametrize(
    "argv", [["job.record"], ["--html", "a.html"], ["--diagram", "a.svg"]], ids=["record", "html", "diagram"]
)
def test_a_message_beside_what_a_record_needs_is_refused(command: Command, argv: list[str]) -> None:
    code, _, err = command("explain", *argv, "--message", "Socket Timeout")
    assert code == Exit.USAGE and "--message explains a text alone" in err


@pytest.mark.parametrize("argv", [["--message", ""], ["--message", " \n"], []])
def test_nothing_to_explain_is_said(command: Command, argv: list[str]) -> None:
    code, _, err = command("explain", *argv)
    assert code == Exit.USAGE
    assert "give --message TEXT" in err or "is empty" in err


def test_a_log_above_the_limit_is_refused_with_the_limit(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    with path.open("wb") as file:
        file.truncate(logs.LOG_BYTES_MAX + 1)
    code, _, err = command("explain", "--message", str(path))
    assert code == Exit.USAGE
    assert "more than 64 MiB" in err and "grep" in err


def test_a_folder_is_refused(command: Command, tmp_path: Path) -> None:
    code, _, err = command("explain", "--message", str(tmp_path))
    assert code == Exit.USAGE and "cannot be read" in err


def test_no_control_character_of_a_text_reaches_the_terminal(command: Command) -> None:
    code, out, _ = command("explain", "--message", "Socket Timeout\x1b[2J\x07\x1b]0;x\x07\x9b31m \u202e\x00verdict")
    assert code == Exit.OK
    assert all(c == "\n" or c.isprintable() for c in out), out
    assert "\\x07" in out and "\\u202e" in out


def test_it_works_without_torch() -> None:
    program = "import sys; sys.modules['torch'] = None\nfrom trystate.__main__ import main\nsys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, "explain", "--message", "Socket Timeout"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (Exit.OK, "")
    assert "S14 frozen-server" in done.stdout

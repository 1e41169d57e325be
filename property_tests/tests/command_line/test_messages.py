"""`trystate explain --message`: a text, a log or standard input is explained, also a hostile or long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trystate.exits import Exit
from trystate.monitor import logs
from trystate.property_tests.tests.command_line.setting import Command, says

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


def test_it_works_without_torch() -> None:
    program = "import sys; sys.modules['torch'] = None\nfrom trystate.__main__ import main\nsys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, "explain", "--message", "Socket Timeout"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (Exit.OK, "")
    assert "S14 frozen-server" in done.stdout

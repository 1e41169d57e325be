"""The command lines of sessions.txt print the output recorded there."""

import re
import shlex
from pathlib import Path

import pytest

from trystate.exits import Exit
from trystate.property_tests.support.published.protocols import LockServer
from trystate.property_tests.support.recorded import unpacked
from trystate.property_tests.support.systems.lock import Lock
from trystate.property_tests.tests.command_line.setting import HERE, Command

NAMES = {"HERE": HERE, "LOCK": Lock.__module__, "SERVER": LockServer.__module__}
TEXT = (Path(__file__).parent / "sessions.txt").read_text(encoding="utf-8")
SESSIONS = dict(part.split("\n", 1) for part in re.split(r"^## ", TEXT, flags=re.M)[1:])


@pytest.mark.parametrize("claim", SESSIONS)
def test_each_command_of_a_session_says_what_is_shown(claim: str, request: pytest.FixtureRequest) -> None:
    command: Command = request.getfixturevalue("said" if claim.endswith("(of torch)") else "command")
    if SESSIONS[claim].startswith("$ run "):
        pytest.importorskip("torch", reason="its options are torchrun's")
    for name, line, shown in re.findall(r"^(?:@ (\S+)\n)?\$ (.*)\n((?:[^@$\n].*\n?)*)", SESSIONS[claim], re.M):
        if name:
            Path("job.jsonl").write_bytes(unpacked(name))
        assert_says(command, line, shown.splitlines())


def assert_says(command: Command, line: str, shown: list[str]) -> None:
    typed = "".join(f"{each[2:]}\n" for each in shown if each.startswith("< "))
    code, out, err = command(*shlex.split(line.format_map(NAMES)), stdin=typed)
    codes = [int(each[1:-1]) for each in shown if re.fullmatch(r"\[\d+\]", each)] or [Exit.OK]
    assert [code] == codes, f"{line}\n{out}{err}"
    if code == Exit.USAGE:
        assert out == "" and err.splitlines()[-1].startswith("trystate"), line
    said, at = err.splitlines()[-1] if code == Exit.USAGE else out + err, 0
    assert "\x1b" not in said
    for text in shown:
        if text.startswith("!"):
            assert text[1:] not in said, line
        elif not text.startswith("< ") and not re.fullmatch(r"\[\d+\]", text):
            found = re.compile(text[1:] if text.startswith("/") else re.escape(text), re.M).search(said, at)
            assert found, f"{line}\ndoes not say, after {said[:at][-80:]!r}\n{text}\nbut\n{said[at:]}"
            at = found.end()

"""The exit codes. Rule: a command exits with 0 only if everything was decided and each violation is a known defect."""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Mapping
from pathlib import Path


class Exit(enum.IntEnum):
    """An exit code of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INCOMPLETE = 3
    INTERNAL = 4
    INTERRUPTED = 130  # a shell reports this for a process ended by SIGINT,
    TERMINATED = 143  # and this for SIGTERM


REPORT_DIRECTORY = Path("trystate-report")  # where a command that searches writes without --out
TRACEBACK = "traceback.txt"  # the traceback of an internal error, in the report directory

USUAL = {  # the meaning of each code, unless a command's page of the manual has another
    Exit.OK: "done",
    Exit.FAILED: "failed, or the output was not read to its end",
    Exit.USAGE: "a wrong argument",
    Exit.INCOMPLETE: "not done: a limit was reached, or a package is missing",
    Exit.INTERNAL: "internal error; its traceback is in trystate-report, or in the --out of verify",
    Exit.INTERRUPTED: "interrupted",
    Exit.TERMINATED: "terminated",
}
CODE_WIDTH, TEXT_WIDTH = 5, 88


def exits_help(own: Mapping[Exit, str]) -> str:
    """The exit codes of a command, one a line.

    Args:
        own: the codes with another meaning than usual in this command
    """
    lines = []
    for code, usual in USUAL.items():
        text = textwrap.wrap(own.get(code, usual), TEXT_WIDTH)
        lines += [f"  {code:<{CODE_WIDTH}}{text[0]}", *(f"  {'':<{CODE_WIDTH}}{line}" for line in text[1:])]
    return "\n".join(["exit codes:", *lines, ""])

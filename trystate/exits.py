"""What the exit codes mean. Rule: 0 is said only when everything was decided and is as declared."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """An exit code of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INCOMPLETE = 3
    INTERNAL = 4
    INTERRUPTED = 130  # what a shell reports for a process ended by SIGINT


TRACEBACK = "traceback.txt"  # of an internal error, in the report directory

EXITS_HELP = """\
exit codes:
  0  done; for verify: everything was decided and is as declared
  1  an undeclared violation, a declared finding not found, a coverage gap, a conformance disagreement,
     a stale diagram, a finding not reproduced, a wrong declaration, or a job that failed
  2  a wrong argument
  3  incomplete: something was not decided, or needs a package that is missing
  4  internal error; the traceback is in the report directory
"""

"""The exit codes. Rule: 0 is said only when everything was decided, and each violation is a known defect."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """An exit code of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INCOMPLETE = 3
    INTERNAL = 4
    INTERRUPTED = 130  # as a shell reports a process ended by SIGINT,
    TERMINATED = 143  # or by SIGTERM


TRACEBACK = "traceback.txt"  # of an internal error, in the report directory

EXITS_HELP = """\
exit codes:
  0  done; for verify: everything was decided, and each violation is a known defect
  1  a violation that is not known, a known one that was not found, a coverage gap, a conformance disagreement,
     a stale diagram, a finding not reproduced, a wrong declaration, or a job that failed
  2  a wrong argument
  3  incomplete: something was not decided, or needs a package that is missing
  4  internal error; the traceback is in the report directory
  130, 143  interrupted, terminated; the report of verify has what was done by then
"""

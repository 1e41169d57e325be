"""The simulator's command as a program that a test starts."""

from __future__ import annotations

import contextlib
import os
import sys

from ...adapters.simulator.__main__ import main
from ..mutants import planted
from .engine_mutants import MUTANTS


def begin(*argv: str) -> None:
    """In a child: the command, on the mutant that the variable BROKEN names, if there is one."""
    sys.argv = ["simulator", *argv]
    with planted(MUTANTS[name]) if (name := os.environ.get("BROKEN")) else contextlib.nullcontext():
        sys.exit(main())

"""The command line: its commands, and what becomes of an error. The module of a command has its options.

Rule: a wrong argument is one line on stderr and exit code 2; a command's module is loaded only when it runs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import trystate
from trystate.impl.host.visible import visible
from trystate.model.errors import DeclarationError, LimitReached, UnavailableError, UsageError

from .completion import SHELLS, PrintCompletion
from .exits import REPORT_DIRECTORY, TRACEBACK, Exit
from .manual import TOP, add_page
from .streams import OutputLost, drop_output

COMMANDS = {  # each command, and the module of trystate.commands that has its function and its options
    name: "operate" if name in ("status", "close", "drain") else name
    for name in (
        "verify", "search", "prove", "explore", "follow", "page", "diagram", "table", "export", "replay", "store",
        "explain", "run", "watch", "status", "close", "drain", "doctor", "simulate",
    )
}  # fmt: skip


def run(argv: Sequence[str]) -> int:
    """Carry out one command line; returns the exit code."""
    out = REPORT_DIRECTORY
    try:
        try:
            args = parser(next((word for word in argv if word in COMMANDS), "")).parse_args(argv)
            out = getattr(args, "report", None) or out
            code = int(args.command(args))
        except SystemExit as done:  # --help and --version
            code = int(done.code or 0)
        sys.stdout.flush()  # a lost output is noticed here, where it can still be handled
        return code
    except UsageError as error:
        return _fail(error, Exit.USAGE)
    except (LimitReached, UnavailableError) as error:
        return _fail(error, Exit.INCOMPLETE)
    except MemoryError:
        return _fail("no more memory: free some, or ask for less", Exit.INCOMPLETE)
    except DeclarationError as error:
        return _fail(error, Exit.FAILED)
    except KeyboardInterrupt:
        return _fail("interrupted", Exit.INTERRUPTED)
    except OutputLost as lost:
        drop_output()
        if isinstance(lost.__cause__, BrokenPipeError):  # the reader has seen enough
            return Exit.FAILED
        why = getattr(lost.__cause__, "strerror", None)
        return _fail(f"standard output cannot be written: {why}; send it to another place", Exit.FAILED)
    except Exception as error:
        return _fail(f"internal error: {error!r}; {_keep_traceback(out)}", Exit.INTERNAL)


def _fail(why: object, code: Exit) -> int:
    print(f"trystate: {visible(' '.join(str(why).split()))}", file=sys.stderr)
    return code


def _keep_traceback(out: Path) -> str:
    path = out / TRACEBACK
    try:
        out.mkdir(exist_ok=True)
        path.write_text(traceback.format_exc(), encoding="utf-8")
    except OSError as error:
        return f"its traceback could not be written to {path}: {error}"
    return f"the traceback is in {path}"


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {self.prog} --help has more")


def parser(only: str | None = None) -> Parser:
    """The whole command line. If `only` names a command, the other commands are without their options."""
    top = Parser(
        prog="trystate",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        description=TOP.description,
        epilog=TOP.epilog,
    )
    top.add_argument("--version", action="version", version=f"trystate {trystate.__version__}")
    top.add_argument(
        "--print-completion",
        choices=SHELLS,
        action=PrintCompletion,
        help="print the script with which a shell completes this command line",
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        command = add_page(commands, name, name)
        if only in (None, name):
            loaded = importlib.import_module(f"trystate.commands.{module}")
            command.set_defaults(command=getattr(loaded, name))
            getattr(loaded, f"{name}_options")(command)
    return top

"""The standard streams of the process: an output that cannot be written is a separate error.

Rule: a stream that the caller has closed is never None, and children of this process find it closed as well.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, BinaryIO


class OutputLost(Exception):
    """Standard output cannot be written; its cause is the OSError."""


class _Output(TextIOWrapper):
    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise OutputLost from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise OutputLost from error


class _Errors(TextIOWrapper):
    """A text that cannot be written there is lost; the exit code still shows how the command ended."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def adopt() -> None:
    """Replace the streams of this process, unless a program around this one has done so."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 (for as long as the process lives)
    if sys.stdout is sys.__stdout__:
        # Closed (`>&-`): a descriptor that can only be read refuses what is written, as a closed one would.
        sys.stdout = _Output(_closed(os.O_RDONLY)) if sys.stdout is None else _like(sys.stdout, _Output)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _Errors(_closed(os.O_WRONLY)) if sys.stderr is None else _like(sys.stderr, _Errors)


def _closed(flag: int) -> BinaryIO:
    return open(os.open(os.devnull, flag), "wb")


def _like(stream: Any, kind: type[TextIOWrapper]) -> TextIOWrapper:
    """Guards are printed with ∧ and →: a terminal without them gets question marks, not an error."""
    return kind(
        stream.buffer, stream.encoding, "replace", line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )  # fmt: skip


def drop_output() -> None:
    """Let Python end without another complaint about the output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

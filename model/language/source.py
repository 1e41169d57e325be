"""The line of the user's file that wrote something, for the text of an error."""

from __future__ import annotations

import os
import sys
from types import CodeType
from typing import NoReturn

from ..errors import DeclarationError

_HERE = os.path.dirname(os.path.abspath(__file__))


def line() -> str:
    """`file:line` of the innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def is_ours(path: str) -> bool:
    """Whether the file belongs to this package."""
    return path.startswith(_HERE)


def line_of(code: CodeType) -> str:
    return f"{code.co_filename}:{code.co_firstlineno}"


_refusals: list[str] = [""]  # the last one, as its text: an error has the frames that raised it


def refused() -> list[str]:
    """The last refusal, which the code of a body may have caught; each one is another list."""
    return _refusals


def refuse(message: str, *, at: str | None = None) -> NoReturn:
    """Raise a DeclarationError that begins with the line to blame."""
    global _refusals
    _refusals = [f"{at or line()}: {message}"]
    raise DeclarationError(_refusals[0])

"""A system with fields of every kind, and the error of a bad declaration beside them."""

from __future__ import annotations

import enum
from collections.abc import Callable

import pytest

from trystate.model.errors import DeclarationError
from trystate.model.language import System, choice, constant, flag, index, integer


class Mood(enum.Enum):
    CALM = "calm"
    CROSS = "cross"
    GONE = "gone"


class Other(enum.Enum):
    ONE = "one"
    TWO = "two"


class Base(System):
    """Fields of every kind, for one bad line each."""

    node = index(2)
    top = constant(3)

    mood = choice(Mood)
    level = integer(0, "top")
    seen = flag(per="node")
    knows = flag(per=("node", "node"))


def refusal(declare: Callable[[], object]) -> str:
    with pytest.raises(DeclarationError) as error:
        declare()
    return str(error.value)

"""A system with fields of every kind, and the error of a bad declaration added to it."""

from __future__ import annotations

import enum
import linecache
from collections.abc import Callable
from typing import Any

import pytest

from trystate.model import language
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
    """Fields of every kind; a test adds one bad line."""

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


FILE = "<declaration>"
WAVE = """
light = choice(Mood, per='node')
@machine(Mood, each='node')
def lamp(self, s, node): 'The lamp of a node.'; return s.light[node]
@transition(each='node', moves={})
def wave(self, s, node):
    'All others.'
    for j in s.node: s.light[j] = ite(j == node, s.light[j], Mood.CROSS)
"""  # a lamp per node, and a node that switches on all others; with the moves that it claims


def declared(text: str, base: type[System] = Base, *, name: str = "Bad", **given: Any) -> type[System]:
    """A class with these declarations in addition to its base's; their lines are lines of `FILE`."""
    names = {**vars(language), "Mood": Mood, "Other": Other, **given, "__name__": __name__}
    body: dict[str, Any] = {}
    linecache.cache[FILE] = len(text), None, text.splitlines(keepends=True), FILE
    exec(compile(text, FILE, "exec"), names, body)
    return type(name, (base,), body)


def assert_refused(text: str, words: str, base: type[System] = Base, **given: Any) -> None:
    """The error names the line with `# here`, or the first line, and has these words; "…" stands for any text."""
    message = refusal(lambda: declared(text, base, **given)())
    line = next((n for n, of in enumerate(text.splitlines(), 1) if of.endswith("# here")), 1)
    begins, *parts = words.split("…")
    assert message.startswith(f"{FILE}:{line}: {begins.rstrip()}")
    assert all(part.strip() in message for part in parts)

"""Runs the functions of declarations: a body is a plain function that leaves the same trees whenever it runs.

*Theory of operation.* A body runs while a system is built, and its trees then stand for every state. A body that draws,
reads a clock or counts its calls would leave trees of one run, so a body runs twice, and is refused where the trees
differ. A draw may be the same twice: where the generator of `random` has moved, the body runs up to `DRAWS` more times.
The bodies of the systems in this package run once, since a test compares them all.

Failures, each refused with its line: the function is `async` or a generator, it does not take the members that its
`each` gives it, it raises (an undefined name, a wrong type), or its trees differ.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any, TypeVar

from ..errors import TrystateError
from . import source
from .expressions import Expr, lift

DRAWS = 30  # a draw of three values is the same in all of them once in 10^14 builds
_COMPARED_BY_A_TEST = __name__.partition(".language.")[0] + "."
_STANDARD_LIBRARY = os.path.dirname(os.__file__)

Tree = tuple[Expr, str]  # and the line that wrote it
T = TypeVar("T")


def check_plain(body: Callable[..., Any]) -> None:
    """Refuse a function that a call does not run to its end: its trees would be lost."""
    if inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body):
        kind, remedy = "async", "declare it with `def` alone"
    elif inspect.isgeneratorfunction(body):
        kind, remedy = "a generator", "leave `yield` out"
    else:
        return
    source.refuse(f"{body.__name__} is {kind}, and a call would not run it: {remedy}", at=source.line_of(body.__code__))


def call(name: str, body: Callable[..., Any], system: Any, *given: Any) -> Any:
    """The result of one run of a body."""
    at = source.line_of(body.__code__)
    takes = inspect.signature(body)
    try:
        takes.bind(system, *given)
    except TypeError:
        members = [str(one) for one in given if isinstance(one, Expr)]
        states = ("", "the state", "the states before and after")[len(given) - len(members)]
        source.refuse(
            f"{name} takes ({', '.join(takes.parameters)}), and gets self, {states}, and "
            f"{'the members ' + ', '.join(members) if members else 'no member'}: "
            "let each= name an index for each member that it takes",
            at=at,
        )
    try:
        return body(system, *given)
    except (TrystateError, MemoryError):
        raise
    except Exception as error:
        source.refuse(f"{name} raises {type(error).__name__}: {error}", at=_line_in(error, body))


def value(name: str, result: Any, at: str) -> Expr:
    """The result of a body, as a tree."""
    if result is None:
        source.refuse(f"{name} returns nothing: return a condition or a value of the state", at=at)
    return lift(result)


def tree(name: str, body: Callable[..., Any], system: Any, *given: Any) -> Expr:
    """The one tree that a body returns, the same in each run."""
    at = source.line_of(body.__code__)
    return settled(body, lambda: value(name, call(name, body, system, *given), at), lambda found: [(found, at)])


def settled(body: Callable[..., Any], run: Callable[[], T], trees: Callable[[T], Iterable[Tree]]) -> T:
    """The result of `run`, which calls the body, once more runs have left the same trees."""
    if body.__module__.startswith(_COMPARED_BY_A_TEST):
        return run()
    before, first = _drawn(), run()
    drawn = _drawn() != before
    for _ in range(DRAWS if drawn else 1):
        for one, other in zip_longest(trees(first), trees(run())):
            if one is None or other is None or one[0] is not other[0]:
                (shown, at), again = one or other, other and other[0]
                source.refuse(
                    f"{body.__name__} gives {shown}, and {again} when it runs again: a body runs when the system is "
                    "built, and not in each state; declare a transition for each case, or one with each= over an index",
                    at=at,
                )
    return first


def _drawn() -> object:
    """The state of the generator of `random`, which the author of a body has imported to draw from it."""
    module = sys.modules.get("random")
    return module.getstate() if module is not None else None


def _line_in(error: Exception, body: Callable[..., Any]) -> str:
    """The innermost line that the author of the body wrote."""
    at, here = source.line_of(body.__code__), error.__traceback__
    while here is not None:
        path = here.tb_frame.f_code.co_filename
        if path == body.__code__.co_filename or (not source.is_ours(path) and not path.startswith(_STANDARD_LIBRARY)):
            at = f"{path}:{here.tb_lineno}"
        here = here.tb_next
    return at

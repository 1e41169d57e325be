"""Mutants: mistakes that a test plants, so that the claims which must notice them are seen to fail.

A mutant is a function that plants one mistake with a `pytest.MonkeyPatch`, which takes it away again. Some are written
out (`replaced`, `wrapped`, `rewritten`); `generated` are all that one change of an expression of a function gives.

Rule: the lists stand beside the tests that notice them. A survivor is a branch that no claim looks at, or one that
makes no difference; the test says which.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from types import FunctionType
from typing import Any

import pytest

Mutant = Callable[[pytest.MonkeyPatch], Any]
COMPARED = "2.13."  # the release of torch whose lines the mutants are made of

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
}  # fmt: skip
BREAKABLE = (ast.If, ast.IfExp, ast.BoolOp, ast.Compare, ast.Attribute, ast.Tuple)


@contextmanager
def planted(mutant: Mutant) -> Iterator[Any]:
    """The mutant is there while the block runs; the value is what it returned."""
    with pytest.MonkeyPatch.context() as patch:
        yield mutant(patch)


def survives(mutant: Mutant, claim: Callable[[], object]) -> bool:
    """Does the claim, which raises when it finds something wrong, hold although the mutant is there?"""
    with planted(mutant):
        try:
            claim()
        except (Exception, pytest.fail.Exception):
            return False
    return True


def survivors(mutants: Mapping[str, Mutant], claim: Callable[[], object]) -> list[str]:
    """The names of those that survive the claim, which holds without them."""
    claim()
    return [name for name, mutant in mutants.items() if survives(mutant, claim)]


def replaced(owner: Any, attribute: str, value: Any) -> Mutant:
    """The attribute has another value."""
    return lambda patch: patch.setattr(owner, attribute, value)


def wrapped(owner: Any, attribute: str, wrong: Callable[[Any], Any]) -> Mutant:
    """The attribute has the value that `wrong` makes of it when the mutant is planted."""
    return lambda patch: patch.setattr(owner, attribute, wrong(getattr(owner, attribute)))


def rewritten(function: Callable[..., Any], right: str, wrong: str) -> Mutant:
    """The function's source has `wrong` where it has `right`, once; the test is skipped where torch has other lines."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    if source.count(right) != 1:
        said = f"{right!r} must occur once in {function.__qualname__}"
        assert function.__module__.startswith("torch.") and not version("torch").startswith(COMPARED), said
        return lambda patch: pytest.skip(f"{said}, and torch {version('torch')} has other lines")
    return _exchanged(function, _parsed(source.replace(right, wrong)))


def generated(function: Callable[..., Any], choices: tuple[str, str] = ("_.a", "_.b")) -> dict[str, Mutant]:
    """Each condition, operand, comparison and choice of the function made wrong, one at a time, by what was changed.

    Args:
        function: one without a closure, whose source is there.
        choices: two members of an enum: an outcome becomes the first, and where it is that one, the second.

    Raises:
        OSError, SyntaxError, TypeError, AssertionError: the function has no source, or it is that of a decorator.
    """
    tree = _parsed(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    made: dict[str, Mutant] = {}
    for place in (place for place, node in enumerate(ast.walk(tree)) if isinstance(node, BREAKABLE)):
        for wrong in range(5):
            changed = copy.deepcopy(tree)
            said = _break(list(ast.walk(changed))[place], wrong, choices)
            if said is None:
                break
            name = f"{function.__name__}: {said}"
            made[name if name not in made else f"{name} (at node {place})"] = _exchanged(function, changed)
    return made


def _parsed(source: str) -> ast.Module:
    """Without what nobody looks at when it runs: decorators and annotations."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list, node.returns = [], None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Name("Any", ast.Load())
    return tree


def _break(node: ast.AST, wrong: int, choices: tuple[str, str]) -> str | None:
    """Make one thing wrong in place, and say so; None: there are not so many that can be wrong here."""
    before = ast.unparse(node) if isinstance(node, ast.expr) else ""
    if isinstance(node, ast.If | ast.IfExp) and wrong < 3:
        test = ast.unparse(node.test)
        node.test = (ast.Constant(True), ast.Constant(False), ast.UnaryOp(ast.Not(), node.test))[wrong]
        return f"if {test} -> {ast.unparse(node.test)}"
    if isinstance(node, ast.BoolOp) and wrong < len(node.values):
        node.values[wrong] = ast.Constant(isinstance(node.op, ast.And))  # as if it were not there
    elif isinstance(node, ast.Compare) and wrong < len(node.ops):
        node.ops[wrong] = COMPARISONS[type(node.ops[wrong])]()
    elif isinstance(node, ast.Attribute) and wrong == 0 and ast.unparse(node.value) == choices[0].split(".")[0]:
        node.attr = next(c.split(".")[1] for c in choices if c.split(".")[1] != node.attr)
    elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and wrong < len(node.elts):
        del node.elts[wrong]
    else:
        return None
    return f"{before} -> {ast.unparse(node)}"


def _exchanged(function: Callable[..., Any], tree: ast.Module) -> Mutant:
    """Wherever the function is called from, it has the code and the defaults of this source."""
    plain = inspect.unwrap(function)
    written = tree.body[0]
    assert isinstance(plain, FunctionType) and isinstance(written, ast.FunctionDef), "no function's source"
    assert written.name == plain.__name__, "the source of what a decorator made of it"
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), "<mutant>", "exec"), plain.__globals__, made)
    other = made[plain.__name__]

    def plant(patch: pytest.MonkeyPatch) -> None:
        for attribute in ("__code__", "__defaults__", "__kwdefaults__"):
            patch.setattr(plain, attribute, getattr(other, attribute))

    return plant

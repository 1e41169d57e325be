"""Mutants: mistakes that a test plants; the claims that must notice them have to fail.

A mutant is a function that plants one mistake with a `pytest.MonkeyPatch`, which takes it away again. Some are written
out (`replaced`, `wrapped`, `rewritten`); `generated` makes one for each change of one expression of a function.

Rule: the lists are next to the tests that notice them. A survivor is in a branch that no claim covers, or makes no
difference; the test names it.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from types import FunctionType
from typing import Any

import pytest

from trystate.model.language.transitions import Rule

Mutant = Callable[[pytest.MonkeyPatch], Any]
COMPARED = "2.13."  # the release of torch whose lines the mutants change

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
}  # fmt: skip
BREAKABLE = (ast.If, ast.IfExp, ast.BoolOp, ast.Compare, ast.Attribute, ast.Tuple)


@contextmanager
def planted(mutant: Mutant) -> Iterator[Any]:
    """Plant the mutant while the block runs; yields its result."""
    with pytest.MonkeyPatch.context() as patch:
        yield mutant(patch)


def survives(mutant: Mutant, claim: Callable[[], object]) -> bool:
    """Whether the claim, which raises if something is wrong, holds with the mutant planted."""
    with planted(mutant):
        try:
            claim()
        except (Exception, pytest.fail.Exception):
            return False
    return True


def survivors(mutants: Mapping[str, Mutant], claim: Callable[[], object]) -> list[str]:
    """Check that `claim` holds without a mutant. Return the names of the mutants under which it still holds."""
    claim()
    return [name for name, mutant in mutants.items() if survives(mutant, claim)]


def replaced(owner: Any, attribute: str, value: Any) -> Mutant:
    """The attribute has another value."""
    return lambda patch: patch.setattr(owner, attribute, value)


def wrapped(owner: Any, attribute: str, wrong: Callable[[Any], Any]) -> Mutant:
    """The attribute has the value that `wrong` makes of it when the mutant is planted."""
    return lambda patch: patch.setattr(owner, attribute, wrong(getattr(owner, attribute)))


def together(*mutants: Mutant) -> Mutant:
    """All these mutants at once."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for mutant in mutants:
            mutant(patch)

    return plant


def delayed(right: Callable[..., Any]) -> Callable[..., None]:
    """Each call returns at once, and is done only with the next call: for `wrapped`."""
    due: list[tuple[Any, ...]] = []

    def late(*arguments: Any) -> None:
        due.append(arguments)
        if len(due) > 1:
            right(*due.pop(0))

    return late


def wrong(name: str, base: type[Any], **attributes: Any) -> type[Any]:
    """A class that differs from its base in these attributes.

    A rule of a system has another body if its attribute is a function, and other fields if it is a mapping of these.
    """
    for key, value in attributes.items():
        rule = getattr(base, key, None)
        if isinstance(rule, Rule) and value is not None:
            attributes[key] = replace(rule, **(value if isinstance(value, dict) else {"body": value}))
    meta: Any = type(base)
    made: type[Any] = meta(name, (base,), attributes)
    return made


def rewritten(function: Callable[..., Any], right: str, wrong: str) -> Mutant:
    """The function's source has `wrong` where it has `right`, once; the test is skipped where torch has other lines."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    if source.count(right) != 1:
        said = f"{right!r} must occur once in {function.__qualname__}"
        assert function.__module__.startswith("torch.") and not version("torch").startswith(COMPARED), said
        return lambda patch: pytest.skip(f"{said}, and torch {version('torch')} has other lines")
    return _exchanged(function, _parsed(source.replace(right, wrong)))


def detected(mutants: Mapping[str, tuple[Any, Callable[..., Any], str, str]]) -> Callable[[str], None]:
    """The test that a replay detects each mutant: a row has what is replayed, and the arguments of `rewritten`."""

    @pytest.mark.parametrize("name", mutants)
    def test(name: str) -> None:
        one, function, right, wrong = mutants[name]
        with planted(rewritten(function, right, wrong)):
            assert one.replay(stop_after=1).disagreements

    return test


def altered(name: str, base: type[Any], method: str, right: str, instead: str) -> type[Any]:
    """A class whose method, or body of a rule, has `instead` for `right` in its base's, once; no `super()`."""
    found = getattr(base, method)
    function = getattr(found, "body", found)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(right) == 1, f"{right!r} must occur once in {function.__qualname__}"
    return wrong(name, base, **{method: _made(function, _parsed(source.replace(right, instead)))})


def generated(function: Callable[..., Any], choices: tuple[str, str] = ("_.a", "_.b")) -> dict[str, Mutant]:
    """Each condition, operand, comparison and choice of the function made wrong, one at a time, by what was changed.

    Args:
        function: a function without a closure, with its source.
        choices: two members of an enum: an outcome becomes the first, or the second if it is the first.

    Raises:
        OSError, SyntaxError, TypeError, AssertionError: the function has no source, or the source is a decorator's.
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
    """The tree without parts that have no effect when it runs: decorators and annotations."""
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
    """Make the mistake number `wrong` in place and describe it; None if the node has fewer."""
    before = ast.unparse(node) if isinstance(node, ast.expr) else ""
    if isinstance(node, ast.If | ast.IfExp) and wrong < 3:
        test = ast.unparse(node.test)
        node.test = (ast.Constant(True), ast.Constant(False), ast.UnaryOp(ast.Not(), node.test))[wrong]
        return f"if {test} -> {ast.unparse(node.test)}"
    if isinstance(node, ast.BoolOp) and wrong < len(node.values):
        node.values[wrong] = ast.Constant(isinstance(node.op, ast.And))  # the caller treats it as missing
    elif isinstance(node, ast.Compare) and wrong < len(node.ops):
        node.ops[wrong] = COMPARISONS[type(node.ops[wrong])]()
    elif isinstance(node, ast.Attribute) and wrong == 0 and ast.unparse(node.value) == choices[0].split(".")[0]:
        node.attr = next(c.split(".")[1] for c in choices if c.split(".")[1] != node.attr)
    elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and wrong < len(node.elts):
        del node.elts[wrong]
    else:
        return None
    return f"{before} -> {ast.unparse(node)}"


def _made(plain: Callable[..., Any], tree: ast.Module) -> Callable[..., Any]:
    """The function of this source, with the globals of the other function."""
    written = tree.body[0]
    assert isinstance(plain, FunctionType) and isinstance(written, ast.FunctionDef), "no function's source"
    assert written.name == plain.__name__, "the source of what a decorator made of it"
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), "<mutant>", "exec"), plain.__globals__, made)
    other: Callable[..., Any] = made[plain.__name__]
    return other


def _exchanged(function: Callable[..., Any], tree: ast.Module) -> Mutant:
    """Wherever the function is called from, it has the code and the defaults of this source."""
    plain = inspect.unwrap(function)
    other = _made(plain, tree)

    def plant(patch: pytest.MonkeyPatch) -> None:
        for attribute in ("__code__", "__defaults__", "__kwdefaults__"):
            patch.setattr(plain, attribute, getattr(other, attribute))

    return plant

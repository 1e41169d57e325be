"""The mutants of a function: each condition, operand, comparison and choice made wrong, one at a time.

`Mutant` is one that is written out.

A survivor is a branch that no test looks at, or one that makes no difference; who asks says which.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
}  # fmt: skip


def mutants(function: Callable[..., Any], choices: tuple[str, str]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Each wrong version of a function, and what was made wrong. `choices` are two members of one enum: an outcome
    becomes the first of them, and where it is that one, the second."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):  # nobody looks at these when it runs
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Name("Any", ast.Load())
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in (*node.args.args, *node.args.kwonlyargs):
                argument.annotation = None
    places = sum(1 for _ in ast.walk(tree))
    for place in range(places):
        for wrong in range(5):
            changed = copy.deepcopy(tree)
            node = list(ast.walk(changed))[place]
            said = _break(node, wrong, choices)
            if said is not None:
                yield f"{function.__name__}: {said}", _compiled(changed, function)


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
    ast.fix_missing_locations(node)
    return f"{before} -> {ast.unparse(node)}"


def _compiled(tree: ast.AST, function: Callable[..., Any]) -> Callable[..., Any]:
    assert isinstance(tree, ast.Module) and isinstance(tree.body[0], ast.FunctionDef)
    tree.body[0].decorator_list = []
    made: dict[str, Any] = {}
    flags = __import__("__future__").annotations.compiler_flag
    exec(compile(ast.fix_missing_locations(tree), "<mutant>", "exec", flags), function.__globals__, made)
    changed: Callable[..., Any] = made[function.__name__]
    return changed


@dataclass(frozen=True)
class Mutant:
    """One place in a source that is made wrong."""

    name: str
    owner: Any
    function: str
    right: str
    wrong: str
    faults: tuple[str, ...] = ()
    min_nodes: int = 2

    def plant(self, patch: pytest.MonkeyPatch) -> None:
        """Replace the function by one compiled from the changed source, in the same module."""
        function = getattr(self.owner, self.function)
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(self.right) == 1, f"{self.name}: {self.right!r} must occur once in {self.function}"
        made: dict[str, Any] = {}
        code = "from __future__ import annotations\n" + source.replace(self.right, self.wrong)
        exec(code, function.__globals__, made)
        patch.setattr(self.owner, self.function, made[self.function])

"""Expression trees as people write them: `member[node] = PARTICIPANT ∧ ¬closed`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from .expressions import QUANTIFIERS, Expr, Role

_SYMBOL = {"eq": "=", "lt": "<", "add": "+", "sub": "−"}
_LETTERS = "jklmnopq"

Names = tuple[str, ...]  # the names of the indices of the enclosing quantifiers, the innermost first


def show(expr: Expr, names: Names = ()) -> str:
    """One line of text. A value from `named()` is printed as its label."""
    op, args = expr.op, expr.args
    if op == "const":
        return expr.sort.show(expr.value)
    if op == "var":
        return _variable(expr)
    if op == "bound":
        return names[args[0]] if args[0] < len(names) else f"#{args[0] - len(names)}"  # taken out of its quantifier
    if op == "read":
        return f"{expr.name}[{', '.join(show(i, names) for i in args[1:])}]" if args[1:] else expr.name
    if op == "named":
        shown = show if "(" in expr.name or "[" in expr.name else _operand
        return expr.name.format(*(shown(x, names) for x in args[2:])) if args[2:] else expr.name
    if op == "not":
        return _negation(args[0], names)
    if op == "and":
        return " ∧ ".join(_operand(x, names, "∨") for x in args)
    if op == "int":
        return _operand(args[0], names)
    if op == "ord":
        return show(args[0], names)
    if op in QUANTIFIERS:
        inner = _below(expr, names)
        if args[1].sort.kind != "bool":  # an operand of a sum
            return f"{inner[0]}: {show(args[1], inner)}"
        if op == "any":
            return f"∃ {inner[0]}: {_operand(args[1], inner)}"
        return f"#{{{inner[0]}: {show(args[1], inner)}}}"
    if op == "ite":
        return f"{_operand(args[0], names)} ? {_operand(args[1], names)} : {_operand(args[2], names)}"
    return f"{_operand(args[0], names)} {_SYMBOL[op]} {_operand(args[1], names)}"


def _variable(var: Expr) -> str:
    return _letter(var.number) if var.role is Role.PLACEHOLDER else var.name


def _letter(number: int) -> str:
    """j, k, ... q, j2, k2, ..."""
    again, which = divmod(number, len(_LETTERS))
    return _LETTERS[which] + (str(again + 1) if again else "")


def _below(quantifier: Expr, names: Names) -> Names:
    """`names`, preceded by a name for the index of `quantifier`.

    The number of quantifiers nested in it determines the letter; a letter that is already in use is skipped.
    """
    taken = {*names, *map(_variable, quantifier.free)}
    letters = map(_letter, itertools.count(_nested(quantifier.args[1], {})))
    return next(letter for letter in letters if letter not in taken), *names


def _nested(expr: Expr, memo: dict[Expr, int]) -> int:
    """The greatest depth of nested quantifiers in a tree."""
    if expr not in memo:
        inner = max((_nested(x, memo) for x in expr.args if isinstance(x, Expr)), default=0)
        memo[expr] = inner + (expr.op in QUANTIFIERS)
    return memo[expr]


def _negation(inner: Expr, names: Names) -> str:
    if inner.op == "and" and all(x.op == "not" for x in inner.args):
        return " ∨ ".join(_operand(x.args[0], names, "∧") for x in inner.args)
    if inner.op == "and":
        return " ∨ ".join(_operand(_opposite(x), names, "∧") for x in inner.args)
    if inner.op == "eq":
        return f"{_operand(inner.args[0], names)} ≠ {_operand(inner.args[1], names)}"
    if inner.op == "lt":
        return f"{_operand(inner.args[0], names)} ≥ {_operand(inner.args[1], names)}"
    if inner.op == "any":
        below = _below(inner, names)
        return f"∀ {below[0]}: {_operand(_opposite(inner.args[1]), below)}"
    return f"¬{_operand(inner, names)}"


def _opposite(expr: Expr) -> Expr:
    """The negation of an expression, unfolded."""
    return expr.args[0] if expr.op == "not" else Expr("not", (expr,), expr.sort)


def _operand(expr: Expr, names: Names, loose: str = "") -> str:
    """The text of an operand, in parentheses if it binds less tightly than its surroundings."""
    text = show(expr, names)
    if expr.op == "named" and " " in expr.name and expr.args[2:]:
        return f"({text})"
    if expr.op in ("const", "var", "bound", "read", "named", "count", "int", "ord"):
        return text
    if expr.op == "not" and text.startswith("¬"):
        return text
    if expr.op in ("eq", "lt") or (expr.op == "not" and expr.args[0].op in ("eq", "lt")):
        return text if loose else f"({text})"
    if expr.op == "and" and loose == "∧":
        return text
    return f"({text})"


def definitions(expr: Expr, names: Names = ()) -> Iterator[tuple[str, str]]:
    """The label of each named value in a tree and the text of its body, outermost first."""
    if expr.op == "named" and not expr.args[2:]:
        yield expr.name, show(expr.args[1], names)
    inner = _below(expr, names) if expr.op in QUANTIFIERS else names
    for part in expr.args:
        if isinstance(part, Expr):
            yield from definitions(part, inner)


def assignment(field: str, indices: tuple[Expr, ...], value: Expr) -> str:
    """One effect: `complete := yes`, `∀ j: current[j] := no`."""
    loops = [show(i) for i in indices if i.role is Role.PLACEHOLDER]
    where = f"[{', '.join(show(i) for i in indices)}]" if indices else ""
    prefix = f"∀ {', '.join(loops)}: " if loops else ""
    return f"{prefix}{field}{where} := {show(value)}"

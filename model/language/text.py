"""Expression trees as people write them: `member[node] = PARTICIPANT ∧ ¬closed`."""

from __future__ import annotations

from .expressions import Expr

_SYMBOL = {"eq": "=", "lt": "<", "add": "+", "sub": "−"}
_LOOP = "jklmnopq"


def show(expr: Expr) -> str:
    """One line of text. Names given with `named()` stand for what they name."""
    op, args = expr.op, expr.args
    if op == "const":
        return expr.sort.show(args[0])
    if op == "var":
        return _variable(args[0])
    if op == "read":
        return f"{args[0]}[{', '.join(show(i) for i in args[1:])}]" if args[1:] else str(args[0])
    if op == "named":
        return str(args[0])
    if op == "not":
        return _negation(args[0])
    if op == "and":
        return " ∧ ".join(_operand(x, "∨") for x in args)
    if op == "int":
        return _operand(args[0])
    if op == "ord":
        return show(args[0])
    if op == "any":
        return f"∃ {show(args[0])}: {_operand(args[1])}"
    if op == "count":
        return f"#{{{show(args[0])}: {show(args[1])}}}"
    if op == "ite":
        return f"{_operand(args[0])} ? {_operand(args[1])} : {_operand(args[2])}"
    return f"{_operand(args[0])} {_SYMBOL[op]} {_operand(args[1])}"


def _variable(name: str) -> str:
    if name.startswith("@"):
        return _LOOP[int(name[1:])]
    return name.split(".")[-1].split("#")[0]


def _negation(inner: Expr) -> str:
    if inner.op == "and" and all(x.op == "not" for x in inner.args):
        return " ∨ ".join(_operand(x.args[0], "∧") for x in inner.args)
    if inner.op == "and":
        return " ∨ ".join(_operand(x.args[0] if x.op == "not" else Expr("not", (x,), x.sort), "∧") for x in inner.args)
    if inner.op == "eq":
        return f"{_operand(inner.args[0])} ≠ {_operand(inner.args[1])}"
    if inner.op == "lt":
        return f"{_operand(inner.args[0])} ≥ {_operand(inner.args[1])}"
    if inner.op == "any":
        body = inner.args[1]
        negated = body.args[0] if body.op == "not" else Expr("not", (body,), body.sort)
        return f"∀ {show(inner.args[0])}: {_operand(negated)}"
    return f"¬{_operand(inner)}"


def _operand(expr: Expr, loose: str = "") -> str:
    """Parenthesise what binds less tightly than its surroundings."""
    text = show(expr)
    if expr.op in ("const", "var", "read", "named", "count", "int", "ord"):
        return text
    if expr.op == "not" and text.startswith("¬"):
        return text
    if expr.op in ("eq", "lt") or (expr.op == "not" and expr.args[0].op in ("eq", "lt")):
        return text if loose else f"({text})"
    if expr.op == "and" and loose == "∧":
        return text
    return f"({text})"


def assignment(field: str, indices: tuple[Expr, ...], value: Expr) -> str:
    """One effect: `complete := yes`, `∀ j: current[j] := no`."""
    loops = [show(i) for i in indices if i.op == "var" and i.args[0].startswith("@")]
    where = f"[{', '.join(show(i) for i in indices)}]" if indices else ""
    prefix = f"∀ {', '.join(loops)}: " if loops else ""
    return f"{prefix}{field}{where} := {show(value)}"

"""A flag instead of a long condition on one member: a count is split by the flag only once.

*Theory of operation.* A count of members is split by each condition that is read in it (`counting`). If a step
chooses the value of a member by a condition on only that member, `ite(c(k), x, y)`, each count after it is split by
all parts of c, and each part doubles the number of cells. Here a long c becomes a new flag, and its definition an
assumption: for all k, the flag of k is c(k). Such a definition neither removes nor adds a model, so a proof with it is
also a proof without it.
"""

from __future__ import annotations

from ..language import Expr, not_
from ..language.expressions import QUANTIFIERS, TRUE, equal, parts, read, rebuild, substitute, variable
from ..language.quantifiers import abstract, loop_variable
from .conditions import inside

READS_MIN = 3  # reads in a condition; a shorter condition makes few cells


class Abbreviations:
    """Flags for the conditions of `ite` in some trees; equal conditions have one flag."""

    def __init__(self) -> None:
        self._done: dict[Expr, Expr] = {}
        self._flags: dict[Expr, str] = {}

    def __call__(self, tree: Expr) -> Expr:
        """The tree, with flags instead of long conditions."""
        found = self._done.get(tree)
        if found is None:
            found = self._done[tree] = self._short(tree)
        return found

    def meanings(self) -> dict[str, Expr]:
        """The name of each flag with its definition: the flag of every member is the condition on that member."""
        found = {}
        for condition, name in self._flags.items():
            (mine,) = condition.free
            k = loop_variable(mine.sort)
            differs = not_(equal(read(name, (k,), TRUE.sort), substitute(condition, {mine: k})))
            found[name] = not_(abstract("any", k, differs))
        return found

    def _short(self, tree: Expr) -> Expr:
        if tree.op in ("const", "var"):
            return tree
        if tree.op in QUANTIFIERS:
            v, body = inside(tree)
            return abstract(tree.op, v, self(body))
        first, *others = tree.args
        if tree.op == "ite" and _is_long(first):
            first = self._flag(first)
        args = (first, *others)
        return rebuild(tree, tuple(self(x) if isinstance(x, Expr) else x for x in args))

    def _flag(self, condition: Expr) -> Expr:
        (member,) = condition.free
        key = substitute(condition, {member: variable("%0", member.sort)})
        name = self._flags.setdefault(key, f"flag!{len(self._flags) + 1}")
        return read(name, (member,), TRUE.sort)


def _is_long(condition: Expr) -> bool:
    """Whether the condition has at least `READS_MIN` reads, concerns one member, and has no quantifier."""
    if len(condition.free) != 1 or next(iter(condition.free)).sort.kind != "index":
        return False
    found = [*parts(condition)]
    return sum(e.op == "read" for e in found) >= READS_MIN and not any(e.op in QUANTIFIERS for e in found)

"""Expression trees, and everything that is made of them, as JSON: each once, however many systems have it.

*Theory of operation.* A pool has lists of nodes, sorts, slots, transitions and so on. To put a thing into the pool
gives its place in the list; an equal one may be in it already. A tree names an index and never its size, so systems
that differ only in size share most of their trees. The operators and their arguments: `page/source/types.ts`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trystate.model.language import DecisionTable, Expr, Sort
from trystate.model.language.expressions import Role
from trystate.model.language.tables import Decision

OPERATORS = (
    "const", "read", "var", "eq", "lt", "not", "and", "ite", "add", "sub", "int", "ord", "any", "count", "bound",
    "named",
)  # fmt: skip
CODE = {op: code for code, op in enumerate(OPERATORS)}

Json = Any


def dimension(sort: Sort) -> str:
    """The name of what a field or a step is for each of: an index, an enum, `bool` or a range."""
    return sort.span if sort.kind == "int" else sort.name.rpartition(".")[2]


class Table:
    """A list that has equal values only once."""

    def __init__(self) -> None:
        self.values: list[Json] = []
        self._places: dict[str, int] = {}

    def put(self, value: Json) -> int:
        """The place of a value, which is added if it is new."""
        key = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self.values)
            self.values.append(value)
        return place


class Pool:
    """The lists that the systems of a page share, by the names that `types.ts` gives them."""

    def __init__(self) -> None:
        names = ("sorts", "nodes", "slots", "transitions", "machines", "properties", "tables", "decisions", "charts")
        self.tables = {name: Table() for name in names}
        self._trees: dict[Expr, int] = {}

    def put(self, name: str, value: Json) -> int:
        """The place of a value in the list `name`."""
        return self.tables[name].put(value)

    def lists(self) -> dict[str, list[Json]]:
        """All lists, for the JSON."""
        return {name: table.values for name, table in self.tables.items()}

    def sort(self, sort: Sort) -> int:
        name = sort.name.rpartition(".")[2]
        return self.put("sorts", {"kind": sort.kind, "name": name, "labels": list(sort.labels)})

    def tree(self, expr: Expr) -> int:
        """The place of a tree's root among the nodes."""
        found = self._trees.get(expr)
        if found is None:
            found = self._trees[expr] = self.put("nodes", [CODE[expr.op], *self._arguments(expr)])
        return found

    def _arguments(self, expr: Expr) -> list[int | str]:
        args = expr.args
        if expr.op == "const":
            return [args[0], self.sort(expr.sort)]
        if expr.op == "var":
            assert expr.role is not Role.LOOP, f"{expr} is left over"
            return [expr.name, 1 + expr.number if expr.role is Role.PLACEHOLDER else 0]
        if expr.op == "bound":
            return [args[0]]
        found: list[int | str] = []
        for x in args:
            found.append(self.tree(x) if isinstance(x, Expr) else dimension(x) if isinstance(x, Sort) else x)
        return found

    def table(self, table: DecisionTable) -> int:
        return self.put("tables", {
            "name": table.name, "doc": table.doc, "cite": table.cite,
            "atoms": [[a.name, a.label, a.doc] for a in table.atoms],
            "rows": [{"when": dict(r.when), "then": r.then.name, "cite": r.cite} for r in table.rows],
        })  # fmt: skip

    def decision(self, condition: Expr, decision: Decision) -> int:
        atoms: Mapping[str, int] = {name: self.tree(atom) for name, atom in decision.atoms.items()}
        return self.put("decisions", {
            "node": self.tree(condition), "table": self.table(decision.table), "outcome": decision.outcome.name,
            "atoms": atoms,
        })  # fmt: skip

"""Gives a node's copy of the shared state the interface of the shared state, so one helper works on both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..language import Expr, SymbolicState, count
from ..language.quantifiers import IndexSet

SCALARS = ("complete", "closed", "deadline", "round")
PER_NODE = ("member", "rank", "heartbeat_age")


class Copy:
    """`Copy(s, i).member[j]` is `s.copy_member[i, j]`; a field that has no copy is read from the state itself."""

    def __init__(self, state: SymbolicState, node: Expr) -> None:
        object.__setattr__(self, "_state", state)
        object.__setattr__(self, "_node", node)

    _state: SymbolicState
    _node: Expr

    def fork(self) -> Copy:
        return Copy(self._state.fork(), self._node)

    def __getattr__(self, name: str) -> Any:
        if name in SCALARS:
            return getattr(self._state, f"copy_{name}")[self._node]
        if name in PER_NODE:
            return Lane(self._state, f"copy_{name}", self._node)
        return getattr(self._state, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in SCALARS:
            getattr(self._state, f"copy_{name}")[self._node] = value
        else:
            setattr(self._state, name, value)


class Lane:
    """One field of a copy, per node."""

    def __init__(self, state: SymbolicState, name: str, node: Expr) -> None:
        self._view = getattr(state, name)
        self._members = IndexSet(node.sort)
        self._node = node

    def __getitem__(self, j: Expr) -> Expr:
        value: Expr = self._view[self._node, j]
        return value

    def __setitem__(self, j: Expr, value: Any) -> None:
        self._view[self._node, j] = value

    def __iter__(self) -> Iterator[Expr]:
        for j in self._members:
            yield self[j]

    def count(self, *values: Any) -> Expr:
        return count(x.isin(values) for x in self)

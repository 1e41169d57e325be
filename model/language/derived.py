"""Derived columns: values of the fields that steps and properties read, and that are shown with a state.

*Theory of operation.* `@derived def total(self, s)` names a function of the fields. `s.total` runs the function on the
state as it is at that line, so its trees are trees of the fields. A column is not a part of the state: engines, exports
and counts of states do not have it. `System.shown_cells` has its values, which are printed with a state. A
function whose parameters are indices is a column for each member, `s.total[node]`. A column may read the columns that
are declared before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import bodies, source
from .expressions import Expr, lift, named
from .fields import Slot
from .state import ArrayView, SymbolicState, parameters

if TYPE_CHECKING:
    from .systems import System


@dataclass(frozen=True, slots=True)
class Derived(bodies.Decorated):
    """The record of `@derived`."""

    each: tuple[Any, ...]


@bodies.without_parentheses
def derived(body: Callable[..., Any]) -> Derived:
    """Declare a derived column: a value of the fields that steps and properties read, and that no step assigns.

    `def total(self, s)` gives `s.total`, and `def load(self, s, node)` gives `s.load[node]`.
    """
    bodies.check_plain(body)
    return Derived(body, bodies.members(body, 1))


@dataclass(frozen=True, slots=True)
class Column:
    """A derived column of a system. tree: its value, over the variables `params`, in a state before any assignment."""

    slot: Slot
    body: Callable[..., Any]
    params: tuple[Expr, ...]
    tree: Expr

    def view(self, state: SymbolicState, name: str) -> Any:
        array = ColumnView(state, self.slot, self.body)
        return array if self.params else array[()]

    def assign(self, state: SymbolicState, name: str, value: Any) -> None:
        source.refuse(f"{name} is a derived column: assign the fields that it is derived from")


def make_column(system: System, name: str, declared: Derived) -> Column:
    """The column of a system."""
    at = source.line_of(declared.body.__code__)
    params = parameters(system, name, bodies.indices(declared.each, system.index_sorts), at)
    tree = bodies.tree(name, declared.body, system, _frozen(system, name), *params)
    slot = Slot(name, tree.sort, tuple(p.sort for p in params), (0, 0), (), bodies.sentence(declared.body), at)
    return Column(slot, declared.body, params, tree)


class ColumnView(ArrayView):
    """A derived column, as seen from a symbolic state."""

    __slots__ = ("_body",)

    def __init__(self, state: SymbolicState, slot: Slot, body: Callable[..., Any]) -> None:
        super().__init__(state, slot)
        self._body = body

    def __getitem__(self, key: Any) -> Expr:
        system, name, indices = self._state._system, self._slot.name, self._indices(key)
        now = self._state._trace.bodies
        value = lift(self._body(system, _frozen(system, name, now), *indices))
        places = ", ".join(f"{{{k}}}" for k in range(len(indices)))
        return value if now else named(f"{name}[{places}]" if indices else name, value, *indices)

    def __setitem__(self, key: Any, value: Any) -> None:
        source.refuse(f"{self._slot.name} is a derived column: assign the fields that it is derived from")


def _frozen(system: System, name: str, effects: Any = None) -> SymbolicState:
    return SymbolicState(system, frozen=f"the derived column {name}", effects=effects)

"""The meaning of a random declaration, computed from its plans on plain values, without any expression tree.

Rule: each line of a loop over an index assigns to all members at once, from the values that the lines before it left.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from trystate.model.language import State, System

from .random_systems import Declaration, Plan, Step

Cells = dict[tuple[str, tuple[int, ...]], int]
Scope = tuple[int, ...]

_COMPUTE: dict[str, Callable[..., int]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "+": lambda a, b: a + b, "-": lambda a, b: a - b,
    "and": lambda a, b: a and b, "or": lambda a, b: a or b, "implies": lambda a, b: (not a) or b,
    "doubled": lambda a: a + a,
}  # fmt: skip


def cells_of(system: System, state: State) -> Cells:
    return {cell.key: value for cell, value in zip(system.cells, state, strict=True)}


def place(where: Plan, scope: Scope) -> tuple[str, tuple[int, ...]]:
    name, *places = where
    return name, tuple(scope[k] for k in places)


def meaning(plan: Plan, cells: Cells, scope: Scope, members: int) -> int:
    """The value of a condition (0 or 1) or number."""
    form, *args = plan
    if form in ("flag", "read"):
        return cells[place(args[0], scope)]
    if form == "const":
        return int(args[0])
    if form == "ord":
        return scope[args[0]]
    if form == "same":
        return scope[args[0]] == scope[args[1]]
    if form == "isin":
        return cells[place(args[0], scope)] in args[1]
    if form in ("any", "all", "count"):
        holding = sum(bool(meaning(args[0], cells, (*scope, j), members)) for j in range(members))
        return {"any": holding > 0, "all": holding == members, "count": holding}[form]
    parts = [meaning(x, cells, scope, members) for x in args]
    if form == "not":
        return not parts[0]
    if form == "as_int":
        return int(bool(parts[0]))
    if form == "ite":
        return parts[1] if parts[0] else parts[2]
    return int(_COMPUTE[form](*parts))


def new_value(plan: Plan, cells: Cells, scope: Scope, members: int) -> int:
    kind, *args = plan
    if kind == "flag":
        return int(bool(meaning(args[0], cells, scope, members)))
    if kind == "hue":
        return int(args[1] if meaning(args[0], cells, scope, members) else args[2])
    number, low, high = args
    return int(min(high, max(low, meaning(number, cells, scope, members))))


def after(step: Step, number: int, cells: Cells, scope: Scope, members: int) -> Cells | None:
    """The cells after a step; None where it is not enabled or changes nothing."""
    if not meaning(step.guard, cells, scope, members):
        return None
    now = dict(cells)
    if step.kind == "fault":
        left = (f"fault{number}_left", ())
        if not cells[left]:
            return None
        now[left] -= 1
    for _, loops, *lines in step.effects:
        inner = [(*scope, *js) for js in product(range(members), repeat=loops)]
        for where, value in lines:
            now |= {place(where, s): new_value(value, now, s, members) for s in inner}
    return None if now == cells else now


def size(d: Declaration, members: int) -> tuple[int, int]:
    """How many states the declared system can reach, and by how many steps they lead to one another."""
    places = [((v.name, js), v.initial) for v in d.variables for js in product(range(members), repeat=v.dims)]
    left = [((f"fault{k}_left", ()), (1,)) for k, s in enumerate(d.steps) if s.kind == "fault"]
    keys = [key for key, _ in places + left]
    seen = set(product(*(begins for _, begins in places + left)))
    queue, edges = list(seen), 0
    while queue:
        cells = dict(zip(keys, queue.pop(), strict=True))
        for number, step in enumerate(d.steps):
            for scope in product(range(members), repeat=step.params):
                following = after(step, number, cells, scope, members)
                if following is None:
                    continue
                edges += 1
                state = tuple(following[key] for key in keys)
                if state not in seen:
                    seen.add(state)
                    queue.append(state)
    return len(seen), edges

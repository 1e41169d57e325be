"""The meaning of a random declaration, computed from its plans on plain values, without any expression tree.

Rule: each line of a loop over an index assigns to all members at once, from the values that the lines before it left.
A read at a field that holds no member is 0, and a write there changes nothing.
"""

from __future__ import annotations

import operator as op
from collections.abc import Iterator
from itertools import combinations, islice, product
from typing import Any

from trystate.model.checker.interpret import Interpreter
from trystate.model.language import State, System
from trystate.model.language.machines import apply_effects

from .random_systems import ALWAYS, COMPUTE, MEMBERS, ROOMS, Declaration, Plan, Step, system

Cells = dict[tuple[str, tuple[int, ...]], int]
Scope = tuple[int, ...]


def cells_of(system: System, state: State) -> Cells:
    return {cell.key: value for cell, value in zip(system.cells, state, strict=True)}


def place(where: Plan, cells: Cells, scope: Scope) -> tuple[str, tuple[int, ...]]:
    name, *places = where
    return name, tuple(cells[k, ()] if isinstance(k, str) else scope[k] for k in places)


def member(plan: Plan, scope: Scope) -> int:
    form, *k = plan
    return -1 if form == "none" else scope[k[0]] if form == "index" else int(k[0])


def meaning(plan: Plan, cells: Cells, scope: Scope, members: int) -> int:
    """The value of a condition (0 or 1) or number."""
    form, *args = plan
    if form in ("flag", "read", "isin"):
        value = cells.get(place(args[0], cells, scope), 0)
        return value in args[1] if form == "isin" else value
    if form == "const":
        return int(args[0])
    if form == "ord":
        return scope[args[0]]
    if form == "same":
        return scope[args[0]] == scope[args[1]]
    if form == "rooms":
        return members + ROOMS if meaning(args[1], cells, scope, members) else 2
    if form == "at":
        return cells[place(args[0], cells, scope)] == member(args[1], scope)
    if form in ("any", "all", "count"):
        holding = sum(bool(meaning(args[0], cells, (*scope, j), members)) for j in range(members))
        return {"any": holding > 0, "all": holding == members, "count": holding}[form]
    parts = [meaning(x, cells, scope, members) for x in args]
    if form == "ite":
        return parts[1] if parts[0] else parts[2]
    made: Any = {"implies": lambda a, b: not a or b, "not": op.not_, "as_int": bool, **COMPUTE}
    return int(made[form](*parts))


def new_value(plan: Plan, cells: Cells, scope: Scope, members: int) -> int:
    kind, *args = plan
    if kind == "flag":
        return int(bool(meaning(args[0], cells, scope, members)))
    if kind == "hue":
        return int(args[1] if meaning(args[0], cells, scope, members) else args[2])
    if kind == "member":
        return member(args[0], scope)
    number, low, high = args
    return int(min(high, max(low, meaning(number, cells, scope, members))))


def after(step: Step, number: int, cells: Cells, scope: Scope, members: int, bound: Plan = ALWAYS) -> Cells | None:
    """The cells after a step; None if it is not enabled, changes nothing or leaves the bound.

    `scope` has the members of its `each`, the members that it chooses, and the number of the set that it picks.
    """
    picked: Cells = {}
    if step.picks:
        *chosen, number_of_set = scope
        scope = tuple(chosen)
        picked = {("picked", (j,)): j in subsets(members)[number_of_set] for j in range(members)}
    now = cells | picked
    if not meaning(step.guard, now, scope, members):
        return None
    if step.kind == "fault":
        left = (f"fault{number}_left", ())
        if not cells[left]:
            return None
        now[left] -= 1
    for _, loops, *lines in step.effects:
        inner = [(*scope, *js) for js in product(range(members), repeat=loops)]
        for where, value in lines:
            new = {place(where, now, s): new_value(value, now, s, members) for s in inner}
            now |= {key: number for key, number in new.items() if key in now}
    now = {key: value for key, value in now.items() if key not in picked}
    return None if now == cells or not meaning(bound, now, (), members) else now


def subsets(members: int) -> list[tuple[int, ...]]:
    """The sets of members, the smallest first."""
    return [one for size in range(members + 1) for one in combinations(range(members), size)]


def scopes(step: Step, members: int) -> Iterator[Scope]:
    """All members, choices and sets of a step."""
    picks = [range(2**members)] * step.picks
    return product(*[range(members)] * (step.params + step.chooses), *picks)


Values = tuple[int, ...]  # values of the cells, in the order of `_keys`
Edges = dict[Values, list[tuple[tuple[int, Scope], Values]]]  # reachable state -> (step and members, state after)


def _keys(d: Declaration, members: int) -> dict[tuple[str, Scope], tuple[int, ...]]:
    """Each cell, and the values that it may begin with."""
    places = {(v.name, js): v.initial for v in d.variables for js in product(range(members), repeat=v.dims)}
    return places | {(f"fault{k}_left", ()): (1,) for k, s in enumerate(d.steps) if s.kind == "fault"}


def graph(d: Declaration, members: int) -> Edges:
    """The states that the declared system can reach, and the steps that lead to one another."""
    keys = _keys(d, members)
    found: Edges = {}
    queue = list(product(*keys.values()))
    while queue:
        state = queue.pop()
        if state in found:
            continue
        cells, found[state] = dict(zip(keys, state, strict=True)), []
        for number, step in enumerate(d.steps):
            for scope in scopes(step, members):
                following = after(step, number, cells, scope, members, d.bound)
                if following is not None:
                    found[state].append(((number, scope), tuple(following[key] for key in keys)))
        queue += [state for _, state in found[state]]
    return found


def size(d: Declaration, members: int) -> tuple[int, int]:
    """The number of states that the declared system can reach, and of the steps between them."""
    edges = graph(d, members)
    return len(edges), sum(map(len, edges.values()))


LIVE = ("response", "arrival", "settling", "prompt", "timely")  # the properties of liveness of a random system


def lively_holds(d: Declaration, members: int, name: str = "response") -> bool:
    """Whether, for each member and in each fair run, the property of this name holds.

    Each state with the premise leads to one with the goal; or the goal holds once; or from some point on for ever. The
    goal of `prompt` comes after at most two steps, and the goal of `timely` after at most one `step0`.

    A run without it ends in a set of states without the goal that all reach one another, or in one such state. It is
    fair if in the set a step of each group is taken, or none is possible: in one of its states, or if strong in all.
    """
    edges, keys = graph(d, members), _keys(d, members)
    for node in range(members):

        def holds(plan: Plan, state: Values, node: int = node) -> bool:
            return bool(meaning(plan, dict(zip(keys, state, strict=True)), (node,), members))

        without = {state for state in edges if not holds(d.goal, state)}
        if name == "settling":
            if _a_fair_run_stays(d, {*edges}, edges, without):
                return False
            continue
        ahead = {state: [(step, to) for step, to in edges[state] if to in without] for state in without}
        initial = {*product(*keys.values())}
        begins = [s for s in without if (s in initial if name in ("arrival", "timely") else holds(d.premise, s))]
        reached = _reached(begins, ahead)
        if name == "prompt" and any(ahead[to] for state in begins for _, to in ahead[state]):
            return False
        if name == "timely" and any(step == 0 for state in reached for (step, _), _ in ahead[state]):
            return False
        if _a_fair_run_stays(d, reached, edges):
            return False
    return True


def _a_fair_run_stays(d: Declaration, within: set[Values], edges: Edges, again: set[Values] | None = None) -> bool:
    """Whether a fair run can stay in these states for ever, and come to `again` again and again."""
    ahead = {state: [(step, to) for step, to in edges[state] if to in within] for state in within}
    back: Edges = {state: [] for state in within}
    for state in within:
        for step, to in ahead[state]:
            back[to].append((step, state))
    left = set(within)
    while left:
        state = next(iter(left))
        together = _reached([state], ahead) & _reached([state], back)
        left -= together
        taken = {g for state in together for step, to in ahead[state] if to in together for g in _groups(d, step)}
        possible = {state: {g for step, _ in edges[state] for g in _groups(d, step)} for state in together}
        if set.intersection(*possible.values()) - taken:
            continue  # a group is possible in each of the states, and no step of it stays there
        avoided = {g for groups in possible.values() for g in groups if g[0] == "strong"} - taken
        if not avoided:
            if again is None or together & again:
                return True
        elif _a_fair_run_stays(d, {state for state in together if not avoided & possible[state]}, edges, again):
            return True
    return False


def _groups(d: Declaration, step: tuple[int, Scope]) -> set[tuple[Any, ...]]:
    """The group in which a step is fair, as its strength and a name; none if it is not fair."""
    number, scope = step
    declared = d.steps[number]
    members = scope[: declared.params]
    if not declared.fair or declared.kind == "fault":
        return set()
    strength, _, group = ("weak" if declared.fair is True else declared.fair).partition(":")
    return {(strength, group, members[:1] if group.endswith("]") else ())} if group else {(strength, number, members)}


def _reached(begin: list[Values], edges: Edges) -> set[Values]:
    found = set(begin)
    queue = list(begin)
    while queue:
        new = {to for _, to in edges[queue.pop()]} - found
        found |= new
        queue += new
    return found


def assert_trees_mean_what_their_plans_say(declared: Declaration) -> None:
    """Conditions and the state after each step, traced, unrolled and foretold, in a part of all states."""
    interpreter = Interpreter(system(declared))
    kernel = interpreter.kernel
    conditions = {
        name: (interpreter.system.claim(name).exprs[0], getattr(declared, name)) for name in ("invariant", "witness")
    }
    foretold = {
        (instance.number, name): apply_effects(tree, instance.transition, instance.transition.after)
        for instance in kernel.instances
        for name, (tree, _) in conditions.items()
    }
    constant = {k: (value,) for k, value in kernel.constant_cells.items()}  # the kernel's trees do not read these
    ranges = (range(c.sort.low, c.sort.high + 1) for c in kernel.cells)
    all_states = product(*(constant.get(k, values) for k, values in enumerate(ranges)))
    for state in islice(all_states, 0, None, 11):
        cells = cells_of(interpreter.system, state)
        for tree, plan in conditions.values():
            assert interpreter.holds(tree, state) is bool(meaning(plan, cells, (), MEMBERS))
        for instance in kernel.instances:
            number = int(instance.transition.name.removeprefix("step"))
            expected = after(declared.steps[number], number, cells, instance.indices, MEMBERS, declared.bound)
            found = interpreter.step(instance, state)
            assert (None if found is None else cells_of(interpreter.system, found)) == expected
            taken = interpreter.holds(kernel.guard(instance), state) and interpreter.holds(
                kernel.changes(instance), state
            )
            assert taken is (expected is not None)
            if expected is not None:
                unrolled = {k: interpreter.value(tree, state) for k, tree in kernel.effects(instance).items()}
                assert {kernel.cells[k].key: v for k, v in unrolled.items()}.items() <= expected.items()
                for name, (_, plan) in conditions.items():
                    holds = bool(meaning(plan, expected, (), MEMBERS))
                    assert interpreter.holds(foretold[instance.number, name], state, instance.binding) is holds

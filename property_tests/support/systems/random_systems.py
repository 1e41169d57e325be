"""Random small systems: a strategy that draws declarations as plain data, and the system that one declares.

Rule: examples are nested tuples: a failing example shrinks and prints. They become expression trees only when the
system is built, through the public operators.
"""

from __future__ import annotations

import enum
import operator as op
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from hypothesis import strategies as st

from trystate.model.language import *

STATES_MAX = 10_000  # few of them are reachable as a rule
MEMBERS = 2
ROOMS = 3  # members of another index, over which conditions count


class Hue(enum.Enum):
    """Three values do not fill two bits."""

    RED = "red"
    GREEN = "green"
    BLUE = "blue"


HUES = tuple(Hue)
FAIR = (True, True, "strong", "weak:together", "strong:together")
PER_MEMBER = ("weak:own[node]", "strong:own[node]")
Plan = tuple[Any, ...]
ALWAYS: Plan = ("==", ("const", 0), ("const", 0))
COMPARE = ("==", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Variable:
    """A field to declare: its kind, its dimensions, its range, and the values that it may begin with."""

    name: str
    kind: str
    dims: int
    low: int
    high: int
    initial: tuple[int, ...]

    @property
    def states(self) -> int:
        return int((self.high - self.low + 1) ** (MEMBERS**self.dims))

    def declare(self) -> Any:
        per = ("node",) * self.dims
        if self.kind == "flag":
            return flag(per=per, initial=tuple(bool(v) for v in self.initial))
        if self.kind == "hue":
            return choice(Hue, per=per, initial=tuple(HUES[v] for v in self.initial))
        if self.kind == "member":
            begins = tuple(None if v < 0 else v for v in self.initial)
            return one_of("node", optional=self.low < 0, per=per, initial=begins)
        return integer(self.low, self.high, per=per, initial=self.initial)


@dataclass(frozen=True)
class Step:
    """A transition to declare. It `chooses` a number of members, and if it `picks`, the set `PICKED`."""

    kind: str
    params: int
    fair: bool | str
    guard: Plan
    effects: tuple[Plan, ...]
    chooses: int = 0
    picks: bool = False


@dataclass(frozen=True)
class Declaration:
    """A whole system to declare, with three kinds of condition in each form of property."""

    variables: tuple[Variable, ...]
    steps: tuple[Step, ...]
    invariant: Plan
    witness: Plan
    change: Plan
    premise: Plan
    goal: Plan
    rest: Plan
    bound: Plan = field(default=ALWAYS, kw_only=True)


PICKED = Variable("picked", "flag", 1, 0, 1, (0,))  # read like a field: whether a member is in the set


# ---- drawing


@st.composite
def variables(draw: st.DrawFn, *, pairs: bool) -> tuple[Variable, ...]:
    out: list[Variable] = []
    for k in range(draw(st.integers(2, 5))):
        kind = draw(st.sampled_from(("flag", "hue", "int", *["member"] * pairs)))
        dims = draw(st.sampled_from((0, 1, 1, 2) if pairs and kind in ("flag", "int") else (0, 1)))
        low = draw(st.integers(*{"int": (-2, 2), "member": (-1, 0)}.get(kind, (0, 0))))
        high = {"flag": 1, "hue": 2, "member": MEMBERS - 1}.get(kind, low + draw(st.integers(1, 3 if dims == 0 else 1)))
        begins = draw(st.lists(st.integers(low, high), min_size=1, max_size=2, unique=True)) if dims < 2 else [low]
        new = Variable(f"f{k}", kind, dims, low, high, tuple(begins))
        if prod(v.states for v in out) * new.states <= STATES_MAX:
            out.append(new)
    return tuple(out) or (Variable("f0", "flag", 0, 0, 1, (0,)),)


@dataclass(frozen=True)
class Drawing:
    """Draws plans over the given variables, with at most `depth` nested plans and with `scope` indices."""

    draw: st.DrawFn
    variables: tuple[Variable, ...]
    numbered: bool

    def of_kind(self, kind: str, scope: int) -> list[Variable]:
        return [v for v in self.variables if v.kind == kind and (v.dims == 0 or scope > 0)]

    def read(self, variable: Variable, scope: int) -> Plan:
        return (variable.name, *(self.place(variable, scope) for _ in range(variable.dims)))

    def place(self, variable: Variable, scope: int) -> int | str:
        """An index in scope, or the name of a field that holds a member.

        A field that may hold none only leads to a flag or a hue: the lowest value of these is 0.
        """
        least = -1 if variable.kind in ("flag", "hue") else 0
        fields = [v.name for v in self.of_kind("member", scope) if not v.dims and v.low >= least]
        places: list[int | str] = [*range(scope), *fields * (variable is not PICKED)]
        return self.draw(st.sampled_from(places))

    def member(self, optional: bool, scope: int) -> Plan:
        """A member: an index in scope, one by its number, or none."""
        plans = [("index", k) for k in range(scope)] or [("numbered", k) for k in range(MEMBERS)]
        return self.draw(st.sampled_from([*plans, *[("none",)] * optional]))

    def condition(self, depth: int, scope: int) -> Plan:
        flags, hues = self.of_kind("flag", scope), self.of_kind("hue", scope)
        fields = self.of_kind("member", scope)
        leaves = ["number", *["flag"] * bool(flags), *["hue"] * bool(hues), *["same"] * (scope > 1),
                  *["at"] * bool(fields)]  # fmt: skip
        form = self.draw(st.sampled_from([*leaves, *["not", "and", "or", "implies", "any", "all"] * (depth > 0)]))
        if form == "number":
            compare = self.draw(st.sampled_from(COMPARE))
            return (compare, self.number(max(0, depth - 1), scope), self.number(max(0, depth - 1), scope))
        if form == "flag":
            return ("flag", self.read(self.draw(st.sampled_from(flags)), scope))
        if form == "hue":
            where = self.read(self.draw(st.sampled_from(hues)), scope)
            return ("isin", where, tuple(self.draw(st.lists(st.integers(0, 2), min_size=1, max_size=2))))
        if form == "at":
            field = self.draw(st.sampled_from(fields))
            return ("at", self.read(field, scope), self.member(field.low < 0, scope))
        if form == "same":
            return ("same", *(self.draw(st.integers(0, scope - 1)) for _ in range(2)))
        inner = scope + (form in ("any", "all"))
        return (form, *(self.condition(depth - 1, inner) for _ in range(2 if form in ("and", "or", "implies") else 1)))

    def number(self, depth: int, scope: int) -> Plan:
        numbers = self.of_kind("int", scope)
        leaves = ["const", *["read"] * 2 * bool(numbers), *["ord"] * (scope > 0 and self.numbered)]
        deep = ["+", "-", "count", "ite", "as_int", *["rooms"] * self.numbered]
        form = self.draw(st.sampled_from([*leaves, *deep * (depth > 0)]))
        if form == "rooms":
            return ("rooms", self.draw(st.integers(0, MEMBERS - 1)), self.condition(depth - 1, scope))
        if form == "const":
            return ("const", self.draw(st.integers(-2, 4)))
        if form == "read":
            return ("read", self.read(self.draw(st.sampled_from(numbers)), scope))
        if form == "ord":
            return ("ord", self.draw(st.integers(0, scope - 1)))
        inner = scope + (form == "count")
        conditions = [self.condition(depth - 1, inner) for _ in range(form in ("count", "as_int", "ite"))]
        return (form, *conditions, *(self.number(depth - 1, scope) for _ in range(2 * (form in ("+", "-", "ite")))))

    def effects(self, params: int) -> tuple[Plan, ...]:
        return tuple(self.effect(params) for _ in range(self.draw(st.integers(1, 3))))

    def effect(self, params: int) -> Plan:
        """("set", loops, (where, value), ...): without parameters the loops are over every index of the field."""
        variable = self.draw(st.sampled_from([v for v in self.variables if v is not PICKED]))
        loops = variable.dims if params == 0 else self.draw(st.integers(0, variable.dims))
        scope = params + loops
        looped = list(range(params, scope))
        free = [self.place(variable, params) for _ in range(variable.dims - loops)]
        where = (variable.name, *self.draw(st.permutations(looped + free)))
        return ("set", loops, (where, self.value(variable, scope)))

    def value(self, variable: Variable, scope: int) -> Plan:
        if variable.kind == "flag":
            return ("flag", self.condition(2, scope))
        if variable.kind == "hue":
            one, other = (self.draw(st.integers(0, 2)) for _ in range(2))
            return ("hue", self.condition(1, scope), one, other)
        if variable.kind == "member":
            return ("member", self.member(variable.low < 0, scope))
        return ("int", self.number(2, scope), variable.low, variable.high)


class Nesting(Drawing):
    """Draws quantifiers inside of quantifiers, and reads of diagonals on which some of these fold away."""

    def condition(self, depth: int, scope: int) -> Plan:
        """`depth` quantifiers, each inside the one before, with other conditions between them."""
        if depth == 0:
            return self.leaf(scope)
        return self.quantified(self.joined(self.leaf(scope + 1), self.condition(depth - 1, scope + 1)))

    def quantified(self, body: Plan) -> Plan:
        form = self.draw(st.sampled_from(("any", "any", "all", "count")))
        return ("<", ("const", self.draw(st.integers(0, 1))), ("count", body)) if form == "count" else (form, body)

    def joined(self, one: Plan, other: Plan) -> Plan:
        return (self.draw(st.sampled_from(("and", "or"))), one, other)

    def leaf(self, scope: int) -> Plan:
        if scope == 0:
            return ("flag", ("on",))
        one, other = (self.draw(st.integers(0, scope - 1)) for _ in range(2))
        flags = [("flag", (name, *[one] * dims)) for name, dims in (("pairs", 2), ("hot", 1))]
        return self.draw(st.sampled_from((*flags, self.related(one, other))))

    def related(self, one: int, other: int) -> Plan:
        same, before = ("same", one, other), ("<", ("ord", one), ("ord", other))
        return self.draw(st.sampled_from((("flag", ("pairs", one, other)), same, before, ("not", same))))

    def effects(self, params: int) -> tuple[Plan, ...]:
        """A loop over pairs, in which a quantifier folds away on the diagonal, and later lines that read it there.

        One of these may be in the loop.
        """
        depth = self.draw(st.integers(1, 2))
        one, other, member = params, params + 1, params + 2
        around, within = self.draw(st.permutations(("and", "or")))
        equal = ("same", one, other) if within == "or" else ("not", ("same", one, other))
        folding = (within, equal, self.condition(depth, member + 1))
        written = self.quantified((around, self.related(member, one), folding))
        read = self.quantified(self.joined(("flag", ("pairs", one, one)), self.condition(depth - 1, params + 1)))
        lines = (
            (("pairs", one, other), ("flag", written)),
            (("pairs", other, one), ("flag", self.condition(1, member))),
        )
        loop = ("set", 2, *lines[: self.draw(st.integers(1, 2))])
        return loop, ("set", 0, (("on",), ("flag", read)))


NESTED = (
    Variable("pairs", "flag", 2, 0, 1, (0,)),
    Variable("hot", "flag", 1, 0, 1, (0, 1)),
    Variable("on", "flag", 0, 0, 1, (0,)),
)


@st.composite
def declarations(draw: st.DrawFn, *, symmetric: bool = False, nested: bool = False) -> Declaration:
    """Any small system; if `symmetric`, with indistinguishable members; if `nested`, with deep quantifiers."""
    drawn = NESTED if nested else draw(variables(pairs=not symmetric))
    if symmetric and not any(v.dims for v in drawn):
        drawn += (Variable("f9", "hue", 1, 0, 2, (0,)),)
    plans = (Nesting if nested else Drawing)(draw, drawn, numbered=not symmetric)
    steps = []
    for _ in range(draw(st.integers(1, 2 if nested else 6))):
        params = draw(st.sampled_from((0, 0, 1) if nested else (0, 1, 1, 2)))
        chooses = draw(st.sampled_from((0, 0, 1))) if not nested and params < 2 else 0
        picks = not (nested or symmetric) and draw(st.sampled_from((False, False, True)))
        within = replace(plans, variables=(*drawn, PICKED)) if picks else plans
        kind = draw(st.sampled_from(("transition", "transition", "transition", "environment", "fault")))
        effects = within.effects(params + chooses)
        guard = draw(st.sampled_from((ALWAYS, within.condition(2, params + chooses))))
        fair = draw(st.sampled_from((False, *FAIR, *(PER_MEMBER if params else ()))))
        steps.append(Step(kind, params, fair, guard, effects, chooses, picks))
    depths_and_scopes = ((2, 0), (2, 0), (2, 0), (2, 1), (2, 1), (1, 0))  # from the invariant to the rest
    bound = plans.condition(1, 0) if draw(st.integers(0, 3)) == 3 else ALWAYS
    return Declaration(drawn, tuple(steps), *(plans.condition(*each) for each in depths_and_scopes), bound=bound)


# ---- building

COMPUTE: dict[str, Callable[..., Any]] = {  # the functions for trees and for plain values
    "==": op.eq, "!=": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge, "+": op.add, "-": op.sub,
    "and": op.and_, "or": op.or_, "doubled": lambda a: a + a,
}  # fmt: skip


def build(plan: Plan, s: Any, scope: tuple[Any, ...]) -> Any:
    """The expression that a plan describes, over a symbolic state, with these indices in scope."""
    form, *args = plan
    if form in ("flag", "read", "isin"):
        field = read(s, args[0], scope)
        return field.isin([HUES[k] for k in args[1]]) if form == "isin" else field
    if form == "const":
        return args[0]
    if form == "ord":
        return ord_(scope[args[0]])
    if form == "same":
        return scope[args[0]] == scope[args[1]]
    if form == "rooms":  # all members of each index, or the one with the number
        every = lifted(build(args[1], s, scope))
        counts = (count((j == index[args[0]]) | every for j in index) for index in (s.node, s.room))
        return op.add(*counts)
    if form == "at":
        held, (sought, *_) = read(s, args[0], scope), args[1]
        return held.absent if sought == "none" else held == member(args[1], s, scope)
    if form in ("any", "all", "count"):
        over = {"any": any_, "all": all_, "count": count}[form]
        return over(lifted(build(args[0], s, (*scope, j))) for j in s.node)
    parts = [build(x, s, scope) for x in args]
    made: Any = {"not": lambda a: ~lifted(a), "as_int": as_int, "ite": ite, "implies": implies, **COMPUTE}
    return made[form](*(lifted(x) for x in parts) if form in ("and", "or") else parts)


def lifted(value: Any) -> Any:
    """A Python bool (two constants were compared) as an expression: ~, & and | then mean the same."""
    return value if not isinstance(value, bool) else any_([value])


def read(s: Any, where: Plan, scope: tuple[Any, ...]) -> Any:
    name, *places = where
    field = getattr(s, name)
    return field[members_at(s, places, scope)] if places else field


def members_at(s: Any, places: Sequence[int | str], scope: tuple[Any, ...]) -> Any:
    found = tuple(getattr(s, k) if isinstance(k, str) else scope[k] for k in places)
    return found if len(found) > 1 else found[0]


def member(plan: Plan, s: Any, scope: tuple[Any, ...]) -> Any:
    form, *k = plan
    return None if form == "none" else scope[k[0]] if form == "index" else s.node[k[0]]


def assign(s: Any, plan: Plan, scope: tuple[Any, ...]) -> None:
    """Perform ("set", loops, (where, value), ...)."""
    _, loops, *lines = plan
    if loops:
        for j in s.node:
            assign(s, ("set", loops - 1, *lines), (*scope, j))
        return
    for (name, *places), value in lines:
        if places:
            getattr(s, name)[members_at(s, places, scope)] = new_value(value, s, scope)
        else:
            setattr(s, name, new_value(value, s, scope))


def new_value(plan: Plan, s: Any, scope: tuple[Any, ...]) -> Any:
    kind, *args = plan
    if kind == "flag":
        return lifted(build(args[0], s, scope))
    if kind == "hue":
        return ite(build(args[0], s, scope), HUES[args[1]], HUES[args[2]])
    if kind == "member":
        return member(args[0], s, scope)
    number, low, high = args
    value = build(number, s, scope)
    return ite(value < low, low, ite(value > high, high, value))


class Picking:
    """A symbolic state with the set that a step picks, which is read like a field."""

    def __init__(self, s: Any, picked: Any) -> None:
        vars(self).update(s=s, picked=picked)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.s, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.s, name, value)


def rule(step_: Step, number: int) -> Any:
    def body(self: System, s: Any, *params: Any) -> None:
        """A random step."""
        scope = (*params, *(s.choose(s.node) for _ in range(step_.chooses)))
        state = Picking(s, s.subset(s.node)) if step_.picks else s
        s.when(build(step_.guard, state, scope))
        for effect in step_.effects:
            assign(state, effect, scope)

    each = ("node",) * step_.params
    if step_.kind == "fault":
        return fault(f"fault{number}", each=each, bound=1)(body)
    if step_.kind == "environment":
        return environment(each=each, fair=step_.fair)(body)
    return transition(each=each, fair=step_.fair)(body)


def system(d: Declaration, members: int = MEMBERS) -> System:
    """The system that a declaration declares, with all its faults switched on."""

    def invariant(self: System, s: Any) -> Any:
        """A random condition."""
        return build(d.invariant, s, ())

    def witness(self: System, s: Any) -> Any:
        """A random condition."""
        return build(d.witness, s, ())

    def change(self: System, before: Any, after: Any) -> Any:
        """The condition, once true, stays true."""
        return implies(build(d.change, before, ()), build(d.change, after, ()))

    def response(self: System, s: Any, node: Any) -> Any:
        """Random conditions on one member."""
        return lifted(build(d.premise, s, (node,))), build(d.goal, s, (node,))

    def goal(self: System, s: Any, node: Any) -> Any:
        """A random condition on one member."""
        return build(d.goal, s, (node,))

    body: dict[str, Any] = {"node": index(members), "room": index(ROOMS)}
    body |= {v.name: v.declare() for v in d.variables}
    body |= {f"step{k}": rule(s, k) for k, s in enumerate(d.steps)}
    body |= {
        "invariant": always(witness="witness")(invariant),
        "witness": sometimes()(witness),
        "change": step(witness="witness")(change),
        "response": leads_to(each="node")(response),
        "arrival": eventually(each="node")(goal),
        "settling": stable(each="node")(goal),
        "prompt": leads_to(each="node", within=2)(response),
        "timely": eventually(each="node", within=(1, "step0"))(goal),
        "rest": terminal(lambda self, s: lifted(build(d.rest, s, ()))),
    }
    if d.bound is not ALWAYS:
        body["bound"] = constraint(lambda self, s: lifted(build(d.bound, s, ())))
    faults = [f"fault{k}" for k, s in enumerate(d.steps) if s.kind == "fault"]
    cls: type[System] = type("Random", (System,), body)
    return cls(faults=faults)

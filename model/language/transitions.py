"""Transitions: guarded, atomic steps, written as short functions and traced when a system is built.

*Theory of operation.* A decorator records a function as a `Rule`. When a system is built, `trace` runs the function on
a `SymbolicState`. The calls of `when` become the guard. The assignments become a tree for each field: its new value, as
a function of the values before the step. The body of a loop over an index runs once, for a variable that represents
every member. The checker binds the parameters: a transition over nodes is one `Transition`, with an instance for each
node. A step that changes nothing is not a step.

Failures. Each is an error that names the line: a value does not fit its field; an index of a loop is used outside the
loop; a guard is in a loop; the body is not a plain function that builds the same trees each time (`bodies`). A value
that leaves its field's range in some states is found only by the search.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from . import bodies, source
from .expressions import Expr, Role, and_
from .fields import Each, several, values_of
from .state import SymbolicState, Trace, Write, parameters, trace_of

if TYPE_CHECKING:
    from .systems import System


class Kind(enum.Enum):
    """The origin of a step."""

    PROTOCOL = "protocol"
    ENVIRONMENT = "environment"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Fairness:
    """When a step must happen: weak, if it stays possible; strong, if it is possible again and again.

    A step is fair for each of its members alone. If it has a `group`, all steps of the group are fair together: one of
    them must happen. If the group is `per` an index, this holds for each member of the index.
    """

    strong: bool = False
    group: str = ""
    per: str = ""

    def __str__(self) -> str:
        group = self.group and f":{self.group}" + (f"[{self.per}]" if self.per else "")
        return ("strong" if self.strong else "weak") + group


_FAIR = re.compile(r"(weak|strong)(?::(\w+)(?:\[(\w+)\])?)?", re.ASCII)


def _fairness(name: str, given: Any, at: str) -> Fairness | None:
    """The fairness that `fair=` declares: a bool, weak or strong, with a group if it has one."""
    if isinstance(given, bool):
        return Fairness() if given else None
    found = _FAIR.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        remedy = (
            "give False, True (weak) or 'strong'; 'weak:NAME' or 'strong:NAME' for a group of steps, and "
            "'weak:NAME[INDEX]' or 'strong:NAME[INDEX]' for a group of each member"
        )
        source.refuse(f"{name}: fair is {given!r}: {remedy}", at=at)
    strength, group, per = found.groups(default="")
    return Fairness(strength == "strong", group, per)


@dataclass(frozen=True, slots=True)
class Arc:
    """A claimed move of one machine, which is checked on every explored step.

    `of` selects the machine that moves: the machine of the transition's own index ("self") or of another member
    ("others"). A `must` arc is reported when no explored step makes it; an arc that only may happen is not reported.
    An arc with `editions` is claimed only in these.
    """

    source: enum.Enum
    dest: enum.Enum
    of: str = "self"
    must: bool = True
    editions: tuple[enum.Enum, ...] = ()


def arc(origin: Any, dest: Any, *, of: str = "self", editions: Any = ()) -> tuple[Arc, ...]:
    """Claim that a transition moves a machine from `origin` to `dest`.

    Each is one member or a tuple of members. With tuples, each pair of an origin and a destination is a claimed move.
    """
    origins, dests = (each if isinstance(each, tuple) else (each,) for each in (origin, dest))
    return tuple(Arc(o, d, of, editions=tuple(editions)) for o in origins for d in dests)


def may(origin: Any, dest: Any, *, of: str = "self", editions: Any = ()) -> tuple[Arc, ...]:
    """Allow a move that does not happen with some sizes or faults."""
    return tuple(replace(a, must=False) for a in arc(origin, dest, of=of, editions=editions))


@dataclass(frozen=True, slots=True)
class Rule(bodies.Decorated):
    """A decorator's record of a transition function, before any system is built."""

    kind: Kind
    each: tuple[Any, ...]
    arcs: tuple[Arc, ...]
    fair: Fairness | None
    fault: str
    bound: int
    editions: tuple[enum.Enum, ...]
    cite: str

    def claiming(self, *moves: Arc | tuple[Arc, ...]) -> Rule:
        """The same step in another edition, where it moves machines differently."""
        return replace(self, arcs=_flat(moves))

    def also(self, *moves: Arc | tuple[Arc, ...]) -> Rule:
        """The same step in another edition, where it also moves machines in these ways."""
        return self.claiming(self.arcs, *moves)


def fault_bounds(declarations: Mapping[str, Any]) -> dict[str, int]:
    """The faults and switches of a system's declarations, in their order, and how often each may happen."""
    found: dict[str, int] = {}
    for rule in declarations.values():
        if isinstance(rule, Rule) and rule.fault and found.setdefault(rule.fault, rule.bound) != rule.bound:
            bounds = f"{found[rule.fault]} and {rule.bound}"
            source.refuse(
                f"fault {rule.fault} has the bounds {bounds}: give each step the same bound=",
                at=source.line_of(rule.body.__code__),
            )
    return found


def _flat(moves: Iterable[Arc | tuple[Arc, ...]]) -> tuple[Arc, ...]:
    found = tuple(a for group in moves for a in (group if isinstance(group, tuple) else (group,)))
    for a in found:
        if not isinstance(a, Arc):
            source.refuse(f"{a!r} is not a claimed move: give arc(A, B) or may(A, B)")
    return found


def _decorator(
    kind: Kind, each: Any, moves: Any, *, fair: bool | str, cite: str, editions: Any, fault: str = "", bound: int = 0
) -> Callable[[Callable[..., None]], Rule]:
    arcs = _flat(moves)

    def decorate(body: Callable[..., None]) -> Rule:
        bodies.check_plain(body)
        wanted = _fairness(body.__name__, fair, source.line_of(body.__code__))
        dims = several(each) or bodies.members(body, 1)
        return Rule(
            body, kind, each=dims, arcs=arcs, fair=wanted, fault=fault, bound=bound, editions=tuple(editions), cite=cite
        )

    return decorate


@bodies.with_parentheses
def transition(
    *, each: Each = (), moves: Any = (), fair: bool | str = True, cite: str = "", editions: Any = ()
) -> Callable[[Callable[..., None]], Rule]:
    """Declare a step of the protocol.

    Args:
        each: the indices that the step ranges over; the body gets one member of each. It may be left out where the
            parameters of the body have the names of these indices.
        moves: the claimed moves of machines, from `arc` and `may`; checked on every explored step.
        fair: True (weak): if the step stays possible from some point on, it happens. "strong": if it is possible again
            and again, it happens again and again. "weak:NAME" and "strong:NAME": one step of this group happens;
            "weak:NAME[INDEX]" and "strong:NAME[INDEX]": for each member of the index, one of the member's steps.
        cite: the source: a section of the specification, a line of the implementation.
        editions: the editions that have the step; empty: all.
    """
    return _decorator(Kind.PROTOCOL, each, moves, fair=fair, cite=cite, editions=editions)


@bodies.with_parentheses
def environment(
    *, each: Each = (), moves: Any = (), fair: bool | str = False, cite: str = "", editions: Any = (),
    switch: str = "", bound: int = 1,
) -> Callable[[Callable[..., None]], Rule]:  # fmt: skip
    """Declare a step that no part of the protocol decides, such as time passing.

    `fair` is as in `transition`. With `switch`, the step happens only if that name is switched on, like a fault, and at
    most `bound` times.
    """
    limit = bound if switch else 0
    return _decorator(Kind.ENVIRONMENT, each, moves, fair=fair, cite=cite, editions=editions, fault=switch, bound=limit)


@bodies.with_parentheses
def fault(
    name: str,
    *,
    each: Each = (),
    moves: Any = (),
    bound: int = 1,
    cite: str = "",
    editions: Any = (),
) -> Callable[[Callable[..., None]], Rule]:
    """Declare a step that happens at most `bound` times, and only if the fault `name` is switched on."""
    return _decorator(Kind.FAULT, each, moves, fair=False, cite=cite, editions=editions, fault=name, bound=bound)


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    """A traced step: a guard over the state before, and for each assigned field the tree of its new value."""

    name: str
    kind: Kind
    params: tuple[Expr, ...]
    guard: Expr
    effects: dict[str, Expr]
    writes: tuple[Write, ...]
    arcs: tuple[Arc, ...]
    fair: Fairness | None
    fault: str
    doc: str
    cite: str
    at: str
    conditions: tuple[Expr, ...] = field(default=())
    choices: tuple[Expr, ...] = ()  # the parameters that the step itself chooses, which are the last
    values: dict[Expr, tuple[Any, ...]] = field(
        default_factory=dict
    )  # the values of a parameter, if it is not an index or a range
    after: dict[Expr, Expr] = field(default_factory=dict)  # tree over the state after the step -> over the state before

    @property
    def own(self) -> tuple[Expr, ...]:
        """The parameters that `each` names."""
        return self.params[: len(self.params) - len(self.choices)]

    @property
    def signature(self) -> str:
        return self.name + (f"({', '.join(p.name for p in self.params)})" if self.params else "")


def _trees(trace: Trace, at: str) -> Iterator[tuple[Expr, str]]:
    """All trees of a body with their lines: the line of an assignment, or for a guard the first line of the body."""
    yield from ((choice.variable, at) for choice in trace.choices)
    yield from ((condition, at) for condition in trace.guard)
    for write in trace.writes.values():
        yield write.value, write.line
        yield from ((place, write.line) for place in write.indices)
    yield from ((body, at) for body in trace.bodies.values())


def trace(system: System, name: str, rule: Rule) -> Transition:
    """Run a transition's body on the symbolic state and record its guard and effects."""
    at = source.line_of(rule.body.__code__)
    each = bodies.indices(rule.each, system.index_sorts)
    params = parameters(system, name, each, at)

    def run() -> Trace:
        state = SymbolicState(system)
        result = bodies.call(name, rule.body, system, state, *params)
        if result is not None:
            source.refuse(f"{name} returns {result!r}: assign to fields, add to the guard with s.when(...)", at=at)
        if rule.fault:
            left = system.fault_counter(rule.fault)
            state.when(getattr(state, left) > 0)
            setattr(state, left, getattr(state, left) - 1)
        return trace_of(state)

    if rule.fair and rule.fair.per and rule.fair.per not in (p.sort.name for p in params):
        source.refuse(f"{name}: fair is '{rule.fair}', and {rule.fair.per} is not an index of the step", at=at)
    done = bodies.settled(rule.body, run, lambda trace: _trees(trace, at))
    effects = {f: body for f, body in done.bodies.items() if body is not system.slots[f].identity()}
    for write in done.writes.values():
        if any(v.role is Role.LOOP for v in write.value.free):
            source.refuse(f"{name}: a loop index escapes into {write.field}", at=write.line)
    if shared := {p.name for p in params} & {choice.variable.name for choice in done.choices}:
        source.refuse(f"{name}: {min(shared)} is the name of a choice: give the index another name", at=at)
    doc = bodies.sentence(rule.body)
    arcs = tuple(a for a in rule.arcs if not a.editions or system.edition in a.editions)
    return Transition(
        name=name,
        kind=rule.kind,
        params=(*params, *(choice.variable for choice in done.choices)),
        guard=and_(*done.guard),
        effects=effects,
        writes=tuple(done.writes.values()),
        arcs=arcs,
        fair=rule.fair,
        fault=rule.fault,
        doc=doc,
        cite=rule.cite,
        at=at,
        conditions=tuple(done.guard),
        choices=tuple(choice.variable for choice in done.choices),
        values={p: values_of(one) for p, one in zip(params, each, strict=True) if values_of(one)}
        | {choice.variable: choice.values for choice in done.choices if choice.values},
    )

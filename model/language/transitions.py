"""Transitions: guarded, atomic steps, written as short functions and traced once.

*Theory of operation.* A decorator records a function as a `Rule`. When a system is built, `trace` runs the function
on a `SymbolicState`; the calls of `when` become the guard, the assignments become for each field a tree of its new
value over the values before. A loop over an index runs once, for a member that stands for each. The checker binds the
parameters: a transition over nodes is one `Transition` and as many instances as there are nodes. A step that changes
nothing is not a step. Four things can go wrong, and are refused with the line: a value does not fit its field, an index
of a loop escapes, a guard is in a loop, the body is not a plain function that leaves the same trees in each run
(`bodies`). A value that leaves its field's range in some state only is found by the search.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from . import bodies, source
from .expressions import Expr, Role, and_
from .state import SymbolicState, Trace, Write, parameters, trace_of

if TYPE_CHECKING:
    from .systems import System


class Kind(enum.Enum):
    """The origin of a step."""

    PROTOCOL = "protocol"
    ENVIRONMENT = "environment"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Arc:
    """A claimed move of one machine: checked on every explored step.

    `of` says whose machine moves: the transition's own index ("self") or any other member ("others").
    A `must` arc is reported when no explored step makes it; one that only may happen is not.
    An arc that names editions is claimed of these alone.
    """

    source: enum.Enum
    dest: enum.Enum
    of: str = "self"
    must: bool = True
    editions: tuple[enum.Enum, ...] = ()


def arc(origin: Any, dest: enum.Enum, *, of: str = "self", editions: Any = ()) -> tuple[Arc, ...]:
    """Claim that a transition may move a machine from `origin` (or one of several) to `dest`."""
    origins = origin if isinstance(origin, tuple) else (origin,)
    return tuple(Arc(o, dest, of, editions=tuple(editions)) for o in origins)


def may(origin: Any, dest: enum.Enum, *, of: str = "self", editions: Any = ()) -> tuple[Arc, ...]:
    """Allow a move that some sizes or faults never make."""
    return tuple(replace(a, must=False) for a in arc(origin, dest, of=of, editions=editions))


@dataclass(frozen=True, slots=True)
class Rule:
    """A decorator's record of a transition function, before any system is built."""

    body: Callable[..., None]
    kind: Kind
    each: tuple[str, ...]
    arcs: tuple[Arc, ...]
    fair: bool
    fault: str
    bound: int
    editions: tuple[enum.Enum, ...]
    cite: str

    def claiming(self, *moves: Arc | tuple[Arc, ...]) -> Rule:
        """The same step in another edition, where it moves machines otherwise."""
        return replace(self, arcs=_flat(moves))


def fault_bounds(declarations: Mapping[str, Any]) -> dict[str, int]:
    """The faults and switches of a system's declarations, in their order, and how often each may then happen."""
    return {rule.fault: rule.bound for rule in declarations.values() if isinstance(rule, Rule) and rule.fault}


def _flat(moves: Iterable[Arc | tuple[Arc, ...]]) -> tuple[Arc, ...]:
    return tuple(a for group in moves for a in (group if isinstance(group, tuple) else (group,)))


def _decorator(
    kind: Kind, each: Any, moves: Any, *, fair: bool, cite: str, editions: Any, fault: str = "", bound: int = 0
) -> Callable[[Callable[..., None]], Rule]:
    arcs = _flat(moves)

    def decorate(body: Callable[..., None]) -> Rule:
        if not (body.__doc__ or "").strip():
            source.refuse(f"{body.__name__} has no docstring: say in one line what the step is")
        bodies.check_plain(body)
        if not isinstance(fair, bool):
            remedy = "give True, for weak fairness, or False; strong fairness cannot be declared"
            source.refuse(f"{body.__name__}: fair is {fair!r}: {remedy}", at=source.line_of(body.__code__))
        dims = (each,) if isinstance(each, str) else tuple(each)
        return Rule(
            body, kind, each=dims, arcs=arcs, fair=fair, fault=fault, bound=bound, editions=tuple(editions), cite=cite
        )

    return decorate


def transition(
    *, each: str | tuple[str, ...] = (), moves: Any = (), fair: bool = True, cite: str = "", editions: Any = ()
) -> Callable[[Callable[..., None]], Rule]:
    """Declare a step of the protocol.

    Args:
        each: the indices over whose members the step goes; the body gets one of each.
        moves: the claimed moves of machines, from `arc` and `may`; checked on every explored step.
        fair: where it can happen from some point on for ever, it happens.
        cite: the source: a section of the specification, a line of the implementation.
        editions: only these have the step; none: all.
    """
    return _decorator(Kind.PROTOCOL, each, moves, fair=fair, cite=cite, editions=editions)


def environment(
    *, each: str | tuple[str, ...] = (), moves: Any = (), fair: bool = False, cite: str = "", editions: Any = (),
    switch: str = "", bound: int = 1,
) -> Callable[[Callable[..., None]], Rule]:  # fmt: skip
    """Declare a step that nobody in the protocol decides, such as time passing.

    With `switch` it happens only where that name is switched on, like a fault, and at most `bound` times.
    """
    limit = bound if switch else 0
    return _decorator(Kind.ENVIRONMENT, each, moves, fair=fair, cite=cite, editions=editions, fault=switch, bound=limit)


def fault(
    name: str, *, each: str | tuple[str, ...] = (), moves: Any = (), bound: int = 1, cite: str = "", editions: Any = ()
) -> Callable[[Callable[..., None]], Rule]:
    """Declare a step that happens at most `bound` times, and only where the fault `name` is switched on."""
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
    fair: bool
    fault: str
    doc: str
    cite: str
    at: str
    conditions: tuple[Expr, ...] = field(default=())
    after: dict[Expr, Expr] = field(default_factory=dict)  # trees after the step -> the same before it

    @property
    def signature(self) -> str:
        return self.name + (f"({', '.join(p.name for p in self.params)})" if self.params else "")


def _trees(trace: Trace, at: str) -> Iterator[tuple[Expr, str]]:
    """All that a body leaves, with its lines: those of assignments, and for a guard the first of the body."""
    yield from ((condition, at) for condition in trace.guard)
    for write in trace.writes.values():
        yield write.value, write.line
        yield from ((place, write.line) for place in write.indices)
    yield from ((body, at) for body in trace.bodies.values())


def trace(system: System, name: str, rule: Rule) -> Transition:
    """Run a transition's body on the symbolic state and record what it did."""
    at = source.line_of(rule.body.__code__)
    params = parameters(system, name, rule.each, at)

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

    done = bodies.settled(rule.body, run, lambda trace: _trees(trace, at))
    effects = {f: body for f, body in done.bodies.items() if body is not system.slots[f].identity()}
    for write in done.writes.values():
        if any(v.role is Role.LOOP for v in write.value.free):
            source.refuse(f"{name}: a loop index escapes into {write.field}", at=write.line)
    doc = (rule.body.__doc__ or "").strip().split("\n")[0]
    arcs = tuple(a for a in rule.arcs if not a.editions or system.edition in a.editions)
    return Transition(
        name=name,
        kind=rule.kind,
        params=params,
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
    )

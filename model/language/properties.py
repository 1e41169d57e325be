"""Properties: the claims that every edition of a protocol must satisfy, if it has the fields that they read.

*Theory of operation.* A decorator records a function as a `Claim`. When a system is built, `trace_property` runs the
function once on symbolic states and keeps the trees: a condition (`always`, `sometimes`), a premise and a goal
(`leads_to`; the premise of `eventually` and `stable` is true), or for each transition a condition over the state before
it (`step`: the transition's effects replace the reads of the state after). Engines never see a property:
`checker/check.py` turns the trees into watches and lassos. A `refines` assigns the fields of a state of a coarser
system: its trees are the mapping of `checker/refinement.py`. A `scenario` has walks and conditions (`scenarios`).

Failures, each refused with the line of the function: it assigns a field, it returns something other than conditions,
or a condition contains the index of a loop; a `refines` leaves out a field that the steps of the coarser system change.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from . import bodies, source
from .expressions import TRUE, Expr
from .fields import Each, several
from .scenarios import Scene, scenes
from .state import SymbolicState, parameters, trace_of

if TYPE_CHECKING:
    from .systems import System
    from .transitions import Transition


class Form(enum.Enum):
    """The form of a property's claim."""

    ALWAYS = "always"
    SOMETIMES = "sometimes"
    STEP = "step"
    LEADS_TO = "leads to"
    EVENTUALLY = "eventually"
    STABLE = "stable"
    REFINES = "refines"
    SCENARIO = "scenario"
    DEADLOCK = "no deadlock"

    @property
    def live(self) -> bool:
        """Whether fair runs decide it: no finite run violates it."""
        return self in (Form.LEADS_TO, Form.EVENTUALLY, Form.STABLE)


# The states that a body gets before its members; other forms have none.
STATES = {Form.STEP: 2, **{form: 1 for form in Form if form.live}}


class Within(NamedTuple):
    """The bound of a property of liveness: a number of steps, or of steps of one name if `step` is not empty."""

    times: int
    step: str = ""


@dataclass(frozen=True, slots=True)
class Claim(bodies.Decorated):
    """A decorator's record of a property function."""

    form: Form
    each: tuple[Any, ...]
    on: tuple[str, ...]
    except_: tuple[str, ...]
    witness: str
    needs: tuple[str, ...]
    editions: tuple[enum.Enum, ...]
    cite: str
    coarse: type[System] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict, hash=False)
    within: Within | None = None

    def concerns(self, t: Transition, params: tuple[Expr, ...]) -> bool:
        """Whether a step property applies to this transition."""
        if t.name in self.except_ or (self.on and t.name not in self.on):
            return False
        return not params or [p.sort for p in t.own] == [p.sort for p in params]

    def is_asked(self, system: System) -> bool:
        """Whether the property applies to a system, by its edition and its faults."""
        return set(self.needs) <= set(system.faults) and (not self.editions or system.edition in self.editions)


Decorator = Callable[[Callable[..., Any]], Claim]


@dataclass(frozen=True, slots=True, eq=False)
class Property:
    """A traced property. `exprs` is (condition,), or (premise, goal) for leads-to.

    A step property has a condition for each of its transitions, `conditions[transition]`: over the state before, with
    the transition's effects instead of reads of the state after. A refinement has the coarser system, and a tree over
    the finer state for each field of the coarser state. A scenario has its scenes.
    """

    name: str
    form: Form
    doc: str
    cite: str
    at: str
    witness: str = ""
    params: tuple[Expr, ...] = ()
    exprs: tuple[Expr, ...] = ()
    conditions: dict[str, Expr] | None = None
    coarse: System | None = None
    mapping: Mapping[str, Expr] | None = None
    within: Within | None = None
    scenes: tuple[Scene, ...] = ()


def _claim(
    form: Form,
    *,
    each: Any = (),
    on: Any = (),
    except_: Any = (),
    witness: str = "",
    needs: Any,
    editions: Any,
    cite: str,
    within: int | tuple[int, str] | None = None,
) -> Decorator:
    faults = (needs,) if isinstance(needs, str) else tuple(needs)

    def decorate(body: Callable[..., Any]) -> Claim:
        bodies.check_plain(body)
        dims = several(each)
        if not dims and form in STATES:
            dims = bodies.members(body, STATES[form])
        return Claim(
            body, form, each=dims, on=tuple(on), except_=tuple(except_), witness=witness, needs=faults,
            editions=tuple(editions), cite=cite, within=_within(body, within),
        )  # fmt: skip

    return decorate


def _within(body: Callable[..., Any], given: Any) -> Within | None:
    if given is None:
        return None
    times, step = given if isinstance(given, tuple) and len(given) == 2 else (given, "")
    if isinstance(times, bool) or not isinstance(times, int) or times < 1 or not isinstance(step, str):
        remedy = "give a number of steps of at least 1, or the number and the name of a step, such as (3, 'tick')"
        source.refuse(f"{body.__name__}: within is {given!r}: {remedy}", at=source.line_of(body.__code__))
    return Within(times, step)


@bodies.with_parentheses
def always(
    *, witness: str = "", needs: str | tuple[str, ...] = (), editions: Iterable[enum.Enum] = (), cite: str = ""
) -> Decorator:
    """An invariant. `witness` may name a `sometimes`, which shows that it does not hold merely because nothing happens.

    A property with `editions` is checked in these alone: the others do not have the fields that it reads.
    """
    return _claim(Form.ALWAYS, witness=witness, needs=needs, editions=editions, cite=cite)


@bodies.with_parentheses
def sometimes(*, needs: str | tuple[str, ...] = (), editions: Iterable[enum.Enum] = (), cite: str = "") -> Decorator:
    """A state that must be reachable. It is checked only with the faults that `needs` names."""
    return _claim(Form.SOMETIMES, needs=needs, editions=editions, cite=cite)


@bodies.with_parentheses
def step(
    *,
    witness: str = "",
    on: tuple[str, ...] = (),
    except_: tuple[str, ...] = (),
    each: Each = (),
    needs: str | tuple[str, ...] = (),
    editions: Iterable[enum.Enum] = (),
    cite: str = "",
) -> Decorator:
    """A condition on a step's before and after: `def p(self, before, after, node)`.

    Args:
        witness: a `sometimes`, which shows that the property does not hold merely because nothing happens.
        on: the transitions that it applies to; empty: all.
        except_: the transitions that it does not apply to.
        each: it applies only to transitions over exactly these indices, and the body gets their members.
        needs: the property is checked only with these faults.
        editions: the editions that it is checked in; empty: all.
        cite: the source of the claim.
    """
    return _claim(
        Form.STEP, each=each, on=on, except_=except_, witness=witness, needs=needs, editions=editions, cite=cite
    )


@bodies.with_parentheses
def leads_to(
    *,
    within: int | tuple[int, str] | None = None,
    each: Each = (),
    needs: str | tuple[str, ...] = (),
    editions: Iterable[enum.Enum] = (),
    cite: str = "",
) -> Decorator:
    """In each fair run, a state where the premise holds is followed by one where the goal holds, or is such a state.

    The body returns `(premise, goal)`. With `each`, it is checked for each member separately. For a goal that holds
    again and again, return `(~goal, goal)`. With `within=3` the goal holds after at most 3 steps, and with
    `within=(3, "tick")` after at most 3 steps `tick`.
    """
    return _claim(Form.LEADS_TO, within=within, each=each, needs=needs, editions=editions, cite=cite)


@bodies.with_parentheses
def eventually(
    *,
    within: int | tuple[int, str] | None = None,
    each: Each = (),
    needs: str | tuple[str, ...] = (),
    editions: Iterable[enum.Enum] = (),
    cite: str = "",
) -> Decorator:
    """In each fair run, the condition holds at least once. With `each`, for each member separately.

    With `within=3` it holds after at most 3 steps, and with `within=(3, "tick")` after at most 3 steps `tick`.
    """
    return _claim(Form.EVENTUALLY, within=within, each=each, needs=needs, editions=editions, cite=cite)


@bodies.with_parentheses
def stable(
    *,
    each: Each = (),
    needs: str | tuple[str, ...] = (),
    editions: Iterable[enum.Enum] = (),
    cite: str = "",
) -> Decorator:
    """In each fair run, the condition holds from some point on for ever. With `each`, for each member separately."""
    return _claim(Form.STABLE, each=each, needs=needs, editions=editions, cite=cite)


@bodies.with_parentheses
def refines(
    coarse: type[System],
    *,
    needs: str | tuple[str, ...] = (),
    editions: Iterable[enum.Enum] = (),
    cite: str = "",
    **sizes: int,
) -> Decorator:
    """Each step is a step of a coarser system, or changes nothing there: `def as_lock(self, s, lock)`.

    The body assigns the fields of the coarser state `lock`, from the finer state `s`.

    Args:
        coarse: the class of the coarser system. It is built with the sizes and faults that it shares with this system.
        needs: the property is checked only with these faults.
        editions: the editions that it is checked in; empty: all.
        cite: the source of the claim.
        sizes: other sizes of the coarser system.
    """
    if not hasattr(coarse, "all_declarations"):
        source.refuse(f"@refines({coarse!r}): give the class of a system")
    decorate = _claim(Form.REFINES, needs=needs, editions=editions, cite=cite)
    return lambda body: replace(decorate(body), coarse=coarse, sizes=sizes)


@overload
def scenario(body: Callable[..., Any], /) -> Claim: ...
@overload
def scenario(*, needs: str | tuple[str, ...] = (), editions: Iterable[enum.Enum] = (), cite: str = "") -> Decorator: ...
def scenario(
    body: Callable[..., Any] | None = None,
    /,
    *,
    needs: str | tuple[str, ...] = (),
    editions: Iterable[enum.Enum] = (),
    cite: str = "",
) -> Claim | Decorator:
    """A walk that must be possible, and what must be refused or true after it: `def lapsed(self, run)`.

    `run("acquire(0) tick")` takes steps, `run.refuses("renew(0)")` names steps that are not possible then, and
    `run.holds(lambda s: s.free)` a condition. It begins in the initial states from which its steps are possible.

    Args:
        needs: the scenario is checked only with these faults.
        editions: the editions that it is checked in; empty: all.
        cite: the source of the claim.
    """
    decorate = _claim(Form.SCENARIO, needs=needs, editions=editions, cite=cite)
    return decorate if body is None else decorate(body)


def trace_property(system: System, name: str, claim: Claim) -> Property:
    """Run a property's body on symbolic states."""
    at = source.line_of(claim.body.__code__)
    doc = bodies.sentence(claim.body)
    claim = replace(claim, each=bodies.indices(claim.each, system.index_sorts))
    params = parameters(system, name, claim.each, at)
    traced = Property(name, claim.form, doc=doc, cite=claim.cite, at=at, witness=claim.witness, params=params,
                      within=claim.within)  # fmt: skip
    state = SymbolicState(system, frozen=f"the property {name}")
    if claim.form is Form.STEP:
        bodies.check_given(name, claim.body, system, state, state, *params)  # perhaps no transition concerns it
        conditions = {}
        for t in system.transitions:
            if claim.concerns(t, params):
                after = SymbolicState(system, frozen=f"the property {name}", effects=t.effects)
                given = (state, after, *(t.own if claim.each else ()))
                (conditions[t.name],) = _conditions(system, name, claim, given)
        unfit = [t.name for t in system.transitions if t.name in claim.on]
        if unfit and not conditions:
            source.refuse(f"{name} names the step {unfit[0]}, which has other indices: use the same each=", at=at)
        return replace(traced, conditions=conditions)
    if claim.coarse is not None:
        coarse = _coarser(system, claim.coarse, claim.sizes)
        return replace(traced, coarse=coarse, mapping=_mapping(system, coarse, name, claim.body, state))
    if claim.form is Form.SCENARIO:
        return replace(traced, scenes=scenes(system, name, claim.body))
    return replace(traced, exprs=_conditions(system, name, claim, (state, *params)))


def _coarser(system: System, cls: type[System], sizes: Mapping[str, int]) -> System:
    """The coarser system, with the sizes and the faults that it shares with this one."""
    known = cls.all_declarations()
    faults = {rule.fault for rule in known.values() if isinstance(getattr(rule, "fault", None), str)}
    shared = {name: size for name, size in system.sizes.items() if name in known}
    given = {name: bound for name, bound in system.faults.items() if name in faults}
    together = system.max_faults if given else None
    return cls(faults=[*given] if together else given, max_faults=together, **{**shared, **sizes})


def _mapping(
    system: System, coarse: System, name: str, body: Callable[..., Any], state: SymbolicState
) -> dict[str, Expr]:
    at = source.line_of(body.__code__)

    def run() -> dict[str, Expr]:
        image = SymbolicState(coarse)
        if bodies.call(name, body, system, state, image) is not None:
            source.refuse(f"{name} returns a value: assign the fields of the state of {coarse.name}", at=at)
        trace = trace_of(image)
        if trace.guard:
            source.refuse(f"{name} has a guard: each state has an image, so leave when() out", at=at)
        counters = {coarse.fault_counter(fault) for fault in coarse.faults}
        return {counter: coarse.slots[counter].identity() for counter in counters} | trace.bodies

    mapping = bodies.settled(body, run, lambda trees: ((tree, at) for tree in trees.values()))
    changed = {field for t in coarse.transitions for field in t.effects}
    if missing := sorted(changed - mapping.keys()):
        source.refuse(f"{name} assigns no {' and no '.join(missing)}, which steps of {coarse.name} change", at=at)
    return mapping


def _conditions(system: System, name: str, claim: Claim, given: tuple[Any, ...]) -> tuple[Expr, ...]:
    at = source.line_of(claim.body.__code__)

    def run() -> tuple[Expr, ...]:
        result = bodies.call(name, claim.body, system, *given)
        exprs = result if isinstance(result, tuple) else (result,)
        if len(exprs) != (2 if claim.form is Form.LEADS_TO else 1):
            source.refuse(f"{name}: return (premise, goal) from leads_to, one condition from the others", at=at)
        if claim.form is Form.LEADS_TO and exprs[0] is True:
            remedy = "return (~goal, goal) for that, or use eventually() for a goal that holds once"
            source.refuse(f"{name}: with the premise True, the goal must hold again and again: {remedy}", at=at)
        premises = (TRUE,) if claim.form in (Form.EVENTUALLY, Form.STABLE) else ()
        return premises + tuple(_condition(name, at, e) for e in exprs)

    return bodies.settled(claim.body, run, lambda exprs: ((e, at) for e in exprs))


def _condition(name: str, at: str, value: Any) -> Expr:
    expr = bodies.value(name, value, at)
    if expr.sort.kind != "bool":
        source.refuse(f"{name} returned {expr}, which is not a condition", at=at)
    return expr

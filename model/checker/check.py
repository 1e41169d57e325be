"""Check a system: turn its declarations into watches, let an engine search, and derive the verdicts from its results.

*Theory of operation.* `check` builds a kernel, makes the watches, chooses an engine (`estimate`) and calls `explore`
once. This call decides all properties except liveness, and finds the steps and claimed moves that never happen. Then
the engine searches for a lasso for each property of liveness, once for each member. Everything runs on the caller's
thread.

Failures:

- A reachable step contradicts its declaration: a value is out of range, or a move is not claimed. `check` raises an
  error and returns no verdict.
- A limit or a failed allocation ends the search. Its finds stay. All other properties are not decided.
- The engine cannot represent the system: a cell is too wide, or the members are not interchangeable under symmetry. The
  system is refused before the search.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from itertools import islice, product
from typing import TYPE_CHECKING, Any

from ..errors import LimitReached, UsageError
from ..language.expressions import TRUE, Expr, const, fields_read, not_, or_
from ..language.machines import Machine
from ..language.properties import Form, Property
from ..language.systems import System
from ..language.transitions import Arc, Kind, Transition
from .engine import Engine, OnProgress, memory_ended, quiet
from .estimate import Choice, Options, choose
from .interpret import Interpreter
from .kernel import Exploration, Instance, Kernel, Limits, Move, Watch, WatchKey, WatchKind
from .scenarios import played
from .verdicts import Counterexample, Report, Status, Verdict
from .whole import ranges, refuse_broken

if TYPE_CHECKING:
    from .explicit.ranks import Ranks
    from .explicit.storage import Storage
    from .explicit.workers import Workers

INITIAL_MAX = 10_000  # initial states in which a property is evaluated to say that it is true in all of them
ENGINES = {  # name -> module and class, loaded on demand: a declaration needs neither numpy nor decision diagrams
    "interpret": ("reference.engine", "ReferenceEngine"), "explicit": ("explicit.engine", "ExplicitEngine"),
    "symbolic": ("symbolic.engine", "SymbolicEngine"),
}  # fmt: skip
DECIDING = {  # form of a property -> the watch that decides it; no watch decides liveness
    Form.ALWAYS: WatchKind.ALWAYS, Form.SOMETIMES: WatchKind.SOMETIMES, Form.STEP: WatchKind.STEP,
    Form.DEADLOCK: WatchKind.DEADLOCK,
}  # fmt: skip

DEADLOCK_FREEDOM = Property(  # without a fault, the system stops only in states that it declares
    "deadlock_freedom", Form.DEADLOCK, "Some step is possible, or the system rests where it may.", "", ""
)


def decided(system: System) -> tuple[Property, ...]:
    """The properties that a check decides by default: all of the system, and freedom from deadlock."""
    return (*system.properties, DEADLOCK_FREEDOM) if system._deadlock else system.properties


def check(
    system: System, *, engine: str = "auto", symmetry: bool | tuple[str, ...] = False,
    limits: Limits | None = None, on_progress: OnProgress = quiet, expect: Mapping[str, str] | None = None,
    properties: Collection[str] | None = None,
    workers: Workers | None = None, storage: Storage | None = None, ranks: Ranks | None = None,
) -> Report:  # fmt: skip
    """Explore a system exhaustively and decide its properties.

    Args:
        system: the system, built for its sizes, edition and faults.
        engine: `auto`, or one of `ENGINES`.
        symmetry: explore one state of each orbit: of the only index with True, or of the indices with these names.
            Their members must be interchangeable, and named indices may have at most 5! * 4! renamings.
        limits: where the search stops; a property that is still open then is not decided.
        on_progress: called about eight times a second with the progress of the search.
        expect: the known violations: property -> a few words on the cause.
        properties: the names of the properties to decide; by default all of them, and `deadlock_freedom`.
        workers: share a large search of the engine explicit; the report does not depend on them.
        storage: keeps the states of the engine explicit that do not fit in memory, and the search, to resume it.
        ranks: the processes that together hold the states of the engine explicit. Each calls this with the same
            arguments. The first gets the same report as a single process; the reports of the others have no liveness.

    Raises:
        DeclarationError: a reachable step leaves a field's range, or moves a machine in a way that it does not
            claim; the text names the line and the step.
        UsageError: no such engine or property; or symmetry where it would not be sound; or a storage of another
            search, or for another engine.
        UnavailableError: the engine's package is not installed.
        RankLost: one of `ranks` has ended or does not answer.
    """
    options = Options(engine, symmetry, limits or Limits(), on_progress, workers, storage, ranks)
    known = decided(system)
    _refuse_unknown(system, known, "expect", expect or ())
    _refuse_unknown(system, known, "properties", properties or ())
    asked = [p for p in known if properties is None or p.name in properties]
    kernel = Kernel(system)
    choice, exploration = _explored(kernel, asked, options)
    _settle(exploration)
    refuse_broken(kernel, exploration)
    verdicts = [_verdict(kernel, choice.searcher, exploration, p, options) for p in asked]
    fired = {key.subject for key in exploration.found if key.kind is WatchKind.FIRED}
    never = [t.name for t in system.transitions if t.name not in fired] if exploration.complete else []
    reason = choice.reason + (f"; resumed from {exploration.resumed:,} states" if exploration.resumed else "")
    return Report(system, exploration, verdicts, never, _unreached(kernel, exploration), reason, expect or {})


def _explored(kernel: Kernel, asked: Iterable[Property], options: Options) -> tuple[Choice, Exploration]:
    """The engine and its exploration; without an engine if memory ran out before the search began."""
    engine, storage = options.engine, options.storage
    if storage is not None and engine not in ("auto", "explicit"):
        raise UsageError(f"the engine {engine} keeps its states in memory: use --engine explicit with --spill")
    choice = Choice(engine, f"{engine}, as requested")
    try:
        wanted = list(watches(kernel, asked))
        if options.ranks is not None:
            choice = Choice(engine, f"{engine}, number of ranks: {options.ranks.count}")
        elif storage is not None:
            choice = Choice("explicit", "explicit: it alone keeps states outside of memory")
        elif engine == "auto":
            choice = choose(kernel, wanted, options)
        searcher = choice.searcher or make_engine(choice.engine, kernel, options)
        return replace(choice, searcher=searcher), choice.seen or searcher.explore(wanted)
    except MemoryError:  # raised before `explore`, which handles its own
        stopped = memory_ended(options.limits)
        return replace(choice, searcher=None), Exploration(choice.engine, 0, 0, 0, 0.0, 0.0, {}, stopped)
    except RecursionError:
        raise UsageError(
            f"{kernel.system.label}: a tree of a step or a property is nested more deeply than Python's recursion "
            f"limit ({sys.getrecursionlimit()}): write count() for a long sum and a loop over an index for many "
            "assignments, or raise sys.setrecursionlimit"
        ) from None


def _refuse_unknown(system: System, known: Iterable[Property], argument: str, given: Iterable[str]) -> None:
    names = [p.name for p in known]
    for name in given:
        if name not in names:
            raise UsageError(f"{argument} has no property {name!r}: {system.name} has {', '.join(names)}")


def make_engine(name: str, kernel: Kernel, options: Options) -> Engine:
    """The engine of this name, or the engine that several ranks share."""
    basic = kernel, options.limits, options.on_progress
    symmetry, storage, ranks = options.symmetry, options.storage, options.ranks
    if symmetry and name != "explicit":
        raise UsageError(f"the engine {name} does not reduce by symmetry: use --engine explicit")
    if ranks is not None:
        if name != "explicit":
            raise UsageError(f"ranks share a search with the engine explicit, not with {name}: give engine='explicit'")
        from .explicit.partitioned import PartitionedEngine
        from .explicit.ranks import PartStorage

        if not (storage is None or isinstance(storage, PartStorage)):
            raise UsageError(
                "ranks keep their states in parts: give each the storage that trystate.search.rank_storage opens"
            )
        return PartitionedEngine(*basic, ranks=ranks, storage=storage, symmetry=symmetry)
    if name not in ENGINES:
        raise UsageError(f"no engine {name!r}: choose one of auto, {', '.join(ENGINES)}")
    module, engine = ENGINES[name]
    own = {"symmetry": symmetry, "workers": options.workers, "storage": storage} if name == "explicit" else {}
    made: Engine = getattr(import_module(f".{module}", __package__), engine)(*basic, **own)
    return made


def watches(kernel: Kernel, properties: Iterable[Property] | None = None) -> Iterator[Watch]:
    """The watches that decide these properties, except liveness, and that find steps that never happen."""
    system = kernel.system
    for p in decided(system) if properties is None else properties:
        yield from _deciding(kernel, p)
    read = {name: fields_read(machine.control) for name, machine in system.machines.items()}
    others = {name: cache(machine.others) for name, machine in system.machines.items()}
    for i in kernel.instances:
        yield Watch(WatchKey(WatchKind.FIRED, i.transition.name, i.number), TRUE, {}, i, path=False)
        yield from ranges(kernel, i)
        for name, machine in system.machines.items():
            if not read[name].isdisjoint(i.transition.effects):
                yield from _claims(kernel, machine, i, others[name])


def _deciding(kernel: Kernel, p: Property) -> Iterator[Watch]:
    """The watches that decide one property; no watches for liveness."""
    if p.form not in DECIDING:
        return
    key = WatchKey(DECIDING[p.form], p.name)
    if p.form is Form.ALWAYS:
        yield Watch(key, not_(p.exprs[0]), {})
    elif p.form is Form.SOMETIMES:
        yield Watch(key, p.exprs[0], {})
    elif p.form is Form.DEADLOCK:
        idle = tuple(i for i in kernel.instances if i.transition.kind is not Kind.FAULT)
        yield Watch(key, not_(kernel.system.terminal), {}, idle=idle)
    else:
        for i in kernel.instances:
            condition = (p.conditions or {}).get(i.transition.name, TRUE)
            if condition is not TRUE:
                yield Watch(key, not_(condition), i.binding, i)


def _claims(
    kernel: Kernel, machine: Machine, i: Instance, others_moved: Callable[[Transition], list[Expr]]
) -> Iterator[Watch]:  # fmt: skip
    t = i.transition
    members = cache(lambda: list(_members(kernel, machine, i, others_moved)))

    def unclaimed() -> Expr:
        return or_(*(machine.unclaimed(t, who, of) for who, of in members()))

    def moved(a: Arc, its: str) -> Expr:
        return or_(*(machine.moved(t, a.source, a.dest, who) for who, of in members() if of == its))

    yield Watch(WatchKey(WatchKind.UNCLAIMED, machine.name, i.number), unclaimed, i.binding, i)
    for of in ("self", "others") if machine.params else ("self",):
        for a in machine.arcs(t, of):
            yield Watch(_claimed(machine, t, a), partial(moved, a, of), i.binding, i, path=False)


def _claimed(machine: Machine, t: Transition, a: Arc) -> WatchKey:
    """The key of a claimed move, which any instance of the transition may make."""
    of = a.of if machine.params else "self"
    return WatchKey(WatchKind.CLAIM, Move(machine.name, t.name, of, a.source.name, a.dest.name))


def _members(
    kernel: Kernel, machine: Machine, i: Instance, others_moved: Callable[[Transition], list[Expr]]
) -> Iterator[tuple[Expr | None, str]]:  # fmt: skip
    """The members whose machine a step may move: (index, or None for a machine without one; "self" or "others")."""
    if not machine.params:
        yield None, "self"
        return
    sort = machine.params[0].sort
    own = {k for p, k in zip(i.transition.own, i.members, strict=True) if p.sort is sort}
    others = {kernel.substituted(member, i.binding).value for member in others_moved(i.transition)}
    for k in sorted(own | others):
        yield const(k, sort), "self" if k in own else "others"


def _settle(exploration: Exploration) -> None:
    """Mark the search as stopped if a watch of a range, claim or step has no answer; a property alone stays open."""
    for key, reason in exploration.unanswered.items():
        if key.kind not in DECIDING.values() and key not in exploration.found:
            exploration.stopped = exploration.stopped or reason


def _unreached(kernel: Kernel, exploration: Exploration) -> list[tuple[str, str]]:
    if not exploration.complete:
        return []
    out = []
    for t in kernel.system.transitions:
        for machine in kernel.system.machines.values():
            for a in [*machine.arcs(t), *(machine.arcs(t, "others") if machine.params else ())]:
                if a.must and _claimed(machine, t, a) not in exploration.found:
                    out.append((t.name, f"{machine.name}: {a.source.name} -> {a.dest.name} ({a.of})"))
    return list(dict.fromkeys(out))


def _verdict(kernel: Kernel, engine: Engine | None, seen: Exploration, p: Property, options: Options) -> Verdict:
    if p.form.live:
        return _live(kernel, engine, seen, p, options)
    if p.form is Form.SCENARIO:
        return played(kernel.system, p)
    if p.coarse is not None:
        return _refined(kernel.system, engine, seen, p, options)
    key = WatchKey(DECIDING[p.form], p.name)
    path = seen.found.get(key)
    if path is not None:
        status = Status.HOLDS if p.form is Form.SOMETIMES else Status.VIOLATED
        return Verdict(p, status, Counterexample(path))
    if not seen.complete or key in seen.unanswered:
        return Verdict(p, Status.NOT_DECIDED, reason=seen.stopped or seen.unanswered[key])
    return Verdict(p, Status.VIOLATED if p.form is Form.SOMETIMES else Status.HOLDS)


def _refined(system: System, engine: Any, seen: Exploration, p: Property, options: Options) -> Verdict:
    from .refinement import refines_searched  # needs numpy
    from .whole import explore_whole

    if not seen.complete:
        return Verdict(p, Status.NOT_DECIDED, reason=seen.stopped)
    if options.symmetry or options.ranks is not None:
        way = "under symmetry" if options.symmetry else "by several ranks"
        return Verdict(p, Status.NOT_DECIDED, reason=f"a refinement is never decided {way}: run without it")
    assert p.coarse is not None
    try:
        searched = (engine, seen) if seen.engine == "explicit" else explore_whole(system, options.limits)
        found = refines_searched(system, p.coarse, p.mapping or {}, *searched)
    except LimitReached as limit:
        return Verdict(p, Status.NOT_DECIDED, reason=str(limit))
    run = Counterexample(found.run) if found.run is not None else None
    return Verdict(p, Status.VIOLATED if found.broken else Status.HOLDS, run, "; ".join(found.broken[:1]))


def _live(kernel: Kernel, engine: Engine | None, seen: Exploration, p: Property, options: Options) -> Verdict:
    if engine is None or not seen.complete:
        return Verdict(p, Status.NOT_DECIDED, reason=seen.stopped)
    if options.symmetry:
        return Verdict(p, Status.NOT_DECIDED, reason="liveness is never decided under symmetry: run without it")
    premise, goal = p.exprs
    try:
        for binding in _bindings(p):
            late = p.within and engine.late(premise, goal, binding, p.form, p.within)
            found = late or engine.lasso(premise, goal, binding, p.form)
            if found is not None:
                whom = ", ".join(f"{index} {member}" for index, member in binding.items())
                return Verdict(p, Status.VIOLATED, Counterexample.of(found), f"Violated for {whom}." * bool(binding))
        if options.ranks is not None and options.ranks.rank:
            return Verdict(p, Status.NOT_DECIDED, reason="liveness is decided by the first rank")
        return Verdict(p, Status.HOLDS, reason=_vacuous(kernel, engine, p))
    except LimitReached as limit:
        return Verdict(p, Status.NOT_DECIDED, reason=str(limit))


def _bindings(p: Property) -> Iterator[dict[Expr, int]]:
    for indices in product(*(range(v.sort.size) for v in p.params)):
        yield dict(zip(p.params, indices, strict=True))


def _vacuous(kernel: Kernel, engine: Engine, p: Property) -> str:
    """Why a property of liveness holds although no step has to happen for it; empty if some step has to."""
    premise, goal = p.exprs
    if p.form is Form.LEADS_TO and not any(engine.occurs(premise, binding) for binding in _bindings(p)):
        return "its premise is never true"
    if p.form is Form.EVENTUALLY:
        holds, first = Interpreter(kernel.system).holds, [*islice(kernel.initial_states(), INITIAL_MAX + 1)]
        if len(first) <= INITIAL_MAX and all(holds(goal, s, binding) for s in first for binding in _bindings(p)):
            return "it is true in each initial state"
    return ""

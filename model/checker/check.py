"""Check a system: turn its declarations into watches, let an engine search, and read the verdicts off what it found.

*Theory of operation.* `check` builds a kernel, makes the watches, chooses an engine (`estimate`), and calls `explore`
once: that decides all but liveness, and shows which steps and claimed moves never happen. Then `leads_to` asks the
engine for a lasso, once for each member. All of it runs on the caller's thread. Three things can go wrong. A reachable
step contradicts its declaration (a value out of range, a move that is not claimed): that is an error, and no verdict. A
limit or an allocation ends the search: its findings stay, the rest is not decided. The engine cannot take the system (a
cell too wide, members that differ under symmetry): that is refused before the search.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError, LimitReached, UsageError
from ..language.expressions import FALSE, TRUE, Expr, const, differing, not_, or_, placeholder
from ..language.machines import Machine
from ..language.properties import Form, Property
from ..language.systems import System
from ..language.transitions import Arc, Transition
from .engine import Engine, OnProgress, memory_ended, quiet
from .estimate import Choice, choose
from .kernel import Exploration, Instance, Kernel, Limits, Move, Watch, WatchKey, WatchKind
from .verdicts import Counterexample, Report, Status, Verdict

if TYPE_CHECKING:
    from .explicit.engine import ExplicitEngine
    from .explicit.ranks import Ranks
    from .explicit.storage import Storage
    from .explicit.workers import Workers

ENGINES = ("interpret", "explicit", "symbolic")
DECIDING = {  # the watch that decides a property; liveness has none
    Form.ALWAYS: WatchKind.ALWAYS, Form.SOMETIMES: WatchKind.SOMETIMES, Form.STEP: WatchKind.STEP,
    Form.DEADLOCK: WatchKind.DEADLOCK,
}  # fmt: skip

DEADLOCK_FREEDOM = Property(  # of every system: without a fault it only rests where it says it may
    "deadlock_freedom", Form.DEADLOCK, "Some step is possible, or the system rests where it may.", "", ""
)


def check(
    system: System, *, engine: str = "auto", symmetry: bool = False, limits: Limits | None = None,
    on_progress: OnProgress = quiet, expect: Mapping[str, str] | None = None, properties: Collection[str] | None = None,
    workers: Workers | None = None, storage: Storage | None = None, ranks: Ranks | None = None,
) -> Report:  # fmt: skip
    """Explore a system exhaustively and decide its properties.

    Args:
        system: the system, built for its sizes, edition and faults.
        engine: `auto`, or one of `ENGINES`.
        symmetry: explore one state of each orbit, where the members of the only index can be exchanged.
        limits: where the search stops; what is open then is not decided.
        on_progress: called about eight times a second with how far the search is.
        expect: what is known to be violated, and why: property -> a few words.
        properties: the names of those to decide; without it all of them, and `deadlock_freedom`.
        workers: among whom the engine explicit shares a large search; the report does not depend on it.
        storage: where the engine explicit keeps states that have no room in memory, and the search, to go on with it.
        ranks: the processes that hold the states of the engine explicit together, each of which calls this alike: the
            report of the first is the one of a search alone, the others have no liveness.

    Raises:
        DeclarationError: a reachable step leaves a field's range, or moves a machine where it does not
            claim to; the text names the line and the step.
        UsageError: no such engine or property; or symmetry where it would not be sound; or a storage of another
            search, or for another engine.
        UnavailableError: the engine's package is not installed.
        RankLost: one of `ranks` is gone.
    """
    limits, known = limits or Limits(), [*system.properties, DEADLOCK_FREEDOM]
    _refuse_unknown(system, known, "expect", expect or ())
    _refuse_unknown(system, known, "properties", properties or ())
    asked = [p for p in known if properties is None or p.name in properties]
    kernel = Kernel(system)
    if storage is not None and engine not in ("auto", "explicit"):
        raise UsageError(f"the engine {engine} keeps its states in memory: use --engine explicit with --spill")
    choice = Choice(engine, f"{engine}, as asked")
    try:
        wanted = list(watches(kernel, asked))
        if ranks is not None:
            choice = Choice(engine, f"{engine}, number of ranks: {ranks.count}")
        elif storage is not None:
            choice = Choice("explicit", "explicit: it alone keeps states outside of memory")
        elif engine == "auto":
            choice = choose(kernel, symmetry, wanted, limits, on_progress, workers)
        searcher = choice.searcher or make_engine(
            choice.engine, kernel, limits, on_progress, symmetry, workers, storage, ranks
        )
        exploration = choice.seen or searcher.explore(wanted)
    except MemoryError:  # before the search began, which stops by itself
        searcher = None
        exploration = Exploration(choice.engine, 0, 0, 0, 0.0, 0.0, {}, memory_ended(limits))
    except RecursionError:
        raise _too_deep(system) from None
    _settle(exploration)
    _refuse_broken(kernel, exploration)
    verdicts = [_verdict(searcher, exploration, p, symmetry) for p in asked]
    fired = {key.subject for key in exploration.found if key.kind is WatchKind.FIRED}
    never = [t.name for t in system.transitions if t.name not in fired] if exploration.complete else []
    reason = choice.reason + (f"; went on from {exploration.resumed:,} states" if exploration.resumed else "")
    return Report(system, exploration, verdicts, never, _unreached(kernel, exploration), reason, expect or {})


def _too_deep(system: System) -> UsageError:
    return UsageError(
        f"{system.label}: a tree of a step or a property is nested more deeply than Python calls may be "
        f"({sys.getrecursionlimit()}): write count() for a long sum and a loop over an index for many assignments, "
        "or raise sys.setrecursionlimit"
    )


def _refuse_unknown(system: System, known: Iterable[Property], argument: str, given: Iterable[str]) -> None:
    names = [p.name for p in known]
    for name in given:
        if name not in names:
            raise UsageError(f"{argument} has no property {name!r}: {system.name} has {', '.join(names)}")


def make_engine(
    name: str, kernel: Kernel, limits: Limits, on_progress: OnProgress, symmetry: bool, workers: Workers | None,
    storage: Storage | None = None, ranks: Ranks | None = None,
) -> Engine:  # fmt: skip
    """Load an engine on demand: numpy and decision diagrams are not needed to declare a system."""
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
        return PartitionedEngine(kernel, limits, on_progress, ranks=ranks, storage=storage, symmetry=symmetry)
    if name == "interpret":
        from .reference.engine import ReferenceEngine

        return ReferenceEngine(kernel, limits, on_progress)
    if name == "explicit":
        from .explicit.engine import ExplicitEngine

        return ExplicitEngine(kernel, limits, on_progress, symmetry=symmetry, workers=workers, storage=storage)
    if name == "symbolic":
        from .symbolic.engine import SymbolicEngine

        return SymbolicEngine(kernel, limits, on_progress)
    raise UsageError(f"no engine {name!r}: choose one of auto, {', '.join(ENGINES)}")


def watches(kernel: Kernel, properties: Iterable[Property] | None = None) -> Iterator[Watch]:
    """The watches that decide these properties but liveness, and that find steps which never happen."""
    system = kernel.system
    for p in (*system.properties, DEADLOCK_FREEDOM) if properties is None else properties:
        yield from _deciding(kernel, p)
    read = {name: fields_read(machine.control) for name, machine in system.machines.items()}
    for i in kernel.instances:
        yield Watch(WatchKey(WatchKind.FIRED, i.transition.name, i.number), TRUE, {}, i, path=False)
        yield from _ranges(kernel, i)
        for name, machine in system.machines.items():
            if not read[name].isdisjoint(i.transition.effects):
                yield from _claims(kernel, machine, i)


def _ranges(kernel: Kernel, i: Instance) -> Iterator[Watch]:
    """The watches for the lines of a step that may leave a value out of its field's range."""
    for line, bad in kernel.out_of_range(i):
        yield Watch(WatchKey(WatchKind.RANGE, line, i.number), bad, {}, i)


def explore_whole(system: System, limits: Limits | None = None) -> tuple[ExplicitEngine, Exploration]:
    """Every state and step of a system: the engine, whose `explored()` is the graph, and what its search has counted.

    Raises:
        LimitReached: the system is too large; the text says which limit ended the search.
        DeclarationError: a reachable step leaves a field's range; the text names the line and the step.
    """
    from .explicit.engine import ExplicitEngine

    kernel = Kernel(system)
    engine = ExplicitEngine(kernel, limits or Limits())
    seen = engine.explore([watch for i in kernel.instances for watch in _ranges(kernel, i)])
    _refuse_broken(kernel, seen)
    if not seen.complete:
        raise LimitReached(f"{system.label}: {seen.stopped}")
    return engine, seen


def _deciding(kernel: Kernel, p: Property) -> Iterator[Watch]:
    """The watches that decide one property; none for liveness."""
    if p.form not in DECIDING:
        return
    key = WatchKey(DECIDING[p.form], p.name)
    if p.form is Form.ALWAYS:
        yield Watch(key, not_(p.exprs[0]), {})
    elif p.form is Form.SOMETIMES:
        yield Watch(key, p.exprs[0], {})
    elif p.form is Form.DEADLOCK:
        yield Watch(key, not_(kernel.system.terminal), {}, idle=kernel.progress_instances)
    else:
        for i in kernel.instances:
            condition = (p.conditions or {}).get(i.transition.name, TRUE)
            if condition is not TRUE:
                yield Watch(key, not_(condition), i.binding, i)


def _claims(kernel: Kernel, machine: Machine, i: Instance) -> Iterator[Watch]:
    t = i.transition
    members = cache(lambda: list(_members(kernel, machine, i)))

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


def _members(kernel: Kernel, machine: Machine, i: Instance) -> Iterator[tuple[Expr | None, str]]:
    """The members whose machine a step may move: (index, or None for a machine without one; "self" or "others")."""
    if not machine.params:
        yield None, "self"
        return
    sort = machine.params[0].sort
    own = {k for p, k in i.binding.items() if p.sort is sort}
    other = placeholder(0, sort)
    asked = [machine.moved(i.transition, a.source, a.dest, other) for a in machine.arcs(i.transition, "others")]
    tree = or_(machine.unclaimed(i.transition, other, "others"), *asked)
    others = {k for (k,) in differing(kernel.bound(tree, i.binding), FALSE, (other,))}
    for k in sorted(own | others):
        yield const(k, sort), "self" if k in own else "others"


def fields_read(expr: Expr) -> frozenset[str]:
    """The names of the fields that a tree reads."""
    inner = frozenset[str]().union(*(fields_read(x) for x in expr.args if isinstance(x, Expr)))
    return inner | {expr.name} if expr.op == "read" else inner


def _settle(exploration: Exploration) -> None:
    """A property whose watch has no answer stays open alone; a range, a claim or a step opens the whole search."""
    for key, reason in exploration.unanswered.items():
        if key.kind not in DECIDING.values() and key not in exploration.found:
            exploration.stopped = exploration.stopped or reason


def _refuse_broken(kernel: Kernel, exploration: Exploration) -> None:
    """A declaration that a reachable step contradicts is an error, not a verdict: the nearest such step is told."""
    for key, path in sorted(exploration.found.items(), key=lambda item: len(item[1].steps)):
        if key.kind not in (WatchKind.RANGE, WatchKind.UNCLAIMED) or key.instance is None:
            continue
        instance = kernel.instances[key.instance]
        before, after = (kernel.decode(s) for s in path.states[-2:])
        changed = ", ".join(f"{k}: {before[k]} -> {after[k]}" for k in before if before[k] != after[k])
        if key.kind is WatchKind.RANGE:
            raise DeclarationError(
                f"{key.subject}: {instance.label} leaves the field's range after {len(path.steps)} steps"
            )
        raise DeclarationError(
            f"{instance.transition.at}: {instance.label} moves the machine {key.subject} in a way that it does not "
            f"claim ({changed}); add the arc to moves=, or mend the effect"
        )


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


def _verdict(engine: Engine | None, seen: Exploration, p: Property, symmetry: bool) -> Verdict:
    if p.form is Form.LEADS_TO:
        return _leads_to(engine, seen, p, symmetry)
    key = WatchKey(DECIDING[p.form], p.name)
    path = seen.found.get(key)
    if path is not None:
        status = Status.HOLDS if p.form is Form.SOMETIMES else Status.VIOLATED
        return Verdict(p, status, Counterexample(path))
    if not seen.complete or key in seen.unanswered:
        return Verdict(p, Status.NOT_DECIDED, reason=seen.stopped or seen.unanswered[key])
    return Verdict(p, Status.VIOLATED if p.form is Form.SOMETIMES else Status.HOLDS)


def _leads_to(engine: Engine | None, seen: Exploration, p: Property, symmetry: bool) -> Verdict:
    if engine is None or not seen.complete:
        return Verdict(p, Status.NOT_DECIDED, reason=seen.stopped)
    if symmetry:
        return Verdict(p, Status.NOT_DECIDED, reason="liveness is never decided under symmetry: run without it")
    premise, goal = p.exprs
    for indices in product(*(range(v.sort.size) for v in p.params)):
        binding: dict[Any, int] = dict(zip(p.params, indices, strict=True))
        try:
            found = engine.lasso(premise, goal, binding)
        except LimitReached as limit:
            return Verdict(p, Status.NOT_DECIDED, reason=str(limit))
        if found is not None:
            return Verdict(p, Status.VIOLATED, Counterexample.of(found))
    return Verdict(p, Status.HOLDS)

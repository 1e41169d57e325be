"""A search of every state and step of a system, and the steps that a search must not meet: they leave a range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import DeclarationError, LimitReached
from ..language.systems import System
from .kernel import Exploration, Instance, Kernel, Limits, Watch, WatchKey, WatchKind

if TYPE_CHECKING:
    from .explicit.engine import ExplicitEngine


def explore_whole(system: System, limits: Limits | None = None) -> tuple[ExplicitEngine, Exploration]:
    """Explore every state and step of a system; returns the engine, whose `explored()` is the graph, and the counts.

    Raises:
        LimitReached: the system is too large; the text names the limit that ended the search.
        DeclarationError: a reachable step leaves a field's range; the text names the line and the step.
    """
    from .explicit.engine import ExplicitEngine

    kernel = Kernel(system)
    engine = ExplicitEngine(kernel, limits or Limits())
    seen = engine.explore([watch for i in kernel.instances for watch in ranges(kernel, i)])
    refuse_broken(kernel, seen)
    if not seen.complete:
        raise LimitReached(f"{system.label}: {seen.stopped}")
    return engine, seen


def ranges(kernel: Kernel, i: Instance) -> Iterator[Watch]:
    """The watches for the lines of a step that may leave a value out of its field's range."""
    for line, bad in kernel.out_of_range(i):
        yield Watch(WatchKey(WatchKind.RANGE, line, i.number), bad, {}, i)


def refuse_broken(kernel: Kernel, exploration: Exploration) -> None:
    """Raise an error for the nearest reachable step that contradicts its declaration: it is not a verdict."""
    # Two steps may be as near: all engines report the same one.
    nearest = sorted(exploration.found.items(), key=lambda one: (len(one[1].steps), one[0].instance or 0, str(one[0])))
    for key, path in nearest:
        if key.kind not in (WatchKind.RANGE, WatchKind.UNCLAIMED) or key.instance is None:
            continue
        instance = kernel.instances[key.instance]
        before, after = (kernel.system.decode(s) for s in path.states[-2:])
        changed = ", ".join(f"{k}: {before[k]} -> {after[k]}" for k in before if before[k] != after[k])
        if key.kind is WatchKind.RANGE:
            lines = {w.line: w.field for w in instance.transition.writes if kernel.may_leave_range(w)}
            field = lines.get(str(key.subject), "")
            full = field.removesuffix("_length")
            push = f"has pushed to the sequence {full} when it was full, and so " * (full in kernel.system.sequences)
            slot = kernel.system.slots.get(field)
            limits = f": {field} has {slot.sort.low} to {slot.sort.high}" if slot is not None else ""
            raise DeclarationError(
                f"{key.subject}: {instance.label} {push}leaves the field's range after {len(path.steps)} steps{limits}"
            )
        raise DeclarationError(
            f"{instance.transition.at}: {instance.label} moves the machine {key.subject} in a way that it does not "
            f"claim ({changed}); add the arc to moves=, or fix the effect"
        )

"""Which engine fits a system: an estimate from a short look, said in words so that nobody has to guess."""

from __future__ import annotations

import importlib.util

from .kernel import Kernel

EXPLICIT_STATES_MAX = 20_000_000  # beyond, decision diagrams are faster on every system measured


def choose(kernel: Kernel, symmetry: bool) -> tuple[str, str]:
    """The engine for this system, and why."""
    if symmetry:
        return "explicit", "explicit: symmetry was asked for"
    sample, closed = sample_states(kernel, 2_000)
    if closed:
        return "explicit", f"explicit: about {sample:,} states"
    bits = sum(max(1, (c.sort.size - 1).bit_length()) for c in kernel.cells)
    if bits > 60 and importlib.util.find_spec("dd") is not None:
        return "symbolic", f"symbolic: {bits} bits a state and more than {sample:,} states"
    return "explicit", f"explicit: {bits} bits a state and more than {sample:,} states"


def sample_states(kernel: Kernel, limit: int) -> tuple[int, bool]:
    """How many states a search sees before `limit`, and whether that was all of them."""
    from .interpret import Interpreter

    interpreter = Interpreter(kernel.system)
    seen = set(kernel.system.initial_states)
    queue = list(seen)
    while queue and len(seen) < limit:
        for _, after in interpreter.successors(queue.pop(0)):
            if after not in seen:
                seen.add(after)
                queue.append(after)
    return len(seen), not queue

"""The time to build a system of many members: to declare it, to close it for each member, and to prepare a search.

    python benchmarks/build.py [--members N ...] [--rounds N]

The members are the resource managers of two-phase commit: five steps each, a machine each, and properties with
quantifiers over all of them. The work should grow with the members, not with their square: next to each time is its
ratio to the time of the previous size. All times are CPU seconds of this process.
"""

from __future__ import annotations

import argparse
import statistics
import time

from trystate.model.checker.check import watches
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.kernel import Kernel, Limits
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit

PHASES = ("declare", "close", "watches", "compile", "first states")


def build(members: int) -> dict[str, float]:
    """CPU seconds of each phase, from the class to the first states of a search."""
    spent: dict[str, float] = {}
    began = time.process_time()

    def lap(phase: str) -> None:
        nonlocal began
        now = time.process_time()
        spent[phase], began = now - began, now

    system = TwoPhaseCommit(rm=members, faults=["coordinator_crash"])
    lap("declare")
    kernel = Kernel(system)
    for instance in kernel.instances:
        kernel.guard(instance)
        kernel.effects(instance)
    lap("close")
    wanted = list(watches(kernel))
    lap("watches")
    engine = ExplicitEngine(kernel, Limits(states=1))
    lap("compile")
    engine.explore(wanted)
    lap("first states")
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--members", type=int, nargs="+", default=[50, 100, 200], help="sizes (default 50 100 200)")
    parser.add_argument("--rounds", type=int, default=3, help="builds of each size (default 3)")
    args = parser.parse_args()
    print("members  " + "  ".join(f"{phase:>16}" for phase in PHASES))
    last: dict[str, float] = {}
    for members in args.members:
        rounds = [build(members) for _ in range(args.rounds)]
        middle = {phase: statistics.median(r[phase] for r in rounds) for phase in PHASES}
        cells = []
        for phase, seconds in middle.items():
            times = f" ({seconds / last[phase]:.1f}x)" if last else ""
            cells.append(f"{seconds:.3f}{times}")
        print(f"{members:>7}  " + "  ".join(f"{cell:>16}" for cell in cells), flush=True)
        last = middle


if __name__ == "__main__":
    main()

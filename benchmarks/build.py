"""How long a system of many members takes to build: declared, closed for each member, and made ready for a search.

    python benchmarks/build.py [--members N ...] [--rounds N]

The members are workers that take turns with one lock: four steps each, a machine each, a step that changes all of them,
and properties with quantifiers over all of them. The work should grow with the members, not with their square: beside
each time stands how many times longer it is than that of the size before. All times are CPU seconds of this process.
The guard of `take` names every worker, so that the text grows with the square of those that a search has compiled.
"""

from __future__ import annotations

import argparse
import enum
import statistics
import time

from trystate.model.checker.check import watches
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.language import (
    System,
    all_,
    always,
    any_,
    arc,
    choice,
    count,
    environment,
    fault,
    flag,
    index,
    integer,
    leads_to,
    machine,
    sometimes,
    step,
    terminal,
    transition,
)  # fmt: skip

PHASES = ("declare", "close", "watches", "compile", "first states")


class Worker(enum.Enum):
    """The state of a worker."""

    IDLE = "has nothing to do"
    WAITING = "wants the lock"
    WORKING = "holds the lock"
    GONE = "has left for good"


class Workers(System):
    """Workers that share a lock and count their turns."""

    worker = index(3)

    state = choice(Worker, per="worker", doc="what each worker does")
    turns = integer(0, 2, per="worker", doc="how often each has worked")
    ready = flag(per="worker", initial=True, doc="whether each may ask for the lock")
    total = integer(0, 3, doc="turns of all since the last count")

    @machine(Worker, each="worker")
    def worker_state(self, s, worker):  # type: ignore[no-untyped-def]
        """One worker."""
        return s.state[worker]

    @transition(each="worker", moves=[arc(Worker.IDLE, Worker.WAITING)])
    def ask(self, s, worker):  # type: ignore[no-untyped-def]
        """A worker asks for the lock."""
        s.when(s.state[worker] == Worker.IDLE, s.ready[worker])
        s.state[worker] = Worker.WAITING

    @transition(each="worker", moves=[arc(Worker.WAITING, Worker.WORKING)])
    def take(self, s, worker):  # type: ignore[no-untyped-def]
        """A worker takes the lock, which nobody holds."""
        s.when(s.state[worker] == Worker.WAITING, all_(s.state[j] != Worker.WORKING for j in s.worker))
        s.state[worker] = Worker.WORKING

    @transition(each="worker", moves=[arc(Worker.WORKING, Worker.IDLE)])
    def give_back(self, s, worker):  # type: ignore[no-untyped-def]
        """A worker gives the lock back and counts its turn."""
        s.when(s.state[worker] == Worker.WORKING, s.turns[worker] < 2, s.total < 3)
        s.state[worker] = Worker.IDLE
        s.turns[worker] += 1
        s.total += 1

    @environment()
    def reset(self, s):  # type: ignore[no-untyped-def]
        """Turns are counted; a worker without one may ask again."""
        s.when(s.total == 3)
        s.total = 0
        for j in s.worker:
            s.ready[j] = s.state[j] == Worker.IDLE

    @fault("crash", each="worker", moves=[arc(Worker.IDLE, Worker.GONE), arc(Worker.WORKING, Worker.GONE)])
    def crash(self, s, worker):  # type: ignore[no-untyped-def]
        """A worker is gone; a lock that it held is free."""
        s.when(s.state[worker].isin((Worker.IDLE, Worker.WORKING)))
        s.state[worker] = Worker.GONE
        s.ready[worker] = False

    @terminal
    def rest(self, s):  # type: ignore[no-untyped-def]
        """No worker has a turn left."""
        return all_((s.turns[j] == 2) | (s.state[j] != Worker.IDLE) for j in s.worker)

    @always(witness="somebody_works")
    def one_at_a_time(self, s):  # type: ignore[no-untyped-def]
        """At most one worker holds the lock."""
        return count(s.state[j] == Worker.WORKING for j in s.worker) <= 1

    @sometimes()
    def somebody_works(self, s):  # type: ignore[no-untyped-def]
        """A worker holds the lock."""
        return any_(s.state[j] == Worker.WORKING for j in s.worker)

    @step(witness="somebody_works", each="worker")
    def gone_for_good(self, before, after, worker):  # type: ignore[no-untyped-def]
        """A worker that is gone does not come back."""
        return (before.state[worker] != Worker.GONE) | (after.state[worker] == Worker.GONE)

    @step(witness="somebody_works")
    def the_lock_moves_once(self, before, after):  # type: ignore[no-untyped-def]
        """No step takes the lock from one worker and gives it to another."""
        held = any_(before.state[j] == Worker.WORKING for j in before.worker)
        return ~held | all_(
            (before.state[j] == Worker.WORKING) | (after.state[j] != Worker.WORKING) for j in before.worker
        )

    @leads_to(each="worker")
    def served(self, s, worker):  # type: ignore[no-untyped-def]
        """A worker that waits comes to work."""
        return s.state[worker] == Worker.WAITING, s.state[worker] == Worker.WORKING


def build(members: int) -> dict[str, float]:
    """CPU seconds of each phase, from the class to the first states of a search."""
    spent: dict[str, float] = {}
    began = time.process_time()

    def lap(phase: str) -> None:
        nonlocal began
        now = time.process_time()
        spent[phase], began = now - began, now

    system = Workers(worker=members, faults=["crash"])
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

"""A search on several ranks: its time, the states that they send each other, and their memory.

    torchrun --nproc-per-node N benchmarks/ranks.py [--quick]

The first rank prints a row. Processor time is the sum over all ranks: other programs disturb it less than wall-clock
time. Liveness is left out, because the first rank alone would decide it.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Sequence

from trystate.model.checker.check import watches
from trystate.model.checker.explicit.partitioned import PartitionedEngine
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.rendezvous import Edition, Rendezvous
from trystate.search.ranks import TorchRanks, joined

HEAD = (
    "| ranks | states | edges | depth | words | s | processor s | states/processor s | sent bytes/state | "
    "MiB of a rank: before, peak |"
)


def measured(ranks: TorchRanks, nodes: int) -> str:
    system = Rendezvous(edition=Edition.TRYSTATE, node=nodes, max_nodes=3, faults=["crash", "stall"])
    kernel = Kernel(system)
    engine = PartitionedEngine(kernel, Limits(), ranks=ranks)
    before, began, used = peak_mib(), time.perf_counter(), time.process_time()
    seen = engine.explore(list(watches(kernel)))
    seconds = time.perf_counter() - began
    told = ranks.told([time.process_time() - used, ranks.sent_bytes, before, peak_mib()])
    processor, sent = sum(row[0] for row in told), sum(row[1] for row in told)
    return (
        f"| {ranks.count} | {seen.distinct:,} | {seen.edges:,} | {seen.depth} | {engine.layout.words} | "
        f"{seconds:.1f} | {processor:.1f} | {seen.distinct / processor:,.0f} | {sent / seen.distinct:.1f} | "
        f"{max(row[2] for row in told)}, {max(row[3] for row in told)} |"
    )


def peak_mib() -> int:
    """The peak memory of this process; Linux reports it in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small system")
    args = parser.parse_args(argv)
    with joined() as ranks:
        row = measured(ranks, 2 if args.quick else 4)
        if ranks.rank == 0:
            print(HEAD, row, sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

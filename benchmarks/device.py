"""A search of the explicit engine on the processor, with one core and with all, and on a GPU.

    python benchmarks/device.py [--rounds N] [--device NAME] [--cores N] [--only PART ...] [--quick] [--profile]

The runs are the runs of `cores.py`. Bytes are the device's own peak per state. `--profile` shows the time that each
operation of one search takes on the device.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from checker import about
from cores import Side, options, search, show

from trystate.model.checker.explicit import packing
from trystate.search.device import named


class Case(NamedTuple):
    """A model of one size, in words of `bits` bits.

    `one` and `all`: whether it is also searched with one core and with all cores.
    """

    model: str
    size: int
    bits: int = packing.WORD_BITS
    one: bool = True
    all: bool = True


FULL = {
    "small": (Case("two phase commit", 9), Case("rendezvous", 4), Case("rendezvous", 4, bits=20)),
    "large": (Case("two phase commit", 10), Case("two phase commit", 11, one=False), Case("rendezvous", 5, one=False)),
    "largest": (Case("two phase commit", 12, one=False, all=False),),
}
QUICK = {"small": (Case("two phase commit", 3), Case("rendezvous", 2, bits=12))}


def profiled(model: str, size: int, side: Side) -> None:
    """Print the operations of a search that took the most time, on the device and on the processor."""
    from torch.profiler import ProfilerActivity, profile

    search(model, 3, side)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        search(model, size, side)
    told: Any = seen.key_averages()
    for by in ("self_cuda_time_total", "self_cpu_time_total"):
        print(told.table(sort_by=by, row_limit=14, max_name_column_width=60))


def name_of(device: str) -> str:
    import torch

    found = named(device)
    return device if found.type == "cpu" else f"{torch.cuda.get_device_name(found)}, torch {torch.__version__}"


def main() -> int:
    parser = options(3)
    parser.add_argument("--device", default="cuda", help="the other side (default cuda)")
    parser.add_argument("--only", nargs="+", choices=tuple(FULL), default=tuple(FULL), help="these sizes")
    parser.add_argument("--profile", action="store_true", help="profile the first size instead")
    args = parser.parse_args()
    sizes = QUICK if args.quick else FULL
    cases = [case for part in args.only for case in sizes.get(part, ())]
    if args.profile:
        profiled(cases[0].model, cases[0].size, Side(args.device, 1, cases[0].bits))
        return 0
    print(about(), name_of(args.device), sep="; ")
    agree = True
    for model, size, bits, one, every in cases:
        cores = [1] * one + [args.cores] * every
        sides = [*(Side(cores=n, bits=bits) for n in cores), Side(args.device, 1, bits)]
        agree &= show(model, size, sides, 1 if args.quick else max(1, args.rounds))
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())

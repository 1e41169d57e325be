"""A search of the explicit engine on the processor, with one core and with all, and on a GPU.

    python benchmarks/device.py [--rounds N] [--device NAME] [--cores N] [--only PART ...] [--quick]

The runs are the runs of `cores.py`. Bytes are the device's own peak per state.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from checker import about
from cores import Side, options, show

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


def name_of(device: str) -> str:
    import torch

    found = named(device)
    return device if found.type == "cpu" else f"{torch.cuda.get_device_name(found)}, torch {torch.__version__}"


def main() -> int:
    parser = options(3)
    parser.add_argument("--device", default="cuda", help="the other side (default cuda)")
    parser.add_argument("--only", nargs="+", choices=tuple(FULL), default=tuple(FULL), help="these sizes")
    args = parser.parse_args()
    sizes = QUICK if args.quick else FULL
    cases = [case for part in args.only for case in sizes.get(part, ())]
    print(about(), name_of(args.device), sep="; ")
    agree = True
    for model, size, bits, one, every in cases:
        cores = [1] * one + [args.cores] * every
        sides = [*(Side(cores=n, bits=bits) for n in cores), Side(args.device, 1, bits)]
        agree &= show(model, size, sides, 1 if args.quick else max(1, args.rounds))
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())

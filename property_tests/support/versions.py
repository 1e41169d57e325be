"""Programs of agents and servers that are of another version of this package: this one under another number."""

from __future__ import annotations

import runpy
import sys

from trystate.impl.rendezvous import encoding
from trystate.impl.store import wire

LATER = "trystate-rendezvous-9"


def with_later_state(argv: list[str]) -> None:
    """In the child: a trystate whose shared state has another shape."""
    encoding.FORMAT = LATER
    run(argv)


def with_later_requests(argv: list[str]) -> None:
    """In the child: a trystate whose stores have other requests of their own, as client and as server."""
    from trystate.impl.store.client import codec
    from trystate.impl.store.server import extended

    vars(extended)["VERSION"] = 9
    codec.HELLO = codec.HELLO.replace(wire.U32.pack(1), wire.U32.pack(9))
    run(argv)


def run(argv: list[str]) -> None:
    sys.argv = ["trystate", *argv]
    runpy.run_module("trystate", run_name="__main__")

"""Run torch's own tests of distributed autograd, or of RPC, on our modules, and write the pages that list them.

    python -m trystate.property_tests.support.upstream_autograd [--rpc] [--torch] [--write docs/PAGE]

`--torch` runs them on torch's own modules: a failure there is not ours.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..autograd.sides import OURS, TORCH
from .catalogue import Page, listing, table
from .running import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trystate.property_tests.support.upstream_autograd")
    parser.add_argument("--torch", action="store_true", help="on torch's modules instead of ours")
    parser.add_argument("--rpc", action="store_true", help="the tests of RPC, not of distributed autograd")
    parser.add_argument("--write", type=Path, help="write the table to this file, if each test passes")
    args = parser.parse_args()
    page = Page.RPC if args.rpc else Page.AUTOGRAD
    every = listing(page.modules)
    failed = 0
    for name, trouble in run([each for each in every if each.is_run], TORCH if args.torch else OURS):
        print(f"{name}: {trouble or 'passes'}", flush=True)
        failed += bool(trouble)
    if args.write and not failed and not args.torch:
        args.write.write_text(table(page, every), encoding="utf-8")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())

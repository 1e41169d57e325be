"""Run torch's own tests of distributed autograd, or of RPC, on our modules, and write down how they end.

    python -m trystate.property_tests.support.upstream_autograd [--rpc] [--torch] [--write docs/PAGE] [PART ...]

`--torch` runs them on torch's own modules: what fails there is no matter of ours.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..autograd.sides import OURS, TORCH
from .catalogue import listing
from .running import run
from .table import Page, table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trystate.property_tests.support.upstream_autograd")
    parser.add_argument("parts", nargs="*", metavar="PART", help="only tests whose names have one of these in them")
    parser.add_argument("--torch", action="store_true", help="on torch's modules instead of ours")
    parser.add_argument("--rpc", action="store_true", help="the tests of RPC instead of those of distributed autograd")
    parser.add_argument("--write", type=Path, help="write the table to this file, if no test fails that should pass")
    args = parser.parse_args()
    if args.write and (args.parts or args.torch):
        parser.error("--write is for all tests, on ours")
    page = Page.RPC if args.rpc else Page.AUTOGRAD
    every = listing(page.modules)
    chosen = [each for each in every if each.is_run and any(part in each.name for part in args.parts or [""])]
    failed = 0
    for report in run(chosen, TORCH if args.torch else OURS):
        print(f"{report.seconds:7.2f} s  {'passes' if report.passed else 'FAILS '}  {report.name}", flush=True)
        if not report.passed:
            print(report.trouble, flush=True)
            failed += 1
    print(f"{len(chosen) - failed} of {len(chosen)} pass, some without words; {len(every)} in all")
    if args.write and not failed:
        args.write.write_text(table(page, every), encoding="utf-8")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())

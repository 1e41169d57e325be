"""How many mutants `pytest --quick` catches: `python -m trystate.property_tests.support.quick_mutants --count 20`.

For each room of the source a random sample of its functions' mutants. A process is forked for each, in which the
mutant is planted, and the room's quick tests run until the first fails. One that hangs is caught.
Survivors are printed: some make no difference, some are what only the whole suite sees.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import math
import os
import pkgutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FunctionType

import pytest

from .mutants import Mutant, generated
from .quick import QUICK

TESTS = Path(__file__).resolve().parents[1] / "tests"
ROOMS = {  # the package, and the folder of its tests
    "trystate.model.language": "language",
    "trystate.model.checker": "checker",
    "trystate.impl.rendezvous": "rendezvous",
    "trystate.impl.agent": "agent",
    "trystate.impl.store": "store",
    "trystate.impl.rpc": "rpc",
    "trystate.impl.autograd": "autograd",
}
DRAWS_MAX = 100  # for each mutant that is asked for: a small room may have no more
HANG_FACTOR, HANG_SECONDS = 3, 10  # times what the tests take as they are, and this


def functions(package: str) -> Iterator[FunctionType]:
    """Those written in the package's modules; not those with a closure, whose code cannot be exchanged."""
    home = importlib.import_module(package)
    for found in pkgutil.walk_packages(home.__path__, package + "."):
        if found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        classes = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == found.name]
        for each in (module, *classes):
            for one in vars(each).values():
                plain = inspect.unwrap(one) if callable(one) else None
                if isinstance(plain, FunctionType) and plain.__module__ == found.name and not plain.__closure__:
                    yield plain


def sample(package: str, count: int, chance: Random) -> Iterator[tuple[str, Mutant]]:
    """Where and what was changed, and the mutant: so many of them, or as many as there are.

    Functions are drawn by their length.
    """
    known = [*dict.fromkeys(functions(package))]
    weights = [len(one.__code__.co_code) for one in known]
    taken: set[str] = set()
    for _ in range(DRAWS_MAX * count):
        if len(taken) == count:
            return
        function = chance.choices(known, weights)[0]
        try:
            fitting = [*generated(function).items()]
        except (OSError, SyntaxError, TypeError, AssertionError):
            continue  # generated code has no source
        if fitting:
            said, mutant = chance.choice(fitting)
            where = f"{function.__module__.removeprefix('trystate.')}: {said}"
            if where not in taken:
                taken.add(where)
                yield where, mutant


def caught(folder: str, mutant: Mutant | None, seconds: float = 0.0) -> bool:
    """Do the folder's quick tests fail with this mutant, or take longer than so many seconds? 0: there is no limit."""
    files = [str(TESTS / name) for name in QUICK if name.startswith(f"{folder}/")]
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(silence, stream)
        signal.alarm(math.ceil(seconds))
        if mutant is not None:
            mutant(pytest.MonkeyPatch())
        passed = pytest.main(["--quick", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files]) == 0
        os._exit(0 if passed else 1)
    return os.waitpid(child, 0)[1] != 0


def main() -> int:
    asked = argparse.ArgumentParser(description="count the mutants that pytest --quick catches")
    asked.add_argument("rooms", nargs="*", choices=[[], *ROOMS.values()], default=[], help="folders of tests")
    asked.add_argument("--count", type=int, default=20, help="mutants of each room")
    asked.add_argument("--seed", type=int, default=0)
    options = asked.parse_args()
    chosen = {package: folder for package, folder in ROOMS.items() if folder in (options.rooms or ROOMS.values())}
    total = drawn = 0
    for package, folder in chosen.items():
        began = time.monotonic()
        if caught(folder, None):
            sys.exit(f"the quick tests of {folder} fail as it is")
        seconds = HANG_FACTOR * (time.monotonic() - began) + HANG_SECONDS
        found = count = 0
        for where, mutant in sample(package, options.count, Random(options.seed)):
            count += 1
            if caught(folder, mutant, seconds):
                found += 1
            else:
                print(f"  survives {where}", flush=True)
        total, drawn = total + found, drawn + count
        print(f"{folder}: {found} of {count} caught", flush=True)
    print(f"{total} of {drawn} caught")
    return 0


if __name__ == "__main__":
    sys.exit(main())

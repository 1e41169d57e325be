"""Runs tests of torch's, one after another, in a world of four processes that is started once.

Rule: a test is torch's code, unchanged. torch starts processes, `init_rpc` and `shutdown` for each test. Here the tests
share them, and the variables of the tests' modules are reset between two tests. (With new processes for each test, all
tests take a quarter of an hour. RPC cannot be restarted in a process: after that, no RRef of torch's works.) After a
test that fails, or that ends its RPC, the next test gets a new world.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator

from ...adapters.torch_store.isolated import Silence
from ...adapters.worlds import Failed, World
from ..autograd.sides import Side
from . import substitution
from .catalogue import UpstreamTest

WORKERS = 4  # the number that torch's tests are written for
LATE_SECONDS = 120.0  # limit for one test


def run(tests: Iterable[UpstreamTest], side: Side, mutant: str = "") -> Iterator[tuple[str, str]]:
    """Run tests on one side, in this order: the name of each, and the error of each worker that failed.

    `mutant`, one of `ours.MUTANTS`, is planted in each process.
    """
    with tempfile.TemporaryDirectory() as folder, World(WORKERS, substitution.PRELOADED) as world:
        for test in tests:
            if test.own:
                world.end()
            if not world.runs:
                place = tempfile.mkdtemp(dir=folder)
                world.do(substitution.enter, WORKERS, side, place, mutant, test.own, seconds=LATE_SECONDS)
            said = world.tell(substitution.run_one, WORKERS, test.name, not test.has_words, seconds=LATE_SECONDS)
            trouble = [f"worker {k}: {each}" for k, each in enumerate(said) if isinstance(each, Failed | Silence)]
            if trouble or test.own or any(said):
                world.end()  # the other workers may wait for a failed worker: the next test needs a new world
            yield test.name, "\n".join(trouble)

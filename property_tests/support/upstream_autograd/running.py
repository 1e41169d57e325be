"""Runs tests of torch's, one after another, in a world of four processes that is started once.

Rule: a test is torch's code, unchanged. The difference from torch's own way of running it: processes, `init_rpc` and
`shutdown` are not each test's own; the variables of the tests' modules are put back between two. (Fresh processes for
each test take a quarter of an hour for all. RPC cannot be started anew in the same process: with torch's, no RRef works
then.) A test that fails, or that ends its RPC, has a world to itself from then on.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...adapters.torch_store.isolated import Silence
from ..autograd.sides import Side
from ..autograd.worlds import Failed, World
from . import substitution
from .catalogue import UpstreamTest

WORKERS = 4  # torch's tests are written for
LATE_SECONDS = 120.0  # after which a test hangs


@dataclass(frozen=True)
class Report:
    """How a test ended; `trouble` is what each worker that failed says, empty if it passed."""

    name: str
    trouble: str
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.trouble


def run(
    tests: Iterable[UpstreamTest], side: Side, seconds: float = LATE_SECONDS, mutant: substitution.Mutant | None = None
) -> Iterator[Report]:
    """Run tests on one side, in this order; each may take `seconds`.

    `mutant`, a function of a module, is planted in each process.
    """
    with tempfile.TemporaryDirectory() as folder, World(WORKERS, substitution.PRELOADED) as world:
        for test in tests:
            began = time.monotonic()
            if test.own:
                world.end()
            if not world.runs:
                place = tempfile.mkdtemp(dir=folder)
                world.do(substitution.enter, WORKERS, side, place, mutant, test.own, seconds=LATE_SECONDS)
            said = world.tell(substitution.run_one, WORKERS, test.name, not test.has_words, seconds=seconds)
            trouble = [f"worker {k}: {each}" for k, each in enumerate(said) if isinstance(each, Failed | Silence)]
            if trouble or test.own or any(said):
                world.end()  # a failed worker has left the others waiting: their world is not for the next test
            yield Report(test.name, "\n".join(trouble), time.monotonic() - began)

"""The nightly profile (HYPOTHESIS_PROFILE=nightly): the same claims on more runs, within 90 minutes on two cores.

Rule: this module has the nightly numbers of the tests, each with its cost: seconds of one core of an otherwise idle
machine, estimated from parts of each. The numbers cost 61 minutes of one core together; random proofs take 8 of that
(`trystate simulate proofs` runs them for hours). Other nightly cases cost 62 minutes:
searches of up to 13 million states (500 s) and of up to 52 million (1,200 s: docs/larger.py), three faults at once on
our engine (84 systems, 550 s), two and three on our agent (123 systems, 160 s) and torch's (40 s), larger graphs of
autograd with all faults (500 s) and mapped to any graph (100 s), all of torch's own tests of autograd (200 s),
the edges of rooms (200 s), published specifications in each engine, Spin and TLC (250 s).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import pytest
from hypothesis import settings

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
VERIFIED = "TRYSTATE_VERIFIED" in os.environ  # `trystate verify --all` is run as well as these tests
by_verify = pytest.mark.skipif(VERIFIED, reason="`trystate verify` compares it")
EXAMPLES = 40  # examples of a hypothesis test without its own number
NUMBERS: Mapping[str, int] = {
    "examples": 300,  # 400 s: seven times the ordinary number, with new ones each night
    "seconds of a loop": 200,  # 600 s: there are three; a count would take twice as long elsewhere
    "seconds of random proofs": 480,  # 480 s: a random system is proved and searched twice a second; the limit is 600
    # Real processes: most of the time they wait.
    "jobs in chaos": 4,  # 240 s: each is disturbed for a minute
    "faults of a job in chaos": 12,  # included above; enough for each kind to occur
    "runs of disturbed stores": 3,  # 240 s, of five kinds
    "seconds of a disturbed store": 20,  # included above; a server is stopped for up to 3 of them
    "recorded jobs of ours": 200,  # 300 s: each takes 5 s and waits for 3.5 of them
    "recorded jobs of torch's": 50,  # 100 s
    # Searches that keep their states in files.
    "crashes of a search": 60,  # 120 s: kills, losses of power and failures of a disk, at as many calls each
    # The simulator.
    "nodes of a crowd": 500,  # 30 s: the cost grows with the square
    "edges of workers that meet, each of two faults": 200_000,  # 40 s: all of them
    # Scripts in separate processes.
    "reports for torch": 99,  # 400 s: all of them, and their controls; each imports torch, and mostly waits
    "runs of rooms": 10_000,  # 100 s
    "edges on torchft's servers": 10_000,  # 40 s: all of them
    # Programs that worker processes run.
    "programs": 300,  # 100 s
    "drawn graphs": 10,  # 30 s: one in ten has as many states as all the others
    "states of a pinned run": 1_000_000,  # 20 s: of waits and watches
    "states of a run for Spin": 300_000,  # 300 s: most of it compiles the exported models
    "states of a search in the page": 300_000,  # 120 s: of each property of liveness of the small plan
    "states of a run for TLC": 600,  # 200 s: it starts once for each violation
}
# Files of more than five minutes: they begin first. At the end no process works on one while the other is idle.
LONG = (
    "prover/test_random_proofs.py", "monitor/test_real_jobs.py", "autograd/test_upstream.py", "house/test_docs.py",
    "checker/test_export_promela.py", "command_line/test_replays.py", "monitor/rendezvous/test_follower.py",
    "agent/test_chaos.py",
)  # fmt: skip


Number = TypeVar("Number", int, float)
Case = TypeVar("Case")


def by_night(name: str, ordinary: Number) -> Number:
    """The nightly number of this name, or by day the ordinary one."""
    return NUMBERS[name] if NIGHTLY else ordinary


def a_third(cases: Sequence[Case]) -> Sequence[Case]:
    """All cases by night, every third by day: for lists that take ten seconds of a core and more."""
    return cases if NIGHTLY else cases[::3]


def examples(ordinary: int) -> int:
    """The number of examples of a hypothesis test, scaled by night and in the quick tests like the default number."""
    return max(1, ordinary * settings().max_examples // EXAMPLES)


def seeds(count: int) -> Iterator[int]:
    """The first `count` seeds; by night also those after them that begin in time; a part of them in the quick tests."""
    end = time.monotonic() + NUMBERS["seconds of a loop"]
    seed, least = 0, min(count, examples(count))
    while seed < least or (NIGHTLY and time.monotonic() < end):
        yield seed
        seed += 1

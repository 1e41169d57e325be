"""Real handlers in the simulator: ours keep every promise on every seed, torch's break most, mutants are caught.

100 seeds; more under HYPOTHESIS_PROFILE=nightly. A failure prints the smallest run that fails in the same way,
and the command that shows it again.
"""

from __future__ import annotations

import atexit
import random
import secrets
import socket
import sys
import threading
import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous import RendezvousInfo

from trystate.impl.rendezvous import driver
from trystate.impl.rendezvous.bootstrap import Meeting
from trystate.impl.rendezvous.driver import KeepAlive
from trystate.impl.rendezvous.engine import Engine
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.rooms.part import RoomPart
from trystate.property_tests.adapters.campaigns.simulated import FINDINGS, told
from trystate.property_tests.adapters.simulator import surroundings
from trystate.property_tests.adapters.simulator.handlers import OURS, ROOMS, TORCH, crowd, usual
from trystate.property_tests.adapters.simulator.swarm import Subject, run, shrink, sweep
from trystate.property_tests.support.mutants import Mutant, planted, replaced, rewritten, together
from trystate.property_tests.support.nightly import by_night, seeds

CROWD = by_night("nodes of a crowd", 64)
SAMPLE = range(30)
REAL = (time, threading, random, secrets, uuid, atexit, socket)

# A seed of each finding; the property that fails, and the faults that remain in the smallest run, are in FINDINGS.
# This finds more: `trystate simulate torch --seeds 700`.
FOUND = {
    "R1": 34, "R2": 2, "R3": 7, "R4": 86, "R6": 257, "R7": 623, "R8": 1, "R9": 208, "R10": 23, "R12": 590, "R14": 262,
}  # fmt: skip
LATE = ("full_rounds_come_to_rest",)  # shows only after other violations: these runs continue to their end


@pytest.mark.parametrize("subject", [OURS, ROOMS], ids=lambda subject: subject.name)
def test_our_handler_keeps_every_promise_on_every_seed(subject: Subject) -> None:
    """On documents, and in rooms."""
    for one in sweep(seeds(100), subject):
        assert not one.fails, "\n".join(told(shrink(one), None))


@pytest.mark.parametrize("finding", FOUND)
def test_torchs_handler_breaks_on_a_seed_that_ours_passes(finding: str) -> None:
    seed, (name, faults) = FOUND[finding], FINDINGS[finding]
    on = name in LATE
    failed = run(usual(seed), TORCH, on=on)
    assert name in failed.violations
    small = shrink(failed, name if on else "")
    assert told(failed, None)[-1].endswith(f"trystate simulate torch --seed {seed}")
    assert {fault.kind for fault in small.schedule.faults} == set(faults), "\n".join(told(small, None))
    ours = [run(schedule, OURS) for schedule in (failed.schedule, small.schedule)]
    assert not any(one.fails for one in ours), "\n".join(line for one in ours for line in told(one, None))


def remembering(self: DynamicRendezvousHandler, failed: bool = False) -> RendezvousInfo:
    info = next_rendezvous(self, failed)
    first: Any = vars(self).setdefault("_first", info.bootstrap_store_info)
    return RendezvousInfo(info.store, info.rank, info.world_size, first)


next_rendezvous = DynamicRendezvousHandler.next_rendezvous


# Mutants of a handler, its driver or its engine, each with a seed and the property that it violates.
MUTANTS: dict[str, tuple[Mutant, Subject, int, str]] = {
    "the thread of the heartbeats dies of an exception": (
        together(
            rewritten(KeepAlive._beat, "self._holder.pause(RETRY_SECONDS_MAX)", "return"),
            replaced(driver, "math", SimpleNamespace(inf=0.0)),  # an error at once if the store is away
        ),
        OURS, 18, "live_nodes_stay",
    ),
    "no node ever waits": (
        replaced(DynamicRendezvousHandler, "num_nodes_waiting", lambda self: 0), OURS, 0, "never_two_groups",
    ),
    "the master of the first round is remembered": (
        replaced(DynamicRendezvousHandler, "next_rendezvous", remembering), OURS, 0, "agree_on_master",
    ),
    "a world with a rank that no node has": (
        rewritten(Meeting.begin, "joined.participants, place", "joined.participants + 1, place"), OURS, 0,
        "ranks_are_dense",
    ),
    "a lease that no node looks at": (
        rewritten(KeepAlive.standing, "self._holder.clock()", "0.0"), OURS, 4, "the_waiting_are_answered",
    ),
    "an empty store is a current round": (
        rewritten(
            Engine.standing, "if state is None or ", "if state is None:\n        return Standing.CURRENT\n    if "
        ),
        OURS, 53, "who_runs_has_a_lease",
    ),
    "a node that ends closes the rendezvous": (
        rewritten(
            DynamicRendezvousHandler.shutdown, 'return self.close("its agent has ended")',
            "return self.set_closed() or True",
        ),
        OURS, 0, "closing_is_earned",
    ),
    "in a room, a lease that no node looks at": (
        rewritten(RoomPart.standing, "(self.clock())", "(0.0)"), ROOMS, 4, "the_waiting_are_answered",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_handler_is_caught(name: str) -> None:
    mutant, subject, seed, fails = MUTANTS[name]
    with planted(mutant):
        assert run(subject.draw(seed, None), subject).fails == fails


@pytest.mark.parametrize("subject", [OURS, ROOMS, TORCH], ids=lambda subject: subject.name)
def test_a_seed_decides_everything(subject: Subject) -> None:
    def log(seed: int) -> list[str]:
        return [*map(str, run(subject.draw(seed, None), subject).log)]

    assert log(7) == log(7) != log(8)


def real(value: object) -> bool:
    """Whether it is a real clock, thread or source of chance."""
    return value in REAL or getattr(value, "__module__", "") in {module.__name__ for module in REAL}


def test_nothing_of_the_real_world_is_left() -> None:
    modules = [module for name, module in sys.modules.items() if name.startswith(surroundings.PACKAGES)]
    with surroundings.virtual():
        left = [f"{m.__name__}.{name}" for m in modules for name, value in vars(m).items() if real(value)]
    assert not left
    assert sum(real(value) for module in modules for value in vars(module).values()) > 10


def test_the_seeds_do_what_they_are_for() -> None:
    runs = [*sweep(SAMPLE, OURS)]
    said = [str(event) for one in runs for event in one.log]
    for words in ("returns: round 3", "restarts: worker_failure", "restarts: 1 wait", "crash", "outage", "leave",
                  "have succeeded", "ClosedError", "SettingsError"):  # fmt: skip
        assert any(words in line for line in said), words
    assert any(one.asked["lost"] for one in runs)  # compare-and-set writes


def test_a_crowd_forms_a_round_with_a_bounded_number_of_requests() -> None:
    done = crowd(CROWD)
    assert not done.fails
    assert done.asked["won"] <= 2 * CROWD
    assert sum(done.asked.values()) <= 40 * CROWD  # both kinds of writes, reads, waits and notifications

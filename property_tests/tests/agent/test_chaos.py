"""Real jobs under random faults: agents or whole nodes are stopped; agents, workers and watchdogs are killed.

One short run, or many long ones under HYPOTHESIS_PROFILE=nightly. A failure prints its seed and its faults. The same
seed repeats the same faults at about the same times.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trystate.impl.agent import watchdog
from trystate.property_tests.adapters.jobs import Agent, Job, Step, alive, eventually, overtaken
from trystate.property_tests.support.agents import succeed
from trystate.property_tests.support.nightly import by_night

# Seed 20: a watchdog is killed, an agent and then a node are stopped beyond the window, and an agent is killed.
SEEDS = range(20, 20 + by_night("jobs in chaos", 1))
FAULTS = by_night("faults of a job in chaos", 4)
NODES = 3
BEAT = 1.5  # seconds between heartbeats; the lease is 2.5 of them, the window 3
# A node that does not meet its round within half of join_timeout leaves. Several faults can take that long.
CONF = f"keep_alive_interval={BEAT},keep_alive_max_attempt=3,join_timeout=120,last_call_timeout=0.2"
STOP_SECONDS = 6.0  # maximum; some stops are shorter than the lease, some longer than the window
# When a whole node resumes, its workers run until its agent or its watchdog is scheduled too.
THAW_SECONDS = 1.0


def stopped_with_all(agent: int) -> list[int]:
    """Stop all processes of a node, its agent first, until no running one is found. Returns their ids."""
    stopped = [agent]
    signalled(agent, signal.SIGSTOP)
    while True:
        processes = watchdog.table().values()
        found = [p.pid for p in processes if p.parent in stopped and p.pid not in stopped and p.state not in "ZX"]
        if not found:
            return stopped
        for pid in found:
            signalled(pid, signal.SIGSTOP)
        stopped += found


class Chaos:
    """Makes random faults in a job, one after the other, and logs them."""

    def __init__(self, job: Job, seed: int) -> None:
        self._job, self._rng = job, random.Random(seed)
        self.said = [f"seed {seed}"]
        self._thawed: list[tuple[str, float]] = []
        self.agents = [self._new() for _ in range(NODES)]

    def _new(self) -> Agent:
        return self._job.agent(f"n{len(self._job.agents)}")

    def strike(self) -> None:
        """One fault, at a random node."""
        kinds: tuple[Callable[[Agent], None], ...] = (
            self.stop_agents, self.stop_agents, self.stop_node, self.kill_agent, self.kill_worker, self.kill_watchdog,
        )  # fmt: skip
        kind, agent = self._rng.choice(kinds), self._rng.choice(self.agents)
        self.said.append(f"{time.monotonic():.2f} {kind.__name__} {agent.name}")
        kind(agent)
        time.sleep(self._rng.uniform(0.0, BEAT))

    def stop_agents(self, agent: Agent) -> None:
        """Stop one or two agents, and no other process of their nodes."""
        stopped = {agent.name: agent}
        if self._rng.random() < 0.5:
            another = self._rng.choice(self.agents)
            stopped[another.name] = another
        for one in stopped.values():
            one.signal(signal.SIGSTOP)
        self._go_on([one.pid for one in stopped.values()])

    def stop_node(self, agent: Agent) -> None:
        self._thawed.append((agent.name, self._go_on(stopped_with_all(agent.pid))))

    def _go_on(self, pids: list[int]) -> float:
        """Let stopped processes continue after a random time. Returns the time at which they continue."""
        time.sleep(self._rng.uniform(0.2, STOP_SECONDS))
        ends = time.monotonic()
        for pid in pids:
            signalled(pid, signal.SIGCONT)
        return ends

    def kill_agent(self, agent: Agent) -> None:
        """A new agent replaces the killed one."""
        agent.kill()
        self.agents = [self._new() if one is agent else one for one in self.agents]

    def kill_worker(self, agent: Agent) -> None:
        for began in agent.began[-1:]:
            signalled(began.pid, signal.SIGKILL)

    def kill_watchdog(self, agent: Agent) -> None:
        for process in watchdog.table().values():
            with contextlib.suppress(OSError):  # it has ended
                if process.parent == agent.pid and b"watchdog.py" in Path(f"/proc/{process.pid}/cmdline").read_bytes():
                    signalled(process.pid, signal.SIGKILL)

    @property
    def wrong(self) -> list[Step]:
        """Steps that an older group made while a later group ran."""
        thawed = self._thawed
        return overtaken(
            step for step in self._job.steps
            if not any(step.agent == name and at <= step.at < at + THAW_SECONDS for name, at in thawed)
        )  # fmt: skip

    @property
    def together(self) -> bool:
        """All nodes run in one round."""
        last = [agent.began[-1] for agent in self.agents if agent.began]
        return len(last) == NODES and all(one.world_size == NODES and alive(one.pid) for one in last)


def signalled(pid: int, number: signal.Signals) -> None:
    if alive(pid):
        os.kill(pid, number)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_groups_never_make_progress_and_the_job_succeeds(seed: int, tmp_path: Path) -> None:
    with Job(tmp_path, nodes=f"1:{NODES}", max_restarts=1000, conf=CONF) as job:
        chaos = Chaos(job, seed)
        try:
            eventually("all run", lambda: chaos.together)
            for _ in range(FAULTS):
                chaos.strike()
            eventually("all run again", lambda: chaos.together)
            succeed(*chaos.agents)
            assert chaos.wrong == []
            assert len({step.group for step in job.steps}) > 1
        except BaseException:
            print(*chaos.said, *(f"---- {agent.name}\n{agent.said[-3000:]}" for agent in job.agents), sep="\n")
            raise

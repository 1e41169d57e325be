"""Real agents and workers: how a job ends, restarts, grows, shrinks and survives faults."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from trystate.impl.agent import watchdog
from trystate.property_tests.adapters.jobs import BEAT, CONF, Job, alive, eventually
from trystate.property_tests.support.agents import succeed

WINDOW = 3 * BEAT
SOON = 12.0  # seconds; an immediate effect takes less on a busy machine, and a timeout takes more


def test_ctrl_c_scales_down_at_once(tmp_path: Path) -> None:
    conf = CONF.replace(f"keep_alive_interval={BEAT}", "keep_alive_interval=10")
    with Job(tmp_path, nodes="1:2", max_restarts=1, conf=conf) as job:
        a, b = job.two()
        began = time.monotonic()
        b.signal(signal.SIGINT)
        a.runs(2, world_size=1)
        assert time.monotonic() - began < SOON, "it gave notice: the other node does not wait 30 s for its heartbeats"
        assert b.ends(SOON) == 1
        assert "the agent got SIGINT" in b.said
        succeed(a)


@pytest.mark.parametrize("store", ["there", "away"])
def test_a_second_ctrl_c_kills_the_workers_at_once(store: str, tmp_path: Path) -> None:
    """This includes an agent that gives notice to a store that does not answer."""
    with Job(tmp_path, nodes="1") as job:
        a = job.agent("a", "--nproc-per-node=2", "--shutdown-timeout=90")
        a.runs(2)
        a.do("ignore")
        eventually("they ignore it", lambda: len(list(tmp_path.glob("ignores.*"))) == 2)
        with job.server.stopped() if store == "away" else contextlib.nullcontext():
            a.signal(signal.SIGINT)
            eventually("it logs the first signal", lambda: "A second signal kills them" in a.said)
            time.sleep(0.5)
            assert all(map(alive, job.workers))
            a.signal(signal.SIGINT)
            eventually("no worker is left", lambda: not any(map(alive, job.workers)), SOON)
            assert a.ends(SOON) == 1


def test_changes_of_the_rendezvous_arrive_without_polling(tmp_path: Path) -> None:
    """The interval at which the agent checks its workers does not matter."""
    with Job(tmp_path, nodes="1:2") as job:
        a = job.agent("a", "--monitor-interval=60")
        a.runs(world_size=1)
        job.agent("b", "--monitor-interval=60").runs(world_size=2)
        a.runs(2, world_size=2)
        with job.server.stopped():
            eventually("the leases end", lambda: not any(alive(pid) for pid in job.workers), WINDOW + SOON)


def test_workers_that_do_not_want_to_end_are_killed_when_the_lease_ends(tmp_path: Path) -> None:
    """On a node without the store one worker fails, and the other gets SIGTERM and does not end."""
    with Job(tmp_path, nodes="1", max_restarts=1) as job:
        a = job.agent("a", "--nproc-per-node=2", "--shutdown-timeout=20")
        a.runs(2)
        a.do("ignore")
        eventually("they ignore SIGTERM", lambda: len(list(tmp_path.glob("ignores.*"))) == 2)
        first, second = job.workers
        with job.server.stopped():
            os.kill(first, signal.SIGKILL)
            eventually("the other one is killed", lambda: not alive(second), WINDOW + SOON)
        succeed(a)


def test_the_children_of_a_worker_end_with_it(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="1", max_restarts=1) as job:
        script = tmp_path / "worker.py"
        helper = "import subprocess as s; s.Popen(['sleep', '61'], start_new_session=True); s.Popen(['sleep', '62'])\n"
        script.write_text(helper + script.read_text())
        a = job.agent("a")
        a.runs()
        helpers = [process.pid for process in watchdog.table().values() if process.parent == a.began[0].pid]
        assert len(helpers) == 2
        a.do("fail once")
        a.runs(2)
        assert not any(alive(pid) for pid in helpers)
        succeed(a)

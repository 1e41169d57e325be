"""Real agents and workers: how a job ends, restarts, grows, shrinks and survives faults."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the agent is torch's")

from trystate.impl.agent import watchdog
from trystate.property_tests.adapters.jobs import BEAT, CONF, Agent, Job, Server, alive, eventually, overtaken
from trystate.property_tests.support.agents import succeed

WINDOW = 3 * BEAT
SOON = 12.0  # seconds; an immediate effect takes less on a busy machine, and a timeout takes more


def ended(*agents: Agent, seconds: float = 30.0) -> list[int]:
    return [agent.ends(seconds) for agent in agents]


def gone(job: Job) -> None:
    eventually("no worker is left", lambda: not any(alive(pid) for pid in job.workers), SOON)


def test_a_failure_restarts_all_and_spends_one_restart_of_the_job(tmp_path: Path) -> None:
    """This includes the node whose workers have succeeded."""
    with Job(tmp_path, nodes="2", max_restarts=2) as job:
        a, b = job.two()
        a.do("succeed")
        eventually("a has reported", lambda: len(job.state.done) == 1)
        b.do("fail once")
        a.runs(2, world_size=2)
        b.runs(2, world_size=2)
        for agent in (a, b):
            assert [one.restart for one in agent.began] == [0, 1]
            assert {one.max_restarts for one in agent.began} == {2}
        succeed(a, b)
        gone(job)


def test_a_failure_without_restarts_left_ends_both_agents_with_a_reason(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="2", max_restarts=0) as job:
        a, b = job.two()
        b.do("fail always")
        assert ended(b, a, seconds=SOON) == [1, 1], "at once, and not after a timeout"
        assert "worker.py FAILED" in b.said
        assert "exitcode  : 7" in b.said
        assert "the job has failed, though no worker of this node has: closed by" in a.said
        assert "its workers failed, and no restart is left" in a.said
        gone(job)


def test_a_killed_agent_leaves_no_orphans_and_the_other_goes_on(tmp_path: Path) -> None:
    """The worker is a launch script whose child is the training."""
    script = ("--no-python", "sh", "-c", f'{sys.executable} "$0" "$1"; exit $?')
    with Job(tmp_path, nodes="1:2", max_restarts=1) as job:
        a, b = job.two(*script)
        orphan = b.began[0].pid
        b.kill()
        eventually("its worker dies with it", lambda: not alive(orphan), SOON)
        a.runs(2, world_size=1)
        succeed(a)
        assert overtaken(job.steps) == [], "two groups ran at once"


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
            gone(job)
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


def test_workers_stop_while_the_store_is_away_and_start_again_after_it(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="2", max_restarts=0) as job:
        a, b = job.two()
        pids = job.workers
        with job.server.stopped():
            eventually("the leases end", lambda: not any(alive(pid) for pid in pids), WINDOW + SOON)
        a.runs(2, world_size=2)
        b.runs(2, world_size=2)
        succeed(a, b)


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


def test_a_node_that_comes_when_all_is_over_is_told_so(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="1") as job:
        succeed(job.agent("a"))
        b = job.agent("b")
        assert b.ends() == 1
        assert "the job 'job' was over and has succeeded before this node came, and no worker ran here" in b.said
        assert "give a new job a new --rdzv-id, or set the variable PET_RDZV_ID" in b.said


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


def test_a_server_that_comes_back_empty_begins_another_life(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="2", max_restarts=0) as job:
        a, b = job.two()
        pids = job.workers
        job.server.kill()
        job.server = Server(tmp_path, job.port)
        a.runs(2, world_size=2)
        b.runs(2, world_size=2)
        assert not any(alive(pid) for pid in pids)
        succeed(a, b)

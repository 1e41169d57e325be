"""Real agents, real workers: how a job ends, restarts, grows, shrinks and survives, as a user sees it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the agent is torch's")

from trystate.property_tests.adapters.jobs import BEAT, CONF, Agent, Job, Server, alive, eventually, overtaken
from trystate.property_tests.support.agents import succeed

WINDOW = 3 * BEAT
SOON = 12.0  # seconds: what happens at once does so by then on a busy machine, and what waits for a timeout does not


def ended(*agents: Agent, seconds: float = 30.0) -> list[int]:
    return [agent.ends(seconds) for agent in agents]


def gone(job: Job) -> None:
    eventually("no worker is left", lambda: not any(alive(pid) for pid in job.workers), SOON)


def test_two_agents_succeed_together(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="2") as job:
        a, b = job.two()
        a.do("succeed")
        time.sleep(0.5)
        assert a.ran, "it waits for the other"
        b.do("succeed")
        assert ended(a, b) == [0, 0]
        assert sorted(one.rank for agent in (a, b) for one in agent.began) == [0, 1]


def test_a_failure_restarts_all_and_spends_one_restart_of_the_job(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="2", max_restarts=2) as job:
        a, b = job.two()
        b.do("fail once")
        a.runs(2, world_size=2)
        b.runs(2, world_size=2)
        for agent in (a, b):
            assert [one.restart for one in agent.began] == [0, 1]
            assert {one.max_restarts for one in agent.began} == {2}
            agent.do("succeed")
        assert ended(a, b) == [0, 0]
        gone(job)


def test_ranks_follow_the_keys_of_the_nodes_in_every_round(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="3", max_restarts=1) as job:
        keys = {"a": "rack10", "b": "rack2", "c": "rack1"}
        agents = [job.agent(name, "--rank-key", key) for name, key in keys.items()]
        for restarts in (1, 2):
            for agent in agents:
                agent.runs(restarts, world_size=3)
            assert [agent.began[-1].rank for agent in agents] == [2, 1, 0]
            if restarts == 1:
                agents[0].do("fail once")
        succeed(*agents)


def test_a_new_node_waits_for_the_scale_up_interval_and_a_failure_takes_it_in_at_once(tmp_path: Path) -> None:
    seconds = 8.0
    with Job(tmp_path, nodes="1:3", max_restarts=1) as job:
        a = job.agent("a", "--scale-up-interval", f"{seconds:g}")
        a.runs(world_size=1)
        began = time.monotonic()
        b = job.agent("b", "--scale-up-interval", f"{seconds:g}")
        b.runs(world_size=2)
        assert seconds - 2.0 < time.monotonic() - began < seconds + SOON
        a.runs(2, world_size=2)
        assert [one.world_size for one in a.began] == [1, 2]
        assert job.state.spent == 0
        c = job.agent("c", "--scale-up-interval", f"{seconds:g}")
        eventually("c waits", lambda: len(job.state.waiting) == 1)
        b.do("fail once")
        c.runs(world_size=3)
        a.runs(3, world_size=3)
        assert job.state.spent == 1 and len(a.began) == 3
        succeed(a, b, c)


def test_workers_that_fail_at_once_on_both_nodes_spend_one_restart(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="2", max_restarts=3) as job:
        a, b = job.two()
        at = time.monotonic() + 0.5
        a.do(f"fail at {at}")
        b.do(f"fail at {at}")
        a.runs(2, world_size=2)
        b.runs(2, world_size=2)
        assert a.began[-1].restart == b.began[-1].restart == job.state.spent == 1
        succeed(a, b)


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


def test_a_new_node_is_taken_in_without_spending_a_restart(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="1:2", max_restarts=0) as job:
        a = job.agent("a")
        a.runs(world_size=1)
        b = job.agent("b")
        a.runs(2, world_size=2)
        b.runs(1, world_size=2)
        assert [one.restart for one in (*a.began, *b.began)] == [0, 0, 0]
        succeed(a, b)


def test_a_killed_agent_leaves_no_orphans_and_the_other_goes_on(tmp_path: Path) -> None:
    """Its worker is a launch script, whose child is the training."""
    script = ("--no-python", "sh", "-c", f'{sys.executable} "$0" "$1"; exit $?')
    with Job(tmp_path, nodes="1:2", max_restarts=1) as job:
        a, b = job.agent("a", *script), job.agent("b", *script)
        a.runs(world_size=2)
        b.runs(world_size=2)
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
        assert time.monotonic() - began < SOON, "it said that it leaves: nobody waits 30 s for its heartbeats"
        assert b.ends(SOON) == 1
        assert "the agent got SIGINT" in b.said
        succeed(a)


def test_workers_that_fail_because_a_node_leaves_spend_nothing_beside_its_departure(tmp_path: Path) -> None:
    """The workers of a fail when the first one of b is gone, and the second one lives on for a second."""
    with Job(tmp_path, nodes="1:2", max_restarts=1, conf=f"{CONF},agree_on=program+arguments") as job:
        a, b = job.agent("a"), job.agent("b", "--nproc-per-node=2")
        a.runs(world_size=3)
        b.runs(2, world_size=3)
        a.do("together")
        b.signal(signal.SIGTERM)
        a.runs(2, world_size=1)
        assert b.ends(SOON) == 1
        assert job.state.spent == 1
        succeed(a)


def test_a_node_that_leaves_when_no_restart_is_left_ends_the_job_with_a_reason(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="1:2", max_restarts=0) as job:
        a, b = job.two()
        b.signal(signal.SIGTERM)
        assert ended(a, b, seconds=SOON) == [1, 1]
        assert "a member left, and no restart is left" in a.said
        gone(job)


def test_workers_that_fail_because_a_node_comes_spend_nothing(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="1:3", max_restarts=0) as job:
        a, b = job.two()
        a.do("together")
        b.do("together")
        c = job.agent("c")
        for agent in (a, b, c):
            agent.runs(world_size=3)
        assert job.state.spent == 0
        succeed(a, b, c)


def test_a_signal_ends_an_agent_that_waits_for_others(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="2") as job:
        a = job.agent("a")
        eventually("a waits", lambda: len(job.state.participants) == 1)
        a.signal(signal.SIGTERM)
        assert a.ends(SOON) == 1


def test_a_worker_that_ignores_the_signal_is_killed_after_the_shutdown_timeout(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="1") as job:
        a = job.agent("a", "--shutdown-timeout=1")
        a.runs()
        a.do("ignore")
        eventually("it ignores SIGTERM", lambda: any(tmp_path.glob("ignores.*")))
        a.signal(signal.SIGTERM)
        assert a.ends(SOON) == 1
        gone(job)


@pytest.mark.parametrize("store", ["there", "away"])
def test_a_second_ctrl_c_kills_the_workers_at_once(store: str, tmp_path: Path) -> None:
    """Also while the agent gives notice to a store that does not answer."""
    with Job(tmp_path, nodes="1") as job:
        a = job.agent("a", "--nproc-per-node=2", "--shutdown-timeout=90")
        a.runs(2)
        a.do("ignore")
        eventually("they ignore it", lambda: len(list(tmp_path.glob("ignores.*"))) == 2)
        with job.server.stopped() if store == "away" else contextlib.nullcontext():
            a.signal(signal.SIGINT)
            eventually("it says so", lambda: "A second signal kills them" in a.said)
            time.sleep(0.5)
            assert all(map(alive, job.workers))
            a.signal(signal.SIGINT)
            gone(job)
            assert a.ends(SOON) == 1


def test_what_happens_in_the_rendezvous_is_not_looked_for_but_heard(tmp_path: Path) -> None:
    """However seldom the agent looks at its workers."""
    with Job(tmp_path, nodes="1:2") as job:
        a = job.agent("a", "--monitor-interval=60")
        a.runs(world_size=1)
        job.agent("b", "--monitor-interval=60").runs(world_size=2)
        a.runs(2, world_size=2)
        with job.server.stopped():
            eventually("the leases end", lambda: not any(alive(pid) for pid in job.workers), WINDOW + SOON)


def test_a_store_that_is_away_within_the_lease_kills_nobody(tmp_path: Path) -> None:
    """With torch's agent a store that is silent for longer than the read timeout ends it."""
    conf = f"keep_alive_interval={BEAT},keep_alive_max_attempt=20,join_timeout=20,last_call_timeout=0.2,read_timeout=1"
    with Job(tmp_path, nodes="2", conf=conf) as job:
        a, b = job.two()
        pids = job.workers
        with job.server.stopped():
            time.sleep(2.5)
            assert all(alive(pid) for pid in pids)
        time.sleep(1.0)
        assert job.workers == pids
        assert all(alive(pid) for pid in pids)
        succeed(a, b)


def test_a_store_that_is_away_for_longer_stops_the_workers_in_time_and_they_begin_again(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="2", max_restarts=0) as job:
        a, b = job.two()
        pids = job.workers
        with job.server.stopped():
            eventually("the leases end", lambda: not any(alive(pid) for pid in pids), WINDOW + SOON)
        a.runs(2, world_size=2)
        b.runs(2, world_size=2)
        succeed(a, b)


def test_workers_that_do_not_want_to_end_are_killed_when_the_lease_ends(tmp_path: Path) -> None:
    """A node that is cut off loses its peers: one worker fails, and the other ones are told to end, and take long."""
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


def test_success_survives_a_store_that_is_away(tmp_path: Path) -> None:
    """An agent that has finished has no worker that a lost lease could endanger: nothing is done twice."""
    with Job(tmp_path, nodes="2", max_restarts=0) as job:
        a, b = job.two()
        with job.server.stopped():
            a.do("succeed")
            b.do("succeed")
            eventually("both have finished", lambda: not any(alive(pid) for pid in job.workers), SOON)
            time.sleep(WINDOW + 0.5)
        assert ended(a, b) == [0, 0]
        assert len(job.workers) == 2


def test_a_node_that_comes_when_all_is_over_is_told_so(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="1") as job:
        a = job.agent("a")
        succeed(a)
        b = job.agent("b")
        assert b.ends() == 1
        assert "the job 'job' was over and has succeeded before this node came, which has started nothing" in b.said
        assert "a new one needs a new --rdzv-id, or the variable PET_RDZV_ID" in b.said


def test_what_a_worker_started_ends_with_it(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="1", max_restarts=1) as job:
        script = tmp_path / "worker.py"
        helper = "import subprocess as s; s.Popen(['sleep', '61'], start_new_session=True); s.Popen(['sleep', '62'])\n"
        script.write_text(helper + script.read_text())
        a = job.agent("a")
        a.runs()
        helpers = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if sleeps(pid, a.began[0].pid)]
        assert len(helpers) == 2
        a.do("fail once")
        a.runs(2)
        assert not any(alive(pid) for pid in helpers)
        succeed(a)


def sleeps(pid: int, parent: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(stat[1]) == parent and b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_the_host_of_the_endpoint_stays_until_the_others_have_heard(tmp_path: Path) -> None:
    """Without a server of its own, a job has one at a node: that node ends last."""
    with Job(tmp_path, nodes="2") as job:
        job.server.kill()
        a = job.agent("a")
        eventually("a serves", lambda: len(job.state.participants) == 1)
        b = job.agent("b")
        b.runs(world_size=2)
        b.do("succeed")
        eventually("b has reported", lambda: len(job.state.done) == 1)
        with b.stopped():
            a.do("succeed")
            eventually("the verdict is there", lambda: job.state.closed is not None)
            time.sleep(0.3)
            assert a.ran
        assert ended(a, b) == [0, 0]


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

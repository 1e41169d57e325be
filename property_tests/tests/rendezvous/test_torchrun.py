"""`torchrun --rdzv-backend=trystate` in real processes, with gloo and DDP: what comes, what goes, and what dies."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from trystate.impl.rendezvous.outsider import Outsider
from trystate.monitor.status import observe
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.nightly import NIGHTLY, by_night
from trystate.property_tests.support.rendezvous.jobs import Job, check
from trystate.store import TCPStore, TCPStoreServer

RESTARTS = by_night("restarts of a job", 2)


def test_two_nodes_train_together_and_end_well(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        slow = "keep_alive_interval=15"  # nobody dies here, and busy cores must not look like it
        agents = [job.agent("2", conf=slow, train=True), job.agent("2", conf=slow, train=True)]
        job.until_size(2)
        job.stop()
        assert [a.ends() for a in agents] == [0, 0], [a.said for a in agents]
        lines, said = job.lines(), [a.said for a in agents]
        assert len({one["master"] for one in lines}) == 1, (lines, said)
        steps: dict[int, set[tuple[float, ...]]] = {}
        for one in lines:
            steps.setdefault(one["step"], set()).add(tuple(one["weights"]))
        assert all(len(weights) == 1 for weights in steps.values()), (steps, said)
        assert not any("Traceback" in one for one in said), said


def test_nodes_that_come_are_taken_in_and_one_that_is_killed_is_missed(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        agents = []
        for size in (1, 2, 3):
            agents.append(job.agent("1:3", restarts=9, train=NIGHTLY))
            job.until_size(size)
        agents[2].kill()
        job.until_size(2, after=time.monotonic())
        job.stop()
        assert [a.ends() for a in agents[:2]] == [0, 0]


def test_a_node_that_is_told_to_end_leaves_at_once_and_may_come_back(tmp_path: Path) -> None:
    """With a window that is longer than the test: nobody waits until it is missed."""
    slow = "keep_alive_interval=60"
    with Job(tmp_path) as job:
        first = job.agent("1:2", conf=slow)
        job.until_size(1)
        second = job.agent("1:2", conf=slow)
        job.until_size(2)
        left = time.monotonic()
        second.signal(signal.SIGINT)
        job.until_size(1, after=left)
        third = job.agent("1:2", conf=slow)
        job.until_size(2, after=time.monotonic())
        job.stop()
        assert second.ends() != 0
        assert (first.ends(), third.ends()) == (0, 0)


def test_workers_that_fail_or_are_killed_are_restarted_together(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        agents = [job.agent("2", restarts=2), job.agent("2", restarts=2)]
        job.until_size(2)
        before = job.pids(2)
        job.fail(1)
        job.until_others(2, before)
        second = job.pids(2)
        os.kill(min(second), signal.SIGKILL)
        job.until_others(2, before | second)
        job.stop()
        assert [a.ends() for a in agents] == [0, 0]


def test_without_restarts_left_the_job_ends_for_all_and_they_say_why(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        agents = [job.agent("2", restarts=0), job.agent("2", restarts=1)]
        job.until_size(2)
        rank = next(one["rank"] for one in job.lines() if one["agent"] == agents[0].pid)
        job.fail(rank)
        assert agents[0].ends() != 0
        job.fail(1 - rank)  # the other one's goes on, until it wants to meet the first again
        assert agents[1].ends() != 0
        assert "its agent has ended" in agents[1].said


def test_a_spare_takes_the_place_of_a_node_that_dies(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        first = job.agent("2")
        job.until_served()
        second = job.agent("2")
        job.until_size(2)
        before = job.pids(2)
        spare = job.agent("2")
        job.until_listed(3)
        time.sleep(0.5)
        assert job.pids(2) == before  # a spare disturbs nobody
        second.kill()
        job.until_others(2, before)
        job.stop()
        assert (first.ends(), spare.ends()) == (0, 0)


def test_a_spare_ends_as_the_job_does_and_says_that_it_was_one(tmp_path: Path) -> None:
    """torch's agent has no result for a node that never ran: it would end with 1 and a traceback."""
    with Job(tmp_path, LOGLEVEL="INFO") as job:
        first = job.agent("1")
        job.until_size(1)
        spare = job.agent("1")
        job.until_listed(2)
        job.stop()
        assert (first.ends(), spare.ends()) == (0, 0), spare.said
        assert "Traceback" not in spare.said
        assert '"event": "spare"' in spare.said
        assert "this node was a spare of the job 'job'" in spare.said
        assert "its workers have succeeded" in spare.said


def test_a_drained_node_of_torchruns_ends_with_0_and_the_other_goes_on(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        first = job.agent("1:2", restarts=0)
        job.until_size(1)
        second = job.agent("1:2", restarts=0)
        job.until_size(2)
        with TCPStore("127.0.0.1", job.port) as store, Outsider(store, "job") as operator:
            (node,) = (p.node for p in operator.state.listed() if p.node.pid == second.pid)
            operator.drain(str(node))
        assert second.ends() == 0, second.said
        assert f"an operator has drained this node, {node}" in second.said
        job.until_size(1, after=time.monotonic())
        job.stop()
        assert first.ends() == 0


LAUNCHERS = ["elastic_launch", "accelerate", *(["torch.distributed.launch", "torchrun"] if NIGHTLY else [])]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_whatever_calls_torchs_launch_agent_is_a_launcher(launcher: str, tmp_path: Path) -> None:
    """A node says what it waits for, agrees on the script, may be drained or a spare, and its end is the job's."""
    if launcher == "accelerate":
        pytest.importorskip("accelerate", reason="its row of docs/migrate.md needs it: pip install accelerate")
    with TCPStoreServer() as server, Job(tmp_path, port=server.port) as job, TCPStore("127.0.0.1", job.port) as store:
        first, second = (job.agent("1:2", restarts=0, workers=2, launcher=launcher) for _ in range(2))
        job.until_size(4)
        stranger = job.agent("1:2", restarts=0, workers=2, launcher=launcher, train=True)
        assert stranger.ends() == 1
        assert "arguments are" in stranger.said
        spare, unused = (job.agent("1:2", restarts=0, workers=2, launcher=launcher) for _ in range(2))
        job.until_listed(4)
        with Outsider(store, "job") as operator:
            (node,) = (p.node for p in operator.state.listed() if p.node.pid == second.pid)
            operator.drain(str(node))
        assert second.ends() == 0, second.said
        assert f"an operator has drained this node, {node}" in second.said
        job.until_size(4, after=time.monotonic())
        job.stop()
        ends = [agent.ends() for agent in (first, spare, unused)]
        assert ends == [0, 0, 0], (first.said, spare.said, unused.said)
        assert any("waiting for the end of the last call" in agent.said for agent in (first, second))
        (said,) = (agent.said for agent in (spare, unused) if "was a spare of the job 'job'" in agent.said)
        assert "this node is a spare" in said
        assert "Traceback" not in said + second.said
        closed = observe(store, "job").closed
        assert closed is not None and closed["verdict"] == "succeeded"


def test_a_spare_of_a_job_that_has_failed_ends_with_one_and_says_why(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        first = job.agent("1", restarts=0)
        job.until_size(1)
        spare = job.agent("1", restarts=0)
        job.until_listed(2)
        job.fail(0)
        assert (first.ends(), spare.ends()) == (1, 1), spare.said
        assert "this node was a spare of the job 'job'" in spare.said
        assert "its agent has ended with ChildFailedError" in spare.said


def test_when_the_endpoint_dies_with_its_owner_and_comes_back_all_meet_again(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        owner = job.agent("1:2")
        job.until_size(1)
        other = job.agent("1:2")
        job.until_size(2)
        before = job.pids(2)
        owner.kill()
        owner.ends()
        again = job.agent("1:2")
        job.until_others(2, before)
        job.stop()
        assert (other.ends(), again.ends()) == (0, 0)


def test_when_the_endpoint_dies_for_good_the_others_say_what_is_missing(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        owner = job.agent("1:2", conf="join_timeout=5")
        job.until_size(1)
        other = job.agent("1:2", conf="join_timeout=5")
        job.until_size(2)
        owner.kill()
        assert other.ends() != 0
        assert f"127.0.0.1:{job.port}" in other.said
        assert "server still runs" in other.said


def test_two_jobs_share_one_endpoint(tmp_path: Path) -> None:
    port = free_port()
    with Job(tmp_path, port=port, name="one") as one, Job(tmp_path, port=port, name="two") as two:
        agents = [one.agent("1")]
        one.until_size(1)
        agents.append(two.agent("1"))
        two.until_size(1)
        two.stop()
        assert agents[1].ends() == 0
        one.until_size(1, after=time.monotonic())
        one.stop()
        assert agents[0].ends() == 0


def test_an_agent_that_waits_for_the_others_ends_when_it_is_told_to(tmp_path: Path) -> None:
    """torch's waits for 300 s in C++, where no signal is heard."""
    with Job(tmp_path) as job:
        agents = [job.agent("2"), job.agent("2")]
        job.until_size(2)
        job.stop(0)
        (done,) = {(one["agent"], one["pid"]) for one in job.lines() if one["rank"] == 0}
        waiting = next(a for a in agents if a.pid == done[0])
        job.until(lambda: not Path(f"/proc/{done[1]}").exists())
        time.sleep(0.5)
        assert waiting.ran
        waiting.signal(signal.SIGTERM)
        assert waiting.ends(20.0) != 0


def test_every_restart_begins_on_a_store_of_its_own(tmp_path: Path) -> None:
    """torch 2.13 keeps one store for all attempts, and gloo reads the addresses of the attempt before."""
    with Job(tmp_path) as job:
        agent = job.agent("1", restarts=RESTARTS, workers=2, train=True)
        for attempt in range(RESTARTS):
            job.until_size(2, attempt=attempt)
            job.fail(1)
        job.until_size(2, attempt=RESTARTS)
        job.stop()
        assert agent.ends() == 0, agent.said
        assert len({one["master"] for one in job.lines()}) == RESTARTS + 1


# ---- what is claimed of the workers of every job above, by what they say


def line(at: float, master: str, rank: int, size: int, step: int, **more: Any) -> dict[str, Any]:
    pid = {"A": 10, "B": 20}[master] + rank
    return {"at": at, "master": master, "rank": rank, "size": size, "step": step, "pid": pid, "weights": [0.1 * step],
            **more}  # fmt: skip


GOOD = [line(n, "A", n % 2, 2, 10 + n // 2) for n in range(4)] + [line(9, "B", 0, 1, 12), line(10, "B", 0, 1, 13)]


def test_jobs_are_judged_by_what_their_workers_say() -> None:
    check(GOOD)


@pytest.mark.parametrize(
    ("place", "change", "said"),
    [
        (1, {"size": 3}, "different worlds"), (3, {"rank": 0}, "twice one rank"), (3, {"at": 11}, "two groups at once"),
        (4, {"step": 0}, "did not go on"), (4, {"step": 15}, "did not go on"), (4, {"weights": [-2.0]}, "begun anew"),
    ],
)  # fmt: skip
def test_a_job_that_went_wrong_is_noticed(place: int, change: dict[str, Any], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check([one if number != place else {**one, **change} for number, one in enumerate(GOOD)])

"""`torchrun --rdzv-backend=trystate` in real processes: nodes that join, leave and die."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trystate.impl.rendezvous.outsider import Outsider
from trystate.monitor.status import observe
from trystate.property_tests.adapters.jobs import CONF, Agent, Job, eventually, overtaken
from trystate.property_tests.support.agents import succeed
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.store import TCPStore


def job_of(folder: Path, nodes: str, program: str = "torchrun", **options: Any) -> Job:
    return Job(folder, nodes=nodes, program=program, backend="trystate", **options)


def listed(job: Job, count: int) -> None:
    eventually(f"{count} nodes are listed", lambda: len([*job.state.listed()]) == count)


def one_at_a_time(*agents: Agent) -> None:
    """No two groups ran at once. The workers of a killed agent of torch remain, and are not counted."""
    assert overtaken(step for agent in agents for step in agent.steps) == []


def test_nodes_that_come_are_taken_in_and_one_that_is_killed_is_missed(tmp_path: Path) -> None:
    with job_of(tmp_path, "1:3", max_restarts=9) as job:
        agents = []
        for size in (1, 2, 3):
            agents.append(job.agent(f"n{size}"))
            for agent in agents:
                agent.runs(world_size=size)
        agents.pop().kill()
        for agent in agents:
            agent.runs(world_size=2)
        succeed(*agents)
        one_at_a_time(*agents)


LAUNCHERS = ["elastic_launch", *(["torch.distributed.launch", "torchrun"] if NIGHTLY else [])]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_whatever_calls_torchs_launch_agent_is_a_launcher(launcher: str, tmp_path: Path) -> None:
    """A node logs its wait, agrees on the script, may be drained or a spare, and ends like the job."""
    with job_of(tmp_path, "1:2", launcher) as job:
        workers = "--nproc-per-node=2"
        first, second = (job.agent(name, workers) for name in ("first", "second"))
        for agent in (first, second):
            agent.runs(2, world_size=4)
        stranger = job.agent("stranger", workers, arguments=["train"])
        assert stranger.ends() == 1
        assert "arguments are" in stranger.said
        spares = spare, unused = [job.agent(name, workers) for name in ("spare", "unused")]
        listed(job, 4)
        with TCPStore("127.0.0.1", job.port) as store, Outsider(store, "job") as operator:
            (node,) = (p.node for p in operator.state.listed() if p.node.pid == second.pid)
            operator.drain(str(node))
        assert second.ends() == 0, second.said
        assert f"an operator has drained this node, {node}" in second.said
        eventually("a spare has its seat", lambda: any(len(agent.began) == 2 for agent in spares))
        for agent in (first, *spares):
            agent.do("succeed")
        assert [agent.ends() for agent in (first, spare, unused)] == [0, 0, 0], (first.said, spare.said, unused.said)
        assert any("waiting for the end of the last call" in agent.said for agent in (first, second))
        (said,) = (agent.said for agent in spares if "was a spare of the job 'job'" in agent.said)
        assert "this node is a spare" in said
        assert "Traceback" not in said + second.said
        with TCPStore("127.0.0.1", job.port) as store:
            closed = observe(store, "job").closed
        assert closed is not None and closed["verdict"] == "succeeded"
        one_at_a_time(first, *spares)


def test_a_spare_of_a_job_that_has_failed_ends_with_one_and_says_why(tmp_path: Path) -> None:
    with job_of(tmp_path, "1") as job:
        first = job.agent("first")
        first.runs()
        spare = job.agent("spare")
        listed(job, 2)
        first.do("fail always")
        assert (first.ends(), spare.ends()) == (1, 1), spare.said
        assert "this node was a spare of the job 'job'" in spare.said
        assert "its agent has ended with ChildFailedError" in spare.said


def test_all_nodes_meet_again_after_the_endpoint_died_with_its_owner(tmp_path: Path) -> None:
    # The round on the new store waits for longer than the lease of a node that may still run its workers.
    conf = CONF.replace("last_call_timeout=0.2", "last_call_timeout=4")
    with job_of(tmp_path, "1:2", max_restarts=3, serving=None, conf=conf) as job:
        owner = job.agent("owner")
        owner.runs()
        other = job.agent("other")
        other.runs(world_size=2)
        owner.kill()
        again = job.agent("again")
        again.runs(world_size=2)
        other.runs(2, world_size=2)
        succeed(other, again)
        one_at_a_time(other, again)

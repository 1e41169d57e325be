"""Agents that are stopped together end in order, and the store that one of them serves ends last."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trystate.__main__ import main
from trystate.impl.agent import watchdog
from trystate.impl.agent.signals import ECHO_SECONDS
from trystate.property_tests.adapters.jobs import Job, alive, eventually
from trystate.property_tests.support.nightly import NIGHTLY

SOON = 15.0
LATE = ("Traceback", "ConnectionLost", "connection lost", "trying again", "could not report", "did not answer")


def processes(job: Job) -> list[int]:
    """Agents, workers, watchdogs and the server."""
    found, table, agents = [], watchdog.table(), {agent.pid for agent in job.agents}
    for pid in table:
        at = pid
        while at in table and at not in agents:
            at = table[at].parent
        found += [pid] if at in agents else []
    return found


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    """Two agents, whose workers run; the first one serves the store."""
    closing = f"other_jobs_timeout=0,close_timeout={getattr(request, 'param', 30)}"
    conf = f"keep_alive_interval=1,keep_alive_max_attempt=10,join_timeout=30,last_call_timeout=0.2,{closing}"
    with Job(tmp_path, nodes="2", max_restarts=3, serving=None) as made:
        for name, serves in (("a", 1), ("b", 0)):
            made.agent(name, "--rdzv-conf", f"{conf},is_host={serves}")
        for agent in made.agents:
            agent.runs()
        yield made


@pytest.mark.parametrize("whole", [False, True], ids=["the groups", "every process"])
def test_nodes_that_are_stopped_together_end_in_order(job: Job, whole: bool) -> None:
    """A terminal, `timeout` and systemd do this; with KillMode=control-group workers and server get the signal too."""
    known = processes(job)
    assert len(known) == 7, "two agents, two watchdogs, two workers, the server"
    for pid in known if whole else [agent.pid for agent in job.agents]:
        with contextlib.suppress(ProcessLookupError):  # a process may have ended with its agent
            (os.kill if whole else os.killpg)(pid, signal.SIGTERM)
    assert [agent.ends(SOON) for agent in job.agents] == [1, 1]
    eventually("nothing is left", lambda: not any(map(alive, known)), SOON)
    for agent in job.agents:
        assert "the agent got SIGTERM" in agent.said
        assert [word for word in LATE if word in agent.said] == [], agent.said


def test_the_store_is_served_until_the_last_node_has_left(job: Job) -> None:
    """The node that serves the store gets its signal first, the other node seconds later."""
    a, b = job.agents
    a.signal(signal.SIGTERM)
    eventually("it says why it stays", lambda: "serves the store until the others have left" in a.said, SOON)
    time.sleep(2.0)
    assert a.ran
    b.signal(signal.SIGTERM)
    assert [b.ends(SOON), a.ends(SOON)] == [1, 1]
    assert [word for word in LATE if word in b.said] == [], b.said


def test_a_drained_node_serves_the_store_until_the_others_have_left(job: Job) -> None:
    a, b = job.agents
    at = ["--rdzv-endpoint", f"127.0.0.1:{job.port}", "--rdzv-id", "job"]
    assert main(["drain", f"127.0.0.1_{a.pid}_0", *at, "--force", "--wait", "10"]) == 0
    eventually("it says why it stays", lambda: "serves the store until the others have left" in a.said, SOON)
    assert a.ran and b.ran
    b.signal(signal.SIGTERM)
    assert [b.ends(SOON), a.ends(SOON)] == [1, 0]


@pytest.mark.parametrize(("job", "hurry"), [(60, True), (2, False)][: 1 + NIGHTLY], indirect=["job"])
def test_a_host_does_not_wait_for_ever(job: Job, hurry: bool) -> None:
    """The host ends after close_timeout, or at a second signal; the other node waits for a store."""
    a, b = job.agents
    a.signal(signal.SIGTERM)
    eventually("it stays", lambda: "serves the store until the others have left" in a.said, SOON)
    if hurry:
        time.sleep(2 * ECHO_SECONDS)
        a.signal(signal.SIGTERM)
    assert a.ends(SOON) == 1
    assert b.ran


TWO_JOBS = [("trystate run", False), ("torchrun", False), ("trystate run", True), ("torchrun", True)]


@pytest.mark.parametrize(("program", "signalled"), TWO_JOBS if NIGHTLY else TWO_JOBS[1:3])
def test_a_job_outlives_the_job_whose_node_serves_its_store(tmp_path: Path, program: str, signalled: bool) -> None:
    """The node that serves waits for the other job's nodes until a signal; its exit code is its own job's result."""
    with Job(tmp_path, nodes="1", program=program, backend="trystate", serving=None) as jobs:
        for name in ("first", "second"):
            jobs.agent(name, f"--rdzv-id={name}").runs()
        first, second = jobs.agents
        first.do("succeed")
        eventually("it says why it stays", lambda: "the nodes of other jobs have left: the job 'second'" in first.said)
        steps = len(second.steps)
        eventually("the workers of the other job continue", lambda: len(second.steps) > steps + 10)
        if signalled:
            first.signal(signal.SIGTERM)
            assert first.ends() == 0
            assert "will stop their workers: the job 'second'" in first.said
            eventually("its workers are stopped", lambda: not alive(second.began[0].pid))
        else:
            second.do("succeed")
            assert (second.ends(), first.ends()) == (0, 0)
            assert "will stop their workers" not in first.said
        assert len(second.began) == 1

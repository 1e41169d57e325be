"""Agents that are told to end together end in order, and the store that one of them serves ends last."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the agent is torch's")

from trystate.impl.agent.signals import ECHO_SECONDS
from trystate.impl.agent.watchdog import table
from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.jobs import CONF, WORKER, Agent, alive, eventually
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.agents import one_group
from trystate.property_tests.support.nightly import NIGHTLY

SOON = 15.0
LATE = ("Traceback", "ConnectionLost", "connection lost", "trying again", "could not tell", "did not answer")


class Group:
    """Agents in one group of processes; the first one serves the store."""

    def __init__(self, folder: Path, close_timeout: int = 30) -> None:
        (folder / "worker.py").write_text(WORKER)
        conf = f"keep_alive_interval=1,join_timeout=30,last_call_timeout=0.2,close_timeout={close_timeout}"
        common = [
            "--nnodes=2", "--max-restarts=3", "--rdzv-id=job", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
            "--local-addr=127.0.0.1",
        ]  # fmt: skip
        agents = {
            name: [*common, f"--rdzv-conf={conf},is_host={int(name == 'a')}", str(folder / "worker.py"), str(folder)]
            for name in "ab"
        }
        self._folder = folder
        self.parent = Program(folder / "log.group", one_group, folder, agents)
        eventually("workers run", lambda: all((folder / f"steps.{name}").exists() for name in "ab"))
        self.processes = self._descendants()

    def pid(self, name: str) -> int:
        return int((self._folder / f"pid.{name}").read_text())

    def said(self, name: str) -> str:
        return (self._folder / f"log.{name}").read_text(errors="replace")

    def ends(self, name: str) -> int:
        code = self._folder / f"code.{name}"
        eventually(f"{name} ends\n{self.said(name)}", lambda: code.exists() and code.read_text() != "", SOON)
        return int(code.read_text())

    def signal(self, name: str) -> None:
        os.kill(self.pid(name), signal.SIGTERM)

    def _descendants(self) -> list[int]:
        """Agents, workers, watchdogs and the server."""
        processes, found, roots = table(), [], {self.pid("a"), self.pid("b")}
        for pid in processes:
            at = pid
            while at in processes and at not in roots:
                at = processes[at].parent
            found += [pid] if at in roots else []
        return found

    def kill(self) -> None:
        for pid in self._descendants():
            os.kill(pid, signal.SIGKILL)
        self.parent.kill()


@pytest.fixture
def group(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Group]:
    made = Group(tmp_path, *getattr(request, "param", ()))
    yield made
    made.kill()


@pytest.mark.parametrize("whole", [False, True], ids=["the group", "every process"])
def test_a_group_that_is_told_to_end_ends_in_order(group: Group, whole: bool) -> None:
    """As a terminal, `timeout` or systemd does: with KillMode=control-group workers and server are told as well."""
    assert len(group.processes) == 7, "two agents, two watchdogs, two workers, the server"
    if whole:
        for pid in group.processes:
            with contextlib.suppress(ProcessLookupError):  # one may have ended with another
                os.kill(pid, signal.SIGTERM)
    else:
        os.killpg(group.parent.pid, signal.SIGTERM)
    assert [group.ends("a"), group.ends("b")] == [1, 1]
    eventually("nothing is left", lambda: not any(alive(pid) for pid in group.processes), SOON)
    for name in ("a", "b"):
        said = group.said(name)
        assert "the agent got SIGTERM" in said
        assert [word for word in LATE if word in said] == [], said


def test_the_store_is_served_until_the_last_node_has_left(group: Group) -> None:
    """Its host is told first, and the other one seconds later."""
    group.signal("a")
    eventually("it says why it stays", lambda: "serves the store until the others have left" in group.said("a"), SOON)
    time.sleep(2.0)
    assert alive(group.pid("a"))
    group.signal("b")
    assert [group.ends("b"), group.ends("a")] == [1, 1]
    assert [word for word in LATE if word in group.said("b")] == [], group.said("b")


@pytest.mark.parametrize(("group", "hurry"), [((60,), True), ((2,), False)][: 1 + NIGHTLY], indirect=["group"])
def test_a_host_does_not_wait_for_ever(group: Group, hurry: bool) -> None:
    """It ends after close_timeout, or at a second signal; the other one waits for a store to come back."""
    group.signal("a")
    eventually("it stays", lambda: "serves the store until the others have left" in group.said("a"), SOON)
    if hurry:
        time.sleep(2 * ECHO_SECONDS)
        group.signal("a")
    assert group.ends("a") == 1
    assert alive(group.pid("b"))


TWO_JOBS = [("trystate run", False), ("torchrun", False), ("trystate run", True), ("torchrun", True)]


@pytest.mark.parametrize(("program", "signalled"), TWO_JOBS if NIGHTLY else TWO_JOBS[1:3])
def test_a_job_outlives_the_job_whose_node_serves_its_store(tmp_path: Path, program: str, signalled: bool) -> None:
    """The node that serves waits for the other job's, until it gets a signal; its exit code is of its own job."""
    (tmp_path / "worker.py").write_text(WORKER)
    options = ["--nnodes=1", f"--rdzv-conf={CONF}", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
               "--rdzv-backend=trystate", "--local-addr=127.0.0.1"]  # fmt: skip
    agents: list[Agent] = []
    try:
        for job in ("first", "second"):
            argv = [*options, f"--rdzv-id={job}", str(tmp_path / "worker.py"), str(tmp_path)]
            agents.append(Agent(job, tmp_path, argv, program))
            agents[-1].runs()
        first, second = agents
        first.do("succeed")
        eventually("it says why it stays", lambda: "the nodes of other jobs have left: the job 'second'" in first.said)
        steps = len(second.steps)
        eventually("the workers of the other job continue", lambda: len(second.steps) > steps + 10)
        if signalled:
            first.signal(signal.SIGTERM)
            assert first.ends() == 0
            assert "others use that: the job 'second'" in first.said
            eventually("its workers are stopped", lambda: not alive(second.began[0].pid))
        else:
            second.do("succeed")
            assert (second.ends(), first.ends()) == (0, 0)
            assert "others use that" not in first.said
        assert len(second.began) == 1
    finally:
        for agent in agents:
            agent.kill()

"""Agents on two machines: a job that trains on both over the store of one of them, and a cut cable."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from trystate.property_tests.adapters.jobs import WORKER, Agent, overtaken
from trystate.property_tests.support.agents import succeed
from trystate.property_tests.support.machines import Machine, two_machines
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.stores import group_member

PORT = 29400  # free, because each machine has its own network
SECONDS = 60.0
BEATS = ",keep_alive_interval=1,keep_alive_max_attempt=5"  # a cut cable is noticed after 5 s


def agent(
    folder: Path, name: str, machine: Machine, nodes: str, worker: list[str], program: str = "trystate run",
    beats: str = "",
) -> Agent:  # fmt: skip
    """An agent on a machine; the first machine has the endpoint. With the default heartbeats no lease ends."""
    argv = [
        f"--nnodes={nodes}", "--nproc-per-node=1", "--rdzv-backend=trystate", "--rdzv-id=job", "--max-restarts=3",
        f"--rdzv-endpoint=10.77.0.1:{PORT}", f"--rdzv-conf=last_call_timeout=0.5,join_timeout=60{beats}", *worker,
    ]  # fmt: skip
    # Without this variable gloo takes the address of the host name, which is a loopback address on many systems.
    return Agent(name, folder, argv, program, machine.be, GLOO_SOCKET_IFNAME="cable")


@pytest.mark.parametrize("program", ["trystate run", "torchrun"] if NIGHTLY else ["trystate run"])
def test_agents_on_two_machines_train_one_group_over_gloo(tmp_path: Path, program: str) -> None:
    worker = ["-m", group_member.__name__, '{"url": "env://"}']
    with two_machines() as machines, contextlib.ExitStack() as stack:
        agents = [
            stack.enter_context(agent(tmp_path, name, machine, "2", worker, program))
            for name, machine in zip("ab", machines, strict=True)
        ]
        assert [one.ends() for one in agents] == [0, 0]
        said = [json.loads(line) for one in agents for line in one.said.splitlines() if line.startswith("{")]
        assert sorted(one["rank"] for one in said) == [0, 1]
        assert {one["master"] for one in said} <= {"10.77.0.1", "10.77.0.2"}
        assert said[0]["weights"] == said[1]["weights"]


@pytest.mark.skipif(not NIGHTLY, reason="it waits for leases to end, which take seconds each")
def test_a_cut_cable_leaves_one_group_and_a_mended_one_joins_both(tmp_path: Path) -> None:
    """The worker on the machine without the store ends before the other machine begins a round."""
    (tmp_path / "worker.py").write_text(WORKER)
    worker = [str(tmp_path / "worker.py"), str(tmp_path)]
    with two_machines() as (one, two), contextlib.ExitStack() as stack:
        agents = [stack.enter_context(agent(tmp_path, "a", one, "1:2", worker, beats=BEATS))]
        agents[0].runs()
        agents.append(stack.enter_context(agent(tmp_path, "b", two, "1:2", worker, beats=BEATS)))
        for size, cable in ((2, "down"), (1, "up"), (2, "up")):
            for each in agents[: None if size == 2 else 1]:
                each.runs(world_size=size)
            one.cable(cable)
        succeed(*agents)
        assert overtaken(step for each in agents for step in each.steps) == []

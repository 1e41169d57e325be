"""Stores and agents on two machines: a client of the other's server, a job that trains on both, and a cut cable."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection as Line
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the agent is torch's")

from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.torch_store.isolated import Child
from trystate.property_tests.support.machines import Machine, agent, two_machines
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.rendezvous.jobs import PACKAGE, Job
from trystate.store import TCPStore, TCPStoreServer

PORT = 29400  # free: each machine has a network of its own
SECONDS = 60.0
BEATS = ",keep_alive_interval=1,keep_alive_max_attempt=5"  # a cut cable is noticed after 5 s


class Apart(Job):
    """A job whose agents are on several machines, of which the first has the endpoint."""

    def on(self, machine: Machine, launcher: str, nodes: str, *, train: bool = False, beats: str = "") -> Program:
        """Start an agent there; by default a busy machine does not end its lease."""
        argv = [
            f"--nnodes={nodes}", "--nproc-per-node=1", "--rdzv-backend=trystate", "--rdzv-id=job", "--max-restarts=3",
            f"--rdzv-endpoint=10.77.0.1:{PORT}", f"--rdzv-conf=last_call_timeout=0.5,join_timeout=60{beats}",
            "-m", f"{PACKAGE}.worker", str(self.folder), *(["train"] if train else []),
        ]  # fmt: skip
        log = self.folder / f"agent{len(self._agents)}.txt"
        # gloo takes the address of the machine's name, which is one of the loopback on many systems.
        variables = {"GLOO_SOCKET_IFNAME": "cable"}
        self._agents.append(Program(log, agent, machine, launcher, argv, variables=variables))
        return self._agents[-1]


@pytest.mark.parametrize("launcher", ["trystate", "torchrun"] if NIGHTLY else ["trystate"])
def test_agents_on_two_machines_train_one_group_over_gloo(tmp_path: Path, launcher: str) -> None:
    with two_machines() as machines, Apart(tmp_path) as job:
        agents = [job.on(machine, launcher, "2", train=True) for machine in machines]
        job.until_size(2)
        job.stop()
        assert [agent.ends() for agent in agents] == [0, 0]
        assert {one["master"].rpartition(":")[0] for one in job.lines()} <= {"10.77.0.1", "10.77.0.2"}


@pytest.mark.skipif(not NIGHTLY, reason="it waits for leases to end, which take seconds each")
def test_a_cut_cable_leaves_one_group_and_a_mended_one_joins_both(tmp_path: Path) -> None:
    """The machine without the store cannot know whether it is still a member: its worker ends before others begin."""
    with two_machines() as (one, two), Apart(tmp_path) as job:
        agents = [job.on(one, "trystate", "1:2", beats=BEATS)]
        job.until_size(1)
        agents.append(job.on(two, "trystate", "1:2", beats=BEATS))
        job.until_size(2)
        one.cable("down")
        cut = time.monotonic()
        job.until_size(1, after=cut)
        one.cable("up")
        mended = time.monotonic()
        job.until_size(2, after=mended)
        job.stop()
        assert [agent.ends() for agent in agents] == [0, 0]


def _client(line: Line, machine: Machine) -> None:
    """Use the store of the other machine."""
    machine.enter()
    with TCPStore("10.77.0.1", PORT) as store:
        store.set("from", "two")
        line.send(store.get("from one"))


def _server(line: Line, machine: Machine) -> None:
    machine.enter()
    with TCPStoreServer("10.77.0.1", PORT), TCPStore("10.77.0.1", PORT) as store:
        line.send("serves")
        store.set("from one", store.get("from") + b" and one")
        line.recv()


def test_a_store_is_used_from_another_machine() -> None:
    with two_machines() as (one, two), Child(_server, one) as server:
        assert server.hear(SECONDS) == "serves"
        with Child(_client, two) as client:
            assert client.hear(SECONDS) == b"two and one"

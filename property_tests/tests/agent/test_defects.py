"""A1 to A11, and A17: what is wrong in torch 2.13's agent, store and options, around its rendezvous, and not in ours.

Each is one schedule and one claim, for both libraries, like those of `tests/rendezvous/test_defects.py`: handlers
in threads where these are enough, else `torchrun` and `trystate run` in processes of their own, beside the same server.
"""

from __future__ import annotations

import base64
import os
import pickle
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.elastic.rendezvous import RendezvousParameters, dynamic_rendezvous
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.rendezvous import rendezvous as meet

from trystate import rendezvous
from trystate.impl.rendezvous.errors import RendezvousSettingsError
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.torch_release import is_before
from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.jobs import CONF, Agent, Job, alive, crash, eventually
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.agents import succeed
from trystate.property_tests.support.rendezvous.sides import (
    RUN_ID,
    Cluster,
    Settings,
    agreed,
    claim,
    cluster_of,
    happens,
    limit,
    outage,
    patience,
    seats,
)
from trystate.property_tests.support.stores.defects import Timed, defective, sound

PATIENT = {"beat_s": 1, "beats_missed_max": 10}
WINDOW = {"beat_s": 1, "beats_missed_max": 3}
TORCH_CONF = "keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=20,last_call_timeout=1,is_host=0"
C10d: Any = dist  # torch's stub knows no TCPStore


def both(why: str) -> pytest.MarkDecorator:
    """The claim is made of both libraries; torch's breaks it, and `why` says how."""
    return pytest.mark.parametrize("library", [sound("trystate"), defective("torch", why)])


# ---- the rendezvous as an agent uses it


@both("it stays in the round that is complete; the others wait for what it never says until the read timeout")
def test_a_participant_that_dies_during_the_last_call_holds_nobody_up(library: str) -> None:
    """A1. Agents need the messages between the members of a round before they start a worker."""
    settings = Settings(2, 4, **WINDOW, last_call_s=2, store_s=6)
    with cluster_of(library) as cluster:
        a, b, c = (cluster.node(name, number, settings) for number, name in enumerate("ABC", 1))
        calls = [node.call(node.handler.next_rendezvous) for node in (a, b)]
        cluster.until(lambda peek: len(peek.participants) == 2, "the last call of A and B")
        c.backend.hold("get", after_writes=1)
        c.join()
        cluster.until(lambda peek: "C" in peek.participants, "C has joined")
        c.die()
        claim("a round", lambda: not any(call.running for call in calls))
        infos = [call.value() for call in calls]
        for info in infos:
            info.store.set(f"role/{info.rank}", "")
        wanted = [f"role/{rank}" for rank in range(infos[0].world_size)]
        assert Timed(lambda: infos[0].store.wait(wanted, timedelta(seconds=1))).error is None


@both("they share one connection: a node that waits for a key does not beat, and is expelled")
def test_an_agent_that_waits_for_a_key_goes_on_beating(library: str) -> None:
    """A3. For longer than the window."""
    settings = Settings(2, 2, **WINDOW, store_s=20)
    with cluster_of(library) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        calls = [node.call(node.handler.next_rendezvous) for node in (a, b)]
        claim("a round", lambda: not any(call.running for call in calls))
        stores = [call.value().store for call in calls]
        waiting = a.call(lambda: stores[0].get("late"))
        happens(lambda: "A" not in cluster.peek().participants, limit(library, settings.window_s + 1.2))
        try:
            assert waiting.running
            assert cluster.peek().participants.keys() == {"A", "B"}
            assert b.nodes_waiting() == 0
        finally:
            stores[1].set("late", "now")
        assert waiting.finish() is None


@both("`num_nodes_waiting` raises in the agent's loop, which ends the agent")
def test_an_outage_that_is_shorter_than_the_window_is_nothing_to_an_agent(library: str) -> None:
    """A4. The question that an agent asks all the time is answered."""
    settings = Settings(2, 2, **PATIENT)
    with cluster_of(library) as cluster:
        nodes = a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        agreed(seats(a.join(), b.join()), 2)
        with outage(a, b):
            ends = time.monotonic() + limit(library, 1.0)
            while time.monotonic() < ends:
                asked = [Timed(node.handler.num_nodes_waiting) for node in nodes]
                assert [one.error for one in asked] == [None, None]
                assert [one.result for one in asked] == [0, 0]
                time.sleep(0.05)
        written = a.backend.writes_won
        claim("A beats again", lambda: a.backend.writes_won > written, patience(library, 5.0))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@both("the thread ends at what is no RendezvousError, and says nothing")
def test_a_state_that_cannot_be_read_ends_no_heartbeats(library: str) -> None:
    """A5. As from a version of torch that has a class more."""
    settings = Settings(2, 2, **PATIENT)
    with cluster_of(library) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        agreed(seats(a.join(), b.join()), 2)
        reads = a.backend.reads
        good = overwritten(cluster, b"cno_such_module\nName\n.")
        happens(lambda: a.backend.reads > reads + 1 or not a.alive)
        overwritten(cluster, good)
        written = a.backend.writes_won
        claim("A beats", lambda: a.backend.writes_won > written, patience(library, 3.0))


def overwritten(cluster: Cluster, data: bytes) -> bytes:
    """Write this in place of the shared state, whoever else writes; what was there."""
    while True:
        found = cluster.observer.get_state()
        done = cluster.observer.set_state(data, found[1] if found is not None else None)
        if done is not None and done[2]:
            return found[0] if found is not None else b""


class Bomb:
    """A process that unpickles it makes a folder."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


@both("it unpickles what anybody may have written who reaches the port")
def test_nothing_that_is_read_can_run(library: str, tmp_path: Path) -> None:
    """A6. In every agent."""
    ran = tmp_path / "ran"
    data = pickle.dumps(Bomb(str(ran)))
    with cluster_of(library) as cluster:
        overwritten(cluster, data)
        node = cluster.node("A", 1, Settings(1, 1, join_s=1))
        call = node.join()
        happens(lambda: not call.running or ran.exists())
        assert not ran.exists()
        assert cluster.raw() == data  # nor is it taken for an empty one


# ---- options


@both("only join_timeout is read, though --rdzv-conf=timeout=... is taken")
def test_the_timeout_that_was_given_is_kept(library: str) -> None:
    """A8. One node, which waits for another."""
    with cluster_of(library) as cluster:
        node = cluster.node("A", 1, Settings(2, 2))
        node.handler = made(library, node.backend, timeout=1)
        call = node.join()
        claim("it gives up", lambda: not call.running, patience(library, 2.0))
        assert "Timeout" in type(call.error).__name__


@both("anything is accepted")
def test_an_option_that_means_nothing_is_refused(library: str) -> None:
    """A8. With what was meant."""
    with cluster_of(library) as cluster:
        node = cluster.node("A", 1, Settings(2, 2))
        refused = Timed(lambda: made(library, node.backend, lastcall_timeout=1))
        assert isinstance(refused.error, RendezvousSettingsError)
        assert "did you mean last_call_timeout" in str(refused.error)


def made(library: str, backend: C10dRendezvousBackend, **config: object) -> Any:
    """A handler, from what torchrun was told."""
    params = RendezvousParameters("c10d", "127.0.0.1:1", RUN_ID, 2, 2, "127.0.0.1", **config)
    if library == "torch":
        return dynamic_rendezvous.create_handler(backend._store, backend, params)
    return DynamicRendezvousHandler.from_backend(RUN_ID, backend, 2, 2, "127.0.0.1", **config)


# ---- where the workers meet


@both("the store is kept for all rounds, with what the workers before left there, gloo's addresses among it")
def test_the_workers_of_a_round_never_see_what_those_before_left(library: str) -> None:
    """A9. See also `test_every_restart_begins_on_a_store_of_its_own`, with torchrun and gloo."""
    settings = Settings(2, 2, **PATIENT)
    with cluster_of(library) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        for attempt in range(2):
            master = seats(a.join(), b.join())[0].master
            host, _, port = master.rpartition(":")
            worker = C10d.TCPStore(host, int(port), is_master=False, wait_for_workers=False)
            assert not worker.check(["address"])
            worker.set("address", str(attempt))


SCHEME = {"torch": "", "trystate": "trystate-"}


@both("the next run joins it")
def test_a_file_that_a_crashed_run_left_is_begun_anew(library: str, tmp_path: Path) -> None:
    """A10. `file://` as the init method."""
    rendezvous.register()
    url = f"{SCHEME[library]}file://{tmp_path}/store?rank=0&world_size=1"
    assert Program(tmp_path / "log", crash, url).ends() == 1
    store, _, _ = next(meet(url, timeout=timedelta(seconds=20)))
    assert not store.check(["address"])


@both("every rank is a client there, whatever the port, so that nobody serves")
def test_a_port_of_ones_own_is_served_inside_a_worker_of_an_agent(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A10. `tcp://` as the init method, to another port than the agent's."""
    if library == "torch" and not is_before("2.14"):
        pytest.skip("from 2.14 on, torch uses the agent's store only at the agent's own address and port")
    rendezvous.register()
    for name, value in (("USE_AGENT_STORE", "True"), ("RESTART_COUNT", "0")):
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    url = f"{SCHEME[library]}tcp://127.0.0.1:{free_port()}?rank=0&world_size=1"
    patience = timedelta(seconds=1 if library == "torch" else 30)  # a server may take its time to start
    assert Timed(lambda: next(meet(url, timeout=patience))).error is None


# ---- the agent


def job_of(library: str, folder: Path, *, nodes: str, max_restarts: int = 0, barrier: int = 300) -> Job:
    """A job of `trystate run`, or of `torchrun` with the c10d rendezvous; `barrier`: seconds in which agents end."""
    if library == "trystate":
        return Job(folder, nodes=nodes, max_restarts=max_restarts, conf=CONF)
    return Job(folder, nodes=nodes, max_restarts=max_restarts, conf=TORCH_CONF, program=f"torchrun {barrier}")


def finished(agent: Agent, job: Job, library: str) -> None:
    """Wait until the workers of this agent have succeeded, and it is in the exit barrier."""
    agent.do("succeed")
    eventually(f"the worker of {agent.name} has ended", lambda: not alive(agent.began[-1].pid))
    if library == "trystate":
        eventually("it has reported", lambda: len(job.state.done) == 1)
    time.sleep(0.5)  # torch's says nothing


@both("who has finished does not come back before its exit barrier ends, and then closes the rendezvous for the other")
def test_who_has_finished_comes_back_when_the_other_fails(library: str, tmp_path: Path) -> None:
    """A2. With a restart left."""
    with job_of(library, tmp_path, nodes="2", max_restarts=1, barrier=2) as job:
        a, b = job.two()
        finished(a, job, library)
        b.do("fail once")
        eventually("b runs again, or ends", lambda: len(b.began) == 2 or not b.ran)
        assert len(b.began) == 2
        a.runs(2, world_size=2)
        succeed(a, b)


@both("`run` returns None, and the launcher fails with AttributeError")
def test_a_spare_ends_with_the_verdict_of_the_job(library: str, tmp_path: Path) -> None:
    """A7. RendezvousGracefulExitError is raised where a spare hears that all is over."""
    with job_of(library, tmp_path, nodes="1") as job:
        a = job.agent("a")
        a.runs()
        b = job.agent("b")
        eventually("b is a spare", lambda: spares(job, library) == 1)
        a.do("succeed")
        assert [a.ends(), b.ends()] == [0, 0]
        assert b.began == []


def spares(job: Job, library: str) -> int:
    if library == "trystate":
        return len(job.state.spares)
    store = C10d.TCPStore("127.0.0.1", job.port, is_master=False, wait_for_workers=False)
    data = base64.b64decode(store.get("torch.rendezvous.job"))
    return len(pickle.loads(data).redundancy_list)  # of a process that this test started


@both("the other waits for the number of its workers until read_timeout, and ends")
def test_an_agent_that_dies_as_a_round_begins_ends_no_other(library: str, tmp_path: Path) -> None:
    """A17. Its successor runs with the other; three restarts are left."""
    conf = {"trystate": CONF, "torch": f"{TORCH_CONF},read_timeout=4"}
    program = {"trystate": "trystate run", "torch": "torchrun 2"}
    with Job(tmp_path, nodes="2", max_restarts=3, conf=conf[library], program=program[library]) as job:
        a, b = job.agent("a"), job.agent("b", dies=True)
        eventually("b is killed", lambda: not b.ran)
        c = job.agent("c")
        eventually("a runs with c, or ends", lambda: bool(a.began) or not a.ran)
        assert a.began
        c.runs(world_size=2)
        succeed(a, c)


@both("it hears no signal in the exit barrier")
def test_a_signal_ends_an_agent_in_the_exit_barrier(library: str, tmp_path: Path) -> None:
    """A11. Its report of success counts."""
    with job_of(library, tmp_path, nodes="2") as job:
        a, b = job.two()
        finished(a, job, library)
        a.signal(signal.SIGTERM)
        assert a.ends(2 if library == "torch" else 20) == 1
        succeed(b)
        assert len(b.began) == 1

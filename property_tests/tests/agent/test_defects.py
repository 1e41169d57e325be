"""A1 to A10: defects of torch 2.13's agent, store and options, around its rendezvous, that ours do not have.

Each test is one schedule and one claim for both libraries, on the same server. A4 and the missing numbers are findings
with a replay, which shows the defect on torch. A4 is tested on ours alone.
"""

from __future__ import annotations

import os
import pickle
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
from trystate.property_tests.adapters.jobs import crash
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.rendezvous.clusters import (
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
C10d: Any = dist  # torch's stub does not declare TCPStore


def both(why: str) -> pytest.MarkDecorator:
    """The claim is tested for both libraries. torch's library breaks it; `why` explains how."""
    return pytest.mark.parametrize("library", [sound("trystate"), defective("torch", why)])


# ---- the rendezvous as an agent uses it


@both("it stays in the complete round; the others wait for its keys until the read timeout")
def test_a_participant_that_dies_during_the_last_call_holds_nobody_up(library: str) -> None:
    """A1. Agents exchange messages of the round before they start a worker."""
    settings = Settings(2, 4, **WINDOW, last_call_s=2, store_s=6)
    with cluster_of(library) as cluster:
        a, b, c = (cluster.node(name, number, settings) for number, name in enumerate("ABC", 1))
        calls = [node.call(node.handler.next_rendezvous) for node in (a, b)]
        cluster.until(lambda peek: len(peek.participants) == 2, "the last call of A and B")
        c.backend.hold_reads(after_writes=1)
        c.join()
        cluster.until(lambda peek: "C" in peek.participants, "C has joined")
        c.die()
        claim("a round", lambda: not any(call.running for call in calls))
        infos = [call.value() for call in calls]
        for info in infos:
            info.store.set(f"role/{info.rank}", "")
        wanted = [f"role/{rank}" for rank in range(infos[0].world_size)]
        assert Timed(lambda: infos[0].store.wait(wanted, timedelta(seconds=1))).error is None


@both("they share one connection: a node that waits for a key sends no heartbeat, and is expelled")
def test_an_agent_that_waits_for_a_key_goes_on_beating(library: str) -> None:
    """A3. The wait is longer than the window."""
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


def test_an_outage_that_is_shorter_than_the_window_is_nothing_to_an_agent() -> None:
    """A4. An agent's periodic query gets an answer during the outage."""
    settings = Settings(2, 2, **PATIENT)
    with cluster_of("trystate") as cluster:
        nodes = a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        agreed(seats(a.join(), b.join()), 2)
        with outage(a, b):
            ends = time.monotonic() + 1.0
            while time.monotonic() < ends:
                asked = [Timed(node.handler.num_nodes_waiting) for node in nodes]
                assert [one.error for one in asked] == [None, None]
                assert [one.result for one in asked] == [0, 0]
                time.sleep(0.05)
        written = a.backend.writes_won
        claim("A beats again", lambda: a.backend.writes_won > written, 5.0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@both("the thread ends at an error that is not a RendezvousError, without a log")
def test_a_state_that_cannot_be_read_ends_no_heartbeats(library: str) -> None:
    """A5. A version of torch with another class could have written the state."""
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
    """Replace the shared state by `data`, even while others write. Returns the data before."""
    while True:
        found = cluster.observer.get_state()
        done = cluster.observer.set_state(data, found[1] if found is not None else None)
        if done is not None and done[2]:
            return found[0] if found is not None else b""


class Bomb:
    """A process that unpickles it creates a folder."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


@both("it unpickles data that any client of the port may have written")
def test_nothing_that_is_read_can_run(library: str, tmp_path: Path) -> None:
    """A6. The state is read by every agent."""
    ran = tmp_path / "ran"
    data = pickle.dumps(Bomb(str(ran)))
    with cluster_of(library) as cluster:
        overwritten(cluster, data)
        call = cluster.node("A", 1, Settings(1, 1, join_s=1)).join()
        happens(lambda: not call.running or ran.exists())
        assert not ran.exists()
        assert cluster.raw() == data  # the state is not overwritten like an empty one


# ---- options


@both("only join_timeout is read, although --rdzv-conf=timeout=... is accepted")
def test_the_timeout_that_was_given_is_kept(library: str) -> None:
    """A8. One node waits for another."""
    with cluster_of(library) as cluster:
        node = cluster.node("A", 1, Settings(2, 2))
        node.handler = made(library, node.backend, timeout=1)
        call = node.join()
        claim("it gives up", lambda: not call.running, patience(library, 2.0))
        assert "Timeout" in type(call.error).__name__


@both("anything is accepted")
def test_an_option_that_means_nothing_is_refused(library: str) -> None:
    """A8. The error suggests the right option."""
    with cluster_of(library) as cluster:
        node = cluster.node("A", 1, Settings(2, 2))
        refused = Timed(lambda: made(library, node.backend, lastcall_timeout=1))
        assert isinstance(refused.error, RendezvousSettingsError)
        assert "did you mean last_call_timeout" in str(refused.error)


def made(library: str, backend: C10dRendezvousBackend, **config: object) -> Any:
    """A handler with the parameters that torchrun was given."""
    params = RendezvousParameters("c10d", "127.0.0.1:1", RUN_ID, 2, 2, "127.0.0.1", **config)
    if library == "torch":
        return dynamic_rendezvous.create_handler(backend._store, backend, params)
    return DynamicRendezvousHandler.from_backend(RUN_ID, backend, 2, 2, "127.0.0.1", **config)


# ---- where the workers meet


@both("the store keeps the keys of earlier workers, such as gloo's addresses, in later rounds")
def test_the_workers_of_a_round_never_see_what_those_before_left(library: str) -> None:
    """A9. A key that the workers of the round before have set is absent."""
    settings = Settings(2, 2, **PATIENT)
    with cluster_of(library) as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        for attempt in range(2):
            host, _, port = seats(a.join(), b.join())[0].master.rpartition(":")
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


@both("every rank is a client there, whatever the port, and no rank serves")
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

"""A1 to A10: defects of torch 2.13's agent, store and options, around its rendezvous, that ours do not have.

Each test is one schedule and one claim, which torch breaks. The missing numbers are findings with a replay, which shows
the defect on torch. The simulator and the tests of the options show that ours keeps the claims of the rendezvous.
"""

from __future__ import annotations

import os
import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.elastic.rendezvous import RendezvousParameters, dynamic_rendezvous
from torch.distributed.rendezvous import rendezvous as meet

from trystate import rendezvous
from trystate.impl.torch_release import is_before
from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.jobs import crash
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.rendezvous.clusters import RUN_ID, Cluster, Node, Settings, claim, happens
from trystate.property_tests.support.stores.defects import Timed, defective, sound

PATIENT = {"beat_s": 1, "beats_missed_max": 10}
WINDOW = {"beat_s": 1, "beats_missed_max": 3}
C10d: Any = dist  # torch's stub does not declare TCPStore


def torchs(why: str) -> pytest.MarkDecorator:
    """torch breaks the claim; `why` explains how."""
    return pytest.mark.xfail(strict=True, raises=AssertionError, reason=why)


def both(why: str) -> pytest.MarkDecorator:
    """The claim is tested for both libraries. torch's library breaks it; `why` explains how."""
    return pytest.mark.parametrize("library", [sound("trystate"), defective("torch", why)])


# ---- the rendezvous as an agent uses it


@torchs("it stays in the complete round; the others wait for its keys until the read timeout")
def test_a_participant_that_dies_during_the_last_call_holds_nobody_up() -> None:
    """A1. Agents exchange messages of the round before they start a worker."""
    settings = Settings(2, 4, **WINDOW, last_call_s=2, store_s=6)
    with Cluster() as cluster:
        a, b, c = (cluster.node(name, number, settings) for number, name in enumerate("ABC", 1))
        calls = [a.join(), b.join()]
        cluster.until("A", "B")
        c.join()
        cluster.until("C")
        c.die()
        infos = [call.value() for call in calls]
        for info in infos:
            info.store.set(f"role/{info.rank}", "")
        wanted = [f"role/{rank}" for rank in range(infos[0].world_size)]
        assert Timed(lambda: infos[0].store.wait(wanted, timedelta(seconds=1))).error is None


@torchs("they share one connection: a node that waits for a key sends no heartbeat, and is expelled")
def test_an_agent_that_waits_for_a_key_goes_on_beating() -> None:
    """A3. The wait is longer than the window."""
    settings = Settings(2, 2, **WINDOW, store_s=20)
    with Cluster() as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        stores = [info.store for info in cluster.round(a, b)]
        waiting = a.call(lambda: stores[0].get("late"))
        happens(lambda: "A" not in cluster.participants())
        try:
            assert waiting.running
            assert cluster.participants() == {"A", "B"}
        finally:
            stores[1].set("late", "now")
        assert waiting.finish() is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@torchs("the thread ends at an error that is not a RendezvousError, without a log")
def test_a_state_that_cannot_be_read_ends_no_heartbeats() -> None:
    """A5. A version of torch with another class could have written the state."""
    settings = Settings(2, 2, **PATIENT)
    with Cluster() as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        cluster.round(a, b)
        reads = a.backend.reads
        good = overwritten(cluster, b"cno_such_module\nName\n.")
        happens(lambda: a.backend.reads > reads + 1 or not a.alive)
        overwritten(cluster, good)
        written = a.backend.writes_won
        claim("A beats", lambda: a.backend.writes_won > written, 3.0)


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


@torchs("it unpickles data that any client of the port may have written")
def test_nothing_that_is_read_can_run(tmp_path: Path) -> None:
    """A6. The state is read by every agent."""
    ran = tmp_path / "ran"
    with Cluster() as cluster:
        overwritten(cluster, pickle.dumps(Bomb(str(ran))))
        call = cluster.node("A", 1, Settings(1, 1, join_s=1)).join()
        happens(lambda: not call.running or ran.exists())
        assert not ran.exists()


# ---- options


def made(node: Node, **config: object) -> Any:
    """A handler with the parameters that torchrun was given."""
    params = RendezvousParameters("c10d", "127.0.0.1:1", RUN_ID, 2, 2, "127.0.0.1", **config)
    return dynamic_rendezvous.create_handler(node.backend._store, node.backend, params)


@torchs("only join_timeout is read, although --rdzv-conf=timeout=... is accepted")
def test_the_timeout_that_was_given_is_kept() -> None:
    """A8. One node waits for another."""
    with Cluster() as cluster:
        node = cluster.node("A", 1, Settings(2, 2))
        node.handler = made(node, timeout=1)
        call = node.join()
        claim("it gives up", lambda: not call.running, 2.0)


@torchs("anything is accepted")
def test_an_option_that_means_nothing_is_refused() -> None:
    """A8. A misspelt option."""
    with Cluster() as cluster:
        node = cluster.node("A", 1, Settings(2, 2))
        assert Timed(lambda: made(node, lastcall_timeout=1)).error is not None


# ---- where the workers meet


@torchs("the store keeps the keys of earlier workers, such as gloo's addresses, in later rounds")
def test_the_workers_of_a_round_never_see_what_those_before_left() -> None:
    """A9. A key that the workers of the round before have set is absent."""
    settings = Settings(2, 2, **PATIENT)
    with Cluster() as cluster:
        a, b = cluster.node("A", 1, settings), cluster.node("B", 2, settings)
        for attempt in range(2):
            master = cluster.round(a, b)[0].bootstrap_store_info
            worker = C10d.TCPStore(master.master_addr, master.master_port, is_master=False, wait_for_workers=False)
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

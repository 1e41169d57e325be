"""Stores with many clients at once, which are also stopped, killed and cut off: their histories are linearizable.

A mutant of a client shows that the tests can fail. The runs are longer under HYPOTHESIS_PROFILE=nightly.
A failure cannot be replayed exactly. It draws the history and names the seed of the operations.
"""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path
from unittest import mock

import pytest

from trystate.diagrams import history_dot, history_text, render
from trystate.model.store import reference as ref
from trystate.property_tests.adapters.stores.proxies import CuttingProxy
from trystate.property_tests.adapters.torch_release import require
from trystate.property_tests.support.nightly import NIGHTLY, by_night
from trystate.property_tests.support.stores import attacked
from trystate.property_tests.support.stores.attacked import (
    CONNECT,
    Diary,
    Recorded,
    clients,
    disturb,
    finish,
    read,
    unexplained,
)
from trystate.store import TCPStore, TCPStoreServer

SECONDS = by_night("seconds of a disturbed store", 2.5)
STOPPED_SECONDS = 3.0 if NIGHTLY else 0.4  # longest time that a server is stopped
SEEDS = range(by_night("runs of disturbed stores", 1))
LEAST = 50  # the least number of operations of a run


def judged(folder: Path, seed: int) -> list[Recorded]:
    """The history of all processes; checks that it is linearizable and long enough."""
    history = read(sorted(folder.glob("*.diary")))
    wrong = unexplained(history)
    assert not wrong, f"seed {seed}\n{history_text(wrong[0])}"
    known = [call for call in history if not call.pending]
    assert len(known) > LEAST, f"{len(known)} operations"
    return history


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", ["trystate", "torch"])
def test_our_server_is_linearizable_for_our_clients_and_torchs(make: str, seed: int, tmp_path: Path) -> None:
    """A torch client sends another request after each write, which acknowledges the write."""
    require("queue_push")
    with TCPStoreServer() as server, clients(tmp_path, make, str(server.port), seed, 1, 6) as living:
        time.sleep(SECONDS / 2)
        finish(living)
    judged(tmp_path, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_clients_of_a_server_behind_a_cutting_proxy_stopped_and_killed(seed: int, tmp_path: Path) -> None:
    """The clients are ours and torch's. The server is stopped too."""
    with TCPStoreServer() as server, CuttingProxy(server.port, seed) as proxy, contextlib.ExitStack() as stack:
        ours = stack.enter_context(clients(tmp_path, "trystate", str(proxy.port), seed, 2))
        theirs = stack.enter_context(clients(tmp_path, "torch", str(proxy.port), seed + 1000, 1))
        living = [*ours, *theirs]
        disturb(random.Random(seed), living, SECONDS, STOPPED_SECONDS, server.pid)
        proxy.calm = True
        finish(living)
        assert proxy.cuts > 5
        look_at_last(server.port, tmp_path)
    history = judged(tmp_path, seed)
    assert any(call.pending for call in history), "no outcome is unknown: nothing was disturbed"


def look_at_last(port: int, folder: Path) -> None:
    """At the end a client without the proxy reads all keys, which must have the acknowledged values."""
    diary = Diary(folder / "last.diary")
    with TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=CONNECT) as store:
        for number, key in enumerate(store.list_keys()):
            if key.startswith("run "):
                diary.write("begin", "last", number, ref.Get(key), time.monotonic_ns())
                diary.write("end", "last", number, time.monotonic_ns(), store.get(key))


# ---- a mutant


def test_a_client_that_remembers_is_found_and_its_history_is_drawn(tmp_path: Path) -> None:
    with TCPStoreServer() as server, clients(tmp_path, "remembers", str(server.port), 0, 1, 4) as living:
        time.sleep(1.0)
        finish(living)
    wrong = unexplained(read(tmp_path.glob("*.diary")))
    assert "cannot be placed" in history_text(wrong[0])
    render(history_dot(wrong[0]), tmp_path / "history.svg")


def test_the_clients_of_a_process_have_seeds_without_its_number(tmp_path: Path) -> None:
    with mock.patch.object(attacked, "work") as work:
        attacked.process(mock.Mock(), "trystate", "0", str(tmp_path / "diary"), 7, "run", 2)
    assert [call.args[3] for call in work.call_args_list] == ["7 0", "7 1"]

"""Stores with many clients at once, which are also stopped, killed and cut off: their histories are linearizable.

Mutants of servers and clients show that the tests can fail. The runs are longer under HYPOTHESIS_PROFILE=nightly.
A failure cannot be replayed exactly. It draws the history and names the seed of the operations.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from trystate.diagrams import history_dot, history_text, render
from trystate.impl.store.contents.contents import Contents
from trystate.impl.store.server.service import Service
from trystate.model.store import reference as ref
from trystate.property_tests.adapters.stores.proxies import CuttingProxy
from trystate.property_tests.adapters.torch_release import require
from trystate.property_tests.support.mutants import Mutant, delayed, planted, rewritten, wrapped
from trystate.property_tests.support.nightly import NIGHTLY, by_night
from trystate.property_tests.support.stores.attacked import (
    CONNECT,
    END_SECONDS,
    KINDS,
    Caching,
    Diary,
    Recorded,
    clients,
    disturb,
    finish,
    read,
    unexplained,
    work,
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


# ---- mutants of the server, which runs in this process, and of the client


@contextlib.contextmanager
def in_threads(folder: Path, run_name: str, client: Callable[[int], Any], kinds: Sequence[str]) -> Iterator[None]:
    """Run four clients on threads of this process until the block ends."""
    over, diary = threading.Event(), Diary(folder / "threads.diary")
    stack = contextlib.ExitStack()

    def run(n: int) -> None:
        def connect() -> Any:
            return stack.enter_context(client(n))

        work(connect, diary, f"thread {n}", n, run_name, over.is_set, pause=0.001, kinds=kinds)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(4)]
    with stack:
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join(END_SECONDS)


def none(patch: pytest.MonkeyPatch) -> None:
    """The server is as it is."""


def _of_ours(port: int, make: type[TCPStore]) -> Callable[[int], TCPStore]:
    return lambda n: make("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=CONNECT)


# Mutants of servers and clients, and the kinds of keys that show them.
MUTANTS: dict[str, tuple[Mutant, type[TCPStore], Sequence[str]]] = {
    "a server that answers before it has done it": (wrapped(Contents, "set", delayed), TCPStore, ["value"]),
    "a server that loses a write with a connection": (rewritten(Service._forget, "self.watches.forget(session)",
        "self.watches.forget(session); self.contents.values and self.contents.values.popitem()"), TCPStore, ["value"]),
    "a server that pops at the wrong end": (rewritten(Contents.pop, "queue.popleft()", "queue.pop()"), TCPStore,
        ["queue"]),
    "a client that remembers": (none, Caching, ["value", "text"]),
}  # fmt: skip


@pytest.mark.parametrize("name", [*MUTANTS, "none"])
def test_a_mutant_is_caught_and_drawn_and_its_absence_is_not(name: str, tmp_path: Path) -> None:
    mutant, make, where = MUTANTS.get(name, (none, TCPStore, [*KINDS]))
    with planted(mutant), TCPStoreServer(run_in="thread", log=list[str]().append) as server:
        for attempt in range(8 if name in MUTANTS else 1):  # a race need not show
            with CuttingProxy(server.port, attempt, 2_500) as proxy:
                folder = tmp_path / str(attempt)
                folder.mkdir()
                with in_threads(folder, f"planted{attempt}", _of_ours(proxy.port, make), where):
                    time.sleep(0.8)
                    proxy.calm = True
                    time.sleep(0.2)
            wrong = unexplained(read(folder.glob("*.diary")))
            if wrong:
                break
    assert bool(wrong) is (name in MUTANTS)
    for broken in wrong[:1]:
        assert "cannot be placed" in history_text(broken)
        render(history_dot(broken), tmp_path / "history.svg")

"""Stores in real processes that are stopped, killed and cut off: what their clients saw is linearizable.

A second judge decides (`orders`), which shares nothing with the model's. The suite is shown to fail: servers and
mutants of clients are caught. Longer under HYPOTHESIS_PROFILE=nightly. Processes are not replayed exactly:
a failure names the seed of the operations, and the diaries of the processes are in the test's folder.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trystate.impl.store.contents.contents import Contents
from trystate.impl.store.server.fast_path import FAST_PATHS, HANDLERS, by_frame
from trystate.impl.store.server.service import Service
from trystate.impl.store.server.session import Session
from trystate.model.store.vocabulary import Extension
from trystate.property_tests.adapters.torch_store.isolated import Child
from trystate.property_tests.support.mutants import Mutant, planted
from trystate.property_tests.support.nightly import NIGHTLY, by_night
from trystate.property_tests.support.stores.attacked import CONNECT, Diary, diaries, process, read, work
from trystate.property_tests.support.stores.cutting import CuttingProxy
from trystate.property_tests.support.stores.orders import Seen, unexplained
from trystate.store import OutcomeUnknown, TCPStore, TCPStoreServer

SECONDS = by_night("seconds of a disturbed store", 2.5)
SEEDS = range(by_night("runs of disturbed stores", 1))
LEAST = 50  # operations without which a run has shown nothing
END_SECONDS = 60.0


@contextlib.contextmanager
def clients(folder: Path, make: str, where: str, seed: int, count: int, threads: int = 2) -> Iterator[list[Child]]:
    """Processes with clients, that write their diaries into the folder; killed in any case."""
    with contextlib.ExitStack() as stack:
        made = []
        for n in range(count):
            path = str(folder / f"{make} {n}.diary")
            made.append(stack.enter_context(Child(process, make, where, path, seed * 100 + n, f"run {seed}", threads)))
        for child in made:
            assert child.hear(END_SECONDS) == "begun"
        yield made


def disturb(chance: random.Random, living: list[Child], kill_one: bool, *pids: int) -> None:
    """For the time of a run: stop processes and let them go on, and kill one client."""
    end, killed = time.monotonic() + SECONDS, False
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.02, 0.2))
        pid = chance.choice([*pids, *(child.pid for child in living)])
        os.kill(pid, signal.SIGSTOP)
        time.sleep(chance.choice((0.01, 0.1, 0.4)) if pid not in pids or not NIGHTLY else chance.uniform(0, 3))
        os.kill(pid, signal.SIGCONT)
        if kill_one and not killed and end - time.monotonic() < SECONDS / 2:
            killed = True
            living.pop(0).kill()


def finish(living: list[Child]) -> None:
    for child in living:
        with contextlib.suppress(OSError):
            child.tell("end")
    for child in living:
        assert child.hear(END_SECONDS) == "ended", "a client's operation does not end"


def judged(folder: Path, seed: int) -> list[Seen]:
    """The history of all processes, which is linearizable and long enough to mean something."""
    history = read(sorted(diaries(folder)))
    assert unexplained(history) == [], f"seed {seed}, diaries in {folder}"
    known = [seen for seen in history if seen.returned is not None]
    assert len(known) > LEAST, f"{len(known)} operations"
    return history


@pytest.mark.parametrize("seed", SEEDS)
def test_clients_of_a_server_behind_a_cutting_proxy_stopped_and_killed(seed: int, tmp_path: Path) -> None:
    """Ours and torch's clients; the server is stopped, too."""
    with TCPStoreServer() as server, CuttingProxy(server.port, seed) as proxy, contextlib.ExitStack() as stack:
        ours = stack.enter_context(clients(tmp_path, "trystate", str(proxy.port), seed, 2))
        theirs = stack.enter_context(clients(tmp_path, "torch", str(proxy.port), seed + 1000, 1))
        living = [*ours, *theirs]
        disturb(random.Random(seed), living, True, server.pid)
        proxy.calm = True
        finish(living)
        assert proxy.cuts > 5
        look_at_last(server.port, tmp_path)
    history = judged(tmp_path, seed)
    assert any(seen.returned is None for seen in history), "no outcome is unknown: nothing was disturbed"


def look_at_last(port: int, folder: Path) -> None:
    """A client on the server itself reads all keys at the end: what was acknowledged is there."""
    diary = Diary(folder / "last.diary")
    with TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=CONNECT) as store:
        for number, key in enumerate(store.list_keys()):
            if key.startswith("run "):
                diary.write("begin", "last", number, "get", key, [], time.monotonic_ns())
                diary.write("end", "last", number, time.monotonic_ns(), store.get(key))


@pytest.mark.parametrize("seed", SEEDS)
def test_processes_of_a_file_store_stopped_and_killed(seed: int, tmp_path: Path) -> None:
    """A process may be stopped or killed while it holds the lock of the file."""
    with clients(tmp_path, "file", str(tmp_path / "store"), seed, 3, threads=1) as living:
        disturb(random.Random(seed), living, True)
        finish(living)
    judged(tmp_path, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_server_that_is_killed_takes_its_contents_with_it_and_nobody_is_told_otherwise(
    seed: int, tmp_path: Path
) -> None:
    """Up to its end all is linearizable. A new server at its port is refused by its clients, as it is empty."""
    with TCPStoreServer() as server, clients(tmp_path, "trystate", str(server.port), seed, 1, 3) as living:
        time.sleep(SECONDS / 3)
        os.kill(server.pid, signal.SIGKILL)
        os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
        with TCPStoreServer(port=server.port) as second:
            time.sleep(SECONDS / 3)
            finish(living)
            with TCPStore("127.0.0.1", second.port, is_master=False, wait_for_workers=False) as late:
                assert late.num_keys() == 0, "a client of the old server has written to the new one"
    judged(tmp_path, seed)


# ---- mutants: in the server, in this process, where it can be changed; in the client


@contextlib.contextmanager
def in_threads(folder: Path, run_name: str, client: Callable[[int], Any], count: int = 4) -> Iterator[None]:
    """Clients on threads of this process, for the time of the block."""
    over, diary = threading.Event(), Diary(folder / "threads.diary")
    stack = contextlib.ExitStack()

    def run(n: int) -> None:
        def connect() -> Any:
            return stack.enter_context(client(n))

        work(connect, diary, f"thread {n}", n, run_name, over.is_set, pause=0.001)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    with stack:
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join(END_SECONDS)


def late_set(patch: pytest.MonkeyPatch) -> None:
    """The server answers a SET of ours before it does it: with the session's next request."""
    due: dict[Session, tuple[bytes, bytes]] = {}
    take = Service.take

    def apply_before(service: Service, session: Session, data: bytes) -> None:
        if session in due:
            service.contents.set(*due.pop(session))
        take(service, session, data)

    def answer(service: Service, session: Session, key: bytes, value: bytes) -> None:
        due[session] = (key, value)
        session.outgoing.append(b"\x00")

    patch.setattr(Service, "take", apply_before)
    patch.setitem(FAST_PATHS, int(Extension.SET), by_frame)
    patch.setitem(HANDLERS, Extension.SET, answer)


def lost_on_reconnect(patch: pytest.MonkeyPatch) -> None:
    """The last write of a connection goes with it."""
    last: dict[Session, tuple[bytes, bytes | None]] = {}
    take, disconnected, set_ = Service.take, Service.disconnected, Contents.set
    now: list[Session] = []

    def noted(contents: Contents, key: bytes, value: bytes) -> None:
        if now and b" value " in key:
            last[now[-1]] = (key, contents.values.get(key))
        set_(contents, key, value)

    def taking(service: Service, session: Session, data: bytes) -> None:
        now.append(session)
        take(service, session, data)
        now.pop()

    def gone(service: Service, session: Session) -> None:
        key, value = last.pop(session, (b"", None))
        if key and value is not None and key in service.contents.values:
            set_(service.contents, key, value)
        disconnected(service, session)

    patch.setattr(Contents, "set", noted)
    patch.setattr(Service, "take", taking)
    patch.setattr(Service, "disconnected", gone)
    patch.setitem(FAST_PATHS, int(Extension.SET), by_frame)


def overtaking_pop(patch: pytest.MonkeyPatch) -> None:
    """A pop takes the last element."""

    def pop(contents: Contents, key: bytes) -> bytes | None:
        queue = contents.queues.get(key)
        if queue is not None:
            queue.rotate(1)
        return take(contents, key)

    take = Contents.pop
    patch.setattr(Contents, "pop", pop)


def none(patch: pytest.MonkeyPatch) -> None:
    """The server is as it is."""


class Retrying(TCPStore):
    """Does an add again whose outcome it does not know, and says nothing of it."""

    def add(self, key: str, amount: int) -> int:
        for _ in range(20):
            with contextlib.suppress(OutcomeUnknown):
                return super().add(key, amount)
        raise OutcomeUnknown("given up")


def _of_ours(port: int, make: type[TCPStore] = TCPStore) -> Callable[[int], TCPStore]:
    return lambda n: make("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=CONNECT)


MUTANTS: dict[str, tuple[Mutant, type[TCPStore], str]] = {
    "a server that answers before it has done it": (late_set, TCPStore, "value"),
    "a server that loses a write with its connection": (lost_on_reconnect, TCPStore, "value"),
    "a server that pops at the wrong end": (overtaking_pop, TCPStore, "queue"),
    "a client that repeats an add": (none, Retrying, "counter"),
}


@pytest.mark.parametrize("name", [*MUTANTS, "none"])
def test_a_mutant_is_caught_and_its_absence_is_not(name: str, tmp_path: Path) -> None:
    mutant, make, where = MUTANTS.get(name, (none, TCPStore, ""))
    with planted(mutant), TCPStoreServer(run_in="thread", log=list[str]().append) as server:
        for attempt in range(8 if where else 1):  # a race may turn out well
            with CuttingProxy(server.port, attempt, 2_500) as proxy:
                folder = tmp_path / str(attempt)
                folder.mkdir()
                with in_threads(folder, f"planted{attempt}", _of_ours(proxy.port, make)):
                    time.sleep(0.8)
                    proxy.calm = True
                    time.sleep(0.2)
            wrong = unexplained(read(sorted(diaries(folder))))
            if wrong:
                break
    assert {key.split()[1] for key in wrong} == ({where} if where else set()), f"diaries in {tmp_path}"

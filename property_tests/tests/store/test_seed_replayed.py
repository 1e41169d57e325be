"""The models of the edition SEED and the daemons of torch 1.9 agree in every step, and each mutant is found.

The daemons show the findings that only torch 1.9 has; a control violates nothing.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from trystate.impl.store.wire import blob
from trystate.model.checker.walks import Walk
from trystate.model.store.examples import CALLBACK, SET, SET_AND_WATCH_KEY
from trystate.model.store.frames import Frames
from trystate.model.store.frames import Seed as SeedFrame
from trystate.model.store.registers import Registers
from trystate.model.store.registers import Seed as SeedRegister
from trystate.model.store.startup import Seed as SeedStartUp
from trystate.model.store.startup import StartUps
from trystate.model.store.vocabulary import Edition, StartUp
from trystate.model.store.vocabulary import Query as Later
from trystate.model.store.waits import Seed as SeedWait
from trystate.model.store.waits import Waits
from trystate.model.store.watches import Seed as SeedWatch
from trystate.model.store.watches import Watches
from trystate.property_tests.adapters.our_store.conformance import Case
from trystate.property_tests.adapters.seed_store.conformance import CHECKS, on_daemons, subject_of
from trystate.property_tests.adapters.seed_store.daemons import MasterDaemon
from trystate.property_tests.adapters.seed_store.edges import MasterProcess, OverTcp19
from trystate.property_tests.adapters.seed_store.scenarios import CONTROLS, SCENARIOS, until
from trystate.property_tests.adapters.seed_store.store import Store, listen
from trystate.property_tests.adapters.seed_store.wire import Query
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.support.marks import by_verify
from trystate.property_tests.support.mutants import planted, rewritten
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.runs import replay
from trystate.property_tests.support.systems.changed import changed
from trystate.registry import findings

SEED = Edition.SEED


@by_verify
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_daemons_do_what_the_edition_says(check: Any) -> None:
    outcome = check.run(lambda _: None, sample=not NIGHTLY)
    assert not outcome.disagreements
    assert outcome.compared >= 120


# ---- mutants of the model


# fmt: off
MODEL_MUTANTS = (
    (changed(SeedWait, "CountsTogether", counts_together=True), Case(Waits, SEED, {"client": 1, "compares": 0})),
    (changed(SeedWatch, "ForgetsWatchers", unlists=Watches.unlists), Case(Watches, SEED, {"client": 1, "key": 1},
        ("drop",))),
    (changed(SeedStartUp, "ConnectsFirst", is_counted=lambda self, s: StartUp.STARTED), Case(StartUps, SEED,
        {"client": 2})),
    (changed(SeedFrame, "ReadsSeveral", is_free=lambda self, s: True), Case(Frames, SEED)),
    (changed(SeedRegister, "StoresAnyway", is_match=lambda *_: True), Case(Registers, SEED, {"client": 1})),
)
# fmt: on


@pytest.mark.parametrize(("cls", "case"), MODEL_MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_mutant_of_the_model_is_found_out(cls: Any, case: Case) -> None:
    system = cls(edition=SEED, faults=case.faults, **case.sizes)
    with on_daemons(case.build()) as subject:
        assert replay_every_edge(system, subject, stop_after=1).disagreements


# ---- mutants of the program

SMALL = Case(Watches, SEED, {"client": 1, "key": 1, "writes": 2})
PROGRAM_MUTANTS: dict[str, tuple[Any, str, str, Case]] = {
    "the master waits for one less": (Store._count_in, "counted_in >= world", "counted_in >= world - 1",
        Case(StartUps, SEED, {"client": 2})),
    "the master waits without end": (Store._count_in, " or self._clock.now() - began > self._timeout_s", "",
        Case(StartUps, SEED, {"client": 2})),
    "a constructor that raises leaves its connection": (Store.__init__, "self.close()", "pass",
        Case(StartUps, SEED, {"client": 2}, ("stop",))),
    "half a request ends its connection": (MasterDaemon._set, "key, new =",
        "connection.setblocking(False); key, new =", Case(Frames, SEED, {"connection": 1})),
    "a connection that has ended is kept": (MasterDaemon._forget, "self._connections.remove(connection)", "",
        Case(Frames, SEED, {"connection": 1})),
    "a set wakes nobody": (MasterDaemon._set, "self._wake(key)", "pass", Case(Waits, SEED, {"client": 1, "key": 1})),
    "a delete says nothing": (MasterDaemon._delete, "self._announce(key, Change.DELETED, old, None)", "pass", SMALL),
    "a connection watches one key": (MasterDaemon._watch, "self._watching[", "self._watching.clear(); self._watching[",
        Case(Watches, SEED, {"client": 1, "writes": 1}, ("another",))),
    "a compare_set creates what is there": (MasterDaemon._compare_set, "old is None and not expected", "not expected",
        Case(Registers, SEED, {"client": 1})),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAM_MUTANTS)
def test_a_mutant_of_the_program_is_found_out(name: str) -> None:
    function, right, wrong, case = PROGRAM_MUTANTS[name]
    with planted(rewritten(function, right, wrong)), ExitStack() as stack:
        system = case.build()
        if case.system in (StartUps, Frames):
            subject = stack.enter_context(on_daemons(system))
        else:  # a daemon in a thread of this process, which has the mutant
            store = stack.enter_context(Store(is_server=True))
            subject = subject_of(system, stack.enter_context(OverTcp19(store.port)))
        assert replay_every_edge(system, subject, stop_after=1).disagreements


# ---- the findings


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_finding_of_torch_1_is_shown_on_its_program(name: str) -> None:
    found = SCENARIOS[name].run(print)
    assert found.reproduced, found
    assert findings()[name].number == SCENARIOS[name].finding


@pytest.mark.parametrize("name", CONTROLS)
def test_a_benign_schedule_violates_nothing(name: str) -> None:
    before = set(threading.enumerate())
    assert not CONTROLS[name](print).reproduced
    assert set(threading.enumerate()) == before


def test_a_delete_that_cannot_be_announced_tells_some_and_leaves_the_key() -> None:
    """A began to watch before B, which has left. A is notified of a deletion that does not happen."""
    told: list[bytes | None] = []
    with MasterProcess() as server, Store(server.port) as a, Store(server.port) as author:
        author.set("k", b"1")
        assert author.check(["k"])
        a.watch_key("k", lambda old, new: told.append(new))
        with Store(server.port) as b:
            b.watch_key("k", lambda old, new: None)
        assert author.num_keys() == author.num_keys() == 1  # the daemon has noticed the end of B
        with pytest.raises(OSError):
            author.delete_key("k")
        assert a.check(["k"])
        assert until(lambda: told)
    assert told == [None]


@pytest.mark.parametrize("walk", (SET, SET_AND_WATCH_KEY, CALLBACK), ids=lambda walk: walk.name)
def test_the_steps_of_the_articles_pictures_are_those_of_the_daemon(walk: Walk) -> None:
    with MasterProcess() as server, OverTcp19(server.port) as lines:
        assert replay(walk, lambda system: subject_of(system, lines)) > len(walk.steps)


def test_the_callback_of_a_worker_runs_when_it_sets_the_key_itself() -> None:
    told: list[tuple[bytes | None, bytes | None]] = []
    with MasterProcess() as server, Store(server.port) as store:
        store.watch_key("k", lambda old, new: told.append((old, new)))
        store.set("k", b"1")
        assert until(lambda: told)
    assert told == [(None, b"1")]


def test_a_worker_runs_the_callback_of_the_watched_key_that_changes() -> None:
    told: list[tuple[str, bytes | None]] = []
    with MasterProcess() as server, Store(server.port) as store:
        store.watch_key("a", lambda old, new: told.append(("of a", new)))
        store.watch_key("b", lambda old, new: told.append(("of b", new)))
        for key, value in (("b", b"1"), ("a", b"2"), ("b", b"3")):
            store.set(key, value)
        assert until(lambda: len(told) == 3)
    assert told == [("of b", b"1"), ("of a", b"2"), ("of b", b"3")]


def test_a_daemon_ends_when_its_control_pipe_is_closed_and_not_before() -> None:
    with MasterProcess() as server:
        store = Store(server.port)
        worker = store.worker
        assert worker is not None
        assert store.num_keys() == store.num_keys() == 0  # the daemon has accepted both connections
        server.kill()
        assert until(lambda: worker.empty_rounds)
        assert worker.is_alive
    store.close()
    assert not worker.is_alive
    master = Store(is_server=True)
    daemon = master.master
    assert daemon is not None
    assert daemon.is_alive
    master.close()
    assert not daemon.is_alive


@contextmanager
def daemon_and_client() -> Iterator[tuple[MasterDaemon, socket.socket]]:
    """A daemon that has accepted a client, and does not run yet."""
    master = MasterDaemon(listen())
    with socket.create_connection(master.listens_at, 10) as client:
        master._welcome(dict(master._poll.poll()))
        yield master, client


def test_a_daemon_that_is_told_to_end_carries_out_nothing_more() -> None:
    """Frames, edition SEED, `finish`: the daemon reads the control pipe before the connections."""
    with daemon_and_client() as (master, client):
        client.sendall(bytes([Query.SET]) + blob(b"/k") + blob(b"1"))
        assert until(lambda: _unread(master) > 0)
        os.close(master._write_end)
        master._run()
        assert (master.keys, master.thrown) == ({}, None)
        os.close(master._read_end)
        master._close()
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""


def _unread(master: MasterDaemon) -> int:
    """The bytes that the daemon has not read."""
    return sum(
        int.from_bytes(fcntl.ioctl(one, termios.FIONREAD, bytes(4)), sys.byteorder) for one in master._connections
    )


def test_an_unexpected_poll_event_of_the_listener_ends_the_daemon() -> None:
    """4.2.6.1: std::system_error ends the process of torch 1.9, and the connections are not closed in order."""
    with daemon_and_client() as (master, client):
        master.start()
        master._listener.shutdown(socket.SHUT_RDWR)
        assert until(lambda: not master.is_alive)
        assert isinstance(master.thrown, ConnectionAbortedError)
        assert str(master.thrown).startswith("Unexpected poll revent on the master's listening socket: ")
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
        master.stop()


def test_an_unknown_query_closes_its_connection_and_no_other() -> None:
    with MasterProcess() as server, Store(server.port) as other:
        with socket.create_connection(("127.0.0.1", server.port), 10) as client:
            client.sendall(bytes([max(Query) + 1]) + blob(b"/k"))
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""
        assert other.num_keys() == 0


# The requests of torch 1.9.


def test_every_query_of_torch_1_9_is_in_the_table_of_the_page() -> None:
    page = Path(__file__).parents[3] / "docs" / "store-semantics.md"
    if not page.exists():
        pytest.skip("needs a clone: a wheel holds packages only")
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| (\d+|–) \|", page.read_text(encoding="utf-8"), re.M)
    later = {query.name: f"{query:d}" for query in Later}
    assert rows == [(f"{query:d}", query.name, later.get(query.name, "–")) for query in Query]


def test_the_numbers_are_those_of_torch_1_9() -> None:
    """TCPStore.cpp of 1.9, QueryType: SET is the first, and WATCH_KEY is before DELETE_KEY."""
    assert [query.name for query in sorted(Query)] == [
        "SET", "COMPARE_SET", "GET", "ADD", "CHECK", "WAIT", "GETNUMKEYS", "WATCH_KEY", "DELETE_KEY",
    ]  # fmt: skip
    with MasterProcess() as server, Store(server.port) as store:
        store.set("k", b"1")
        assert store.add("k", 2) == 3
        assert store.compare_set("k", b"3", b"x") == b"x"
        assert store.compare_set("k", b"3", b"y") == b"x"
        assert store.get("k") == b"x"
        assert (store.num_keys(), store.check(["k"]), store.check(["k", "none"])) == (1, True, False)
        assert store.delete_key("k")
        assert not store.delete_key("k")

"""The models of the edition SEED and the daemons of torch 1.9 agree, step by step, and each mutant is found out.

The findings that only torch 1.9 has are shown on its daemons; a control violates nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from trystate.model import releases
from trystate.model.checker.walks import Walk
from trystate.model.store.examples import SET, SET_AND_WATCH_KEY
from trystate.model.store.findings import FINDINGS
from trystate.model.store.startup import Seed as SeedStartUp
from trystate.model.store.startup import StartUps
from trystate.model.store.vocabulary import Edition
from trystate.model.store.waits import Seed as SeedWait
from trystate.model.store.waits import Waits
from trystate.model.store.watches import Seed as SeedWatch
from trystate.model.store.watches import Watches
from trystate.property_tests.adapters.our_store.conformance import Case
from trystate.property_tests.adapters.seed_store.conformance import CHECKS, made, subject_of
from trystate.property_tests.adapters.seed_store.daemons import MasterDaemon
from trystate.property_tests.adapters.seed_store.edges import MasterProcess, OverTcp19
from trystate.property_tests.adapters.seed_store.scenarios import CONTROLS, SCENARIOS, until
from trystate.property_tests.adapters.seed_store.store import Store
from trystate.property_tests.adapters.seed_store.wire import Query
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.support.marks import by_verify
from trystate.property_tests.support.mutants import planted, rewritten
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.runs import replay

SEED = Edition.SEED


@by_verify
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_daemons_do_what_the_edition_says(check: Any) -> None:
    outcome = check.run(lambda _: None, sample=not NIGHTLY)
    assert not outcome.disagreements
    assert outcome.compared >= 200


# ---- mutants of the model


class CountsTogether(SeedWait):
    """A key that is deleted again does not count."""

    counts_together = True


class AnswersMissing(SeedWait):
    """A GET of a missing key is answered."""

    refuses_missing = False


class ForgetsWatchers(SeedWatch):
    """A connection that ends leaves the table of watchers."""

    def unlists(self, s: Any, client: Any) -> None:
        super(SeedWatch, self).unlists(s, client)


class ErasesFirst(SeedWatch):
    """A delete whose announcement fails has deleted the key."""

    def left_of(self, s: Any, client: Any, key: Any) -> Any:
        return 0


class CountsNobody(SeedStartUp):
    """A client that connects does not count."""

    def plus_one(self, number: Any) -> Any:
        return number


MODEL_MUTANTS = (
    (CountsTogether, Case(Waits, SEED, {"client": 1, "compares": 0})),
    (AnswersMissing, Case(Waits, SEED, {"client": 1, "key": 1})),
    (ForgetsWatchers, Case(Watches, SEED, {"client": 1, "key": 1}, ("drop",))),
    (ErasesFirst, Case(Watches, SEED, {"client": 1, "key": 1, "writes": 2}, ("drop",))),
    (CountsNobody, Case(StartUps, SEED, {"client": 2})),
)


@pytest.mark.parametrize(("cls", "case"), MODEL_MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_mutant_of_the_model_is_found_out(cls: Any, case: Case) -> None:
    assert disagree(case, lambda: cls(edition=SEED, faults=case.faults, **case.sizes))


def disagree(case: Case, build: Callable[[], Any] | None = None) -> bool:
    with ExitStack() as stack:
        system, subject = made(case, stack)
        return bool(replay_every_edge(system if build is None else build(), subject, stop_after=1).disagreements)


# ---- mutants of the program

SMALL = Case(Watches, SEED, {"client": 1, "key": 1, "writes": 2})
PROGRAM_MUTANTS: dict[str, tuple[Any, str, str, Case]] = {
    "the master waits for one less": (Store._count_in, "counted_in >= world", "counted_in >= world - 1",
        Case(StartUps, SEED, {"client": 2})),
    "the master waits without end": (Store._count_in, " or self._clock.now() - began > self._timeout_s", "",
        Case(StartUps, SEED, {"client": 2})),
    "a start counts twice": (Store._count_in, "self._add(COUNTER_KEY, 1)", "self._add(COUNTER_KEY, 2)",
        Case(StartUps, SEED, {"client": 3})),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAM_MUTANTS)
def test_a_mutant_of_a_constructor_is_found_out(name: str) -> None:
    function, right, wrong, case = PROGRAM_MUTANTS[name]
    with planted(rewritten(function, right, wrong)):
        assert disagree(case)


DAEMON_MUTANTS: dict[str, tuple[Any, str, str, Case]] = {
    "a set wakes nobody": (MasterDaemon._set, "self._wake(key)", "pass", Case(Waits, SEED, {"client": 1, "key": 1})),
    "a compare_set wakes": (MasterDaemon._compare_set, "self._announce(key, Change.CREATED", 
        "self._wake(key); self._announce(key, Change.CREATED", Case(Waits, SEED, {"client": 1, "key": 1})),
    "a delete says nothing": (MasterDaemon._delete, "self._announce(key, Change.DELETED, old, None)", "pass", SMALL),
    "a watch is entered once": (MasterDaemon._watch, ".append(connection.fileno())", "[:] = [connection.fileno()]",
        Case(Watches, SEED, {"client": 1, "key": 1, "writes": 1}, ("again",))),
    "every change creates": (MasterDaemon._set, "Change.UPDATED", "Change.CREATED", SMALL),
}  # fmt: skip


@pytest.mark.parametrize("name", DAEMON_MUTANTS)
def test_a_mutant_of_the_daemon_is_found_out(name: str) -> None:
    function, right, wrong, case = DAEMON_MUTANTS[name]
    system = case.build()
    with planted(rewritten(function, right, wrong)), Store(is_server=True) as store, OverTcp19(store.port) as server:
        seen = replay_every_edge(system, subject_of(system, server), stop_after=1)
    assert seen.disagreements


# ---- the findings


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_finding_of_torch_1_is_shown_on_its_program(name: str) -> None:
    found = SCENARIOS[name].run(print)
    assert found.reproduced, found
    assert FINDINGS[name].number == SCENARIOS[name].finding


@pytest.mark.parametrize("name", CONTROLS)
def test_a_benign_schedule_violates_nothing(name: str) -> None:
    before = set(threading.enumerate())
    assert not CONTROLS[name](print).reproduced
    assert set(threading.enumerate()) == before


def test_the_findings_that_torch_has_no_more_are_those_shown() -> None:
    assert {*SCENARIOS} == {name for name, finding in FINDINGS.items() if releases.is_over("2.6.0", finding)}


def test_a_delete_that_cannot_be_announced_tells_some_and_leaves_the_key() -> None:
    """A has watched before B, who is gone: A hears of a deletion that does not happen."""
    told: list[bytes | None] = []
    with MasterProcess() as server, Store(server.port) as a, Store(server.port) as author:
        author.set("k", b"1")
        assert author.check(["k"])
        a.watch_key("k", lambda old, new: told.append(new))
        with Store(server.port) as b:
            b.watch_key("k", lambda old, new: None)
        assert author.num_keys() == author.num_keys() == 1  # the daemon has seen the end of B
        with pytest.raises(OSError):
            author.delete_key("k")
        assert a.check(["k"])
        assert until(lambda: told)
    assert told == [None]


@pytest.mark.parametrize("walk", (SET, SET_AND_WATCH_KEY), ids=lambda walk: walk.name)
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


def test_the_numbers_are_those_of_torch_1_9() -> None:
    """TCPStore.cpp of 1.9, QueryType: WATCH_KEY comes before DELETE_KEY, and SET is the first."""
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

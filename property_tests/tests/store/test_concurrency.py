"""Stores under many clients at once: recorded histories are linearizable, nobody sleeps through what he waits for.

Longer under HYPOTHESIS_PROFILE=nightly. A failure prints the seed of the plans and draws the history; threads are not
replayed exactly, so run the test again if a seed does not fail at once.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest
from torch._C._distributed_c10d import Store
from torch._C._distributed_c10d import TCPStore as TorchTCPStore

from trystate.diagrams import history_dot, history_text, render
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.model.checker.linearizability import Broken, Call, judge
from trystate.model.store import reference as ref
from trystate.model.store.reference import Operation, Result
from trystate.model.store.sequential import specification
from trystate.property_tests.adapters.torch_release import require
from trystate.property_tests.harness.stores.deviations import Deviation
from trystate.property_tests.harness.stores.handles import AMPLE
from trystate.property_tests.harness.stores.suite import all_at_once
from trystate.property_tests.support.nightly import by_night
from trystate.property_tests.support.stores.recording import (
    PATIENCE,
    Kinds,
    Recorded,
    a,
    plans,
    record,
    with_a_last_one_that_goes_on,
)
from trystate.store import TCPStore

SEEDS = range(by_night("histories", 3))
TRIES = range(by_night("histories until one is broken", 40))  # to see what is a matter of chance
CLIENTS, CALLS = 6, 40
MAKING = (ref.Set, ref.Append, ref.AddTo, ref.CompareAndSet, ref.QueuePush, ref.MultiSet)
SETTLES = frozenset({Deviation.WRITES_ARE_NOT_ACKNOWLEDGED})
# torch's client gives up by its own clock, also on an answer that a busy machine delays: it tells nothing of the key.
TORCHS_PATIENCE = timedelta(seconds=20)

Mix = Callable[[str], Kinds]  # of keys that begin with a name of their own

# Mixes that torch's own store gets right; compare_set is given a key that is there, deletes are left out (see below).
MIXES: Mapping[str, Mix] = {
    "values": lambda k: {a("set", k): 3, a("get", k): 4, a("check", k): 1, a("wait", k): 1},
    "counters": lambda k: {a("add", k, numbers=(1, 2, -1)): 3, a("get", k): 2},
    "elections": lambda k: {a("compare_set", k): 3, a("get", k): 1, a("check", k): 1},
    "texts": lambda k: {a("append", k): 1, a("get", k): 3},
    "several": lambda k: {
        a("multi_set", k + "1", k + "2"): 2, a("multi_get", k + "1", k + "2"): 4, a("set", k + "1"): 1,
        a("check", k + "1", k + "2"): 1,
    },
}  # fmt: skip
# Mixes that only ours gets right.
HARD: Mapping[str, Mix] = {
    "deletes": lambda k: {a("set", k): 3, a("get", k): 4, a("delete_key", k): 3, a("wait", k): 2, a("check", k): 1},
    "elections of nobody": lambda k: {a("compare_set", k): 4, a("get", k): 4, a("delete_key", k): 2},
    "queues": lambda k: {a("queue_push", k): 2, a("queue_pop", k): 5, a("queue_len", k): 1},
    "several deleted": lambda k: {
        a("multi_set", k + "1", k + "2"): 3, a("multi_get", k + "1", k + "2"): 4, a("delete_key", k + "1", k + "2"): 2,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Side:
    """Clients of one make, connected to a server."""

    name: str
    clients: Sequence[Store]
    deviations: frozenset[Deviation]
    patience: timedelta = PATIENCE


def open_client(make: type[Store], port: int) -> Store:
    client: Store = cast(Any, make)("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=AMPLE)
    return client


@pytest.fixture(scope="module")
def our_port() -> Iterator[int]:
    with TCPStoreServer() as server:
        yield server.port


@pytest.fixture(scope="module")
def ours(our_port: int) -> Iterator[Side]:
    clients = [open_client(TCPStore, our_port) for _ in range(CLIENTS)]
    yield Side("our client, our server", clients, frozenset())
    for client in clients:
        cast(TCPStore, client).close()


@pytest.fixture(scope="module")
def torch_on_ours(our_port: int) -> Side:
    clients = [open_client(TorchTCPStore, our_port) for _ in range(CLIENTS)]
    return Side("torch's client, our server", clients, SETTLES, TORCHS_PATIENCE)


@pytest.fixture(scope="module")
def torch_port() -> Iterator[int]:
    master = TorchTCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield master.port
    del master


@pytest.fixture(scope="module")
def torch_(torch_port: int) -> Side:
    return Side("torch's", [open_client(TorchTCPStore, torch_port) for _ in range(CLIENTS)], SETTLES, TORCHS_PATIENCE)


def recorded(side: Side, mix: Mix, seed: int, name: str, calls: int = CALLS) -> list[Recorded]:
    """A history on keys of its own; where an election of somebody is held, the key has a value before."""
    key = f"{name} {seed}"
    before: list[Recorded] = []
    if name.endswith("elections"):
        began = time.monotonic_ns()
        side.clients[0].set(key, "0")
        side.clients[0].num_keys()
        before.append(Call("before", ref.Set(key, b"0"), began, time.monotonic_ns()))
    if name.endswith("queues"):  # the order of what is still in one is open, so that long ones take long to judge
        calls //= 2
    work = plans(seed, mix(key), len(side.clients) - 1, calls)
    work = with_a_last_one_that_goes_on(work, writes(mix(key), key))
    return before + record(side.clients, work, side.deviations, side.patience)


def writes(kinds: Kinds, key: str) -> Iterator[Operation]:
    """Writes that make every operation of these kinds go on."""
    numbers = itertools.count(1_000_000)
    chance = random.Random(key)
    making = [kind for kind in kinds if isinstance(kind(chance, 0), MAKING)]
    while True:
        yield making[0](chance, next(numbers))


def check(history: Sequence[Recorded], told: str) -> None:
    verdict = judge(history, specification())
    if isinstance(verdict, Broken):
        pytest.fail(f"{told} is not linearizable\n{history_text(verdict)}")


def first_broken(histories: Iterator[list[Recorded]]) -> Broken[Operation, Result]:
    for history in histories:
        verdict = judge(history, specification())
        if isinstance(verdict, Broken):
            return verdict
    pytest.fail(f"{len(TRIES)} histories are all linearizable")


@pytest.mark.parametrize("name", [*MIXES, *HARD])
def test_our_client_on_our_server_is_linearizable(ours: Side, name: str) -> None:
    for seed in SEEDS:
        check(recorded(ours, {**MIXES, **HARD}[name], seed, f"ours {name}"), f"{name}, seed {seed}")


@pytest.mark.parametrize("name", [*MIXES, *HARD])
def test_torchs_client_on_our_server_is_linearizable_once_its_writes_are_acknowledged(
    torch_on_ours: Side, name: str
) -> None:
    if name == "queues":
        require("queue_push")
    for seed in SEEDS:
        check(recorded(torch_on_ours, {**MIXES, **HARD}[name], seed, f"mixed {name}"), f"{name}, seed {seed}")


@pytest.mark.parametrize("name", MIXES)
def test_torchs_store_is_linearizable_without_deletes_once_its_writes_are_acknowledged(torch_: Side, name: str) -> None:
    for seed in SEEDS:
        check(recorded(torch_, MIXES[name], seed, name), f"{name}, seed {seed}")


def test_torchs_get_that_races_a_delete_returns_what_nobody_set(torch_: Side) -> None:
    """Its get is two requests, WAIT and GET: a delete between them makes the second one answer b''."""
    found = first_broken(recorded(torch_, HARD["deletes"], seed, "race", 150) for seed in TRIES)
    assert isinstance(found.culprit.operation, ref.Get)
    assert found.culprit.outcome == b""
    assert b"" not in found.possible


def test_torchs_failing_compare_set_wakes_a_get_of_a_key_that_is_not_there(torch_: Side) -> None:
    def race(seed: int) -> list[Recorded]:
        key = f"nobody {seed}"
        swap = ref.CompareAndSet(key, b"x", b"y")
        work: list[list[Operation]] = [[ref.Get(key)] * 4, [swap] * 4, [swap] * 4]
        return record(torch_.clients, work, SETTLES)

    found = first_broken(race(seed) for seed in TRIES)
    assert (found.culprit.operation.__class__, found.culprit.outcome) == (ref.Get, b"")


def test_torchs_set_returns_before_others_can_see_it(torch_: Side) -> None:
    """It waits for no answer, and the server may read another connection first."""
    hasty = Side(torch_.name, torch_.clients, frozenset(), TORCHS_PATIENCE)
    found = first_broken(recorded(hasty, MIXES["values"], seed, "hasty", 150) for seed in TRIES)
    assert isinstance(found.culprit.operation, ref.Get | ref.Check | ref.Wait)


class Wrapped:
    """A client with one method replaced."""

    def __init__(self, client: Store) -> None:
        self.client: Any = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)


class Caching(Wrapped):
    """Remembers what it got once: right for a key that never changes."""

    def __init__(self, client: Store) -> None:
        super().__init__(client)
        self.cache: dict[str, bytes] = {}

    def get(self, key: str) -> bytes:
        if key not in self.cache:
            self.cache[key] = self.client.get(key)
        return self.cache[key]


class GetAndSet(Wrapped):
    """compare_set in two steps."""

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        now: bytes = self.client.get(key) if self.client.check([key]) else b""
        if now != expected:
            return now
        self.client.set(key, desired)
        return desired


@pytest.mark.parametrize(("bug", "operation"), [(Caching, ref.Get), (GetAndSet, ref.CompareAndSet)])
def test_a_store_that_is_not_linearizable_is_caught_and_its_history_drawn(
    ours: Side, bug: type[Wrapped], operation: type[Operation], tmp_path: Any
) -> None:
    wrong = Side(bug.__name__, [cast(Store, bug(c)) for c in ours.clients], frozenset())

    def race(seed: int) -> list[Recorded]:
        key = f"{bug.__name__} {seed}"
        if bug is Caching:
            return recorded(wrong, MIXES["values"], seed, key)
        return record(wrong.clients, [[ref.CompareAndSet(key, b"", b"%d" % k)] for k in range(CLIENTS)])

    found = first_broken(race(seed) for seed in TRIES)
    assert isinstance(found.culprit.operation, operation)
    assert found.culprit.outcome not in found.possible
    assert "cannot be placed" in history_text(found)
    render(history_dot(found), tmp_path / "history.svg")


# Under load: wake-ups, watches, barriers.
def together(*functions: Callable[[], None]) -> None:
    """Run all of them at once; raise the first error."""
    all_at_once(functions, AMPLE.total_seconds() + 10)


def test_nobody_sleeps_through_the_key_he_waits_for(ours: Side) -> None:
    """A relay: each waits for the key that the one before sets, while others write, delete and wait beside it."""
    rounds, over = by_night("turns of a race", 60), threading.Event()

    def noise(client: Store) -> None:
        while not over.is_set():
            client.set("relay noise", "x")
            client.delete_key("relay noise")
            client.check(["relay noise", "relay 0 0"])

    runners = ours.clients[:4]

    def run(k: int) -> None:
        client = runners[k]
        client.set_timeout(AMPLE)
        for turn in range(rounds):
            if (turn, k) != (0, 0):
                before = (turn, k - 1) if k else (turn - 1, len(runners) - 1)
                client.wait([f"relay {before[0]} {before[1]}"])
            client.set(f"relay {turn} {k}", "")
        if k == len(runners) - 1:
            over.set()

    began = time.monotonic()
    together(*[lambda k=k: run(k) for k in range(4)], lambda: noise(ours.clients[4]), lambda: noise(ours.clients[5]))
    assert time.monotonic() - began < AMPLE.total_seconds(), "a wait that slept until its timeout and then looked"


def test_all_who_wait_for_several_keys_are_woken_by_the_last_of_them(ours: Side) -> None:
    keys = [f"all {k}" for k in range(20)]
    for client in ours.clients:
        client.set_timeout(AMPLE)
    got: list[list[bytes]] = []
    waiters = [lambda c=c: got.append(c.multi_get(keys)) for c in ours.clients[:4]]

    def set_all(client: Store, own: Sequence[str]) -> None:
        for key in own:
            client.set(key, key)

    together(*waiters, lambda: set_all(ours.clients[4], keys[::2]), lambda: set_all(ours.clients[5], keys[1::2]))
    assert got == [[key.encode() for key in keys]] * 4


def test_a_barrier_lets_nobody_go_before_all_have_come_however_often_it_is_used(ours: Side) -> None:
    rounds, size = by_night("turns of a race", 40), len(ours.clients)
    came = [0] * size
    early: list[str] = []

    def run(k: int) -> None:
        for turn in range(rounds):
            came[k] += 1
            cast(TCPStore, ours.clients[k]).barrier("meeting", size, AMPLE)
            early.extend(f"round {turn}: {k} before {j}" for j in range(size) if came[j] <= turn)

    together(*[lambda k=k: run(k) for k in range(size)])
    assert early == []
    assert came == [rounds] * size

"""The driver of an engine: the pauses of an engine, the holder of the state, and the thread of the heartbeats."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from trystate.impl.rendezvous import driver
from trystate.impl.rendezvous.driver import KeepAlive, run
from trystate.impl.rendezvous.engine import (
    BACKOFF_ATTEMPTS,
    BACKOFF_SECONDS_MAX,
    BACKOFF_SECONDS_MIN,
    Engine,
    Joined,
    Seen,
    Standing,
    Sync,
    Write,
)
from trystate.impl.rendezvous.errors import (
    RendezvousConnectionError,
    RendezvousStateError,
)
from trystate.impl.rendezvous.notifier import WAIT_SECONDS
from trystate.impl.rendezvous.state import State
from trystate.impl.rendezvous.state_holder import StateHolder
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.model.rendezvous.vocabulary import Action
from trystate.property_tests.adapters.our_rendezvous.parts import participant, settings
from trystate.property_tests.support.rendezvous.nodes import until
from trystate.store import HashStore

SETTINGS = settings(1, 2, last_call_timeout=0.1, keep_alive_interval=0.1)


@pytest.fixture
def store() -> Iterator[HashStore]:
    with HashStore() as made:
        yield made


@pytest.fixture
def holder(store: HashStore) -> Iterator[StateHolder]:
    made = StateHolder(StoreBackend(store, "job"))
    yield made
    made.close()


def state(**more: Any) -> State:
    return State("a life", SETTINGS, **more)


# ---- the engine


@pytest.mark.parametrize("draw", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("seats", [9, 5000])
def test_a_lost_write_is_repeated_after_a_growing_bounded_pause(draw: float, seats: int) -> None:
    """The bounds are a time, and the number of free seats: the node assumes no more rivals."""
    agreed = replace(SETTINGS, max_nodes=seats)
    joining = Engine(participant(0), agreed, draw=lambda: draw, life="life").join(600.0)
    next(joining)
    for lost in range(14):
        assert isinstance(joining.send(Seen(None, 0.0)), Write)
        attempts = min(BACKOFF_ATTEMPTS * 2**lost, seats)
        pause = draw * min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * attempts)
        assert joining.send(Seen(None, 0.0)) == Sync(pause)


def test_a_newcomer_waits_for_the_scale_up_interval_and_does_not_spin() -> None:
    agreed = replace(SETTINGS, max_nodes=3, keep_alive_interval=5.0, scale_up_interval=100.0)
    there = replace(state(complete=True, participants=(participant(0),), waiting=(participant(2),)), settings=agreed)
    engine = Engine(participant(2), agreed, draw=float, life="life")
    full = replace(there, settings=replace(agreed, max_nodes=1))
    assert (engine._has_room(there), engine._has_room(full)) == (True, False)
    joining = engine.join(30.0)
    next(joining)
    for now in (0.0, 131.0):
        beat = joining.send(Seen(there, now))
        assert isinstance(beat, Write) and beat.action is Action.KEEP_ALIVE
        waits = joining.send(Seen(there, now, won=True))
        assert isinstance(waits, Sync) and waits.revision == there.revision and waits.seconds > 0.5
    over = joining.send(Seen(there, 133.0))
    assert isinstance(over, Write) and over.action is Action.WITHDRAW


# ---- the holder


def test_the_clock_of_a_lease_continues_while_the_machine_is_suspended(
    store: HashStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = StateHolder(StoreBackend(store, "job"))
    monkeypatch.setattr(time, "clock_gettime", lambda clock: {time.CLOCK_BOOTTIME: 7200.0}.get(clock, 3600.0))
    assert made.clock() == 7200.0
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    assert abs(made.clock() - time.monotonic()) < 60
    made.close()


def test_only_a_won_write_that_has_news_tells(store: HashStore, holder: StateHolder) -> None:
    def told() -> list[bool]:
        return [store.check([f"trystate/job/news/{number}"]) for number in range(3)]

    holder.perform(Sync())
    holder.perform(Write(state()))
    assert told() == [False, False, False]
    holder.perform(Write(state(version=1, revision=1)))
    assert told() == [False, True, False]
    other = StateHolder(StoreBackend(store, "job"))
    assert not other.perform(Write(state(revision=2))).won
    assert told() == [False, True, False]
    other.close()


# ---- the thread that beats


class Member:
    """A node that is the only member of a round and sends its heartbeats."""

    def __init__(self, store: Any, **settings: Any) -> None:
        agreed = replace(SETTINGS, max_nodes=1, **settings)
        self.engine = Engine(participant(0), agreed, draw=lambda: 0.5, life="a life")
        self.holder = StateHolder(StoreBackend(store, "job"))
        self.joined: Joined = run(self.engine.join(10.0), self.holder, outage_seconds_max=10.0)
        self.beating = KeepAlive(self.engine, self.joined, self.holder.clone())

    def beats(self) -> int:
        return int(self.holder.backend.counters([self.engine.token])[self.engine.token] or 0)

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *exception: object) -> None:
        self.beating.stop()
        self.holder.close()


@pytest.mark.parametrize("kind", [RendezvousConnectionError, RendezvousStateError, KeyError, MemoryError, ImportError])
def test_no_exception_ends_the_beating(store: HashStore, kind: type[Exception], caplog: Any) -> None:
    """torch's thread ends silently at the first exception that is not a RendezvousError."""
    with Member(store, keep_alive_max_attempt=30) as member:
        fails = mock.Mock(side_effect=kind("as planned"))
        with mock.patch.multiple(StoreBackend, read=fails, write=fails, beat=fails):
            until(lambda: fails.call_count > 1)
        beats = member.beats()
        until(lambda: member.beats() > beats + 1)
        assert member.beating.standing() is Standing.CURRENT
    assert sum("as planned" in record.getMessage() for record in caplog.records) in (1, 2)  # once per kind


def test_a_thread_that_waits_stops_at_once(store: HashStore) -> None:
    with Member(store, keep_alive_interval=60.0) as member, mock.patch.object(driver, "STOP_SECONDS", WAIT_SECONDS - 1):
        time.sleep(0.1)
        assert member.beating.stop()  # without waiting for the end of the interval

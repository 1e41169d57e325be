"""Each node needs only its own clock, which begins anywhere and runs up to 1 % too fast or too slow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trystate.impl.rendezvous.observer import Beaten, Lease, Observer
from trystate.impl.rendezvous.state import Settings, State
from trystate.property_tests.adapters.our_rendezvous.parts import participant

SLOW, FAST = 0.99, 1.01
AGREED = Settings(1, 3, keep_alive_interval=1.0, keep_alive_max_attempt=3)


def test_another_life_and_a_pause_of_watching_begin_a_new_window() -> None:
    """Another life of the state, and a node that was not watched for a while, begin a new window."""
    here, both = State("life", AGREED, complete=True, participants=(participant(1), participant(2))), {"token-1": b"7"}
    for between in (replace(here, life="another"), None):
        observer = Observer("token-2")
        for now in (0.0, 1.0, 2.0):
            observer.look(here, now, Beaten(now, both))
        observer.look(between, 3.0, Beaten(3.0, both))
        assert observer.silent(AGREED) == frozenset()
    observer = Observer("token-2")
    for now in (0.0, 1.0, 2.0, 3.0):
        observer.look(here, now, Beaten(now, both if now != 2.0 else {}))
        assert observer.silent(AGREED) == frozenset()


def test_a_node_watches_the_next_three_and_more_if_they_are_silent() -> None:
    """A node watches the next three that are not done. Silent ones double the number, and a living one resets it."""
    state = State("life", replace(AGREED, max_nodes=99), participants=tuple(participant(k) for k in (7, 3, 5)),
                  expected=(participant(1),), waiting=(participant(9),), spares=(participant(4),))  # fmt: skip
    observer = Observer("token-5")
    assert observer.watched(state) == ("token-7", "token-9", "token-1")
    assert observer.watched(replace(state, done=("token-9",))) == ("token-7", "token-1", "token-3")
    for now in range(4):
        observer.look(state, now, Beaten(now, dict.fromkeys(observer.watched(state))))
    assert observer.silent(AGREED) == {"token-7", "token-9", "token-1"}
    assert observer.watched(state) == ("token-7", "token-9", "token-1", "token-3", "token-4")
    observer.look(state, 4.0, Beaten(4.0, dict.fromkeys(observer.watched(state))))
    observer.look(state, 5.0, Beaten(5.0, dict.fromkeys(observer.watched(state)) | {"token-9": b"1"}))
    assert len(observer.watched(state)) == 3


# ---- the edges


@pytest.mark.parametrize("attempts", [2, 3, 12, 13, 25, 26, 100, 10_000])
def test_the_lease_ends_before_the_window_of_the_fastest_observer(attempts: int) -> None:
    agreed = Settings(1, 2, keep_alive_interval=5.0, keep_alive_max_attempt=attempts)
    assert agreed.lease_seconds / SLOW < agreed.expiry_seconds / FAST
    assert agreed.lease_seconds > agreed.keep_alive_interval  # otherwise there would be no time for a heartbeat


def short_outage(attempts: int, outage: float, back: float) -> set[str]:
    """The nodes silent to an observer after an outage that began just before a heartbeat; times in intervals."""
    agreed = Settings(1, 2, keep_alive_interval=1.0, keep_alive_max_attempt=attempts)
    other, observer = State("life", agreed, participants=(participant(1),)), Observer("me")
    seen: set[str] = set()
    for now in (0.0, 0.999, *(0.999 + outage + k / 10 for k in range(100))):  # the heartbeat is due at 1.0
        observer.look(other, now, Beaten(now, {"token-1": b"2" if now > 0.999 + outage + back else b"1"}))
        seen |= observer.silent(agreed)
        if now > 0.999 + outage + back:
            break
    return seen


@pytest.mark.parametrize("attempts", [3, 4, 5, 10])
@pytest.mark.parametrize("outage", [0.5, 1.0, 1.4, 1.5, 1.6, 2.0, 50.0])
def test_nobody_is_silent_who_beats_within_an_interval_after_an_outage(attempts: int, outage: float) -> None:
    assert short_outage(attempts, outage, 0.95) == set()


def test_a_last_call_ends_by_the_clock_of_who_sees_it_begin() -> None:
    agreed = Settings(1, 3, last_call_timeout=30.0, rescale_timeout=2.0)
    calling = State("life", agreed, call=1, participants=(participant(1),))
    observer = Observer("me")
    observer.look(calling, 100.0)
    observer.look(replace(calling, version=9, participants=(participant(1, 9),)), 110.0)
    assert observer.call_ends(calling) == 130.0
    for other in (replace(calling, call=2), replace(calling, life="other"), replace(calling, round=1)):
        observer.look(calling, 100.0)
        observer.look(other, 120.0)
        assert observer.call_ends(other) == (122.0 if other.round else 150.0)
    observer.look(replace(calling, participants=()), 140.0)
    observer.look(calling, 141.0)
    assert observer.call_ends(calling) == 171.0


def test_a_lease_begins_with_the_latest_heartbeat_and_not_its_answer() -> None:
    lease, told = Lease(Settings(1, 2, keep_alive_interval=2.0, keep_alive_max_attempt=3)), list[float]()
    lease.renewed = told.append
    assert (lease.next_beat, lease.holds(0.0), lease.beat_due(0.0)) == (0.0, False, True)
    lease.confirm(10.0)
    lease.confirm(9.0)
    assert (lease.next_beat, lease.beat_due(11.9), lease.beat_due(12.0)) == (12.0, False, True)
    assert (lease.holds(14.9), lease.holds(15.0)) == (True, False)
    assert told == [15.0]


@pytest.mark.parametrize(("attempts", "last"), [(1, 12.0), (2, 12.0), (3, 14.0), (100, 201.0)])
def test_a_last_heartbeat_is_due_half_an_interval_before_the_lease_ends(attempts: int, last: float) -> None:
    lease = Lease(Settings(1, 2, keep_alive_interval=2.0, keep_alive_max_attempt=attempts))
    assert lease.last_beat == 0.0
    lease.confirm(10.0)
    assert lease.last_beat == last and (lease.holds(last) or attempts == 1)

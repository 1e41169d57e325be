"""The promises of a store's server to clients that wait for keys, values and elements: all of it, once, and in time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trystate.impl.store.limits import Limits
from trystate.impl.store.wire import blob, blobs, counted
from trystate.model.store.vocabulary import Extension, Query, Status
from trystate.property_tests.support.stores.rooms import (
    CANCEL,
    CANCELED,
    KEY,
    OK,
    OTHER,
    STOP,
    TIMED_OUT,
    Room,
    delete,
    extended,
    get,
    held,
    i64,
    length,
    multi_get,
    multi_set,
    plain,
    pop,
    push,
    set_,
    wait,
    xbarrier,
    xget,
    xpop,
)

# ---- wait


def test_a_multi_set_wakes_for_the_keys_it_creates_alone() -> None:
    room = Room()
    first, second, actor = room.trio()
    first(wait(KEY))
    second(wait(KEY, b"/later"))
    actor(multi_set(OTHER, b"", KEY, b""))
    assert (first(), second()) == (STOP, b"")


def test_a_second_request_while_one_is_blocked_closes_that_connection_only() -> None:
    room = Room()
    waiter, other, _ = room.trio()
    waiter(wait(KEY))
    waiter(get(OTHER))
    assert waiter.closed
    assert "one connection for each thread" in room.log[0]
    assert not other.closed
    assert held(room.service) == {"sessions": 2}


# ---- the pair of requests that torch's get and queue_pop are made of


def test_a_multi_get_is_answered_from_what_was_waited_for() -> None:
    room = Room()
    getter, actor, _ = room.trio()
    getter(wait(KEY, OTHER))
    actor(multi_set(KEY, b"1", OTHER, b"2") + delete(KEY))
    assert getter() == STOP
    assert getter(multi_get(KEY, OTHER)) == blobs([b"1", b"2"])
    assert getter(multi_get(KEY, OTHER)) == blobs([b"", b"2"])


@pytest.mark.parametrize("between", [plain(Query.GETNUMKEYS), set_(OTHER, b"x"), wait(OTHER) + CANCEL])
def test_any_other_request_ends_what_a_wait_promised(between: bytes) -> None:
    room = Room()
    getter, actor, _ = room.trio()
    actor(set_(KEY, b"v"))
    getter(wait(KEY))
    actor(delete(KEY))
    getter(between)
    assert getter(get(KEY)) == blob(b"")


GIVES_BACK = {
    "another request": lambda room, peer: peer(plain(Query.GETNUMKEYS)),
    "another queue": lambda room, peer: peer(pop(OTHER)),
    "a get": lambda room, peer: peer(get(KEY)),
    "a cancel": lambda room, peer: peer(CANCEL),
    "leaving": lambda room, peer: peer.leave(),
    "time": lambda room, peer: room.pass_time(1.0),
    "nonsense": lambda room, peer: peer(b"\xff"),
}


@pytest.mark.parametrize("how", GIVES_BACK)
def test_a_reserved_element_that_is_not_popped_goes_to_the_next_in_line(how: str) -> None:
    room = Room()
    first, second, actor = room.trio()
    actor(push(KEY, b"a"))
    assert first(wait(KEY)) == STOP
    actor(push(KEY, b"b"))
    assert actor(pop(KEY)) == i64(1) + blob(b"b")
    assert second(wait(KEY)) == b""
    GIVES_BACK[how](room, first)
    assert second() + second(pop(KEY)) == STOP + i64(1) + blob(b"a")
    assert room.service.contents.queues == {}
    assert room.service.contents.bytes_held == 0
    assert held(room.service).keys() == {"sessions"}


STEPS = st.one_of(
    st.just("push"), st.just("pop"), st.tuples(st.sampled_from(["wait", "pop", "cancel"]), st.integers(0, 3))
)


@given(st.lists(STEPS, max_size=40))
def test_a_pop_takes_the_earliest_of_the_elements_that_are_there(steps: list[str | tuple[str, int]]) -> None:
    room = Room()
    actor, poppers = room.peer(), [room.peer() for _ in range(4)]
    there: list[int] = []
    reserved: dict[int, int] = {}
    pushed = 0
    for step in steps:
        if step == "push":
            actor(push(KEY, b"%d" % pushed))
            there.append(pushed)
            pushed += 1
            continue
        what, number = ("pop", -1) if isinstance(step, str) else step
        peer = actor if number < 0 else poppers[number]
        mine = reserved.pop(number, None)
        if what == "pop":
            left = len(there) + (mine is not None)
            expected = there.pop(0) if mine is None and there else mine
            assert peer(pop(KEY)) == i64(left) + (blob(b"%d" % expected) if expected is not None else b"")
            continue
        if mine is not None:
            there = sorted([*there, mine])
        if what == "wait" and there:  # a client that would have to stand in line is not part of this
            reserved[number] = there.pop(0)
            assert peer(wait(KEY)) == STOP
        else:
            assert peer(CANCEL) == CANCELED
    for number in sorted(reserved):
        poppers[number].leave()
    there = sorted([*there, *reserved.values()])
    assert [actor(pop(KEY)) for _ in there] == [
        i64(len(there) - k) + blob(b"%d" % element) for k, element in enumerate(there)
    ]
    contents = room.service.contents
    assert (contents.queues, contents.returned, contents.bytes_held, contents.items_held) == ({}, {}, 0, 0)


def test_a_reservation_lasts_its_time() -> None:
    room = Room()
    first, _, actor = room.trio()
    actor(push(KEY, b"a"))
    first(wait(KEY))
    room.pass_time(0.9)
    assert actor(length(KEY)) == i64(0)
    assert first(pop(KEY)) == i64(1) + blob(b"a")
    room.pass_time(0.2)
    assert actor(length(KEY)) == i64(0)
    assert held(room.service) == {"sessions": 3}


# ---- extensions that wait


@pytest.mark.parametrize(
    ("request_", "late"),
    [
        (xget(50, KEY), TIMED_OUT),
        (extended(Extension.WAIT, i64(50), counted([KEY, OTHER])), TIMED_OUT),
        (xpop(50, KEY), TIMED_OUT),
        (xbarrier(50, KEY, 2), TIMED_OUT),
    ],
    ids=["get", "wait", "queue_pop", "barrier"],
)
def test_an_extension_that_waits_is_late_exactly_at_its_deadline(request_: bytes, late: bytes) -> None:
    room = Room()
    waiter, actor, _ = room.trio()
    assert waiter(request_) == b""
    room.pass_time(0.049)
    assert waiter() == b""
    room.pass_time(0.002)
    assert waiter() == late
    assert held(room.service) == {"sessions": 3}
    actor(set_(KEY, b"v") + set_(OTHER, b"v"))
    assert waiter(xget(0, KEY)) == OK + blob(b"v")


def test_a_timeout_of_zero_looks_once() -> None:
    room = Room()
    waiter, actor, _ = room.trio()
    assert waiter(xget(0, KEY)) + waiter(xbarrier(0, KEY, 2)) == TIMED_OUT * 2
    assert waiter(xpop(0, KEY))[0] == Status.EMPTY
    actor(push(KEY, b"e"))
    assert waiter(xpop(0, KEY)) == OK + i64(1) + blob(b"e")
    assert held(room.service) == {"sessions": 3}


def test_an_alarm_goes_to_the_next_deadline_when_one_has_passed() -> None:
    room = Room()
    soon, later, _ = room.trio()
    soon(xget(50, KEY))
    later(xget(90, KEY))
    room.pass_time(0.06)
    assert (soon(), later()) == (TIMED_OUT, b"")
    assert room.service.alarm.at == pytest.approx(1000.09)
    room.pass_time(0.04)
    assert (soon(), later()) == (b"", TIMED_OUT)


@pytest.mark.parametrize("before", [b"", set_(KEY, b"a value of the same name")])
def test_an_element_that_cannot_be_sent_to_who_reads_too_slowly_goes_to_the_next(before: bytes) -> None:
    room = Room(Limits(unsent_bytes=20_000))
    slow, fast, actor = room.trio()
    actor(before)
    slow(xpop(-1, KEY))
    fast(xpop(-1, KEY))
    room.service.unsent(slow.session, 20_001)
    actor(push(KEY, bytes(9_000)))
    assert fast() == OK + i64(1) + blob(bytes(9_000))
    assert (slow.closed, fast.closed) == (True, False)
    assert held(room.service) == {"sessions": 2}


@pytest.mark.parametrize("reserved", [False, True])
def test_an_element_that_torchs_client_reads_too_slowly_stays_in_the_queue(reserved: bool) -> None:
    room = Room(Limits(unsent_bytes=20_000))
    slow, other, _ = room.trio()
    other(push(KEY, bytes(9_000)) + push(KEY, b"next"))
    if reserved:
        slow(wait(KEY))
    room.service.unsent(slow.session, 20_001)
    slow(pop(KEY))
    assert slow.closed
    assert other(pop(KEY)) == i64(2) + blob(bytes(9_000))
    assert held(room.service) == {"sessions": 2}


def test_deadlines_of_waits_that_are_over_do_not_pile_up() -> None:
    room = Room()
    waiter, actor, _ = room.trio()
    for _ in range(1000):
        waiter(xget(300_000, KEY))
        actor(set_(KEY, b"") + delete(KEY))
        assert waiter() == OK + blob(b"")
    assert len(room.service.alarm.deadlines._heap) < 100
    room.pass_time(301.0)
    assert waiter() == b""
    assert room.service.alarm.at is None

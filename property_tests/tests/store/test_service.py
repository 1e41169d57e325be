"""The store's server without sockets: the tests send bytes, receive bytes, and set the time.

A waiting client gets its keys, values and elements once and in time. No table has an entry of a client that has left.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trystate.impl.store.limits import Limits
from trystate.impl.store.server.fast_path import FAST_PATHS, HANDLERS, by_frame
from trystate.impl.store.server.parsing import Frame
from trystate.impl.store.wire import COUNTER_KEY, PROBE_KEY, TOKEN_BYTES, U32, U64, blob, blobs, counted
from trystate.model.store.vocabulary import Extension, Query, Status
from trystate.property_tests.support.mutants import survivors, wrapped
from trystate.property_tests.support.stores.rooms import (
    CANCEL,
    CANCELED,
    KEY,
    OK,
    OTHER,
    STOP,
    TIMED_OUT,
    VALIDATE,
    Room,
    add,
    barrier,
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
    watch,
    xbarrier,
    xget,
    xpop,
)
from trystate.property_tests.support.stores.sieges import requests

# ---- torch's nineteen requests

REPLIES: list[tuple[str, list[bytes], bytes]] = [
    ("set and get", [set_(KEY, b"v"), get(KEY)], blob(b"v")),
    ("get missing", [get(KEY)], blob(b"")),
    ("add", [add(KEY, 5), add(KEY, -7), get(KEY)], i64(5) + i64(-2) + blob(b"-2")),
    ("add to what was set", [set_(KEY, b"12"), add(KEY, 1)], i64(13)),
    ("compare_set missing", [plain(Query.COMPARE_SET, blob(KEY), blob(b""), blob(b"d")), get(KEY)], blob(b"d") * 2),
    ("compare_set missing, else", [plain(Query.COMPARE_SET, blob(KEY), blob(b"e"), blob(b"d")), get(KEY)],
     blob(b"e") + blob(b"")),
    ("compare_set equal", [set_(KEY, b"a"), plain(Query.COMPARE_SET, blob(KEY), blob(b"a"), blob(b"b"))], blob(b"b")),
    ("compare_set differs", [set_(KEY, b"a"), plain(Query.COMPARE_SET, blob(KEY), blob(b"c"), blob(b"b")), get(KEY)],
     blob(b"a") * 2),
    ("compare_set empty value", [set_(KEY, b""), plain(Query.COMPARE_SET, blob(KEY), blob(b""), blob(b"b"))],
     blob(b"b")),
    ("check", [set_(KEY, b""), plain(Query.CHECK, counted([KEY])), plain(Query.CHECK, counted([KEY, OTHER]))],
     b"\x00\x01"),
    ("check and wait of nothing", [plain(Query.CHECK, counted([])), wait()], b"\x00\x00"),
    ("wait for a key twice", [set_(KEY, b""), wait(KEY, KEY)], STOP),
    ("num_keys", [set_(KEY, b""), push(OTHER, b""), plain(Query.GETNUMKEYS)], i64(1)),
    ("delete", [set_(KEY, b""), delete(KEY), delete(KEY)], i64(1) + i64(0)),
    ("append", [plain(Query.APPEND, blob(KEY), blob(b"x")) * 2, get(KEY)], blob(b"xx")),
    ("multi", [plain(Query.MULTI_SET, U64.pack(2), blobs([KEY, b"1", OTHER, b"2"])),
               plain(Query.MULTI_GET, counted([OTHER, KEY, b"/no"]))], blobs([b"2", b"1", b""])),
    ("cancel without a wait", [CANCEL], CANCELED),
    ("ping", [plain(Query.PING, U32.pack(4711))], U32.pack(4711)),
    ("queue", [push(KEY, b"a") + push(KEY, b"b"), pop(KEY), length(KEY), pop(KEY), pop(KEY)],
     i64(2) + blob(b"a") + i64(1) + i64(1) + blob(b"b") + i64(0)),
    ("list_keys", [add(COUNTER_KEY, 1), push(OTHER, b""), plain(Query.LIST_KEYS)],
     i64(1) + i64(1) + blob(COUNTER_KEY)),
    ("barrier of one", [barrier(KEY, 1), barrier(KEY, 1)], STOP * 2),
    ("probe", [plain(Query.CHECK, counted([PROBE_KEY]))], b"\x00"),
]  # fmt: skip


@pytest.mark.parametrize(("requests", "replies"), [row[1:] for row in REPLIES], ids=[row[0] for row in REPLIES])
def test_each_of_torchs_requests_is_answered_as_torch_does(requests: list[bytes], replies: bytes) -> None:
    peer = Room().peer()
    assert b"".join(peer(request) for request in requests) == replies
    assert not peer.closed


def test_every_request_of_torch_has_a_case() -> None:
    seen = {request[0] for _, requests, _ in REPLIES for request in requests} | {Query.VALIDATE}
    assert sorted(Query) == sorted(seen)


def test_a_defect_of_a_handler_closes_one_connection_and_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*of: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setitem(HANDLERS, Query.PING, broken)
    monkeypatch.setitem(FAST_PATHS, Query.PING, by_frame)
    room = Room()
    peer, other = room.peer(), room.peer()
    peer(plain(Query.PING, U32.pack(1)))
    assert (peer.closed, other.closed) == (True, False)
    assert room.log == ["peer0: closed: internal error, please report it: ZeroDivisionError('a defect')"]


# ---- reading


def cut(data: bytes, at: Sequence[int]) -> list[bytes]:
    places = [0, *sorted(at), len(data)]
    return [data[a:b] for a, b in pairwise(places)]


def outcome(pieces: Sequence[bytes | memoryview]) -> tuple[Any, ...]:
    """The observable state of a service that received these pieces."""
    room = Room()
    peer, witness = room.peer(validated=False), room.peer()
    for key in (b"/a", b"/b"):
        witness(extended(Extension.WATCH, blob(key)))
    for piece in pieces:
        room.service.received(peer.session, piece, room.now)
    contents = room.service.contents
    queues = {key: list(queue) for key, queue in contents.queues.items()}
    seen = (peer(), witness(), peer.closed, room.log, contents.values, queues, contents.bytes_held)
    assert not any("internal error" in line for line in room.log), room.log
    assert not witness.closed
    peer.leave()
    witness.leave()
    assert held(room.service) == {}
    return seen


@given(st.lists(requests(), max_size=8), st.data())
def test_however_the_bytes_are_cut_the_replies_are_the_same(sent: list[bytes], data: st.DataObject) -> None:
    stream = VALIDATE + b"".join(sent)
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    once = outcome([stream])
    assert outcome(cut(stream, places)) == once
    assert outcome([stream[n : n + 1] for n in range(len(stream))]) == once
    assert outcome([memoryview(piece) for piece in cut(stream, places)]) == once


def test_a_byte_that_is_read_twice_is_noticed() -> None:
    stream = VALIDATE + set_(KEY, bytes(50)) + get(KEY)

    def claim() -> None:
        assert outcome(cut(stream, [40])) == outcome([stream])

    mutant = wrapped(
        Frame,
        "advance",
        lambda right: lambda self, data, at, end: right(self, data, at, end) - (self.complete and end - at > 40),
    )
    assert survivors({"read twice": mutant}, claim) == []


@given(requests(), st.data())
def test_a_request_that_does_not_arrive_whole_leaves_nothing(request: bytes, data: st.DataObject) -> None:
    room = Room()
    peer, other = room.peer(), room.peer()
    part = request[: data.draw(st.integers(0, len(request) - 1))]
    assert peer(part) == b""
    assert other(plain(Query.GETNUMKEYS)) == i64(0)
    peer.leave()
    other.leave()
    assert (room.service.contents.values, room.service.contents.queues) == ({}, {})
    assert held(room.service) == {}


@pytest.mark.parametrize("piece", [1 << 12, 1 << 16])
def test_a_large_frame_in_pieces_is_read_once(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from trystate.impl.store.server import parsing

    read = []
    plain_read = parsing.Frame._read_items

    def counting(self: Any, items: list[bytes], *rest: Any) -> int:
        before = len(items)
        reached = plain_read(self, items, *rest)
        read.append(len(items) - before)
        return reached

    monkeypatch.setattr(parsing.Frame, "_read_items", counting)
    peer, count = Room().peer(), 4000
    frame = plain(Query.CHECK, counted([b"/%d/" % n + b"k" * 200 for n in range(count)]))
    assert b"".join(peer(frame[n : n + piece]) for n in range(0, len(frame), piece)) == b"\x01"
    assert sum(read) == count
    assert len(read) <= len(frame) // piece + 2


# ---- the pair of requests that torch's get and queue_pop are made of


def test_a_multi_get_is_answered_from_what_was_waited_for() -> None:
    room = Room()
    getter, actor, _ = room.trio()
    getter(wait(KEY, OTHER))
    actor(multi_set(KEY, b"1", OTHER, b"2") + delete(KEY))
    assert getter() == STOP
    assert getter(multi_get(KEY, OTHER)) == blobs([b"1", b"2"])
    assert getter(multi_get(KEY, OTHER)) == blobs([b"", b"2"])


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


# ---- extensions that wait


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
def test_an_element_for_a_slow_reader_is_given_to_the_next(before: bytes) -> None:
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


def test_a_second_request_while_one_is_blocked_closes_that_connection_only() -> None:
    room = Room()
    waiter, other, _ = room.trio()
    waiter(wait(KEY))
    waiter(get(OTHER))
    assert waiter.closed
    assert "one connection for each thread" in room.log[0]
    assert not other.closed
    assert held(room.service) == {"sessions": 2}


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


# ---- barriers


def test_a_barrier_of_another_size_is_refused() -> None:
    room = Room()
    one, ours, torchs = room.trio()
    one(barrier(KEY, 3))
    assert ours(xbarrier(-1, KEY, 2))[0] == Status.WRONG_WORLD
    assert not ours.closed
    torchs(barrier(KEY, 2))
    assert torchs.closed
    assert "world_size" in room.log[0]
    assert ours(xbarrier(-1, OTHER, 0))[0] == Status.WRONG_WORLD
    assert held(room.service) == {"barriers": 1, "sessions": 2}


TOKEN = b"s" * TOKEN_BYTES


def test_a_worker_that_returns_alone_may_give_another_size() -> None:
    room = Room()
    half_open, again, other = room.trio()
    half_open(xbarrier(-1, KEY, 3, TOKEN))
    assert again(xbarrier(-1, KEY, 2, TOKEN)) == b""
    assert other(xbarrier(-1, KEY, 2)) == OK
    assert again() == OK


# ---- leaving

BLOCKING = [wait(KEY, OTHER), xget(500, KEY), xpop(-1, KEY), barrier(KEY, 2), xbarrier(500, KEY, 2)]
REST = [watch(KEY), watch(OTHER), push(KEY, b"e"), wait(KEY), set_(OTHER, b"v")[:-1], b"", extended(Extension.HELLO)]


@given(st.lists(st.sampled_from(REST), max_size=3), st.sampled_from([*BLOCKING, b""]), st.booleans())
def test_nothing_of_a_connection_that_ended_is_in_any_table(before: list[bytes], last: bytes, refused: bool) -> None:
    room = Room()
    peer = room.peer()
    peer(b"".join(before) + last)
    if refused:
        peer(b"\xfe" * 8)
        room.service.close(peer.session, "again")
        assert len(room.log) == 1
    peer.leave()
    peer.leave()
    assert held(room.service) == {}


def test_stopping_closes_everybody_and_leaves_nothing() -> None:
    room = Room()
    peers = room.trio()
    for peer in peers:
        peer(watch(KEY) + wait(OTHER))
    room.service.stop()
    assert all(peer.closed for peer in peers)
    assert held(room.service) == {}


@pytest.mark.parametrize("token", [b"short", bytes(TOKEN_BYTES + 1)])
def test_a_token_of_another_length_is_refused(token: bytes) -> None:
    room = Room()
    peer = room.peer()
    assert peer(xbarrier(-1, KEY, 1, token))[0] == Status.REFUSED
    assert held(room.service) == {"sessions": 1}

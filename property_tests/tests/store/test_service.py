"""The store's server without sockets: every claim is bytes in, bytes out, at a time that the test says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trystate.impl.store.server.fast_path import FAST_PATHS, HANDLERS, by_frame
from trystate.impl.store.wire import COUNTER_KEY, PROBE_KEY, U32, U64, blob, blobs, counted
from trystate.model.store.vocabulary import Extension, Query
from trystate.property_tests.support.stores.rooms import (
    CANCEL,
    CANCELED,
    KEY,
    OK,
    OTHER,
    STOP,
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
    plain,
    pop,
    push,
    set_,
    wait,
    xbarrier,
)
from trystate.property_tests.tests.store.test_fuzz import requests

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
@pytest.mark.parametrize("cut", [0, 1, 3, -1])
def test_each_of_torchs_requests_is_answered_as_torch_does(requests: list[bytes], replies: bytes, cut: int) -> None:
    peer, answers = Room().peer(), b""
    for request in requests:
        step = cut if cut > 0 else max(1, len(request) + cut)
        answers += b"".join(peer(request[n : n + step]) for n in range(0, len(request), step))
    assert answers == replies
    assert not peer.closed


def test_every_request_of_torch_has_a_case() -> None:
    seen = {request[0] for _, requests, _ in REPLIES for request in requests} | {Query.VALIDATE}
    assert sorted(Query) == sorted(seen)


# ---- the extensions that never wait

EXTENDED: list[tuple[str, list[bytes], bytes]] = [
    ("set", [extended(Extension.SET, blob(KEY), blob(b"v")), get(KEY)], OK + blob(b"v")),
    ("get", [set_(KEY, b"v"), extended(Extension.GET, i64(0), counted([KEY])),
             extended(Extension.GET, i64(0), counted([KEY, KEY]))], OK + blob(b"v") + OK + blobs([b"v", b"v"])),
    ("wait", [set_(KEY, b"v"), extended(Extension.WAIT, i64(0), counted([KEY]))], OK),
    ("add", [extended(Extension.ADD, blob(KEY), i64(-4))], OK + i64(-4)),
    ("compare_set", [extended(Extension.COMPARE_SET, blob(KEY), blob(b""), blob(b"d"))], OK + blob(b"d")),
    ("append", [extended(Extension.APPEND, blob(KEY), blob(b"x")) * 2, get(KEY)], OK * 2 + blob(b"xx")),
    ("multi_set", [extended(Extension.MULTI_SET, U64.pack(1), blobs([KEY, b"1"])),
                   extended(Extension.MULTI_SET, U64.pack(0)), get(KEY)], OK * 2 + blob(b"1")),
    ("delete", [set_(KEY, b""), extended(Extension.DELETE, blob(KEY)) * 2], OK + b"\x01" + OK + b"\x00"),
    ("take", [set_(KEY, b"v"), extended(Extension.TAKE, blob(KEY)) * 2],
     OK + b"\x01" + blob(b"v") + OK + b"\x00" + blob(b"")),
    ("check", [push(KEY, b""), extended(Extension.CHECK, counted([KEY])), extended(Extension.CHECK, counted([OTHER]))],
     OK + b"\x01" + OK + b"\x00"),
    ("num_keys", [extended(Extension.NUM_KEYS)], OK + i64(0)),
    ("list_keys", [set_(KEY, b"") + set_(OTHER, b""), extended(Extension.LIST_KEYS, blob(b"/o"))],
     OK + i64(1) + blob(OTHER)),
    ("queue", [extended(Extension.QUEUE_PUSH, blob(KEY), blob(b"a")) * 2, extended(Extension.QUEUE_LEN, blob(KEY)),
               extended(Extension.QUEUE_POP, i64(-1), blob(KEY))],
     OK + i64(1) + OK + i64(2) + OK + i64(2) + OK + i64(2) + blob(b"a")),
    ("barrier", [xbarrier(0, KEY, 1)], OK),
    ("watch and unwatch", [extended(Extension.WATCH, blob(KEY)), extended(Extension.UNWATCH, blob(KEY)) * 2], OK * 3),
]  # fmt: skip


@pytest.mark.parametrize(("requests", "replies"), [row[1:] for row in EXTENDED], ids=[row[0] for row in EXTENDED])
@pytest.mark.parametrize("cut", [0, 1, 3, -1])
def test_each_extension_is_answered_by_its_status_and_its_result(
    requests: list[bytes], replies: bytes, cut: int
) -> None:
    test_each_of_torchs_requests_is_answered_as_torch_does(requests, replies, cut)


def test_a_defect_of_a_handler_closes_one_connection_and_asks_to_be_reported(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """All that can be seen of a service that got these pieces."""
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


def test_the_first_request_must_be_validate() -> None:
    for first in (set_(KEY, b"v"), b"GET / HTTP/1.1\r\n", plain(Query.PING, U32.pack(1)), b"\x00\x01\x02\x03\x04"):
        room = Room()
        peer = room.peer(validated=False)
        assert peer(first + VALIDATE + set_(KEY, b"v")) == b""
        assert peer.closed
        assert peer(VALIDATE + set_(KEY, b"v")) == b""
        assert room.service.contents.values == {}
        assert len(room.log) == 1

"""The store's server without sockets: the tests send bytes, receive bytes, and set the time.

A waiting client gets its keys, values and elements once and in time. No table has an entry of a client that has left.
Any bytes from several strangers, cut anywhere: the service remains right, bounded and in step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trystate.impl.store.contents import contents
from trystate.impl.store.contents.waiting import Waiting
from trystate.impl.store.limits import Limits
from trystate.impl.store.server.fast_path import FAST_PATHS, HANDLERS, by_frame
from trystate.impl.store.server.half_sent import HalfSent
from trystate.impl.store.wire import TOKEN_BYTES, U32, blob, counted
from trystate.model.store.vocabulary import Extension, Query, Status
from trystate.property_tests.support.mutants import Mutant, replaced, rewritten, survives
from trystate.property_tests.support.stores.besieged import QUICK, Step, besiege, encode, requests, sieges
from trystate.property_tests.support.stores.rooms import *

# ---- torch's nineteen requests


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


def test_a_pop_from_another_queue_gives_back_the_reserved_element() -> None:
    reserving, actor, _ = Room().trio()
    actor(push(KEY, b"first"))
    assert reserving(wait(KEY) + pop(OTHER)) == STOP + i64(0)
    assert actor(pop(KEY)) == i64(1) + blob(b"first")


def test_reserved_elements_count_for_the_limit_of_bytes() -> None:
    room = Room(Limits(value_bytes=20_000, bytes_total=60_000, kept_bytes_total=60_000, frame_bytes=60_000))
    actor, *reserving = room.trio()
    for peer in reserving:
        actor(push(KEY, bytes(18_000)))
        assert peer(wait(KEY)) == STOP
    actor(push(KEY, bytes(18_000)))
    assert room.service.contents.bytes_held == 54_000 + 3 * len(KEY)
    actor(push(KEY, bytes(18_000)))
    assert actor.closed
    for peer in reserving:
        assert peer(pop(KEY)) == i64(2) + blob(bytes(18_000))
    assert room.service.contents.bytes_held == 18_000 + len(KEY)


# ---- extensions that wait


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
    assert len(room.service.blocking.deadlines._heap) < 100
    room.pass_time(301.0)
    assert waiter() == b""
    assert room.service.alarm.at is None


# ---- leaving


@pytest.mark.parametrize("token", [b"short", bytes(TOKEN_BYTES + 1)])
def test_a_token_of_another_length_is_refused(token: bytes) -> None:
    room = Room()
    peer = room.peer()
    assert peer(extended(Extension.BARRIER, i64(-1), blob(KEY), i64(1), blob(token)))[0] == Status.REFUSED
    assert held(room.service) == {"sessions": 1}


@given(st.binary(max_size=600))
def test_no_bytes_at_all_bring_it_down_or_out_of_step(siege: bytes) -> None:
    besiege(siege)


def _besiege(siege: list[Step]) -> None:
    besiege(encode(siege))


@given(sieges)
def test_requests_whole_wrong_and_cut_off_bring_it_down_neither(siege: list[Step]) -> None:
    _besiege(siege)


@given(sieges)
def test_behind_a_secret_strangers_change_nothing(siege: list[Step]) -> None:
    room = besiege(encode(siege), secret=b"unknown to them")
    assert (room.service.contents.values, room.service.contents.queues) == ({}, {})


# ---- mutants


MUTANTS: dict[str, Mutant] = {
    "the bytes of half a request count for ever": rewritten(HalfSent.end, "self.bytes -= session.half_bytes", "pass"),
    "any text is a number": replaced(contents, "number", lambda key, text: int(text)),
    "a wait of a connection that is gone stays": replaced(Waiting, "withdraw", lambda self, wait: None),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_siege_finds_a_mutant(name: str) -> None:
    assert not survives(MUTANTS[name], settings(QUICK)(given(sieges)(_besiege)))

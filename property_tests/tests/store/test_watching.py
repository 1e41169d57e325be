"""The promises of a store's server to clients that arrive or watch; it keeps nothing of clients that have left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trystate.impl.store.wire import TOKEN_BYTES, blob
from trystate.model.store.vocabulary import Change, Extension, Status
from trystate.property_tests.support.stores.rooms import (
    KEY,
    OK,
    OTHER,
    Room,
    barrier,
    event,
    extended,
    held,
    multi_set,
    push,
    set_,
    wait,
    watch,
    xbarrier,
    xget,
    xpop,
)

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


TOKEN, TOKEN_OF_OTHER = b"s" * TOKEN_BYTES, b"o" * TOKEN_BYTES


def test_who_comes_again_alone_may_give_another_size() -> None:
    room = Room()
    half_open, again, other = room.trio()
    half_open(xbarrier(-1, KEY, 3, TOKEN))
    assert again(xbarrier(-1, KEY, 2, TOKEN)) == b""
    assert other(xbarrier(-1, KEY, 2)) == OK
    assert again() == OK


def test_a_token_in_another_barrier_is_another_arrival() -> None:
    room = Room()
    one, two, _ = room.trio()
    one(xbarrier(-1, KEY, 2, TOKEN))
    assert two(xbarrier(-1, OTHER, 2, TOKEN)) == b""
    assert not one.closed
    assert held(room.service) == {"barriers": 2, "sessions": 3}


@pytest.mark.parametrize("token", [b"short", bytes(TOKEN_BYTES + 1)])
def test_a_token_of_another_length_is_refused(token: bytes) -> None:
    room = Room()
    peer = room.peer()
    assert peer(xbarrier(-1, KEY, 1, token))[0] == Status.REFUSED
    assert held(room.service) == {"sessions": 1}


# ---- watches


def test_a_multi_set_tells_of_each_pair_in_its_order() -> None:
    room = Room()
    watcher, actor, _ = room.trio()
    watcher(watch(KEY) + watch(OTHER))
    actor(multi_set(KEY, b"1", b"/unwatched", b"", OTHER, b"2", KEY, b"3"))
    assert watcher() == (
        event(Change.CREATED, KEY, None, b"1")
        + event(Change.CREATED, OTHER, None, b"2")
        + event(Change.UPDATED, KEY, b"1", b"3")
    )


def test_a_watch_may_end_while_its_connection_waits() -> None:
    room = Room()
    watcher, actor, _ = room.trio()
    assert watcher(watch(KEY) + xget(-1, OTHER)) == OK
    assert watcher(extended(Extension.UNWATCH, blob(KEY))) == OK
    actor(set_(KEY, b"1") + set_(OTHER, b"2"))
    assert watcher() == OK + blob(b"2")


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

"""What a store's server promises to who arrives or watches, and what it keeps of who left: nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trystate.impl.store.contents.barriers import Barriers
from trystate.impl.store.limits import Limits
from trystate.impl.store.server.blocking import SessionArrival
from trystate.impl.store.wire import TOKEN_BYTES, blob
from trystate.model.store.vocabulary import Change, Extension, Query, Status
from trystate.property_tests.support.stores.rooms import (
    CANCEL,
    CANCELED,
    KEY,
    OK,
    OTHER,
    STOP,
    TIMED_OUT,
    Room,
    add,
    barrier,
    delete,
    event,
    extended,
    held,
    i64,
    multi_set,
    plain,
    push,
    set_,
    wait,
    watch,
    xbarrier,
    xget,
    xpop,
)

# ---- barriers


def test_a_barrier_is_released_when_all_have_arrived_each_once_and_is_fresh_again() -> None:
    room = Room()
    peers = room.trio()
    for _ in range(2):
        assert [peer(barrier(KEY, 3)) for peer in peers[:2]] == [b"", b""]
        assert peers[2](xbarrier(-1, KEY, 3)) == OK
        assert [peer() for peer in peers] == [STOP, STOP, b""]
    assert held(room.service) == {"sessions": 3}


def retry_of_a_barrier_does_not_count_twice() -> None:
    room = Room()
    one, two, _ = room.trio()
    for _ in range(3):
        assert one(barrier(KEY, 2)) == b""
        assert one(CANCEL) == CANCELED
    assert two(barrier(KEY, 2)) == b""
    two.leave()
    assert one(barrier(KEY, 2)) == b""


def test_who_cancels_or_leaves_has_not_arrived() -> None:
    retry_of_a_barrier_does_not_count_twice()


def test_a_server_whose_barriers_only_count_up_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Barriers, "withdraw", lambda self, arrival: None)
    with pytest.raises(AssertionError):
        retry_of_a_barrier_does_not_count_twice()


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


def test_an_arrival_that_is_withdrawn_leaves_the_others_counted() -> None:
    room = Room()
    one, two, three = room.trio()
    one(barrier(KEY, 3))
    two(xbarrier(50, KEY, 3))
    room.pass_time(0.06)
    assert two() == TIMED_OUT
    assert three(barrier(KEY, 3)) == b""
    assert two(barrier(KEY, 3)) == STOP
    assert (one(), three()) == (STOP, STOP)


TOKEN, TOKEN_OF_OTHER = b"s" * TOKEN_BYTES, b"o" * TOKEN_BYTES


def who_comes_again_counts_once() -> None:
    room = Room()
    half_open, again, other = room.trio()
    assert half_open(xbarrier(-1, KEY, 2, TOKEN)) == b""
    assert again(xbarrier(-1, KEY, 2, TOKEN)) == b""
    assert half_open.closed
    assert held(room.service) == {"barriers": 1, "sessions": 2}
    assert other(xbarrier(-1, KEY, 2, TOKEN_OF_OTHER)) == OK
    assert (half_open(), again()) == (b"", OK)
    assert len(room.log) == 1
    assert "came to the barrier b'/key' again" in room.log[0]


def test_who_comes_again_while_its_first_connection_is_taken_for_alive_counts_once() -> None:
    who_comes_again_counts_once()


def test_a_server_that_counts_connections_instead_of_tokens_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionArrival, "token", property(lambda self: b"", lambda self, token: None), raising=False)
    with pytest.raises(AssertionError):
        who_comes_again_counts_once()


def test_who_comes_again_and_gives_up_has_not_arrived() -> None:
    room = Room()
    half_open, again, other = room.trio()
    half_open(xbarrier(-1, KEY, 2, TOKEN))
    again(xbarrier(50, KEY, 2, TOKEN))
    room.pass_time(0.06)
    assert again() == TIMED_OUT
    assert other(xbarrier(-1, KEY, 2)) == b""


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


def test_torchs_clients_and_ours_meet_at_one_barrier() -> None:
    room = Room()
    torchs, another, ours = room.trio()
    assert torchs(barrier(KEY, 3)) + another(barrier(KEY, 3)) == b""
    assert ours(xbarrier(-1, KEY, 3, TOKEN)) == OK
    assert (torchs(), another()) == (STOP, STOP)


def test_barriers_and_keys_do_not_meet() -> None:
    room = Room()
    one, actor, _ = room.trio()
    one(barrier(KEY, 2))
    actor(set_(KEY, b"2") + add(OTHER, 1))
    assert one() == b""
    assert actor(plain(Query.GETNUMKEYS)) == i64(2)


# ---- watches


def test_a_watcher_is_told_each_change_once_in_order_with_old_and_new() -> None:
    room = Room()
    watcher, actor, _ = room.trio()
    assert watcher(watch(KEY)) == OK
    actor(set_(KEY, b"1") + set_(OTHER, b"x") + add(KEY, 1))
    actor(plain(Query.COMPARE_SET, blob(KEY), blob(b"2"), blob(b"3")))
    actor(plain(Query.COMPARE_SET, blob(KEY), blob(b"2"), blob(b"4")))
    actor(plain(Query.APPEND, blob(KEY), blob(b"!")) + delete(KEY) + delete(KEY))
    actor(plain(Query.APPEND, blob(KEY), blob(b"a")) + extended(Extension.TAKE, blob(KEY)))
    told = watcher()
    assert told == b"".join(
        [
            event(Change.CREATED, KEY, None, b"1"),
            event(Change.UPDATED, KEY, b"1", b"2"),
            event(Change.UPDATED, KEY, b"2", b"3"),
            event(Change.APPENDED, KEY, b"3", b"3!"),
            event(Change.DELETED, KEY, b"3!", None),
            event(Change.CREATED, KEY, None, b"a"),
            event(Change.DELETED, KEY, b"a", None),
        ]
    )


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


def test_a_watcher_is_told_of_its_own_changes_and_of_none_after_unwatch() -> None:
    room = Room()
    watcher, actor, _ = room.trio()
    assert watcher(watch(KEY) + set_(KEY, b"1")) == OK + event(Change.CREATED, KEY, None, b"1")
    assert watcher(extended(Extension.UNWATCH, blob(KEY))) == OK
    actor(set_(KEY, b"2"))
    assert watcher() == b""
    assert held(room.service) == {"sessions": 3}


def test_a_watch_may_end_while_its_connection_waits() -> None:
    room = Room()
    watcher, actor, _ = room.trio()
    assert watcher(watch(KEY) + xget(-1, OTHER)) == OK
    assert watcher(extended(Extension.UNWATCH, blob(KEY))) == OK
    actor(set_(KEY, b"1") + set_(OTHER, b"2"))
    assert watcher() == OK + blob(b"2")


def test_a_watcher_that_does_not_read_is_closed_and_nobody_else() -> None:
    room = Room(Limits(unsent_bytes=10_000))
    watcher, actor, other = room.trio()
    watcher(watch(KEY))
    other(watch(KEY))
    room.service.unsent(watcher.session, 10_001)
    actor(set_(KEY, b"v"))
    watcher()
    assert (watcher.closed, watcher.session.abort) == (True, True)
    assert "raise unsent_bytes" in room.log[0]
    assert other() == event(Change.CREATED, KEY, None, b"v")
    assert held(room.service) == {"sessions": 2, "watches": 1}


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

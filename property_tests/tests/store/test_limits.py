"""The limits of a store's server: a client that breaks one is closed or refused with a reason; no other is affected.

The costs of an operation do not grow with the number of clients that it does not affect. Costs are the executed
lines of Python.
"""

from __future__ import annotations

import hmac
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from types import FrameType
from typing import Any

import pytest

from trystate.impl.store.limits import MIB, Limits
from trystate.impl.store.wire import COUNTER_KEY, U32, U64, blob, blobs, counted
from trystate.model.errors import UsageError
from trystate.model.store.vocabulary import Extension, Query, Status
from trystate.property_tests.adapters.our_store.wire import check
from trystate.property_tests.support.stores.rooms import *

SMALL = Limits(key_bytes=64, value_bytes=1024, keys_in_request=8, frame_bytes=4096, unsent_bytes=1 << 14)
HUGE = U64.pack(1 << 62)


def many(count: int, size: int) -> bytes:
    pairs = blobs(each for n in range(count) for each in (b"/%d" % n, bytes(size)))
    return plain(Query.MULTI_SET, U64.pack(count), pairs)


BROKEN: dict[str, tuple[bytes, str]] = {
    "a key": (plain(Query.GET, U64.pack(65)), "raise key_bytes"),
    "a whole key": (plain(Query.GET, blob(bytes(65))), "raise key_bytes"),
    "a value": (plain(Query.SET, blob(KEY), U64.pack(1025)), "raise value_bytes"),
    "a whole value": (set_(KEY, bytes(1025)), "raise value_bytes"),
    "a value of another": (extended(Extension.SET, blob(KEY), HUGE), "raise value_bytes"),
    "a key alone in a list": (plain(Query.WAIT, counted([bytes(65)])), "raise key_bytes or value_bytes"),
    "a key of an extended get": (extended(Extension.GET, i64(0), counted([bytes(65)])), "key_bytes or value_bytes"),
    "a list": (plain(Query.CHECK, U64.pack(9)), "raise keys_in_request"),
    "a huge list": (plain(Query.MULTI_SET, HUGE), "raise keys_in_request"),
    "a key in a list": (plain(Query.WAIT, U64.pack(2), blob(KEY), U64.pack(65)), "raise key_bytes or value_bytes"),
    "a value in a list": (plain(Query.MULTI_SET, U64.pack(1), blob(KEY), HUGE), "raise key_bytes or value_bytes"),
    "a frame": (many(8, 600), "raise frame_bytes"),
    "an appended value": (plain(Query.APPEND, blob(KEY), blob(bytes(600))) * 2, "raise value_bytes"),
}


@pytest.mark.parametrize(("broken", "remedy"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("step", [None, 1])
def test_only_the_client_that_breaks_a_limit_is_closed_and_logged(broken: bytes, remedy: str, step: int | None) -> None:
    room = Room(SMALL)
    peer, other = room.peer(), room.peer()
    other(set_(OTHER, b"v"))
    for n in range(0, len(broken), step or len(broken)):
        peer(broken[n : n + (step or len(broken))])
    assert peer.closed
    (line,) = room.log
    assert line.startswith("peer0: closed: ") and line.endswith(remedy)
    assert (other(get(OTHER)), other.closed) == (blob(b"v"), False)
    assert held(room.service) == {"sessions": 1}


def test_a_request_exactly_at_a_limit_is_served() -> None:
    room = Room(SMALL)
    peer, key = room.peer(), b"k" * 64
    peer(set_(key, bytes(1024)) + many(8, 300))
    answer = peer(plain(Query.MULTI_GET, counted([key] * 2 + [b"/0"] * 6)))
    assert answer == blobs([bytes(1024)] * 2 + [bytes(300)] * 6)
    assert room.log == []


FULL: list[tuple[Limits, bytes, bytes]] = [
    (Limits(keys_total=2), set_(KEY, b"") + set_(OTHER, b""), extended(Extension.SET, blob(b"/3"), blob(b""))),
    (Limits(keys_total=2), set_(KEY, b""), extended(Extension.MULTI_SET, U64.pack(2), blobs([b"/3", b"", b"/4", b""]))),
    (Limits(keys_total=1), push(KEY, b""), extended(Extension.QUEUE_PUSH, blob(b"/3"), blob(b""))),
    (Limits(queue_items=1), push(KEY, b""), extended(Extension.QUEUE_PUSH, blob(KEY), blob(b""))),
    (Limits(bytes_total=10), set_(KEY, b"123"), extended(Extension.SET, blob(KEY), blob(b"1234567"))),
    (Limits(bytes_total=10), set_(KEY, b"123"), extended(Extension.APPEND, blob(KEY), blob(b"1234"))),
    (Limits(bytes_total=8), b"", extended(Extension.MULTI_SET, U64.pack(2), blobs([KEY, b"", b"/a", b"123"]))),
    (Limits(watches_per_connection=1), b"", b"".join(extended(Extension.WATCH, blob(k)) for k in (KEY, OTHER))),
    (Limits(waited_keys_total=1), b"", extended(Extension.WAIT, i64(-1), counted([KEY, OTHER]))),
]  # fmt: skip


@pytest.mark.parametrize(("limits", "before", "beyond"), FULL)
def test_an_extension_beyond_a_total_is_refused_and_changes_nothing(
    limits: Limits, before: bytes, beyond: bytes
) -> None:
    room = Room(limits)
    peer, contents = room.peer(), room.service.contents
    peer(before)

    def seen() -> tuple[object, ...]:
        return dict(contents.values), {k: list(q) for k, q in contents.queues.items()}, contents.bytes_held

    old = seen()
    answer = peer(beyond)
    answer = answer.removeprefix(OK) if beyond[0] == Extension.WATCH else answer
    assert answer[0] == Status.TOO_LARGE
    assert b"raise " in answer
    assert seen() == old
    assert not peer.closed
    assert peer(plain(Query.PING, U32.pack(7))) == U32.pack(7)


@pytest.mark.parametrize("first", [b"", VALIDATE[:3]])
def test_a_connection_that_never_validates_is_closed_in_time(first: bytes) -> None:
    room = Room(Limits(handshake_seconds=5.0))
    silent, other = room.peer(validated=False), room.peer()
    silent(first)
    room.pass_time(4.9)
    assert not silent.closed
    room.pass_time(0.2)
    assert (silent.closed, other.closed) == (True, False)
    assert held(room.service) == {"sessions": 1} and "not validated within 5.0 s" in room.log[-1]


def test_a_half_sent_request_lives_while_more_of_it_comes_and_no_longer() -> None:
    room = Room(Limits(half_sent_seconds=10.0))
    slow, idle = room.peer(), room.peer()
    for byte in set_(KEY, b"value"):
        slow(bytes((byte,)))
        room.pass_time(9.0)
    assert slow(get(KEY)) == blob(b"value")
    slow(set_(KEY, b"value")[:-1])
    room.pass_time(10.1)
    assert (slow.closed, idle.closed) == (True, False)
    assert "half_sent_seconds" in room.log[0]
    assert held(room.service) == {"sessions": 1}
    assert room.service.alarm.at is None


def test_when_all_unread_replies_are_too_much_the_largest_goes() -> None:
    room = Room(Limits(unsent_bytes_total=10_000))
    some, most = room.peer(), room.peer()
    room.service.unsent(some.session, 3_000)
    room.service.unsent(most.session, 6_000)
    room.service.unsent(some.session, 4_001)
    assert (some.closed, most.closed, most.session.abort) == (False, True, True)
    room.service.unsent(most.session, 6_000)
    assert held(room.service) == {"sessions": 1, "unsent": 4_001}


def test_when_all_half_sent_requests_are_too_much_the_largest_goes() -> None:
    room = Room(Limits(half_sent_bytes_total=10_000))
    small, large, last = room.trio()
    part = plain(Query.SET, blob(KEY), U64.pack(9_000))
    small(part + bytes(1000))
    large(part + bytes(8000))
    assert not large.closed
    last(part + bytes(2000))
    assert [peer.closed for peer in (small, large, last)] == [False, True, False]
    assert small(bytes(8000) + get(KEY)) == blob(bytes(9000))


@pytest.mark.parametrize("blocked", [False, True])
def test_a_reply_larger_than_any_frame_is_refused_with_the_remedy(blocked: bool) -> None:
    room = Room(SMALL)
    ours, torchs, actor = room.trio()
    keys = [b"/%d" % n for n in range(5)]
    values = [set_(key, bytes(1000)) for key in keys]
    many = extended(Extension.GET, i64(-1), counted(keys))
    refused = bytes((Status.TOO_LARGE,)) + blob(
        b"an answer of 5040 bytes exceeds 4096; use several requests, or raise frame_bytes"
    )
    if blocked:
        assert ours(many) == b""
        assert actor(b"".join(values)) == b""
        assert ours() == refused
    else:
        actor(b"".join(values))
        assert ours(many) == refused
    assert ours(extended(Extension.GET, i64(0), counted(keys[:3]))) == OK + blobs([bytes(1000)] * 3)
    torchs(plain(Query.MULTI_GET, counted(keys)))
    assert [peer.closed for peer in (ours, torchs, actor)] == [False, True, False]
    assert room.log == [
        "peer1: closed: an answer of 5040 bytes exceeds 4096; use several requests, or raise frame_bytes"
    ]


@pytest.mark.parametrize(("total", "kept"), [(20_000, bytes(9_000)), (9_500, b"")])
def test_the_large_values_that_waits_keep_are_bounded_in_total(total: int, kept: bytes) -> None:
    room = Room(Limits(kept_bytes_total=total))
    first, second, actor = room.trio()
    actor(set_(KEY, bytes(9_000)))
    assert first(wait(KEY)) + second(wait(KEY)) == STOP * 2
    actor(delete(KEY))
    assert first(get(KEY)) + second(get(KEY)) == blob(bytes(9_000)) + blob(kept)
    assert held(room.service) == {"sessions": 3}


def test_a_slow_watcher_is_closed_at_the_end_of_a_message() -> None:
    room = Room(Limits(unsent_bytes=12_000))
    watcher, actor, other = room.trio()
    for peer in (watcher, other):
        peer(extended(Extension.WATCH, blob(KEY)))
    actor(set_(KEY, bytes(5_000)))
    assert len(other()) > 5_000
    watcher()
    for size in (5_000, 6_000, 7_000):
        room.service.received(actor.session, set_(KEY, bytes(size)), room.now)
    assert (watcher.closed, other.closed, actor.closed) == (True, True, False)
    assert actor(get(KEY)) == blob(bytes(7_000))
    assert held(room.service) == {"sessions": 1}


def test_the_counter_of_workers_changes_only_by_one() -> None:
    spoilers = [
        set_(COUNTER_KEY, b"9"),
        delete(COUNTER_KEY),
        push(COUNTER_KEY, b"9"),
        plain(Query.APPEND, blob(COUNTER_KEY), blob(b"9")),
        plain(Query.COMPARE_SET, blob(COUNTER_KEY), blob(b"1"), blob(b"9")),
        plain(Query.MULTI_SET, U64.pack(2), blobs([KEY, b"1", COUNTER_KEY, b"9"])),
        add(COUNTER_KEY, 2),
        add(COUNTER_KEY, -2),
        add(COUNTER_KEY, -1),
    ]
    room = Room()
    worker = room.peer()
    assert worker(add(COUNTER_KEY, 1) + add(COUNTER_KEY, 0)) == i64(1) + i64(1)
    for n, spoiler in enumerate(spoilers):
        peer = room.peer()
        peer(spoiler)
        assert peer.closed
        assert len(room.log) == n + 1
    assert worker(wait(COUNTER_KEY) + get(COUNTER_KEY)) == STOP + blob(b"1")
    assert worker(plain(Query.GETNUMKEYS)) == i64(1)


def test_a_limit_that_bounds_nothing_is_an_error() -> None:
    for field in fields(Limits):
        with pytest.raises(UsageError, match=field.name):
            replace(Limits(), **{field.name: 0})
    with pytest.raises(UsageError, match="frame_bytes is 100"):
        Limits(frame_bytes=100)


# ---- the secret

SECRET = b"correct horse battery staple"
HELLO = extended(Extension.HELLO, U32.pack(1))
MINE = b"m" * 32


def nonce_of(peer: Peer) -> bytes:
    answer = peer(HELLO)
    assert answer[:2] + answer[2:10] == b"\x00\x05" + U64.pack(32)
    return answer[10:42]


def prove(secret: bytes, nonce: bytes) -> bytes:
    return extended(Extension.PROVE, blob(MINE), blob(hmac.digest(secret, b"trystate client" + nonce + MINE, "sha256")))


def test_a_wrong_or_replayed_proof_is_refused_and_closed() -> None:
    room = Room(secret=SECRET)
    wrong, eager, listener = room.trio()
    assert wrong(prove(b"guess", nonce_of(wrong)))[0] == Status.REFUSED
    assert wrong.closed
    assert eager(prove(SECRET, b""))[0] == Status.REFUSED
    assert eager.closed
    overheard = prove(SECRET, nonce_of(listener))
    assert listener(overheard)[0] == Status.OK
    thief = room.peer()
    nonce_of(thief)
    assert thief(overheard)[0] == Status.REFUSED
    assert thief.closed
    assert SECRET.decode() not in "".join(room.log)


@pytest.mark.parametrize(
    "request_", [set_(KEY, b"v"), get(KEY), length(KEY), HELLO + get(KEY), plain(Query.CHECK, counted([KEY]))]
)
def test_without_the_proof_nothing_is_served(request_: bytes) -> None:
    room = Room(secret=SECRET)
    torchs = room.peer()
    torchs(request_)
    assert torchs.closed
    assert "has not proved that it has the secret" in room.log[0]
    assert room.service.contents.values == {}


def test_without_the_proof_only_little_may_be_sent_and_not_for_long() -> None:
    room = Room(Limits(handshake_seconds=5.0), secret=SECRET)
    large, slow, _ = room.trio()
    large(plain(Query.CHECK, U64.pack(2)))
    assert large.closed
    slow(HELLO)
    room.pass_time(5.1)
    assert slow.closed


FEW, MANY = 8, 1024


def cost(function: Callable[[], object]) -> int:
    """The number of lines of Python that the function runs."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return lines


CROWDS: dict[str, tuple[Callable[[int], bytes], bytes]] = {
    "poppers, and a push": (lambda n: xpop(-1, KEY), push(KEY, b"e")),
    "torch's poppers, and a push": (lambda n: wait(KEY), push(KEY, b"e")),
    "poppers, and a value of that name": (lambda n: xpop(-1, KEY), set_(KEY, b"v") + delete(KEY)),
    "readers, and an element of that name": (lambda n: xget(-1, KEY), push(KEY, b"e") + pop(KEY)),
    "waits for several keys, and one of them": (lambda n: wait(KEY, OTHER), set_(KEY, b"v") + delete(KEY)),
    "waits for other keys": (lambda n: wait(b"/%d" % n), set_(KEY, b"v") + delete(KEY)),
    "watchers of other keys": (lambda n: watch(b"/%d" % n), set_(KEY, b"v") + delete(KEY)),
    "arrivals at a barrier, and one more": (lambda n: barrier(KEY, 1 << 20), barrier(KEY, 1 << 20)),
}


@pytest.mark.parametrize("name", CROWDS)
def test_an_operation_costs_the_same_in_a_crowd_that_it_does_not_release(name: str) -> None:
    blocked, action = CROWDS[name]

    def costs(crowd: int) -> int:
        room = Room()
        actor = room.peer()
        for n in range(crowd):
            room.peer()(blocked(n))
        actor(set_(OTHER + b"!", b"") + check(KEY))  # creates the objects that are created only once
        return cost(lambda: room.service.received(actor.session, action, room.now))

    few, many = costs(FEW), costs(MANY)
    assert many <= 1.5 * few, f"{few} lines of Python beside {FEW} blocked clients, {many} beside {MANY}"


# ---- unread bytes


def test_watchers_that_do_not_read_share_one_event() -> None:
    """Each watcher counts its unread bytes, but the bytes are in memory only once."""
    size = 2 * MIB
    room = Room(Limits(unsent_bytes=4 * size, unsent_bytes_total=8 * size))
    actor, watchers = room.peer(), [room.peer() for _ in range(100)]
    for watcher in watchers:
        watcher(watch(KEY))
    room.service.received(actor.session, set_(KEY, bytes(size)), room.now)
    for watcher in watchers:  # the driver takes one piece, and the peer reads nothing
        room.service.unsent(watcher.session, len(watcher.session.take_outgoing()))
    assert size < held(room.service)["unsent"] < 5 * size
    for _ in range(4):  # each event has the old value and the new one
        room.service.received(actor.session, set_(KEY, bytes(size)), room.now)
    assert all(watcher.closed for watcher in watchers), "each has its own limit"
    assert held(room.service) == {"sessions": 1}

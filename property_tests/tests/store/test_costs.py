"""The costs of a crowd for a store's server: work and memory that do not grow with clients that are not concerned.

Work is counted in lines of Python that run, and in bytes that are allocated at once: a copy of a table in C is no line.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from trystate.impl.store.limits import KIB, MIB, Limits
from trystate.impl.store.wire import blob
from trystate.model.store.vocabulary import Extension, Query
from trystate.property_tests.adapters.our_store.wire import PING, VALIDATE, Peer, check, request
from trystate.property_tests.support.stores.rooms import (
    CANCEL,
    KEY,
    OTHER,
    Room,
    add,
    barrier,
    delete,
    extended,
    get,
    held,
    i64,
    multi_get,
    pop,
    push,
    set_,
    wait,
    watch,
    xget,
    xpop,
)

FEW, MANY = 8, 1024


def cost(function: Callable[[], object]) -> tuple[int, int]:
    """The lines of Python that run in it, and the most bytes that it has allocated at a time."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    tracemalloc.start()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        tracemalloc.reset_peak()
        held_before = tracemalloc.get_traced_memory()[0]
        function()
        peak = tracemalloc.get_traced_memory()[1] - held_before
    finally:
        sys.settrace(before)
        tracemalloc.stop()
    return lines, peak


CROWDS: dict[str, tuple[Callable[[int], bytes], bytes]] = {
    "poppers, and a push": (lambda n: xpop(-1, KEY), push(KEY, b"e")),
    "poppers with timeouts, and a push": (lambda n: xpop(60_000, KEY), push(KEY, b"e")),
    "torch's poppers, and a push": (lambda n: wait(KEY), push(KEY, b"e")),
    "poppers, and a value of that name": (lambda n: xpop(-1, KEY), set_(KEY, b"v") + delete(KEY)),
    "readers, and an element of that name": (lambda n: xget(-1, KEY), push(KEY, b"e") + pop(KEY)),
    "waits for several keys, and one of them": (lambda n: wait(KEY, OTHER), set_(KEY, b"v") + delete(KEY)),
    "waits for several keys, and an element": (lambda n: wait(KEY, OTHER), push(KEY, b"e") + pop(KEY)),
    "reads of several keys, and one of them": (lambda n: xget(-1, KEY, OTHER), set_(KEY, b"v") + delete(KEY)),
    "waits for other keys": (lambda n: wait(b"/%d" % n), set_(KEY, b"v") + delete(KEY)),
    "watchers of other keys": (lambda n: watch(b"/%d" % n), set_(KEY, b"v") + delete(KEY)),
    "arrivals at a barrier, and one more": (lambda n: barrier(KEY, 1 << 20), barrier(KEY, 1 << 20)),
}


@pytest.mark.parametrize("name", CROWDS)
def test_an_operation_costs_the_same_in_a_crowd_that_it_does_not_release(name: str) -> None:
    blocked, action = CROWDS[name]

    def costs(crowd: int) -> tuple[int, int]:
        room = Room()
        actor = room.peer()
        for n in range(crowd):
            room.peer()(blocked(n))
        actor(set_(OTHER + b"!", b"") + check(KEY))  # for objects that are made once
        return cost(lambda: room.service.received(actor.session, action, room.now))

    (few, little), (many, much) = costs(FEW), costs(MANY)
    assert many <= 1.5 * few, f"{few} lines of Python beside {FEW} blocked clients, {many} beside {MANY}"
    assert much <= little + 2 * KIB, f"{little} bytes beside {FEW} blocked clients, {much} beside {MANY}"


def test_a_client_that_gives_up_costs_the_same_in_a_crowd() -> None:
    def costs(crowd: int) -> tuple[int, int]:
        room = Room()
        peers = [room.peer() for _ in range(crowd)]
        for peer in peers:
            peer(xpop(60_000, KEY))
        first, middle = peers[0].session, peers[crowd // 2].session

        def give_up() -> None:
            room.service.received(first, CANCEL, room.now)
            room.service.disconnected(middle)
            room.service.tick(room.now)

        return cost(give_up)

    (few, little), (many, much) = costs(FEW), costs(MANY)
    assert many <= 1.5 * few and much <= little + 2 * KIB


def test_a_key_that_all_of_a_crowd_wait_for_beside_others_is_looked_at_once() -> None:
    """All ranks wait for the addresses of all: the keys that come before the last one cost no visit of each rank."""
    keys = [b"/rank %d" % n for n in range(32)]

    def lines(crowd: int) -> int:
        room = Room()
        actor = room.peer()
        peers = [room.peer() for _ in range(crowd)]
        for peer in peers:
            peer(wait(*keys))
        ran = cost(lambda: room.service.received(actor.session, b"".join(set_(k, b"") for k in keys[:-1]), room.now))
        assert actor(set_(keys[-1], b"")) == b""
        assert [peer() for peer in peers] == [b"\x00"] * crowd
        return ran[0]

    few, many = lines(FEW), lines(MANY)
    assert many <= 1.5 * few, f"{few} lines of Python for {FEW} ranks, {many} for {MANY}"


# ---- what is unread


def test_pipelined_small_reads_stop_at_the_limit_of_unsent_bytes() -> None:
    """Answers below 4 KiB each: the requests behind the one that went over are not carried out."""
    most, size, asked = MIB, 4_000, 10_000
    kinds = {
        "get": get(KEY),
        "get of an extension": xget(0, KEY),
        "multi_get": multi_get(KEY),
        "compare_set": request(Query.COMPARE_SET, blob(KEY), blob(b"?"), blob(b"!")),
    }
    for kind, question in kinds.items():
        room = Room(Limits(unsent_bytes=most))
        greedy, other = room.peer(), room.peer()
        other(set_(KEY, bytes(size)))
        many = (question + add_silently(OTHER)) * asked
        peak = cost_of_memory(lambda: room.service.received(greedy.session, many, room.now))  # noqa: B023
        assert greedy.closed and greedy.session.abort, kind
        assert "did not read" in room.log[0] and "raise unsent_bytes" in room.log[0]
        done = len(room.service.contents.values[OTHER])
        assert done * size <= most + 2 * size, f"{kind}: {done} of {asked} requests were answered"
        assert peak < len(many) + 2 * most, f"{kind}: {peak} bytes"
        assert held(room.service) == {"sessions": 1}
        assert other(get(KEY)) == blob(bytes(size))


def test_many_tiny_answers_count_like_few_large_ones() -> None:
    room = Room(Limits(unsent_bytes=64 * KIB))
    greedy, eager = room.peer(), room.peer()
    room.service.received(greedy.session, PING * 50_000, room.now)
    assert greedy.closed
    for _ in range(20):
        assert len(eager(PING * 10_000)) == 40_000
    assert not eager.closed


def test_what_is_pipelined_behind_an_unread_answer_is_counted_from_the_first_request_on() -> None:
    room = Room(Limits(unsent_bytes=20_000))
    peer, other = room.peer(), room.peer()
    other(set_(KEY, bytes(3_000)))
    room.service.unsent(peer.session, 19_000)
    room.service.received(peer.session, (add_silently(OTHER) + get(KEY)) * 5, room.now)
    assert peer.closed
    assert len(room.service.contents.values[OTHER]) == 1


def test_small_events_are_counted_as_they_come() -> None:
    """A key may have 8 KiB, of which the change of a byte tells each watcher."""
    key = b"/" + b"k" * 8_000
    room = Room(Limits(unsent_bytes=64 * KIB))
    watcher, actor = room.peer(), room.peer()
    watcher(watch(key))
    changes = set_(key, b"v") * 1_000
    peak = cost_of_memory(lambda: room.service.received(actor.session, changes, room.now))
    assert watcher.closed and not actor.closed
    assert peak < len(changes) + 256 * KIB, f"{peak} bytes"


def test_a_peer_that_asks_for_a_little_at_a_time_and_reads_nothing_costs_what_it_is_answered() -> None:
    """A bytes object for each answer of four bytes would be ten times as much."""
    room = Room()
    peer, asked = room.peer(), 20_000

    def ask() -> None:
        for _ in range(asked):
            room.service.received(peer.session, PING, room.now)
            for session in room.service.take_pending():
                room.service.unsent(session, 1)  # the transport holds something

    peak = cost_of_memory(ask)
    assert peak < 3 * 4 * asked, f"{peak} bytes"
    room.service.unsent(peer.session, 0)
    room.service.pend(peer.session)
    assert peer() == PING[1:] * asked


def test_watchers_that_do_not_read_share_one_event() -> None:
    """Each counts what it has not read; all together hold it once."""
    size, crowd = 2 * MIB, 100
    room = Room(Limits(unsent_bytes=4 * size, unsent_bytes_total=8 * size))
    actor = room.peer()
    watchers = [room.peer() for _ in range(crowd)]
    for watcher in watchers:
        watcher(watch(KEY))

    request_ = set_(KEY, bytes(size))

    def change() -> None:
        room.service.received(actor.session, request_, room.now)
        for watcher in watchers:  # a driver takes a piece, and the peer reads nothing
            room.service.unsent(watcher.session, len(watcher.session.take_outgoing()))

    peak = cost_of_memory(change)
    assert peak < 4 * size + crowd * 80 * KIB, f"{peak / size:.0f} times the value"
    assert not any(watcher.closed for watcher in watchers)
    for _ in range(4):  # with the value before, each is of two
        room.service.received(actor.session, request_, room.now)
    assert all(watcher.closed for watcher in watchers), "each has its own limit"
    assert held(room.service) == {"sessions": 1}


def cost_of_memory(function: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        function()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def add_silently(key: bytes) -> bytes:
    """A request that is not answered, and of which one sees how often it was carried out."""
    return request(Query.APPEND, blob(key), blob(b"."))


# ---- the real process

WITHOUT_UVLOOP = "import sys; sys.modules['uvloop'] = None\n"
SERVE = (
    "import sys; from trystate.__main__ import main; sys.exit(main(['store', 'serve', '--port', '0', *sys.argv[1:]]))"
)


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest) -> str:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    return str(request.param)


@contextlib.contextmanager
def serving(loop: str, *options: str) -> Iterator[tuple[int, int]]:
    """The command in a process; its pid and port."""
    code = ("" if loop == "uvloop" else WITHOUT_UVLOOP) + SERVE
    with subprocess.Popen([sys.executable, "-c", code, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.pid, int(process.stdout.readline().split(":")[2].split(",")[0])
        finally:
            process.kill()


def peak_resident(pid: int) -> int:
    """The most bytes that a process had in memory (proc(5): VmHWM)."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * KIB


def slow_peer(port: int) -> Peer:
    """A peer of which the system takes little before it reads."""
    peer = Peer.__new__(Peer)
    peer.socket = socket.socket()
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
    peer.socket.settimeout(20)
    peer.socket.connect(("127.0.0.1", port))
    peer.send(VALIDATE)
    return peer


def test_replies_of_a_value_and_its_length_arrive_whole_whatever_the_system_takes_of_them() -> None:
    value, asked = bytes(range(256)) * 250, 100
    with serving("uvloop") as (_, port), slow_peer(port) as peer:
        peer.send(set_(KEY, value))
        for _ in range(asked):
            peer.send(get(KEY))
            time.sleep(0.001)  # a piece for each
        assert peer.read(asked * (8 + len(value))) == asked * blob(value)


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@linux
def test_a_crowd_that_reads_nothing_holds_neither_memory_nor_the_other_clients(loop: str) -> None:
    size, crowd, values = 2 * MIB, 100, 3  # the system's buffers hold some 2 MiB of each watcher
    with serving(loop) as (pid, port), contextlib.ExitStack() as peers, Peer(port) as actor, Peer(port) as other:
        watchers = [peers.enter_context(slow_peer(port)) for _ in range(crowd)]
        for watcher in watchers:
            assert watcher.ask(extended(Extension.WATCH, blob(KEY)), 1) == b"\x00"
        before, over, slowest = peak_resident(pid), threading.Event(), [0.0]

        def ask_all_the_time() -> None:
            while not over.is_set():
                began = time.monotonic()
                assert other.answers()
                slowest[0] = max(slowest[0], time.monotonic() - began)

        asking = threading.Thread(target=ask_all_the_time)
        asking.start()
        for _ in range(values):
            actor.send(set_(KEY, bytes(size)))
            assert actor.answers()
        time.sleep(0.2)
        over.set()
        asking.join()
        grown = peak_resident(pid) - before
        assert grown < 12 * size + crowd * 128 * KIB, f"{grown / MIB:.0f} MiB for a value of {size / MIB:.0f} MiB"
        assert slowest[0] < 0.6, f"another client waited {slowest[0]:.2f} s"
        head = 2 + 8 + len(KEY) + 1 + 8 + 1 + 8
        for watcher in watchers[::50]:
            assert watcher.read(values * (head + 2 * size) - size)[-size:] == bytes(size)
            assert watcher.answers()


@linux
def test_pipelined_small_reads_cost_a_process_no_more_than_the_limit(loop: str) -> None:
    with serving(loop, "--unsent-bytes", str(MIB)) as (pid, port), Peer(port) as good, slow_peer(port) as greedy:
        good.send(set_(KEY, bytes(4_000)))
        assert good.answers()
        before = peak_resident(pid)
        with contextlib.suppress(OSError):  # closed meanwhile
            greedy.send(get(KEY) * 12_000)
        assert good.answers()
        assert greedy.closed()
        grown = peak_resident(pid) - before
        assert grown < 6 * MIB, f"{grown / MIB:.0f} MiB where {MIB / MIB:.0f} MiB may be unread"
        assert good.ask(get(KEY), 4_008)[8:] == bytes(4_000)


def test_an_answer_larger_than_a_turn_arrives_whole_while_others_are_served(loop: str) -> None:
    parts = [bytes((n,)) * (MIB + n) for n in range(8)]
    keys = [b"/%d" % n for n in range(8)]
    with serving(loop) as (_, port), Peer(port) as large, Peer(port) as small:
        for key, part in zip(keys, parts, strict=True):
            large.send(set_(key, part))
        large.send(multi_get(*keys) * 3 + add(KEY, 5))
        for _ in range(20):
            assert small.answers()
        for _ in range(3):
            assert [large.read(8 + len(part))[8:] == part for part in parts] == [True] * 8
        assert large.read(8) == i64(5)

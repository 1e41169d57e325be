"""The costs of an operation for a store's server do not grow with the number of clients that it does not affect.

Costs are the lines of Python that run, and the peak of allocated bytes, which includes copies that C code makes.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from trystate.impl.store.limits import KIB, MIB, Limits
from trystate.property_tests.adapters.our_store.wire import check
from trystate.property_tests.support.stores.rooms import (
    KEY,
    OTHER,
    Room,
    barrier,
    delete,
    held,
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
    """The number of lines of Python that the function runs, and the peak of bytes that it allocates."""
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
        actor(set_(OTHER + b"!", b"") + check(KEY))  # creates the objects that are created only once
        return cost(lambda: room.service.received(actor.session, action, room.now))

    (few, little), (many, much) = costs(FEW), costs(MANY)
    assert many <= 1.5 * few, f"{few} lines of Python beside {FEW} blocked clients, {many} beside {MANY}"
    assert much <= little + 2 * KIB, f"{little} bytes beside {FEW} blocked clients, {much} beside {MANY}"


# ---- unread bytes


def test_watchers_that_do_not_read_share_one_event() -> None:
    """Each watcher counts its unread bytes, but the bytes are in memory only once."""
    size, crowd = 2 * MIB, 100
    room = Room(Limits(unsent_bytes=4 * size, unsent_bytes_total=8 * size))
    actor = room.peer()
    watchers = [room.peer() for _ in range(crowd)]
    for watcher in watchers:
        watcher(watch(KEY))

    request_ = set_(KEY, bytes(size))

    def change() -> None:
        room.service.received(actor.session, request_, room.now)
        for watcher in watchers:  # the driver takes one piece, and the peer reads nothing
            room.service.unsent(watcher.session, len(watcher.session.take_outgoing()))

    _, peak = cost(change)
    assert peak < 4 * size + crowd * 80 * KIB, f"{peak / size:.0f} times the value"
    assert not any(watcher.closed for watcher in watchers)
    for _ in range(4):  # each event has the old value and the new one
        room.service.received(actor.session, request_, room.now)
    assert all(watcher.closed for watcher in watchers), "each has its own limit"
    assert held(room.service) == {"sessions": 1}

"""S4 to S7 and S28: queues. One peer's bytes are sent by hand, the others are torch's clients."""

from __future__ import annotations

from contextlib import suppress

from trystate.impl.store.wire import STOP_WAITING, WAIT_CANCELED
from trystate.impl.torch_release import queue_empty_error
from trystate.model.store.vocabulary import Query

from ...replays import Observation, Say, judge
from ...torch_release import needing
from ..server import Server, TorchServer
from ..wire import Peer, request
from .waits import SILENCE_S


def _pops_after_waiting(a: Peer, b: object, *, benign: bool) -> None:
    """A pops from q as queue_pop does; benign: the element is there before, so that A never waits."""
    if benign:
        b.queue_push("q", "1")  # type: ignore[attr-defined]
        b.queue_len("q")  # type: ignore[attr-defined]
        a.send(request(Query.WAIT, "q"))
    else:
        a.wait("q")
        b.queue_push("q", "1")  # type: ignore[attr-defined]
    assert a.is_released()
    a.send(request(Query.QUEUE_POP, "q"))
    assert (a.read_number(), a.read_blob()) == (1, b"1")


@needing("queue_push")
def stale_queue_waiter(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S4. A has popped from q, and waits for another key; a push to q releases it."""
    with serve() as server, Peer(server.port) as a:
        b = server.client()
        _pops_after_waiting(a, b, benign=benign)
        say("A has popped its element, and waits for x, which nobody sets")
        a.wait("x")
        b.queue_push("q", "2")
        released = a.is_released(SILENCE_S)
        a.send(request(Query.GET, "x"))
        value = a.read_blob() if released else None
        exists = b.check(["x"])
    facts = [f"a push to q released A: {released}", f"its get of x returned {value!r}", f"x exists: {exists}"]
    return judge(released and not exists, "a wait is answered for its own keys only", facts)


@needing("queue_push")
def stale_waiter_takes_wake(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S5. A has popped from q and waits for another key; C waits for q; a push wakes A, and not C."""
    with serve() as server, Peer(server.port) as a, Peer(server.port) as c:
        b = server.client()
        _pops_after_waiting(a, b, benign=benign)
        a.wait("x")
        c.wait("q")
        say("A has popped its element, and waits for x; C waits for the next element")
        b.queue_push("q", "2")
        released = c.is_released(SILENCE_S)
        there = b.queue_len("q")
    facts = [f"C was released: {released}", f"elements in q: {there}"]
    return judge(there > 0 and not released, "nobody waits for a queue that has an element", facts)


@needing("queue_push")
def ready_queue_not_counted(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S6. A waits for a queue that has an element, and for a key that is set then. Benign: the queue fills later."""
    with serve() as server, Peer(server.port) as a:
        b = server.client()
        if not benign:
            b.queue_push("q", "1")
            b.queue_len("q")
        a.wait("q", "m")
        if benign:
            b.queue_push("q", "1")
        b.set("m", "1")
        ready = b.check(["q", "m"])
        released = a.is_released(SILENCE_S)
        say(f"check of q and m: {ready}; A, which waits for both, is {'released' if released else 'not released'}")
    return judge(ready and not released, "a wait returns when all its keys are there", [f"released: {released}"])


@needing("queue_push")
def pop_in_two_requests(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S7. A's queue_pop is WAIT and QUEUE_POP; C pops in between. Benign: C pops afterwards."""
    with serve() as server, Peer(server.port) as a:
        b, c = server.client(), server.client()
        b.queue_push("q", "1")
        b.queue_len("q")
        a.send(request(Query.WAIT, "q"))
        answered = a.read(1) == STOP_WAITING
        if not benign:
            with suppress(queue_empty_error()):
                c.queue_pop("q", False)
            say("C pops between A's WAIT, which was answered, and A's QUEUE_POP")
        a.send(request(Query.QUEUE_POP, "q"))
        length = a.read_number()
    facts = [f"A's WAIT was answered: {answered}", f"A's QUEUE_POP found {length} elements"]
    return judge(answered and length == 0, "a blocking pop is never told that the queue is empty", facts)


@needing("queue_push")
def wake_not_passed_on(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S28. A and C wait for q; a push wakes A, whose time is over: it cancels. Benign: it pops, and pushes again."""
    with serve() as server, Peer(server.port) as a, Peer(server.port) as c:
        b = server.client()
        a.wait("q")
        c.wait("q")
        b.queue_push("q", "1")
        woken = a.is_released()
        say(f"A and C wait for q, B pushes an element: A, who came first, is {'' if woken else 'not '}woken")
        if benign:
            a.send(request(Query.QUEUE_POP, "q"))
            assert (a.read_number(), a.read_blob()) == (1, b"1")
            b.queue_push("q", "2")
        else:
            a.send(request(Query.CANCEL_WAIT))
            assert a.read(1) == WAIT_CANCELED
        released = c.is_released(SILENCE_S)
        there = b.queue_len("q")
    facts = [f"A was woken: {woken}", f"C was released: {released}", f"elements in q for anybody: {there}"]
    return judge(there > 0 and not released, "nobody waits for a queue that has an element", facts)

"""S11 to S13 and S27: barriers, with torch's own clients; the peer that is released by a key is written by hand."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from trystate.impl.store.wire import I64
from trystate.model.store.vocabulary import Query

from ...replays import Observation, Say, ScheduleError, finish, judge
from ...torch_release import needing
from ..server import Server, TorchServer
from ..wire import Peer, request
from .waits import SILENCE_S

BRIEFLY, AMPLE = timedelta(milliseconds=200), timedelta(seconds=5)
TWO = I64.pack(2)


def _passes(client: Any, key: str, limit: timedelta = BRIEFLY) -> bool | None:
    """Whether a barrier of two lets this one client through; None if the client says that it cannot know."""
    try:
        client.barrier(key, 2, limit)
    except dist.DistStoreError:
        return False
    except dist.DistNetworkError:
        return None
    return True


@needing("barrier")
def barrier_counts_retries(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S11. Alone at a barrier of two: the first try times out, the second passes. Benign: at another barrier."""
    with serve() as server:
        client = server.client()
        first = _passes(client, "b")
        second = _passes(client, "c" if benign else "b")
    say(f"alone at a barrier of two: first try {_word(first)}, second try {_word(second)}")
    return judge(
        bool(first or second), "a barrier releases only when all have arrived", [f"nobody else came: {second}"]
    )


@needing("barrier")
def barrier_stays_open(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S12. Two pass a barrier; then one comes alone and passes as well. Benign: it comes to a new barrier."""
    with serve() as server:
        a, b = server.client(), server.client()
        passed: list[bool | None] = []
        both = [threading.Thread(target=lambda c=c: passed.append(_passes(c, "b", AMPLE))) for c in (a, b)]
        for thread in both:
            thread.start()
        for thread in both:
            finish(thread)
        if passed != [True, True]:
            raise ScheduleError("two came to a barrier of two, and did not pass")
        alone = _passes(a, "new" if benign else "b")
    say(f"two passed together; then one alone {_word(alone)}")
    return judge(bool(alone), "a barrier can be used again", [f"one of two passed alone: {alone}"])


@needing("barrier")
def barrier_key_written(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S13. A waits at a barrier; B sets a key of that name, and A is released. Benign: B sets another key."""
    with serve() as server, Peer(server.port) as a:
        b = server.client()
        a.block(request(Query.BARRIER, "b") + TWO)
        b.set("other" if benign else "b", "1")
        released = a.is_released(SILENCE_S)
    say(f"A waits at a barrier of two; after B's set it is {'released' if released else 'waiting'}")
    return judge(released, "a barrier releases only when all have arrived", [f"A was released alone: {released}"])


@needing("barrier")
def released_yet_raises(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S27. The second arrival and the end of A's time cross: all are released, and A raises. Benign: in good time."""
    with serve() as server, Peer(server.port) as b:
        client = server.client()
        passed: list[bool | None] = []
        a = threading.Thread(target=lambda: passed.append(_passes(client, "b")))
        a.start()
        watcher = server.client()
        for _ in range(60):
            if watcher.check(["b"]):  # a barrier of torch's is a key: A has arrived; of ours: by the last look
                break
            time.sleep(0.005)
        if not benign:
            server.freeze()
        b.send(request(Query.BARRIER, "b") + TWO)
        if not benign:
            time.sleep(BRIEFLY.total_seconds() + 1)  # so that A's time is over on a busy machine too
            server.thaw()
        finish(a)
        released = b.is_released(SILENCE_S)
    say(f"the second arrival is {'released' if released else 'waiting'}; A's barrier {_word(passed[0])}")
    facts = [f"B was released, so that both had arrived: {released}", f"A's barrier {_word(passed[0])}"]
    return judge(released and passed[0] is False, "who is released returns", facts)


def _word(passed: bool | None) -> str:
    return {True: "passed", False: "timed out", None: "was not answered"}[passed]

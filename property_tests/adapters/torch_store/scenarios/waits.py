"""S1 to S3, S8 and S21: waits, gets, a multi_set. One peer's bytes are sent by hand, the others are torch's clients."""

from __future__ import annotations

from trystate.impl.store.wire import STOP_WAITING, U64
from trystate.model.store.vocabulary import Query

from ...replays import Observation, Say, judge
from ..server import Server, TorchLegacyServer, TorchServer
from ..wire import Peer, request, set_request

SILENCE_S = 0.7  # that no answer comes is known after this long


def spurious_wake(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S1. A waits for a key; B's compare_set stores nothing, and A is released. Benign: B's compare_set stores."""
    with serve() as server, Peer(server.port) as a:
        b = server.client()
        a.wait("k")
        say("A waits for k, which nobody set")
        b.compare_set("k", "" if benign else "x", "v")
        stored = b.check(["k"])
        released = a.is_released(SILENCE_S)
        a.send(request(Query.GET, "k"))
        value = a.read_blob() if released else None
    say(f"B's compare_set {'stored' if stored else 'stored nothing'}; A is {'released' if released else 'waiting'}")
    facts = [f"A's get returned {value!r}", f"k exists: {stored}"]
    return judge(released and not stored, "a get returns only what was set", facts)


def counted_wake(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S2. A waits for a and b; a is set and deleted, then b is set. Benign: a is not deleted."""
    with serve() as server, Peer(server.port) as a:
        b = server.client()
        a.wait("a", "b")
        b.set("a", "1")
        if not benign:
            b.delete_key("a")
        b.set("b", "1")
        say("a was set" + ("" if benign else " and deleted") + ", then b was set")
        together = b.check(["a", "b"])
        released = a.is_released(SILENCE_S)
    facts = [f"the wait for a and b returned: {released}", f"both are there: {together}"]
    return judge(released and not together, "a wait returns only when all its keys are there together", facts)


def get_races_delete(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S3. A's get is WAIT and GET; B deletes the key in between. Benign: B deletes it afterwards."""
    with serve() as server, Peer(server.port) as a:
        b = server.client()
        b.set("k", "v")
        b.check(["k"])
        a.send(request(Query.WAIT, "k"))
        answered = a.read(1) == STOP_WAITING
        if not benign:
            b.delete_key("k")
            say("B deletes k between A's WAIT, which was answered, and A's GET")
        a.send(request(Query.GET, "k"))
        value = a.read_blob()
        b.delete_key("k")
    facts = [f"A's WAIT was answered: {answered}", f"A's get returned {value!r}", "k only ever held b'v'"]
    return judge(answered and value == b"", "a get returns only what was set", facts)


def compare_set_wakes_nobody(say: Say, *, benign: bool = False, serve: type[Server] = TorchLegacyServer) -> Observation:
    """S21, torch's legacy server: B's compare_set creates the key that A waits for. Benign: B's set does."""
    with serve() as server, Peer(server.port) as a:
        b = server.client()
        a.wait("k")
        if benign:
            b.set("k", "v")
        else:
            b.compare_set("k", "", "v")
        exists = b.check(["k"])
        released = a.is_released(SILENCE_S)
        say(f"k exists: {exists}; A, which waits for it, is {'released' if released else 'not released'}")
    return judge(exists and not released, "who waits for a key is released when it is there", [f"released: {released}"])


def multi_set_in_pieces(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S8. A's multi_set of k1 and k2 comes in two packets, B writes k1 in between. Benign: in one packet."""
    body = bytes([Query.MULTI_SET]) + U64.pack(2)
    first = body + set_request("k1", b"old")[1:]
    rest = set_request("k2", b"old")[1:]
    with serve() as server, Peer(server.port) as a:
        b = server.client()
        a.send(first + rest if benign else first)
        seen = _visible(b, "k1")
        half = seen and not b.check(["k2"])
        say(f"half of A's request is there; k1 is {'visible' if half else 'not visible alone'}")
        if benign:
            a.sync()
        b.set("k1", "NEW")
        b.check(["k1"])
        if not benign:
            a.send(rest)
            a.sync()
        value = b.get("k1")
    say(f"B wrote k1 = NEW after it; when the rest has come, k1 is {value!r}")
    again = seen and value != b"NEW"  # not seen before, A's write is the later one
    facts = [f"k1 without k2 was visible: {half}", f"B's later write was overwritten: {again}"]
    return judge(half or again, "a multi_set is atomic", facts)


def _visible(client: object, key: str) -> bool:
    """Whether a key appears within a few round trips."""
    return any(client.check([key]) for _ in range(200))  # type: ignore[attr-defined]

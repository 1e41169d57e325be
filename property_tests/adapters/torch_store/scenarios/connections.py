"""S9, S10, S17 and S23: connections that break off, send half, or do not validate."""

from __future__ import annotations

import time

from trystate.model.store.vocabulary import Query

from ...replays import Observation, Say, judge
from ..server import Server, TorchLegacyServer, TorchServer
from ..wire import VALIDATE, Peer, request, set_request
from .waits import SILENCE_S

APART_S = 0.2  # two packets this far apart are two reads
UPLOADS = 100
UPLOAD_BYTES = 1 << 20


def unvalidated_request_runs(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S9. A stranger sends a SET without VALIDATE, then another packet. Benign: it sends nothing more."""
    with serve() as server, Peer(server.port, greet=False) as stranger:
        b = server.client()
        stranger.send(set_request("k", b"stranger"))
        time.sleep(APART_S)
        say(f"a stranger's SET was sent; carried out: {b.check(['k'])}")
        served = not benign and stranger.is_served()
        landed = b.check(["k"])
    facts = [f"its PING was answered: {served}", f"its SET landed: {landed}"]
    return judge(served or landed, "only who has validated is served", facts)


def split_validate_closes(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S10. A client's VALIDATE comes in two packets, and it is cut off. Benign: in one."""
    with serve() as server, Peer(server.port, greet=False) as client:
        if benign:
            client.send(VALIDATE)
        else:
            client.send(VALIDATE[:3])
            time.sleep(APART_S)
            _quietly(client, VALIDATE[3:])
        time.sleep(APART_S)
        served = client.is_served()
    say(f"VALIDATE came in {'one packet' if benign else 'two packets'}; the client is {'served' if served else 'cut'}")
    return judge(not served, "a request may be cut anywhere", [f"a PING after it was answered: {served}"])


def aborted_upload_kept(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S17. Peers break off while they upload; the server's memory stays taken. Benign: they finish."""
    with serve() as server:
        b = server.client()
        b.set("warm", "up")
        b.check(["warm"])
        before = server.resident_bytes()
        whole = set_request("k", bytes(UPLOAD_BYTES))
        for _ in range(UPLOADS):
            with Peer(server.port) as peer:
                peer.send(whole if benign else whole[: UPLOAD_BYTES // 2])
                if benign:
                    peer.sync()
        b.delete_key("k")
        time.sleep(SILENCE_S)
        grown = server.resident_bytes() - before
    say(f"{UPLOADS} uploads of 1 MiB {'ended' if benign else 'broke off half-way'}: {grown >> 20} MiB more")
    kept = grown > UPLOADS * UPLOAD_BYTES // 4
    return judge(kept, "nothing of a closed connection is left", [f"memory: {grown >> 20} MiB more than before"])


def half_request_blocks(say: Say, *, benign: bool = False, serve: type[Server] = TorchLegacyServer) -> Observation:
    """S23, torch's legacy server: one byte of a stranger, then silence. Benign: the stranger says nothing."""
    with serve() as server, Peer(server.port) as a, Peer(server.port, greet=False) as stranger:
        if not benign:
            stranger.send(VALIDATE[:1])
            time.sleep(APART_S)
        a.send(request(Query.GETNUMKEYS))
        answered = a.read(8, SILENCE_S) is not None
    say(f"a stranger sent {'nothing' if benign else 'one byte'}; A's request was {'' if answered else 'not '}answered")
    return judge(not answered, "a silent peer blocks nobody", [f"answered: {answered}"])


def _quietly(client: Peer, data: bytes) -> None:
    try:
        client.send(data)
    except (BrokenPipeError, ConnectionResetError):
        return

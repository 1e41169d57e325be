"""A server's process among hostile connections: those who behave are served soon, and its memory stays where it was."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from trystate.impl.store.wire import I64, U64, blob
from trystate.model.store.vocabulary import Query
from trystate.property_tests.adapters.torch_store.wire import VALIDATE, Peer, request, set_request
from trystate.property_tests.support.nightly import by_night
from trystate.property_tests.support.stores.besieged import seeds
from trystate.property_tests.support.stores.defects import OurServer, Server, TorchLegacyServer, expected

MIB = 1 << 20
SECONDS = by_night("seconds of hostile connections", 3)
EACH = 12  # connections of each kind at once
ANSWER_SECONDS = 1.0  # on a machine that does other things as well; some 0.0002 otherwise
SEED = 7

PROBES = [  # as nmap-service-probes has them, and what else finds an open port
    b"\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n", b"OPTIONS / RTSP/1.0\r\n\r\n", b"HELP\r\n", b"\x00\x00\x00\xa4\xff\x53SMB",
    b"\x80\x00\x00\x28\x72\xfe\x1d\x13", b"\x00\x0c\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00", b"stats\r\n",
    b"\x03\x00\x00\x0b\x06\xe0\x00\x00\x00\x00\x00", b"*1\r\n$4\r\nINFO\r\n", b"\x30\x0c\x02\x01\x01\x60\x07",
    b"SSH-2.0-x\r\n",
]  # fmt: skip
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(200))

Hostile = Callable[[random.Random], bytes]
HOSTILE: dict[str, Hostile] = {
    "garbage": lambda chance: chance.randbytes(2048),
    "garbage after a handshake": lambda chance: VALIDATE + chance.randbytes(2048),
    "requests, wrong": lambda chance: VALIDATE + _mangled(chance),
    "half of a large value": lambda chance: VALIDATE + set_request("hostile", bytes(MIB))[: chance.randrange(20, MIB)],
    "half of many keys": lambda chance: (
        VALIDATE + bytes((Query.WAIT,)) + U64.pack(100_000) + blob(b"/k") * chance.randrange(5_000)
    ),
    "an endless length": lambda chance: VALIDATE + bytes((Query.SET,)) + blob(b"/k") + U64.pack((1 << 64) - 1),
    "silence": lambda chance: VALIDATE[: chance.randrange(6)],
    "never reading": lambda chance: VALIDATE + request(Query.GET, "large") * 20,
    "waits that never end": lambda chance: VALIDATE + request(Query.WAIT, *(f"never {n}" for n in range(100))),
    "barriers": lambda chance: VALIDATE + request(Query.BARRIER, "hostile") + I64.pack(1 << 40),
    "probes": lambda chance: chance.choice(PROBES),
    "http": lambda chance: b"GET /metrics HTTP/1.1\r\nHost: %d\r\n\r\n" % chance.randrange(100),
    "tls": lambda chance: TLS_HELLO,
}


def _mangled(chance: random.Random) -> bytes:
    data = bytearray(b"".join(siege[2:] for siege in chance.sample(SEEDS, 8)))
    data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


SEEDS = seeds()


@contextmanager
def _besieged(port: int, kinds: list[str]) -> Iterator[Callable[[], None]]:
    """Hostile connections to a server; what is yielded replaces one of them by another, and sends all it can."""
    chance = random.Random(SEED)
    with ExitStack() as stack:
        crowd: list[tuple[Peer, bytes]] = []

        def come() -> None:
            kind = kinds[len(crowd) % len(kinds)] if len(crowd) < EACH * len(kinds) else chance.choice(kinds)
            peer = stack.enter_context(Peer(port, greet=False))
            crowd.append((peer, HOSTILE[kind](chance)))

        def go_on() -> None:
            k = chance.randrange(len(crowd))
            peer, data = crowd[k]
            piece = data[: chance.choice([1, 7, 1000, len(data)])]
            with suppress(OSError):  # it was closed, rightly; or reads no more
                peer.send(piece, 0.005)
            crowd[k] = peer, data[len(piece) :]
            if not data:
                peer.close()
                crowd[k] = crowd[-1]
                crowd.pop()
                come()

        for _ in range(EACH * len(kinds)):
            come()
        yield go_on


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("serve", "kinds"), [
    pytest.param(OurServer, sorted(HOSTILE), id="OurServer"),
    pytest.param(TorchLegacyServer, ["silence"], id="legacy, silence", marks=expected("waits for the rest")),
    pytest.param(TorchLegacyServer, ["never reading"], id="legacy, no reader", marks=expected("waits to write")),
])  # fmt: skip
def test_hostile_connections_neither_delay_the_others_nor_fill_the_server(
    serve: type[Server], kinds: list[str]
) -> None:
    with serve() as server, Peer(server.port) as friend:
        friend.send(set_request("large", bytes(MIB)))
        assert friend.sync()
        before, slowest, asked = server.resident_bytes(), 0.0, 0
        with _besieged(server.port, kinds) as go_on:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                for _ in range(20):
                    go_on()
                asked += 1
                began = time.monotonic()
                friend.send(set_request("mine", b"%d" % asked) + request(Query.GET, "mine"))
                head = friend.read(8, ANSWER_SECONDS)
                assert head is not None, f"no answer within {ANSWER_SECONDS} s (seed {SEED})"
                assert friend.read(len(b"%d" % asked), ANSWER_SECONDS) == b"%d" % asked
                slowest = max(slowest, time.monotonic() - began)
            grown = server.resident_bytes() - before
        print(f"{asked} answers, the slowest in {1000 * slowest:.1f} ms; {grown >> 20} MiB more")
        assert asked > 5
        assert grown < 256 * MIB  # 12 readers of nothing may have 20 MiB each, 12 uploads 1 MiB each
        time.sleep(0.2)
        assert friend.is_served()
        assert server.resident_bytes() - before < 96 * MIB

"""Servers: no peer, however it behaves, costs the others time or the server memory. torch's do."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trystate.impl.store.wire import U64, blob
from trystate.impl.torch_release import is_before
from trystate.model.store.vocabulary import Query
from trystate.property_tests.adapters.torch_store.wire import Peer, request, set_request
from trystate.property_tests.support.stores.defects import (
    SOON_S,
    OurServer,
    Server,
    Servers,
    Timed,
    TorchLegacyServer,
    TorchServer,
    defective,
    servers,
    sound,
)

__all__ = ["servers"]  # the fixture

MIB = 1 << 20
BUFFER_BYTES = 4096  # of torch's libuv server, for one read
TAKES_NOTHING_FOR_THE_END = not is_before("2.7") and is_before("2.8")
HANGS_UP = (BrokenPipeError, ConnectionResetError) if TAKES_NOTHING_FOR_THE_END else ()  # on large requests, at times
FILLED_S = 3.0  # by then what is reserved is filled, on a busy machine
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, preloads a library")
SLOW_NAMES = """
#include <netdb.h>
#include <string.h>
#include <time.h>
int getnameinfo(const struct sockaddr *a, socklen_t n, char *host, socklen_t h, char *serv, socklen_t s, int flags) {
    struct timespec pause = {0, 900000000};
    nanosleep(&pause, 0);
    if (host && h > 4) strcpy(host, "peer");
    if (serv && s > 1) strcpy(serv, "0");
    return 0;
}
"""  # a name server that is slow, or whose packets get lost


@pytest.fixture(scope="module")
def slow_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library in which looking up a peer's name takes longer than anybody should wait."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("names")
    source, library = folder / "names.c", folder / "names.so"
    source.write_text(SLOW_NAMES)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@LINUX
@pytest.mark.parametrize("serve", [
    sound(OurServer),
    defective(TorchServer, "looks up each newcomer's name in its only thread (pytorch/pytorch#159007)"),
    defective(TorchLegacyServer, "looks up each newcomer's name in its only thread (pytorch/pytorch#159007)"),
])  # fmt: skip
def test_newcomers_hold_up_nobody_while_the_name_server_is_slow(
    serve: type[Server], slow_names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(slow_names))
        patch.setattr(TorchServer, "method", "spawn")  # a fork has loaded what it uses already
        server = serve()
    with server, Peer(server.port) as known, Peer(server.port, greet=False):
        time.sleep(0.05)  # the newcomer is being accepted
        known.send(request(Query.GETNUMKEYS))
        assert known.read(8, SOON_S) is not None


@pytest.mark.parametrize("serve", [
    sound(OurServer),
    defective(TorchServer, "reads a frame from its beginning with each piece of it that arrives"),
])  # fmt: skip
def test_a_check_of_many_keys_is_read_in_time_linear_in_its_size(servers: Servers, serve: type[Server]) -> None:
    client = servers(serve).client()
    few, many = ([f"{n:0205d}" for n in range(count)] for count in (2_000, 16_000))
    quick, slow = (min(Timed(lambda: client.check(keys)).seconds for _ in range(3)) for keys in (few, many))  # noqa: B023
    assert slow < 24 * quick + 0.05  # eight times as many keys; sixty-four, if it is quadratic


@pytest.mark.parametrize("serve", [
    sound(OurServer),
    defective(TorchServer, "takes a read that finds nothing, after one that filled its buffer, for the end", *HANGS_UP)
    if TAKES_NOTHING_FOR_THE_END else sound(TorchServer),
    sound(TorchLegacyServer),
])  # fmt: skip
def test_a_request_whose_first_part_fills_the_servers_buffer_is_served(servers: Servers, serve: type[Server]) -> None:
    """torch 2.7 hangs up: libuv reads again after a full buffer, and says 0 bytes where nothing has come yet."""
    sent = set_request("parts", bytes(2 * BUFFER_BYTES))
    with Peer(servers(serve).port) as peer:
        peer.send(sent[:BUFFER_BYTES])
        time.sleep(0.1)  # the server has read it
        peer.send(sent[BUFFER_BYTES:])
        assert peer.is_served()


@LINUX
@pytest.mark.parametrize("serve", [
    sound(OurServer),
    defective(TorchServer, "gathers without bound what a peer does not read", *HANGS_UP),
])  # fmt: skip
def test_replies_that_nobody_reads_are_bounded(servers: Servers, serve: type[Server]) -> None:
    server = servers(serve)
    with Peer(server.port) as greedy, Peer(server.port) as other:
        other.send(set_request("large", bytes(4 * MIB)))
        assert other.sync()
        before = server.resident_bytes()
        greedy.send(request(Query.GET, "large") * 40)
        other.block(request(Query.WAIT, "no such key"))  # by then the server has read the forty
        assert server.resident_bytes() - before < 100 * MIB  # of 160


@LINUX
@pytest.mark.parametrize("serve", [
    sound(OurServer),
    defective(TorchLegacyServer, "reserves and fills what eight bytes announce"),
])  # fmt: skip
def test_a_length_that_is_announced_costs_nothing(servers: Servers, serve: type[Server]) -> None:
    server = servers(serve)
    before = server.resident_bytes()
    with Peer(server.port) as liar:
        liar.send(bytes((Query.SET,)) + blob(b"/k") + U64.pack(256 * MIB))
        until = time.monotonic() + FILLED_S
        while time.monotonic() < until:
            assert server.resident_bytes() - before < 64 * MIB
            time.sleep(0.05)


@pytest.mark.parametrize("serve", [
    sound(OurServer),
    defective(TorchLegacyServer, "blocks in the write to a peer that does not read"),
])  # fmt: skip
def test_a_peer_that_does_not_read_holds_up_nobody(servers: Servers, serve: type[Server]) -> None:
    server = servers(serve)
    with Peer(server.port) as other, Peer(server.port) as greedy:
        greedy.send(set_request("large", bytes(4 * MIB)) + request(Query.GET, "large") * 4)
        time.sleep(0.1)
        other.send(request(Query.GETNUMKEYS))
        assert other.read(8, SOON_S) is not None


@pytest.mark.parametrize("serve", [
    sound(OurServer),
    defective(TorchLegacyServer, "answers before it has read, to who reads only when he has written", TimeoutError),
])  # fmt: skip
def test_a_multi_get_larger_than_all_buffers_is_answered(servers: Servers, serve: type[Server]) -> None:
    count, value = 3_000, bytes(4096)
    keys = [f"{n:04096d}" for n in range(count)]
    with Peer(servers(serve).port) as peer:
        for key in keys:
            peer.send(set_request(key, value))
        assert peer.sync()
        peer.send(request(Query.MULTI_GET, *keys), 2 * SOON_S)
        assert peer.read(count * (8 + len(value))) == blob(value) * count


@pytest.mark.parametrize("serve", [
    sound(OurServer),
    sound(TorchServer),
    defective(TorchLegacyServer, "holds back the length of an empty value for 0.2 s (MSG_MORE)"),
])  # fmt: skip
def test_an_empty_value_is_read_at_once(servers: Servers, serve: type[Server]) -> None:
    client = servers(serve).client()
    client.set("empty", "")
    assert min(Timed(lambda: client.get("empty")).seconds for _ in range(3)) < 0.1

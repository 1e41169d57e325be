"""Workers on sockets between machines, over TLS or bound to a secret, with an adversary on the wire.

Rule: each attack is also done where nothing protects the connection, and succeeds there.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import pytest
import torch

from trystate.impl.host.sealing import Altered, Bound
from trystate.impl.host.tls import Layer, Tls
from trystate.impl.rpc import directory, handshake
from trystate.property_tests.support.adversary import TO_CLIENT, TO_SERVER, Relay, authority, certified, flipping
from trystate.property_tests.support.rpc import functions as f
from trystate.property_tests.support.rpc.worlds import PATIENCE_SECONDS, meet, world
from trystate.rpc import Options, PeerLost
from trystate.store import HashStore

SECRET = b"0123456789abcdef"
KINDS = ("plain", "secret", "tls", "both")


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> list[Tls]:
    """Two members of one authority. The names in their certificates are of no machine."""
    folder = tmp_path_factory.mktemp("tls")
    ca = authority(folder / "ca")
    return [Tls(str(certified(ca, folder / name, f"DNS:{name}"))) for name in ("one", "other")]


@pytest.fixture
def kinds(members: list[Tls]) -> dict[str, Options]:
    given: dict[str, Any] = {"timeout": PATIENCE_SECONDS, "init_timeout": PATIENCE_SECONDS}
    tls, secret = {"tls": members[0]}, {"secret": SECRET}
    each: dict[str, dict[str, Any]] = {"plain": {}, "secret": secret, "tls": tls, "both": {**secret, **tls}}
    return {name: Options(**given, **each[name]) for name in KINDS}


@pytest.fixture(autouse=True)
def machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker counts as the only one on its machine."""
    monkeypatch.setattr(handshake, "machine", str)
    monkeypatch.setattr(directory, "machine", str)


@pytest.fixture
def relays(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[Relay]]]:
    """A function that puts a relay before each worker, and returns the list of the relays."""
    made: list[Relay] = []

    def between(**options: Any) -> list[Relay]:
        def resolved(host: str, port: int, seconds: float) -> Any:
            made.append(Relay(port, **options))
            return [(socket.AF_INET, ("127.0.0.1", made[-1].port))]

        monkeypatch.setattr(handshake, "resolve", resolved)
        return made

    yield between
    for relay in made:
        relay.__exit__()


@pytest.mark.parametrize("name", KINDS)
def test_calls_pass_in_both_directions_at_once(kinds: dict[str, Options], name: str) -> None:
    large = torch.arange(300_000)

    def call(caller: Any, to: int) -> None:
        for number in range(20):
            assert caller.sync(to, f.both, (number,), {"twice": number}, None) == (number, number)
        assert torch.equal(caller.sync(to, f.add, (large, large), None, None), 2 * large)

    with world(2, kinds[name]) as (a, b), ThreadPoolExecutor(6) as threads:
        list(threads.map(call, (a, b) * 3, (1, 0) * 3))


@pytest.mark.parametrize("direction", [TO_SERVER, TO_CLIENT])
@pytest.mark.parametrize("name", KINDS)
def test_an_altered_byte_of_a_call_is_never_accepted(
    kinds: dict[str, Options], name: str, direction: int, relays: Callable[..., list[Relay]]
) -> None:
    """Worker B connects to worker A. The byte is one of a tensor's numbers."""
    found, ones = relays(), torch.ones(64, dtype=torch.int64)
    with world(2, kinds[name]) as (_, b):
        assert b.sync(0, f.add, (ones, ones), None, None).tolist() == [2] * 64
        found[0].attack = flipping(direction, len(found[0].recorded[direction]) + 200)
        if name == "plain":
            assert b.sync(0, f.add, (ones, ones), None, None).tolist() != [2] * 64
        else:
            with pytest.raises(PeerLost):
                b.sync(0, f.add, (ones, ones), None, None)


@pytest.mark.parametrize("name", KINDS)
def test_an_adversary_reads_only_without_tls(
    kinds: dict[str, Options], name: str, relays: Callable[..., list[Relay]]
) -> None:
    found = relays()
    with world(2, kinds[name]) as (_, b):
        b.sync(0, f.both, ("some words",), {"twice": ""}, None)
        assert (b"some words" in found[0].recorded[TO_SERVER]) is (name in ("plain", "secret"))


def test_a_member_with_a_certificate_cannot_relay(
    members: list[Tls], relays: Callable[..., list[Relay]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant proves the key alone, without the certificate; then the relay is not noticed."""
    relays(tls=members[1])
    refused = meet(HashStore(), "ab", Options(init_timeout=2.0, tls=members[0]))
    assert "does not know the group's secret" in refused[1]
    monkeypatch.setattr(Layer, "digest", b"")
    assert meet(HashStore(), "ab", Options(init_timeout=PATIENCE_SECONDS, tls=members[0])) == ["", ""]


def test_tls_of_one_side_only_is_refused(members: list[Tls]) -> None:
    for tls in ([members[0], None], [None, members[0]]):
        refused = meet(HashStore(), "ab", *(Options(init_timeout=1.0, tls=one) for one in tls))
        assert "RpcTimeout" in refused[0] and refused[1] != ""


@pytest.mark.parametrize("size", [1, handshake.REPLY.size - 1, handshake.REPLY.size + 1])
def test_a_greeting_of_another_size_is_refused(size: int) -> None:
    keys, (one, other) = (b"one", b"other"), socket.socketpair()
    with one, other:
        wire = handshake.Wire(one, monotonic() + 30)
        wire.layer = Bound(*keys)
        other.sendall(Bound(*reversed(keys)).sealed(bytes(size)))
        with pytest.raises(Altered, match=f"it sent {size} bytes, not the {handshake.REPLY.size} of a greeting"):
            wire.read(handshake.REPLY.size)

"""A store over TLS, or bound to its secret, with an adversary on the wire; and the errors of wrong files.

Rule: each attack is also done on a store without protection, where it succeeds, so a test cannot pass without it. The
mutants of the records lack the number in the MAC, the direction in the key, or the comparison.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import repeat
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trystate.impl.host import sealing
from trystate.impl.host.sealing import RECORD_BYTES_MAX, Altered, Bound, bound
from trystate.impl.host.tls import AUTHORITY, CERTIFICATE, KEY, Layer, Tls, calling, serving
from trystate.impl.store.client import codec
from trystate.impl.store.client.client import Client
from trystate.impl.store.client.connection import HungUp
from trystate.impl.store.client.rooms import RoomConnection
from trystate.impl.store.errors import ConnectionLost, SecretRefused, StoreError, TlsRefused
from trystate.impl.store.limits import Limits
from trystate.impl.store.tcp import TCPStore
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.impl.store.wire import U64, blob
from trystate.model.errors import TrystateError, UsageError
from trystate.model.store.vocabulary import Query
from trystate.property_tests.adapters.jobs import eventually
from trystate.property_tests.adapters.our_store.wire import add
from trystate.property_tests.adapters.stores.kept import PlantedDisk, Serving
from trystate.property_tests.support.adversary import (
    TO_CLIENT,
    TO_SERVER,
    Relay,
    adding,
    authority,
    certified,
    cutting,
    flipping,
    repeating,
)
from trystate.property_tests.support.mutants import Mutant, replaced, survivors, wrapped
from trystate.property_tests.support.stores.besieged import QUICK

HOST = "127.0.0.1"
SECRET = b"0123456789abcdef"
SECONDS = timedelta(seconds=30)
SOON = timedelta(seconds=1)
AT_ONCE = timedelta(seconds=0.1)  # a refused client tries again until then
Kind = dict[str, Any]
KINDS = ("plain", "secret", "tls", "both")
GUARDED = KINDS[1:]
POSITIONS = 10  # bytes of each direction that are attacked


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def files(ca: Path) -> Path:
    return certified(ca, ca.parent / "member")


@pytest.fixture
def kinds(files: Path) -> dict[str, Kind]:
    tls = Tls(str(files))
    return {"plain": {}, "secret": {"secret": SECRET}, "tls": {"tls": tls}, "both": {"secret": SECRET, "tls": tls}}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, kinds: dict[str, Kind]) -> Kind:
    return kinds[request.param]


def served(kind: Kind, lines: list[str] | None = None, **more: Any) -> TCPStoreServer:
    return TCPStoreServer(run_in="thread", log=([] if lines is None else lines).append, **kind, **more)


def client(port: int, kind: Kind, within: timedelta = SECONDS) -> TCPStore:
    return TCPStore(HOST, port, timeout=within, **kind)


def test_every_kind_of_request_passes(kind: Kind) -> None:
    with served(kind) as server, client(server.port, kind) as store, store.clone() as other:
        large = "x" * 3_000_000
        store.multi_set(["a", "large"], ["1", large])
        assert other.multi_get(["a", "large"]) == [b"1", large.encode()]
        assert [store.add("n", 2), store.compare_set("a", "1", "2"), store.check(["a", "none"])] == [2, b"2", False]
        changed = threading.Event()
        store.watch_key("w", lambda _: changed.set())
        waits = threading.Thread(target=other.wait, args=(["w"],))
        waits.start()
        store.set("w", "")
        waits.join()
        assert changed.wait(SECONDS.total_seconds())
        RoomConnection.open(store, "job", 5.0).close()


def test_a_server_process_uses_the_files(kinds: dict[str, Kind]) -> None:
    with TCPStore(HOST, 0, 1, True, SECONDS, **kinds["tls"]) as master, client(master.port, kinds["tls"]) as store:
        store.set("k", "v")
        assert master.get("k") == b"v"


# An adversary on the wire.


def visit(kind: Kind, relay: Relay, within: timedelta) -> str:
    """A client behind the relay writes and reads; returns the value that it has read, or "refused"."""
    try:
        with client(relay.port, kind, within) as store:
            store.set("key", "value")
            return store.get("key").decode("latin-1")
    except (TrystateError, OSError, ValueError, UnicodeError):
        return "refused"


def spread(recorded: bytes) -> Iterable[int]:
    return range(0, len(recorded), max(1, len(recorded) // POSITIONS))


def forged(
    kind: Kind, attack: Callable[[int, int], Any], direction: int, where: Callable[[bytes], Iterable[int]] = spread
) -> list[str]:
    """Other keys or values at the server or at the client, after an attack at each of some positions."""
    with served(kind) as server, client(server.port, kind) as direct:
        with Relay(server.port) as relay:
            assert visit(kind, relay, SECONDS) == "value"
            positions = where(bytes(relay.recorded[direction]))
        found = []
        for position in positions:
            for key in direct.list_keys():
                direct.delete_key(key)
            with Relay(server.port, attack(direction, position)) as relay:
                read = visit(kind, relay, AT_ONCE)
            stored = {key: direct.get(key) for key in direct.list_keys()}
            if read not in ("value", "refused") or stored not in ({}, {"key": b"value"}):
                found.append(f"{position}: {read!r} {stored}")
        return found


@pytest.mark.parametrize("direction", [TO_SERVER, TO_CLIENT])
@pytest.mark.parametrize("attack", [flipping, cutting])
@pytest.mark.parametrize("name", GUARDED)
def test_an_altered_or_missing_byte_is_never_accepted(
    kinds: dict[str, Kind], name: str, attack: Callable[[int, int], Any], direction: int
) -> None:
    assert forged(kinds[name], attack, direction) == []


@pytest.mark.parametrize("direction", [TO_SERVER, TO_CLIENT])
def test_without_protection_an_altered_byte_is_accepted(direction: int) -> None:
    assert forged({}, flipping, direction, lambda recorded: [recorded.index(b"value")])


def test_terms_that_a_relay_has_altered_are_refused(kinds: dict[str, Kind]) -> None:
    """The limits of the server come before the proof of its secret, which covers them."""
    lines: list[str] = []
    with served(kinds["secret"], lines) as server, Relay(server.port, flipping(TO_CLIENT, 5 + 2 + 8 + 32)) as relay:
        with pytest.raises(SecretRefused, match="proof of the secret is wrong"):
            client(relay.port, kinds["secret"])
        eventually("the server logs it", lambda: bool(lines))
    assert "relay" in lines[0]


@pytest.mark.parametrize("name", ["plain", "secret"])
def test_bytes_that_a_relay_adds_to_a_proof_begin_no_request(kinds: dict[str, Kind], name: str) -> None:
    """They would begin a request whose rest are the opened bytes of the client. Its value is then read as a request."""
    position = len(codec.GREETING) + (0 if name == "plain" else len(codec.HELLO))
    head = bytes((Query.CHECK,)) + U64.pack(1) + U64.pack(1 + 8 + len("/key") + 8)
    with served(kinds[name]) as server, client(server.port, kinds[name]) as direct:
        relay = Relay(server.port, adding(TO_SERVER, position, head))
        with relay, contextlib.suppress(TrystateError), client(relay.port, kinds[name], AT_ONCE) as store:
            store.set("key", bytes((Query.SET,)) + blob(b"/forged") + blob(b"value"))
        assert direct.list_keys() == (["forged"] if name == "plain" else [])


def test_bytes_that_a_relay_adds_to_the_proof_of_the_server_are_refused(kinds: dict[str, Kind]) -> None:
    with served(kinds["secret"]) as server:
        with Relay(server.port) as relay, client(relay.port, kinds["secret"]):
            proof = len(relay.recorded[TO_CLIENT]) - (1 + 8 + 32)
        refused = pytest.raises(SecretRefused, match="a relay has added bytes to the server's proof")
        with Relay(server.port, adding(TO_CLIENT, proof, b"\0")) as relay, refused:
            client(relay.port, kinds["secret"])


@pytest.mark.parametrize("name", KINDS)
def test_a_replayed_connection_changes_nothing(kinds: dict[str, Kind], name: str) -> None:
    kind = kinds[name]
    with served(kind) as server, client(server.port, kind) as direct:
        with Relay(server.port) as relay, client(relay.port, kind) as store:
            assert store.add("n", 1) == 1
        with socket.create_connection((HOST, server.port), timeout=30) as thief:
            thief.sendall(relay.recorded[TO_SERVER])
            thief.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while thief.recv(1 << 16):
                    pass
        assert direct.add("n", 0) == (2 if name == "plain" else 1)


@pytest.mark.parametrize("name", KINDS)
def test_a_repeated_piece_of_a_connection_changes_nothing(kinds: dict[str, Kind], name: str) -> None:
    kind = kinds[name]
    with served(kind) as server, client(server.port, kind) as direct:
        relay = Relay(server.port)
        with relay, client(relay.port, kind, SOON) as store, contextlib.suppress(StoreError, ConnectionLost):
            relay.attack = repeating(TO_SERVER, len(relay.recorded[TO_SERVER]))
            store.add("n", 1)
            store.get("n")  # on a guarded connection the server has hung up
        assert (direct.add("n", 0) == 2) is (name == "plain")


def test_an_adversary_reads_only_without_tls(kind: Kind) -> None:
    with served(kind) as server, Relay(server.port) as relay, client(relay.port, kind) as store:
        store.set("some key", "some value")
        assert (b"some value" in relay.recorded[TO_SERVER]) is ("tls" not in kind)
        assert SECRET not in relay.recorded[TO_SERVER]


# Only one side, or the wrong files.


def test_a_client_without_tls_is_refused_with_the_remedy(kinds: dict[str, Kind]) -> None:
    lines: list[str] = []
    with served(kinds["tls"], lines) as server, pytest.raises(TlsRefused, match=r"requires TLS; give tls=FOLDER"):
        client(server.port, {})
    assert "it speaks without TLS: give the client `tls`" in lines[0]


def test_a_server_without_tls_is_reported(kinds: dict[str, Kind]) -> None:
    lines: list[str] = []
    with served({}, lines) as server, pytest.raises(ConnectionLost, match="handshake of TLS: see whether the peer has"):
        client(server.port, kinds["tls"], SOON)
    assert "TLS; start the server with `tls`" in lines[0]


def test_a_stranger_that_is_silent_or_slow_is_disconnected(kinds: dict[str, Kind]) -> None:
    lines: list[str] = []
    with (
        served(kinds["tls"], lines, limits=Limits(handshake_seconds=0.2)) as server,
        socket.create_connection((HOST, server.port), timeout=30) as silent,
    ):
        silent.sendall(b"\x16\x03\x01")
        assert silent.recv(1) == b""
    assert "raise handshake_seconds" in lines[0]


def test_a_record_that_stays_half_sent_ends_its_connection() -> None:
    lines: list[str] = []
    with served({"secret": SECRET}, lines, limits=Limits(half_sent_seconds=1)) as server:
        made = Client(HOST, server.port, SECRET)
        whole, half = made.open(30), made.open(30)
        for connection in (whole, half):
            assert connection.layer is not None
            record = connection.layer.sealed(codec.PING)
            os.write(connection.fd, record[:-1])
            if connection is whole:
                os.write(connection.fd, record[-1:])
                whole.read(codec.pong(), monotonic() + 30)  # nothing else happens at the server from now on
        with pytest.raises(HungUp):
            half.read(codec.pong(), monotonic() + 30)
        whole.ask(codec.PING, codec.pong, 30)
    assert len(lines) == 1
    assert "raise half_sent_seconds" in lines[0]


def test_a_broken_record_stalls_no_reply_of_another_client(kinds: dict[str, Kind], tmp_path: Path) -> None:
    """The reply to its client waits for the disk, and cannot be sealed any more."""
    tls, disk = kinds["tls"]["tls"], PlantedDisk()
    with Serving(tmp_path, disk, tls=tls) as server, client(server.port, kinds["tls"]) as store:
        breaks, made = Client(HOST, server.port, None, tls).open(30), server.directory.contents.values
        assert breaks.layer is not None
        with ThreadPoolExecutor(1) as thread:
            with disk.held():
                os.write(breaks.fd, breaks.layer.sealed(add(b"/n", 1)))
                eventually("its change is made", lambda: b"/n" in made)
                record = breaks.layer.sealed(codec.PING)
                os.write(breaks.fd, record[:-1] + bytes((record[-1] ^ 1,)))
                eventually("the server logs it", lambda: bool(server.lines))
                other = thread.submit(store.add, "m", 1)
                eventually("the other change is made", lambda: b"/m" in made)
            assert other.result(5) == 1
        os.set_blocking(breaks.fd, True)
        eventually("its connection is closed", lambda: not os.read(breaks.fd, 1 << 16))
        breaks.close()
        assert len(server.lines) == 1, server.lines


def test_certificates_of_another_authority_are_refused(kinds: dict[str, Kind], tmp_path: Path) -> None:
    other = certified(authority(tmp_path / "ca"), tmp_path / "other")
    with served(kinds["tls"]) as server, pytest.raises(TlsRefused, match="certificate is refused: self-signed"):
        client(server.port, {"tls": Tls(str(other))})


def test_a_client_whose_authority_the_server_does_not_know_is_refused(
    kinds: dict[str, Kind], files: Path, tmp_path: Path
) -> None:
    """The client trusts both authorities; the server trusts its own only, and that ends the connection."""
    stranger = certified(authority(tmp_path / "ca"), tmp_path / "stranger")
    with (stranger / AUTHORITY).open("ab") as both:
        both.write((files / AUTHORITY).read_bytes())
    lines: list[str] = []
    with served(kinds["tls"], lines) as server, pytest.raises(TlsRefused, match="alert unknown ca; see the server's"):
        client(server.port, {"tls": Tls(str(stranger))})
    assert "closed: " in lines[0]


def test_the_name_of_the_server_is_checked(ca: Path, kinds: dict[str, Kind], tmp_path: Path) -> None:
    elsewhere = Tls(str(certified(ca, tmp_path / "elsewhere", "DNS:elsewhere")))
    with served({"tls": elsewhere}) as server, pytest.raises(TlsRefused, match=r"not valid for '127\.0\.0\.1'"):
        client(server.port, kinds["tls"])


def test_wrong_files_are_refused_before_anything_listens(ca: Path, files: Path, tmp_path: Path) -> None:
    def copied(name: str) -> Path:
        return Path(shutil.copytree(files, tmp_path / name))

    missing, swapped, empty, readable = map(copied, ("missing", "swapped", "empty", "readable"))
    (missing / KEY).unlink()
    shutil.copy(certified(ca, tmp_path / "another") / KEY, swapped / KEY)
    (empty / AUTHORITY).write_bytes(b"")
    (readable / KEY).chmod(0o644)
    expired, foreign = certified(ca, tmp_path / "expired", days=-1), copied("foreign")
    shutil.copy(authority(tmp_path / "ca") / AUTHORITY, foreign / AUTHORITY)
    for folder, why in {
        missing: "cannot read .*tls.key .*No such file",
        swapped: "tls.crt and tls.key cannot be used: key values mismatch",
        empty: "ca.crt cannot be used",
        readable: "open to every user of this machine: chmod o-rw",
        expired: "tls.crt is refused: certificate has expired",
        foreign: "tls.crt is refused: .*that the authority in ca.crt has signed",
    }.items():
        with pytest.raises(UsageError, match=why) as refused:
            Tls(str(folder))
        assert str(folder) in str(refused.value)


def test_new_files_are_used_by_new_connections(ca: Path, tmp_path: Path) -> None:
    """A server or a client with wrong new files continues with the old ones, and uses the next valid ones."""
    folder = certified(ca, tmp_path / "server")
    trusting = certified(ca, tmp_path / "client")
    later = authority(tmp_path / "later")
    with (trusting / AUTHORITY).open("ab") as both:
        both.write((later / AUTHORITY).read_bytes())
    tls = Tls(str(trusting))
    with served({"tls": Tls(str(folder))}) as server, client(server.port, {"tls": tls}) as old:
        first = tls_digest(server.port, tls)
        (folder / CERTIFICATE).write_text("half a file")
        valid = (trusting / CERTIFICATE).read_bytes()
        (trusting / CERTIFICATE).write_text("half a file")
        assert tls_digest(server.port, tls) == first
        (trusting / CERTIFICATE).write_bytes(valid)
        certified(later, folder)
        with (folder / AUTHORITY).open("ab") as both:
            both.write((ca / AUTHORITY).read_bytes())
        assert tls_digest(server.port, tls) != first
        old.set("k", "the old connection remains")
        with client(server.port, {"tls": tls}) as new:
            assert new.get("k") == b"the old connection remains"


def tls_digest(port: int, tls: Tls) -> bytes:
    """The digest of the certificate that a server has for a new connection."""
    layer = calling(tls)
    with socket.create_connection((HOST, port), timeout=30) as sock:
        layer.shake(sock, monotonic() + 30)
        return layer.digest


class Interrupted:
    """OpenSSL's object of a layer; a signal handler seals a message in the middle of each reading."""

    def __init__(self, layer: Layer) -> None:
        self.layer, self.tls, self.sealed = layer, layer._tls, b""

    def read(self, size: int) -> bytes:
        assert self.layer._lock.acquire(blocking=False), "the handler would wait for the frame that it interrupts"
        self.layer._lock.release()
        self.sealed += self.layer.sealed(b"signal")
        return self.tls.read(size)

    def write(self, data: bytes) -> int:
        return self.tls.write(data)


class Briefly:
    """The output of a layer, whose reads are short. A read of OpenSSL's own output returns less than 2 GiB."""

    MOST = 1 << 20

    def __init__(self, layer: Layer) -> None:
        self.out = layer._out

    def read(self) -> bytes:
        return self.out.read(self.MOST)


@pytest.fixture
def layers(files: Path) -> tuple[Layer, Layer]:
    """Of a client and a server, after the handshake."""
    tls = Tls(str(files))
    sides = sender, receiver = calling(tls, HOST), serving(tls)
    while not (sender.step() and receiver.shaken):
        receiver.feed(sender.answer())
        sender, receiver = receiver, sender
    return sides


def test_a_signal_handler_seals_while_its_thread_opens(layers: tuple[Layer, Layer]) -> None:
    one, other = layers
    one._tls = interrupted = Interrupted(one)  # type: ignore[assignment]
    assert one.opened(other.sealed(b"message")) == b"message"
    assert other.opened(interrupted.sealed).startswith(b"signal")


def test_a_message_is_sealed_as_a_whole(layers: tuple[Layer, Layer]) -> None:
    one, other = layers
    one._out = Briefly(one)  # type: ignore[assignment]
    message = bytes(3 * Briefly.MOST)
    assert other.opened(one.sealed(message)) == message


# ---- records that are bound to the secret

NONCES = b"s" * 32, b"c" * 32
MESSAGES = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5)


def pair() -> tuple[Bound, Bound]:
    return bound(SECRET, *NONCES, server=True), bound(SECRET, *NONCES, server=False)


def delivered(receiver: Bound, pieces: list[bytes]) -> bytes:
    """The bytes that the receiver returns before it refuses a piece."""
    found = b""
    try:
        for piece in pieces:
            found += receiver.opened(piece)
    except Altered:
        pass
    return found


@st.composite
def attacks(draw: st.DrawFn) -> tuple[list[bytes], list[bytes]]:
    """The messages of a client, and its records as a relay delivers them."""
    messages = draw(MESSAGES)
    server, client = pair()
    records = [client.sealed(message) for message in messages]
    own = [server.sealed(b"own" + message) for message in messages]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(records) - 1))
        match draw(st.sampled_from(["drop", "repeat", "swap", "flip", "cut", "reflect"])):
            case "drop" if len(records) > 1:
                del records[at]
            case "repeat":
                records.insert(at, records[at])
            case "swap":
                records[at], records[0] = records[0], records[at]
            case "reflect":
                records[at] = own[at % len(own)]
            case how:
                place = draw(st.integers(0, len(records[at]) - 1))
                record = bytearray(records[at])
                record[place] ^= 1 << draw(st.integers(0, 7))
                records[at] = records[at][:place] if how == "cut" and place else bytes(record)
    return messages, records


def gets_a_beginning(attack: tuple[list[bytes], list[bytes]]) -> None:
    messages, records = attack
    server, _ = pair()
    assert b"".join(messages).startswith(delivered(server, records))


test_the_receiver_gets_a_beginning_of_what_was_sent = given(attacks())(gets_a_beginning)


@given(MESSAGES, st.data())
def test_records_may_arrive_in_any_pieces(messages: list[bytes], data: st.DataObject) -> None:
    server, client = pair()
    stream, pieces = b"".join(map(client.sealed, messages)), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        pieces.append(stream[:size])
        stream = stream[size:]
    assert delivered(server, pieces) == b"".join(messages)


def test_an_empty_message_is_no_record() -> None:
    """A list of no values is empty in torch's protocol."""
    assert pair()[0].sealed(b"") == b""


@pytest.mark.parametrize("size", [0, RECORD_BYTES_MAX + 1, 0xFFFFFFFF])
def test_an_impossible_size_is_refused_before_the_body_is_read(size: int) -> None:
    with pytest.raises(Altered, match=f"a record of {size} bytes"):
        pair()[0].opened(size.to_bytes(4, "little") + bytes(16))


def test_a_record_of_another_connection_is_refused() -> None:
    _, client = pair()
    for other in (bound(SECRET, bytes(32), NONCES[1], server=True), bound(SECRET, *NONCES, b"+", server=True),
                  bound(b"another secret..", *NONCES, server=True)):  # fmt: skip
        with pytest.raises(Altered):
            other.opened(client.sealed(b"message"))


MUTANTS: dict[str, Mutant] = {
    "without numbers": replaced(sealing, "count", lambda: repeat(0)),
    "with one key": wrapped(hmac, "digest", lambda right: lambda key, text, how: right(key, text.replace(b"server",
        b"client"), how)),
    "without a comparison": replaced(hmac, "compare_digest", lambda one, other: True),
}  # fmt: skip


def test_mutants_of_the_records_are_noticed() -> None:
    assert survivors(MUTANTS, settings(QUICK)(given(attacks())(gets_a_beginning))) == []

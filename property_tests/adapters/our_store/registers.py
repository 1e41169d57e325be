"""`Registers` on a real server: a request is sent when the model's server takes it."""

from __future__ import annotations

from collections.abc import Mapping

from trystate.impl.store.wire import U64, blobs, counted
from trystate.model.store.registers import Registers
from trystate.model.store.vocabulary import Query

from ...harness.subjects import Disagreement
from .lines import Server, Settling
from .peers import Message, Others, Peer, Reader, accepted, cells, fresh_name
from .wire import check, compare_set, delete, get, request

TAKEN = ("take_compare_set", "take_delete", "take_multi_get", "take_half", "take_rest")


def silence(data: bytes) -> tuple[Message, int] | None:
    """The reader of a request without an answer."""
    return None


def values(count: int) -> Reader:
    """A reader of `count` values; an empty value means that the key has no value."""

    def read(data: bytes) -> tuple[Message, int] | None:
        found, position = [0, 0], 0
        for n in range(count):
            size = int.from_bytes(data[position : position + 8], "little")
            position += 8 + size
            if len(data) < position:
                return None
            found[n] = int(data[position - size : position] or b"0")
        return {"first": found[0], "second": found[1]}, position

    return read


def existed(width: int) -> Reader:
    """A reader of a number of `width` bytes: whether the key had a value."""

    def read(data: bytes) -> tuple[Message, int] | None:
        number = int.from_bytes(data[:width], "little")
        return ({"first": number, "second": 0}, width) if len(data) >= width and number < 2 else None

    return read


def encoded(value: int) -> bytes:
    return b"%d" % value if value else b""


class RegistersSubject(Settling):
    """A server that takes the model's steps; shows the values of the keys and the unread answers.

    With `extended`, clients compare and delete with our requests; a MULTI_SET in pieces is always torch's.
    """

    def __init__(self, system: Registers, server: Server, *, extended: bool = False) -> None:
        self.system, self._server, self._extended = system, server, extended
        self._clients, self._keys = system.sizes["client"], system.sizes["key"]
        self._steps = {
            **dict.fromkeys(TAKEN, lambda client: self._peers[client].send()),
            "ask_to_create": lambda client, key, value: self._compare(client, key, 0, value + 1),
            "ask_to_change": lambda client, key, old, new: self._compare(client, key, old + 1, new + 1),
            "read_answer": lambda client: self._peers[client].take(),
        }  # fmt: skip

    def reset(self) -> None:
        self._server.close()
        self._names = [fresh_name(f"register {n}") for n in range(self._keys)]
        self._peers = {client: Peer(self._server, silence) for client in range(self._clients)}
        self._rest: dict[int, bytes] = {}
        self._others = Others(self._server)
        self._server.settle()

    def observe(self) -> Mapping[str, int]:
        """The value of each key, and the unread answers of each client."""
        seen = {f"stored[{n}]": self._value(name) for n, name in enumerate(self._names)}
        for client, peer in self._peers.items():
            peer.look()
            if peer.line.is_cut and not peer.is_lost:
                raise Disagreement(f"the server has closed the connection of client {client}")
            seen |= cells("answers", 1, peer.unread, client)
        return seen

    def _value(self, name: bytes) -> int:
        missing = self._others.ask(check(name))
        answer = self._others.ask(get(name))
        text = answer[8:]
        if answer[:8] != U64.pack(len(text)) or bool(text) is (missing != b"\x00"):
            raise Disagreement(f"CHECK and GET of {name!r} are answered with {missing!r} and {answer!r}")
        return int(text or b"0")

    # ---- requests of clients

    def _compare(self, client: int, key: int, expected: int, desired: int) -> None:
        torchs, ours = compare_set(self._names[key], encoded(expected), encoded(desired))
        self._peers[client].ask(*((ours, accepted(values(1))) if self._extended else (torchs, values(1))))

    def _ask_to_delete(self, client: int, key: int) -> None:
        torchs, ours, _ = delete(self._names[key])
        self._peers[client].ask(*((ours, accepted(existed(1))) if self._extended else (torchs, existed(8))))

    def _ask_for_all(self, client: int) -> None:
        self._peers[client].ask(request(Query.MULTI_GET, counted(self._names)), values(self._keys))

    def _send_half(self, client: int, value: int) -> None:
        pairs = [text for name in self._names for text in (name, encoded(value + 1))]
        whole = request(Query.MULTI_SET, U64.pack(len(self._names)), blobs(pairs))
        middle = 1 + 8 + len(blobs(pairs[:3]))  # up to the value of the second key
        self._peers[client].ask(whole[:middle])
        self._rest[client] = whole[middle:]

    def _send_rest(self, client: int) -> None:
        self._peers[client].ask(self._rest.pop(client))

    def _drop(self, client: int) -> None:
        peer = self._peers[client]
        peer.lose()
        peer.end()

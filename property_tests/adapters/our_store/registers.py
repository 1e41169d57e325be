"""`Registers` and `Frames` on a real server: a request is sent when the model's server takes it, and the bytes of a
connection are cut into the model's packets.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from trystate.impl.store.wire import U64, blob, blobs, counted
from trystate.model.store.frames import Frames
from trystate.model.store.registers import Registers
from trystate.model.store.vocabulary import Query

from ...harness.subjects import Disagreement
from .lines import Line, Message, Others, Peer, Reader, Server, Settling, accepted, cells, fresh_name
from .wire import VALIDATE, compare_set, delete, request, set_

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
        seen = {f"stored[{n}]": self._others.number(name) for n, name in enumerate(self._names)}
        for client, peer in self._peers.items():
            peer.look()
            if peer.line.is_cut and not peer.is_lost:
                raise Disagreement(f"the server has closed the connection of client {client}")
            seen |= cells("answers", 1, peer.unread, client)
        return seen

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


FIRST, SECOND = b"/first", b"/second"
UNKNOWN = 0x3F  # no request of torch's or ours has this type
PADDING = 4096  # zeros before the value of the second key: each continuation of a MULTI_SET sends one byte


class FramesSubject(Settling):
    """A server that takes the model's steps; shows the values of both keys, and checks that connections are closed."""

    def __init__(self, system: Frames, server: Server) -> None:
        self.system = system
        self._server = server
        self._steps = {
            "validate": partial(self._send, VALIDATE),
            "begin_to_validate": partial(self._send, VALIDATE[:3]),
            "end_to_validate": partial(self._send, VALIDATE[3:]),
            "stranger_is_ignored": self._set, "stranger_is_refused": self._set,
            "stranger_is_served": partial(self._send, request(Query.PING, b"more")),
            "ask": self._note, "serve": self._set, "set_ends": self._rest, "multi_set_ends": self._rest,
        }  # fmt: skip

    def reset(self) -> None:
        self._server.close()
        self._lines: dict[int, Line] = {}
        self._unsent: dict[int, bytes] = {}
        self._observer = Others(self._server)
        for key in (FIRST, SECOND):
            self._observer.tell(request(Query.DELETE_KEY, blob(key)))

    def observe(self) -> Mapping[str, int]:
        """The values of both keys."""
        return {"first": self._observer.number(FIRST), "second": self._observer.number(SECOND)}

    # ---- steps

    def _own(self, connection: int) -> bytes:
        return b"%d" % (connection + 1)

    def _whole(self, connection: int) -> bytes:
        """The SET of the first key."""
        return set_(FIRST, self._own(connection))

    def _connect(self, connection: int) -> None:
        self._lines[connection] = self._server.connect()

    def _send(self, data: bytes, connection: int) -> None:
        self._lines[connection].send(data)

    def _split_validate_is_refused(self, connection: int) -> None:
        self._send(VALIDATE[:3], connection)
        self._server.settle()
        self._send(VALIDATE[3:], connection)

    def _set(self, connection: int) -> None:
        self._lines[connection].send(self._whole(connection))

    def _ask_the_unknown(self, connection: int) -> None:
        self._send(bytes([UNKNOWN]), connection)

    def _note(self, connection: int) -> None:
        """Send nothing: a server serves a request at once, so the request is sent in the step that serves it."""

    def _begin(self, connection: int, data: bytes, first: int) -> None:
        self._lines[connection].send(data[:first])
        self._unsent[connection] = data[first:]

    def _set_begins(self, connection: int) -> None:
        whole = self._whole(connection)
        self._begin(connection, whole, len(whole) // 2)

    def _multi_set_begins(self, connection: int) -> None:
        own = self._own(connection)
        head = request(Query.MULTI_SET, U64.pack(2), blob(FIRST), blob(own))
        value = b"0" * PADDING + own
        self._begin(connection, head + blob(SECOND) + blob(value), len(head) + 8 + len(SECOND) + 8)

    def _multi_set_goes_on(self, connection: int) -> None:
        self._begin(connection, self._unsent[connection], 1)

    def _rest(self, connection: int) -> None:
        self._lines[connection].send(self._unsent.pop(connection))

    def _hang_up(self, connection: int) -> None:
        self._lines.pop(connection).hang_up()
        self._unsent.pop(connection, None)

    def _clean_up(self, connection: int) -> None:
        line = self._lines.pop(connection, None)
        if line is None:
            return
        for _ in range(100):
            line.read()
            if line.is_cut:
                return
            self._server.settle()
        raise Disagreement(f"the server has not closed connection {connection}")

"""`Frames` on a real server: the bytes of each connection are cut into the model's packets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from trystate.impl.store.wire import U64, blob
from trystate.model.store.frames import Frames
from trystate.model.store.vocabulary import Query

from ...harness.subjects import Disagreement
from .lines import Line, Server, Settling
from .wire import VALIDATE, check, get, request, set_

FIRST, SECOND = b"/first", b"/second"
UNKNOWN = 0x3F  # no request of torch's or ours has this type
PADDING = 4096  # zeros before the value of the second key: each continuation of a MULTI_SET sends one byte


class FramesSubject(Settling):
    """A server that takes the model's steps; shows the values of both keys, and checks that connections are closed."""

    def __init__(self, system: Frames, server: Server) -> None:
        self.system = system
        self._server = server
        self._observer: Line = server.connect()
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
        self._observer = self._server.connect()
        self._observer.send(VALIDATE)
        for key in (FIRST, SECOND):
            self._observer.send(request(Query.DELETE_KEY, blob(key)))
        self._server.settle()
        self._observer.read()

    def observe(self) -> Mapping[str, int]:
        """The values of both keys."""
        return {"first": self._value(FIRST), "second": self._value(SECOND)}

    def _value(self, key: bytes) -> int:
        self._observer.send(check(key))
        self._observer.send(get(key))
        self._server.settle()
        answer = self._observer.read()
        missing, size = answer[0], U64.unpack_from(answer, 1)[0]
        if len(answer) != 9 + size:
            raise Disagreement(f"CHECK and GET of {key!r} were answered with {answer!r}")
        return 0 if missing else int(answer[9:])

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

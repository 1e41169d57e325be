"""`Frames` on a real server: each connection's bytes, cut into packets as the model cuts them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trystate.impl.store.wire import U64, blob
from trystate.model.store.frames import Frames
from trystate.model.store.vocabulary import Query

from ...harness.subjects import Disagreement
from .lines import Line, Server
from .wire import VALIDATE, check, get, request, set_

FIRST, SECOND = b"/first", b"/second"
UNKNOWN = 0x3F  # the type of no request, torch's or ours
PADDING = 4096  # zeros before the value of the second key: a MULTI_SET can go on that often


class FramesSubject:
    """A server behind the model's steps: shows the values of both keys, and that closed connections are closed."""

    def __init__(self, system: Frames, server: Server) -> None:
        self.system = system
        self._server = server
        self._observer: Line = server.connect()
        self._steps: dict[str, Callable[[int], None]] = {
            "connect": self._connect, "validate": self._validate, "begin_to_validate": self._begin_to_validate,
            "end_to_validate": self._end_to_validate, "split_validate_is_refused": self._split_validate,
            "stranger_is_ignored": self._set, "stranger_is_served": self._ping, "stranger_is_refused": self._set,
            "ask": self._note, "serve": self._set, "set_begins": self._set_begins, "set_ends": self._rest,
            "multi_set_begins": self._multi_set_begins, "multi_set_goes_on": self._goes_on,
            "multi_set_ends": self._rest, "ask_the_unknown": self._ask_the_unknown,
            "hang_up": self._hang_up, "clean_up": self._clean_up,
        }  # fmt: skip

    def reset(self) -> None:
        self._server.close()
        self._lines: dict[int, Line] = {}
        self._unsent: dict[int, bytes] = {}
        self._observer = self._server.connect()
        self._observer.send(self._server.greeting)
        for key in (FIRST, SECOND):
            self._observer.send(self._server.encode(request(Query.DELETE_KEY, blob(key))))
        self._server.settle()
        self._observer.read()

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        self._steps[step](indices[0])
        self._server.settle()

    def can_refuse(self, step: str) -> bool:
        return False  # only the server can refuse a peer's bytes, and that is a step

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
        return self._server.encode(set_(FIRST, self._own(connection)))

    def _connect(self, connection: int) -> None:
        self._lines[connection] = self._server.connect()

    def _validate(self, connection: int) -> None:
        self._lines[connection].send(VALIDATE)

    def _begin_to_validate(self, connection: int) -> None:
        self._lines[connection].send(VALIDATE[:3])

    def _end_to_validate(self, connection: int) -> None:
        self._lines[connection].send(VALIDATE[3:])

    def _split_validate(self, connection: int) -> None:
        self._begin_to_validate(connection)
        self._server.settle()
        self._end_to_validate(connection)

    def _set(self, connection: int) -> None:
        self._lines[connection].send(self._whole(connection))

    def _ping(self, connection: int) -> None:
        self._lines[connection].send(request(Query.PING, b"more"))

    def _ask_the_unknown(self, connection: int) -> None:
        self._lines[connection].send(bytes([UNKNOWN]))

    def _note(self, connection: int) -> None:
        """The request is sent when it is served: a server serves it at once."""

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

    def _goes_on(self, connection: int) -> None:
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

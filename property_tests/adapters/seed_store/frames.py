"""`Frames` (edition SEED) on the daemon of torch 1.9, which answers no other client while it has half a request.

Theory of operation. The daemon is a thread of this process, so its keys and the connection that it reads are visible
while it is blocked. When it has begun to read half a request, a question is sent on the control line. The daemon must
not answer the question until that request ends, by its second half or by the end of its connection.

Rule: the daemon does in one step what the model does in two. So a connection that hangs up is held open, and an unknown
request is sent, when the model's daemon removes the connection; a whole request is sent when it is served. Left out:
the end of the daemon (`stop`).
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic, sleep

from trystate.model.language.sorts import ordinal
from trystate.model.store.frames import Frames
from trystate.model.store.vocabulary import Fragment

from ...harness.subjects import Disagreement
from ..our_store.frames import FIRST, SECOND, FramesSubject
from ..our_store.lines import SILENT_S, Line
from .daemons import MasterDaemon
from .edges import OverTcp19
from .store import listen

LOOK_S = 0.000_2


class InThread(OverTcp19):
    """A master daemon in a thread of this process. Half a request blocks it; then `settle` does nothing."""

    def __init__(self) -> None:
        listener = listen()
        self._daemon = MasterDaemon(listener)
        self._daemon.start()
        self._is_held_up = False
        super().__init__(listener.getsockname()[1])

    def value(self, key: bytes) -> int:
        """The number that a key holds, or 0."""
        return int(self._daemon.keys.get(key, b"0"))

    def reads(self, line: Line) -> bool:
        """Whether the daemon reads a request of this line now."""
        connection = self._daemon.reading
        try:
            return connection is not None and connection.getpeername()[1] == line.port  # type: ignore[attr-defined]
        except OSError:  # it has just been closed
            return False

    def is_held_up_by(self, line: Line) -> None:
        """Wait until the daemon reads the first half of a request of this line; send a question on the control line.

        Raises:
            Disagreement: it does not wait for the second half.
        """
        deadline = monotonic() + SILENT_S
        while not self.reads(line):
            line.read()
            if line.is_cut or monotonic() > deadline:
                raise Disagreement("the daemon does not wait for the rest of a request")
            sleep(LOOK_S)
        self._is_held_up = True
        self._control.send(self.question)

    def look(self) -> None:
        """Check that a blocked daemon answers no client, and that another daemon has exactly the open lines.

        Raises:
            Disagreement: a check fails.
        """
        if self._is_held_up:
            if self._control.read():
                raise Disagreement("the daemon answers another connection while it has half a request")
        elif self._daemon.connections != len(self._lines) + 1:
            raise Disagreement(f"the daemon has {self._daemon.connections} connections, not {len(self._lines) + 1}")

    def goes_on(self) -> None:
        """Half a request has ended: read the answer to the question that was sent meanwhile."""
        self._is_held_up = False
        if not self.is_answer(self._control.ask(b"", len(self.answer))):
            raise Disagreement("the daemon does not continue after half a request has ended")

    def drop(self, line: Line) -> None:
        """Close a line from this side."""
        line.hang_up()
        self._lines = [each for each in self._lines if each is not line]

    def settle(self) -> None:
        if not self._is_held_up:
            super().settle()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._daemon.stop()


class SeedFrames(FramesSubject):
    """`FramesSubject` on its own daemon: shows the keys, and the connection with half a request."""

    def __init__(self, system: Frames) -> None:
        self._daemon = InThread()
        super().__init__(system, self._daemon)

    def reset(self) -> None:
        self.close()
        self._server = self._daemon = InThread()
        self._holder: int | None = None
        self._unknown: set[int] = set()
        super().reset()

    def close(self) -> None:
        """End the daemon and all lines."""
        with self._daemon:
            pass

    def observe(self) -> Mapping[str, int]:
        self._daemon.look()
        parts = dict.fromkeys(range(self.system.sizes["connection"]), Fragment.NOTHING)
        parts |= {number: Fragment.SET for number, line in self._lines.items() if self._daemon.reads(line)}
        held = {f"held[{number}]": ordinal(part) for number, part in parts.items()}
        return {"first": self._daemon.value(FIRST), "second": self._daemon.value(SECOND), **held}

    # ---- steps

    _speak_at_once = FramesSubject._note

    def _set_begins(self, connection: int) -> None:
        super()._set_begins(connection)
        self._daemon.is_held_up_by(self._lines[connection])
        self._holder = connection

    def _rest(self, connection: int) -> None:
        self._daemon.look()
        super()._rest(connection)
        self._go_on()

    def _ask_the_unknown(self, connection: int) -> None:
        self._unknown.add(connection)

    def _hang_up(self, connection: int) -> None:
        self._unsent.pop(connection, None)
        self._unknown.discard(connection)

    def _clean_up(self, connection: int) -> None:
        self._daemon.look()
        line = self._lines[connection]
        if connection in self._unknown:
            self._unknown.remove(connection)
            super()._ask_the_unknown(connection)
            super()._clean_up(connection)
        self._lines.pop(connection, None)
        self._daemon.drop(line)
        if self._holder == connection:
            self._go_on()

    def _go_on(self) -> None:
        self._holder = None
        self._daemon.goes_on()

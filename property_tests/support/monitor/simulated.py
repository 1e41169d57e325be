"""Records of simulated jobs of ours: what a recording server would have written of a schedule.

Rule: a line is made when the request arrives at the store, as a server does; each process has one connection.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

from trystate.impl.rendezvous.encoding import encode
from trystate.impl.rendezvous.engine import Engine
from trystate.impl.rendezvous.errors import RendezvousStateError
from trystate.impl.rendezvous.state import State
from trystate.monitor.record import Line
from trystate.monitor.rendezvous.follower import Follower
from trystate.monitor.rendezvous.runs import Runs

from ...adapters.simulator import nodes, store
from ...adapters.simulator.moments import Endless
from ...adapters.simulator.monitors import Violation
from ...adapters.simulator.nodes import EngineFactory, Process
from ...adapters.simulator.schedule import Schedule
from ...adapters.simulator.store import Line as Connection
from ...adapters.simulator.store import Store
from ...adapters.simulator.swarm import World

KEY = "trystate/job/state"
BEGAN = 1_000_000.0  # seconds, by the recorder's clock


class Recorder:
    """The lines of one simulated job."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._of: dict[str, int] = {}
        self._store: Store | None = None
        self._version = 0
        self.say("header", 0.0, "", format=1)

    def say(self, what: str, time: float, who: str, **fields: Any) -> None:
        if who and who not in self._of:
            self._of[who] = len(self._of) + 1
            self.say("open", time, who, peer=who)
        number = len(self.lines) + 1
        self.lines.append(Line("", number, what, BEGAN + time, self._of.get(who, 0), fields))

    def write(self, kept: Store, state: State, over: State | None, who: str) -> State | None:
        """In the place of `Store.write`."""
        won = kept.state is over or kept.state == over
        value = encode(state).decode("latin-1")
        self._version += won
        fields = {"v": self._version, "from": self._version - 1} if won else {"v": self._version}
        self.say("write" if won else "refused", kept.time.now, who, key=KEY, size=len(value), value=value, **fields)
        return STORE_WRITE(kept, state, over, who)  # in which a monitor may stop the run

    def ask(self, line: Connection, request: Callable[[], State | None]) -> State | None:
        """In the place of `Line._ask`."""

        def arrived() -> State | None:
            before = len(self.lines)
            found = request()
            if len(self.lines) == before:
                self.say("read", line._store.time.now, line._who, key=KEY, v=self._version)
            return found

        return LINE_ASK(line, arrived)

    def ends(self, process: Process) -> None:
        if process.token in self._of:
            self.say("close", process.time.now, process.token)


STORE_WRITE, LINE_ASK = store.Store.write, store.Line._ask


def recorded(schedule: Schedule, engine: EngineFactory = Engine) -> list[Line]:
    """The lines of a schedule; of one in which a monitor finds something wrong, up to there."""
    recorder = Recorder()
    end = nodes.Process._end

    def ends(process: Process, why: str) -> None:
        recorder.ends(process)
        end(process, why)

    with (
        mock.patch.object(store.Store, "write", lambda *args: recorder.write(*args)),
        mock.patch.object(store.Line, "_ask", lambda *args: recorder.ask(*args)),
        mock.patch.object(nodes.Process, "_end", ends),
    ):
        world = World(schedule, engine)
        with contextlib.suppress(Violation, Endless, RendezvousStateError):  # the record is judged, not the run
            world.play()
    recorder.say("end", world.time.now, "")
    return recorder.lines


def explained(lines: list[Line]) -> Follower:
    """The rendezvous of a record, followed to its end."""
    runs = Runs()
    for line in lines:
        runs.feed(line)
    runs.finish()
    return runs.followers[KEY]

"""An operator's part in a rendezvous of which this process is no node: it closes it, and waits until its nodes have left.

Rule: an outsider is in no list and writes no heartbeat. Its writes go through the same engine and the same
compare-and-set as a node's.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
from collections.abc import Callable, Generator
from typing import Any, Self

from .driver import run
from .encoding import TEXT_LENGTH_MAX
from .engine import Effect, Engine, Seen, Sync
from .errors import RendezvousConnectionError, RendezvousStateError
from .state import Node, Participant, State
from .state_holder import StateHolder
from .store_backend import StoreBackend

WRITE_SECONDS = 10.0  # then the store is too slow, or too many others write at once
OUTAGE_SECONDS_MAX = 2.0
LOOK_SECONDS = 1.0  # without a notification the state is read so often


class Outsider:
    """A command's access to the shared state of a running job, on a store that stays the caller's."""

    def __init__(self, store: Any, job: str) -> None:
        """Raises RendezvousStateError: the store has no state of this job, or one of another version."""
        self._holder = StateHolder(StoreBackend(store, job))
        try:
            state = self._run(_look())
        except BaseException:
            self._holder.close()
            raise
        if state is None:
            self._holder.close()
            raise RendezvousStateError(f"the store has no state of the job {job!r}")
        self.state: State = state  # as it was seen last
        # No node is known by this name: it is in no list, and its writes count up no heartbeat.
        me = Participant(Node(socket.gethostname()[:TEXT_LENGTH_MAX], os.getpid(), 0, secrets.token_hex(8)), "", 0)
        self._engine = Engine(me, state.settings, draw=random.random, life=secrets.token_hex(16))

    def close_rendezvous(self, reason: str) -> bool:
        """Close the rendezvous for all nodes; False: it was closed before. Raises RendezvousError."""
        return self._run(self._engine.close(reason, anyway=True))

    def wait(self, over: Callable[[State], bool], seconds: float) -> bool:
        """Follow the state until this holds of it; False: it did not within `seconds`.

        Raises:
            RendezvousConnectionError: the store is away, perhaps since the node that served it has ended.
        """
        return self._run(_until(over, seconds), seconds + WRITE_SECONDS)

    def _run(self, steps: Generator[Effect, Seen, Any], seconds: float = WRITE_SECONDS) -> Any:
        return run(steps, self._holder, outage_seconds_max=OUTAGE_SECONDS_MAX, timeout_seconds=seconds, look=self._see)

    def _see(self, seen: Seen) -> None:
        if seen.state is not None:
            self.state = seen.state

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._holder.close()


def _look() -> Generator[Effect, Seen, State | None]:
    return (yield Sync()).state


def _until(over: Callable[[State], bool], seconds: float) -> Generator[Effect, Seen, bool]:
    seen = yield Sync()
    ends = seen.now + seconds
    while True:
        if seen.state is None:
            raise RendezvousConnectionError("the store has come back empty: the job is over, or begins anew")
        if over(seen.state):
            return True
        if seen.now >= ends:
            return False
        seen = yield Sync(min(LOOK_SECONDS, ends - seen.now), seen.state.revision)

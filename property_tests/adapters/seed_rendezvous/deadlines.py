"""Steps of the model `Deadlines` (edition SEED), performed on the handler of `engine`.

Its two threads are two greenlets. The stops, the lock, the timer and the backend are those with which torch's handler
is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trystate.model.rendezvous.vocabulary import Call, CallError

from ..torch_rendezvous import simulation as sim
from ..torch_rendezvous.deadlines import Thread, TorchDeadlines
from . import engine
from .executors import settings

CALLS: dict[Call, Callable[[Any], Any]] = {
    Call.EXIT: lambda handler: handler.next_rendezvous(),
    Call.SHUTDOWN: lambda handler: handler.shutdown(),
    Call.SET_CLOSED: lambda handler: handler.set_closed(),
    Call.POLL: lambda handler: handler.num_nodes_waiting(),
    Call.KEEP_ALIVE: lambda handler: handler.keep_alive(),
}
ERRORS: dict[type[BaseException], CallError] = {
    engine.LateError: CallError.TIMEOUT,
    engine.StateError: CallError.STATE,
}
SECONDS = engine.Seconds(join=600.0, close=30.0, heartbeat=5.0)


class Holder(engine.StateHolder):
    """The program's, which stops before a sync and before it stores the token."""

    _stored_token: Any = None

    @property
    def token(self) -> Any:
        return self._stored_token

    @token.setter
    def token(self, token: Any) -> None:
        sim.stop("token")
        self._stored_token = token

    def sync(self) -> bool | None:
        sim.stop("sync")
        return super().sync()


def pause(where: str) -> None:
    """A call stops before it decides and acts; the backend stops with its answer."""
    if where in ("decide", "act"):
        sim.stop(where)


class SeedDeadlines(TorchDeadlines):
    """Subject for the model `Deadlines` (edition SEED): the program of the article."""

    own = engine.Node("node0", 1, 0)
    other = engine.Node("node1", 1, 0)
    calls = CALLS
    errors = ERRORS
    caught = engine.RendezvousError

    def _made(self) -> engine.Executor:
        agreed, backend = settings(1, 2), self.backend
        self.holder = Holder(backend, agreed, self.clock, pause)  # type: ignore[arg-type]  # its token is a number
        executor = engine.Executor(self.own, self.holder, agreed, self.clock, lambda seconds: None, pause)
        self.handler = engine.Handler(self.holder, executor, self.clock, SECONDS, self.lock, self.beats)
        return executor

    def _initial(self) -> engine.State:
        nodes = self.own, self.other
        return engine.State(
            1, True, None, False, dict(zip(nodes, (0, 1), strict=True)), set(), dict.fromkeys(nodes, sim.NOW)
        )

    def _holds(self, state: engine.State, token: int) -> None:
        self.holder.state, self.holder.token, self.holder.dirty = state, token, True

    def _synced_at(self, seconds: float) -> None:
        self.holder.synced_at = seconds

    def _forget_changes(self) -> None:
        self.holder.dirty = False

    def _seen_of_copy(self) -> dict[str, bool]:
        return {"token_good": self.holder.token == self.backend.version, "dirty": self.holder.dirty}

    def _asked(self, thread: Thread, operator: Any) -> Any:
        return operator

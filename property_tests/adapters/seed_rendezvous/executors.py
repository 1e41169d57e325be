"""Steps of the models `Holders` and `Deadlines` (edition SEED), performed on the program of `engine`.

The stops, the lock, the timer and the backend of a handler are the same as for the comparison with torch's handler.

The model is coarser than the program: it counts writes, and the program's token is the text of the state. After two
writes that restore the text, an old token is valid again, or a lost write counts as won. The model has the second case
after one write only (R11).
"""

from __future__ import annotations

import pickle
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

from trystate.model.rendezvous.holder import Holders
from trystate.model.rendezvous.vocabulary import Call, CallError

from ..holders import HoldersSubject, Process
from ..torch_rendezvous import simulation as sim
from ..torch_rendezvous.deadlines import Thread, TorchDeadlines
from . import engine


def settings(min_nodes: int, max_nodes: int) -> engine.Settings:
    return engine.Settings(min_nodes, max_nodes, sim.LAST_CALL, sim.INTERVAL, sim.ATTEMPTS)


class Versions:
    """The key of the shared state in a store. The token of a holder is the text that the holder has read."""

    def __init__(self) -> None:
        self.text = b""
        self.version = 0
        self.holders: list[engine.StateHolder] = []
        self._versions: dict[bytes, int] = {}
        self._seen: tuple[bytes, engine.State] = (b"", engine.State())

    def get(self, key: str) -> bytes:
        return self.text

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        if self.text == expected.encode():
            self.text = desired.encode()
            if desired != engine.NOTHING:
                self.version += 1
                self._versions[self.text] = self.version
        return self.text

    def version_of(self, token: bytes | None) -> int:
        return 0 if token is None else self._versions[token]

    def state(self) -> engine.State:
        """The stored state, which its caller does not change."""
        if self._seen[0] != self.text:
            self._seen = (self.text, self._read())
        return self._seen[1]

    def _read(self) -> engine.State:
        found = engine.Backend(self).get_state()
        return pickle.loads(found[0]) if found else engine.State()

    def rewrite(self, change: Callable[[engine.State], None]) -> None:
        """Change the stored state to simulate the passing of time.

        The version stays the same, and a valid token remains valid.
        """
        if self.version:
            before, state = self.text, self._read()
            change(state)
            self.text = b64encode(pickle.dumps(state))
            self._versions[self.text] = self.version
            for holder in self.holders:
                if holder.token == before:
                    holder.token = self.text


class Node(Process):
    """The program's node, state holder and executor."""

    holder: engine.StateHolder

    def __init__(self, number: int, model: Holders, store: Versions, clock: sim.Clock) -> None:
        super().__init__(clock)
        self.desc = engine.Node(f"node{number}", 1, 0)
        agreed = settings(model.min_nodes, model.max_nodes)
        self.holder = engine.StateHolder(engine.Backend(store), agreed, clock, sim.stop)
        self.executor = engine.Executor(self.desc, self.holder, agreed, clock, self._poll, sim.stop)
        self.operators = {name: make(clock) for name, make in engine.OPERATORS.items()}
        self._store = store
        self._sync = self.holder.sync
        self.holder.sync = lambda: self.watch(self._sync)  # type: ignore[method-assign]
        store.holders.append(self.holder)

    @property
    def dirty(self) -> bool:
        return self.holder.dirty

    @property
    def version(self) -> int:
        return self._store.version_of(self.holder.token)

    @property
    def synced_at(self) -> float:
        return self.holder.synced_at

    def expect_cached(self) -> None:
        self.holder.synced_at = self.clock.seconds

    def _poll(self, seconds: float) -> None:
        self.clock.seconds += sim.CACHE_SECONDS + seconds

    def run(self, operator: str) -> None:
        asked = self.operators[operator]
        self.executor.run(lambda context, _: self.decide(asked, context), 0.0)


class SeedHolders(HoldersSubject):
    """Subject for the model `Holders` (edition SEED): the program on a key in memory."""

    def __init__(self, model: Holders) -> None:
        super().__init__(model, sim.Clock())

    def fresh(self) -> tuple[Versions, list[Node]]:
        store = Versions()
        return store, [Node(k, self.model, store, self.clock) for k in range(self.model.sizes["node"])]


# ---- the calls of a node: two threads are two greenlets

SECONDS = engine.Seconds(join=600.0, close=30.0, heartbeat=5.0)


class StoppedHolder(engine.StateHolder):
    """The program's state holder. A call stops before it syncs, and before it stores the token."""

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
    """Stop a call before it decides and before it acts. `deadlines.Backend` stops it after an answer of the store."""
    if where in ("decide", "act"):
        sim.stop(where)


class SeedDeadlines(TorchDeadlines):
    """Subject for the model `Deadlines` (edition SEED): the program of the article."""

    own = engine.Node("node0", 1, 0)
    other = engine.Node("node1", 1, 0)
    calls: Mapping[Call, Callable[[Any], Any]] = {**TorchDeadlines.calls, Call.KEEP_ALIVE: engine.Handler.keep_alive}
    errors: Mapping[type[BaseException], CallError] = {
        engine.LateError: CallError.TIMEOUT,
        engine.StateError: CallError.STATE,
    }
    caught = engine.RendezvousError

    def _made(self) -> engine.Executor:
        agreed, backend = settings(1, 2), self.backend
        self.holder = StoppedHolder(backend, agreed, self.clock, pause)  # its token is a number
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

"""Steps of the model `Holders` (edition SEED), performed on the executors and state holders of `engine`.

A limit of the model shows here: it counts writes, and the program's token is the bytes. Two writes that restore the
bytes make an old token good again, or a write that lost look won; the model knows the latter of one write alone (R11).
"""

from __future__ import annotations

import pickle
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime

from trystate.model.rendezvous.holder import Holders

from ..holders import HoldersSubject, Process
from ..torch_rendezvous import simulation as sim
from . import engine


def settings(min_nodes: int, max_nodes: int) -> engine.Settings:
    return engine.Settings(min_nodes, max_nodes, sim.LAST_CALL, sim.INTERVAL, sim.ATTEMPTS)


class Clock(sim.Clock):
    """Both clocks of a node: no two readings of the wall clock are the same."""

    def now(self) -> datetime:
        return sim.StillDate.now()  # type: ignore[no-any-return]


class Versions:
    """The key of the shared state in a store; the text of a version is the token of the holders that read it."""

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
        """The stored state, to be looked at only."""
        if self._seen[0] != self.text:
            self._seen = (self.text, self._read())
        return self._seen[1]

    def _read(self) -> engine.State:
        found = engine.Backend(self).get_state()
        return pickle.loads(found[0]) if found else engine.State()

    def rewrite(self, change: Callable[[engine.State], None]) -> None:
        """Change the stored state as time does: it counts as no write, and good tokens stay good."""
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

    def __init__(self, number: int, model: Holders, store: Versions, clock: Clock) -> None:
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

    clock: Clock

    def __init__(self, model: Holders) -> None:
        super().__init__(model, Clock())

    def fresh(self) -> tuple[Versions, list[Node]]:
        store = Versions()
        return store, [Node(k, self.model, store, self.clock) for k in range(self.model.sizes["node"])]

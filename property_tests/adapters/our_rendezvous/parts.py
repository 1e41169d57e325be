"""Nodes and states for the tests of the rendezvous, and a stage: the engine's generators, without any I/O.

Rule: time passes only when no actor on the stage has anything to do, so every run is the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator
from typing import Any

from trystate.impl.rendezvous.changes import Table, after
from trystate.impl.rendezvous.engine import Effect, Engine, Seen, Write
from trystate.impl.rendezvous.observer import Beaten
from trystate.impl.rendezvous.state import Node, Participant, Settings, State

INTERVAL, ATTEMPTS = 5.0, 3


def settings(low: int = 2, high: int = 3, **others: Any) -> Settings:
    return Settings(low, high, **{"keep_alive_interval": INTERVAL, "keep_alive_max_attempt": ATTEMPTS, **others})


def participant(k: int, written: int = 0) -> Participant:
    """The k-th participant in the order of ranks."""
    return Participant(Node(f"node{k}", 100 + k, 0, f"token-{k}"), f"host{k}", 29500 + k, written)


def tokens(listed: tuple[Participant, ...]) -> list[str]:
    return [p.node.token for p in listed]


def changed(name: str, state: State | None, me: Participant, *more: Any, **flags: Any) -> State:
    """The state after the change with this name, which `me` makes."""
    whole = name.startswith("add_to_") or name == "replace_round"
    begun = state if state is not None else State("life", settings())
    return after(begun, getattr(Table, name), me if whole else me.node, *more, **flags)


class Actor:
    """One operation of one engine on a stage."""

    def __init__(self, stage: Stage, operation: Generator[Effect, Seen, Any]) -> None:
        self.stage, self._operation = stage, operation
        self.result: Any = None
        self.ended = False
        self._seen: State | None = None
        self._go(None)

    def _go(self, seen: Seen | None) -> None:
        try:
            self.effect = next(self._operation) if seen is None else self._operation.send(seen)
        except StopIteration as end:
            self.result, self.ended = end.value, True
        except Exception as error:
            self.result, self.ended = error, True
        else:
            self.since = self.stage.now

    @property
    def wakes(self) -> float:
        """The time of its next act, if no other actor acts before."""
        if self.ended:
            return math.inf
        if isinstance(self.effect, Write):
            return self.stage.now
        state, revision = self.stage.state, self.effect.revision
        changed = revision is not None and state is not None and state.revision > revision
        return self.stage.now if changed else self.since + self.effect.seconds

    def step(self) -> None:
        """Carry out the effect at which it has stopped, and continue to the next one."""
        won, beaten = False, None
        if isinstance(self.effect, Write):
            # Compare-and-set: a state is never changed, so the object is its token.
            won = self.stage.state is self._seen
            if won:
                self.stage.state = self.effect.state
        elif (beat := self.effect.beat) is not None and self.stage.now >= beat.due:
            self.stage.beats[beat.token] += 1
            beaten = Beaten(self.stage.now, {token: b"%d" % self.stage.beats[token] for token in beat.watched})
        self._seen = self.stage.state
        self._go(Seen(self._seen, self.stage.now, won, beaten))


class Stage:
    """A store, a clock, and the actors that use them."""

    def __init__(self) -> None:
        self.state: State | None = None
        self.now = 0.0
        self.beats = Counter[str]()
        self.actors: list[Actor] = []

    def engine(self, k: int, agreed: Settings) -> Engine:
        return Engine(participant(k), agreed, draw=lambda: 0.5, life=f"life-{k}")

    def start(self, operation: Generator[Effect, Seen, Any]) -> Actor:
        self.actors.append(Actor(self, operation))
        return self.actors[-1]

    def run(self, seconds: float = 0.0, limit: int = 20_000) -> None:
        """Let all actors act until this many seconds have passed.

        Raises:
            AssertionError: an actor spins.
        """
        until = self.now + seconds
        for _ in range(limit):
            ready = min(self.actors, key=lambda one: one.wakes, default=None)
            if ready is None or ready.wakes > until:
                self.now = until
                return
            self.now = max(self.now, ready.wakes)
            ready.step()
        raise AssertionError(f"more than {limit} steps until {self.now:g} s: {[one.effect for one in self.actors]}")

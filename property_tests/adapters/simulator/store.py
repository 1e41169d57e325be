"""The store that simulated nodes share, and their messages to it: delayed, lost, or with a lost answer.

Rule: a request that was sent may arrive even if its sender has ended, or has stopped waiting for it.
States are stored as objects, because no two writes are equal; some are encoded and decoded, as in a real store.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from trystate.impl.rendezvous.encoding import decode, encode
from trystate.impl.rendezvous.engine import Effect, Seen, Sync
from trystate.impl.rendezvous.errors import RendezvousConnectionError
from trystate.impl.rendezvous.observer import Beaten
from trystate.impl.rendezvous.state import State

from .moments import Time

PATIENCE_SECONDS = 0.6  # how long a client waits for an answer
FAST_SECONDS, SLOW_SECONDS = 0.004, 1.5  # longest time of a message
LOSS = 0.5  # share of the answers, while answers get lost
ROUND_TRIP = "the store did not answer"

ENCODED = 16  # one version in 16 is encoded: this takes longer than all else

T = TypeVar("T")
Wrote = Callable[[State | None, State, str], None]


class Store:
    """One key, changed by compare-and-set, the counters of the nodes, and the notifications that were sent."""

    def __init__(self, time: Time, wrote: Wrote, beat: Callable[[str], None] = lambda who: None) -> None:
        self.time = time
        self.state: State | None = None
        self.beats = Counter[str]()
        self._beat = beat
        self.down_until = 0.0
        self.start = 0  # number of its restarts, each without its contents
        self._wrote = wrote
        self._told = 0
        self._ears: list[tuple[int, Callable[[], None]]] = []

    def write(self, state: State, over: State | None, who: str) -> State | None:
        if self.state is over or self.state == over:
            before, self.state = self.state, state
            self._wrote(before, state, who)
        return self.state

    def beat(self, who: str) -> None:
        self.beats[who] += 1
        self._beat(who)

    def wipe(self) -> None:
        """It starts again, empty: messages on their way to it are lost, and all that wait are notified."""
        self.beats.clear()
        self.state, self._told, self.start = None, 0, self.start + 1
        ears, self._ears = self._ears, []
        for _, call in ears:
            call()

    def notify(self, revision: int) -> None:
        self._told = max(self._told, revision)
        ears, self._ears = self._ears, []
        for known, call in ears:
            if known < self._told:
                call()
            else:
                self._ears.append((known, call))

    def listen(self, revision: int, call: Callable[[], None]) -> None:
        if self._told > revision:
            call()
        else:
            self._ears.append((revision, call))


class Link:
    """The current state of the messages between a host and the store. Times in seconds of true time."""

    def __init__(self, time: Time, rng: random.Random, *, deaf: bool) -> None:
        self.time, self.rng, self.deaf = time, rng, deaf
        self.cut_until = self.loss_until = self.slow_until = 0.0
        self.trap: Callable[[], None] | None = None  # called as soon as a write is on its way

    def delay(self) -> float:
        slow = self.slow_until > self.time.now
        return self.rng.uniform(0.0, SLOW_SECONDS if slow else FAST_SECONDS)

    def reaches(self, store: Store) -> bool:
        return max(self.cut_until, store.down_until) <= self.time.now

    def sends(self) -> None:
        """A write is on its way."""
        if self.trap is not None:
            self.time.after(0.0, self.trap)
            self.trap = None

    def loses(self) -> bool:
        return self.loss_until > self.time.now and self.rng.random() < LOSS


class Line:
    """One thread's connection to the store: its requests, and the effects of an engine that it carries out."""

    def __init__(
        self, store: Store, link: Link, clock: Callable[[], float], rate: float, who: str,
        arrives: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`arrives`: called when a write of this thread arrives."""
        self._store, self._link = store, link
        self._clock, self._rate, self._who, self._arrives = clock, rate, who, arrives
        self._state: State | None = None  # the state in the store's last answer

    def perform(self, effect: Effect) -> Seen:
        """Carry out an effect.

        Raises:
            RendezvousConnectionError: no answer; whether something was written is not known.
        """
        if isinstance(effect, Sync):
            self._pause(effect)
            beaten, sent = None, self._clock()
            if (beat := effect.beat) is not None and sent >= beat.due:
                self._ask(lambda: self._store.beat(beat.token))
                watched = beat.watched
                beaten = Beaten(sent, self._ask(lambda: {t: b"%d" % self._store.beats[t] for t in watched}))
            self._state = self._ask(lambda: self._store.state)
            return Seen(self._state, self._clock(), beaten=beaten)
        state, over = effect.state, self._state
        if state.version % ENCODED == 1:
            state = decode(encode(state))
        self._link.sends()

        def write() -> State | None:
            self._arrives()
            return self._store.write(state, over, self._who)

        self._state = self._ask(write)
        won = self._state == state
        if won:
            self._tell(state.revision)
        return Seen(self._state, self._clock(), won)

    def _pause(self, sync: Sync) -> None:
        if sync.seconds <= 0 and sync.revision is None:
            return
        alarm = self._link.time.alarm()
        self._link.time.after(sync.seconds / self._rate, alarm)
        if sync.revision is not None and not self._link.deaf:
            delay = self._link.delay()
            self._store.listen(sync.revision, lambda: self._link.time.after(delay, alarm))
        self._link.time.wait()

    def _tell(self, revision: int) -> None:
        start = self._store.start

        def arrive() -> None:
            if self._store.start == start:
                self._store.notify(revision)

        if self._link.reaches(self._store):
            self._link.time.after(self._link.delay(), arrive)

    def _ask(self, request: Callable[[], T]) -> T:
        """Send a request, and wait for its answer."""
        link, time = self._link, self._link.time
        there, back = link.delay(), link.delay()
        answers: list[T] = []
        start = self._store.start

        def arrive() -> None:
            if link.reaches(self._store) and self._store.start == start:
                answers.append(request())

        time.after(there, arrive)
        time.sleep(min(there + back, PATIENCE_SECONDS))
        if there + back > PATIENCE_SECONDS or not answers or link.cut_until > time.now or link.loses():
            raise RendezvousConnectionError(ROUND_TRIP)
        return answers[0]

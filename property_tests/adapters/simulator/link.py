"""The messages of a simulated host: delayed, cut off, or with a lost answer.

Rule: a message that was sent may arrive even if its sender has ended, or has stopped waiting for the answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from .moments import Time

FAST_SECONDS, SLOW_SECONDS = 0.004, 1.5  # longest time of a message
LOSS = 0.5  # share of the answers, while answers get lost


class Link:
    """The current state of the messages between a host and the store. Times in seconds of true time."""

    def __init__(self, time: Time, rng: random.Random) -> None:
        self.time, self.rng = time, rng
        self.cut_until = self.loss_until = self.slow_until = 0.0
        self.trap: Callable[[], None] | None = None  # called as soon as a write is on its way

    def delay(self) -> float:
        slow = self.slow_until > self.time.now
        return self.rng.uniform(0.0, SLOW_SECONDS if slow else FAST_SECONDS)

    def sends(self) -> None:
        """A write is on its way."""
        if self.trap is not None:
            self.time.after(0.0, self.trap)
            self.trap = None

    def loses(self) -> bool:
        return self.loss_until > self.time.now and self.rng.random() < LOSS

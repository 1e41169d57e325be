"""When all workers have nothing more to do: the rounds by which they find out, through the store.

A worker is idle when it runs no call and waits for no answer. All are done when all were idle in two rounds one after
the other, and as many frames were received as were sent, and no more in the second than in the first: then none was
under way between them. Rule: all read the same, so all decide the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from time import monotonic

from torch.distributed import Store  # type: ignore[attr-defined]

from .agent import Agent
from .errors import PeerLost, RpcError, RpcTimeout

PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.001, 0.05
LOOK_SECONDS = 1.0  # between two looks at who is lost


def all_done(agent: Agent, store: Store, seconds: float) -> None:
    """Wait until all workers have called this and nothing is left to do.

    `seconds` may be infinite: then this ends when all have come, or one that is waited for, or the store, is lost.
    Raises RpcTimeout, PeerLost and RpcError.
    """
    deadline = monotonic() + seconds
    before: list[tuple[int, int]] | None = None
    number = 0
    while True:
        _idle(agent, deadline, seconds)
        sent, received = agent.traffic
        store.set(f"done/{number}/{agent.me}", f"{sent} {received}")
        now = [_of(agent, store, f"done/{number}/{rank}", deadline, seconds) for rank in agent.workers]
        if now == before and sum(sent for sent, _ in now) == sum(received for _, received in now):
            return
        lost = _lost(agent)
        if lost:  # with what was under way to it: the sums may never be equal
            raise PeerLost(lost[0])
        if monotonic() >= deadline:
            raise RpcTimeout(f"the workers still send each other frames after {seconds:g} s: give shutdown() more "
                             "time, or graceful=False")  # fmt: skip
        before, number = now, number + 1


def _idle(agent: Agent, deadline: float, seconds: float) -> None:
    def look() -> bool:
        return agent.busy == (0, 0)

    if not _until(look, deadline):
        requests, works = agent.busy
        raise RpcTimeout(f"worker {agent.name!r} still waits for {requests} answers and runs {works} calls after "
                         f"{seconds:g} s: give shutdown() more time, or graceful=False")  # fmt: skip


def _lost(agent: Agent) -> list[str]:
    return [why for rank in agent.workers if (why := agent.loss(rank)) is not None]


def _until(look: Callable[[], bool], deadline: float) -> bool:
    pause = PAUSE_SECONDS
    while not look():
        if monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, PAUSE_SECONDS_MAX)
    return True


def _of(agent: Agent, store: Store, key: str, deadline: float, seconds: float) -> tuple[int, int]:
    """What a worker says of itself, as soon as it does."""
    rank = int(key.rpartition("/")[2])
    while True:
        begun = monotonic()
        left = deadline - begun
        look = max(min(left, LOOK_SECONDS), 0.001)
        try:
            store.wait([key], timedelta(seconds=look))
            break
        except RuntimeError as error:
            if (why := agent.loss(rank)) is not None:
                raise PeerLost(why) from None
            if monotonic() - begun < look / 2:  # this was no timeout; how stores tell one differs
                lost = _lost(agent)
                raise PeerLost(lost[0]) if lost else RpcError(f"shutdown() needs the store that the workers met in, "
                                                             f"and it fails: {error}") from error  # fmt: skip
            if left <= 0:
                raise RpcTimeout(f"worker {agent.workers[rank].name!r} did not come to shutdown() within {seconds:g} "
                                 "s: have all workers call it, or give graceful=False") from error  # fmt: skip
    sent, received = bytes(store.get(key)).split()
    return int(sent), int(received)

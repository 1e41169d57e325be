"""Distributed termination of RPC: when all workers are idle and no frame is on its way.

Algorithm: the four counters of F. Mattern, "Algorithms for distributed termination detection", Distributed Computing 2
(1987). A worker is *idle* when it runs no call and waits for no answer. A round collects from each worker the frames
that it has sent and received so far, read at a moment when the worker is idle. The workers' moments differ: because of
a frame that was sent after its receiver was read, equal sums of one round prove nothing. So two rounds are compared. If
the second has the counters of the first, and the sum sent equals the sum received, no frame moved between them and no
frame was on its way: all are done. (Mattern compares the four sums. Here each worker's own counters are compared, which
is a stronger condition.)

Theory of operation. Each worker runs `all_done` on the thread of `shutdown()`, writes its two counters of a round into
the store that the workers met in, and waits for the counters of all others. All workers read the same values, so all
decide alike in the same round, without another message.

Failures: a worker never calls `shutdown()` (RpcTimeout with its name), a worker is lost (PeerLost: its
counters never come, and frames to it are sent and never received), the store fails (RpcError).
"""

from __future__ import annotations

import time
from datetime import timedelta
from time import monotonic

from torch.distributed import Store  # type: ignore[attr-defined]

from .agent import Agent
from .errors import PeerLost, RpcError, RpcTimeout

IDLE_POLL_SECONDS, IDLE_POLL_SECONDS_MAX = 0.001, 0.05  # between two checks of `busy`; doubled each time
LOST_PEER_POLL_SECONDS = 1.0  # the longest wait for counters before the next check for lost workers


def all_done(agent: Agent, store: Store, seconds: float) -> None:
    """Wait until all workers have called this, all are idle, and no frame is on its way.

    Args:
        agent: the agent of this worker.
        store: the store of the group, which no earlier group has used.
        seconds: the longest wait; may be infinite.

    Raises:
        RpcTimeout: a worker is not idle, or has not called this, after `seconds`.
        PeerLost: a worker is lost.
        RpcError: the store fails.
    """
    deadline = monotonic() + seconds
    before: list[tuple[int, int]] | None = None
    number = 0
    while True:
        _idle(agent, deadline, seconds)
        sent, received = agent.traffic
        try:
            store.set(f"done/{number}/{agent.me}", f"{sent} {received}")
        except RuntimeError as error:
            raise _failed(agent, error) from error
        now = [_of(agent, store, f"done/{number}/{rank}", deadline, seconds) for rank in agent.workers]
        if now == before and sum(sent for sent, _ in now) == sum(received for _, received in now):
            return
        lost = _lost(agent)
        if lost:  # frames that were sent to it are never received: the sums may never be equal
            raise PeerLost(lost[0])
        if monotonic() >= deadline:
            raise RpcTimeout(f"the workers still send each other frames after {seconds:g} s: give shutdown() more "
                             "time, or graceful=False")  # fmt: skip
        before, number = now, number + 1


def _idle(agent: Agent, deadline: float, seconds: float) -> None:
    pause = IDLE_POLL_SECONDS
    while agent.busy != (0, 0):
        if monotonic() >= deadline:
            requests, works = agent.busy
            raise RpcTimeout(f"worker {agent.name!r} still waits for {requests} answers and runs {works} calls after "
                             f"{seconds:g} s: give shutdown() more time, or graceful=False")  # fmt: skip
        time.sleep(pause)
        pause = min(2 * pause, IDLE_POLL_SECONDS_MAX)


def _lost(agent: Agent) -> list[str]:
    return [why for rank in agent.workers if (why := agent.loss(rank)) is not None]


def _failed(agent: Agent, error: RuntimeError) -> RpcError:
    lost = _lost(agent)
    text = f"shutdown() needs the store that the workers met in, and the store fails: {error}"
    return PeerLost(lost[0]) if lost else RpcError(text)


def _of(agent: Agent, store: Store, key: str, deadline: float, seconds: float) -> tuple[int, int]:
    """The counters of one worker in one round: frames sent, frames received."""
    rank = int(key.rpartition("/")[2])
    while True:
        begun = monotonic()
        left = deadline - begun
        look = max(min(left, LOST_PEER_POLL_SECONDS), 0.001)
        try:
            store.wait([key], timedelta(seconds=look))
            break
        except RuntimeError as error:
            if (why := agent.loss(rank)) is not None:
                raise PeerLost(why) from None
            if monotonic() - begun < look / 2:  # not a timeout; stores report timeouts with different exceptions
                raise _failed(agent, error) from error
            if left <= 0:
                raise RpcTimeout(f"worker {agent.workers[rank].name!r} did not come to shutdown() within {seconds:g} "
                                 "s: have all workers call it, or give graceful=False") from error  # fmt: skip
    sent, received = bytes(store.get(key)).split()
    return int(sent), int(received)

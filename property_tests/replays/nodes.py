"""Handlers of the c10d rendezvous in one process, over one store and with their own clock, for the replays."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from typing import Any

from torch.distributed import HashStore, Store
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

NODES_STORE = HashStore()
real_delay = dr._delay


class Waits(Exception):
    """Raised instead of a sleep by a node that has nothing more to do in this script."""


class Clock(datetime):
    """Replaces the wall clock that dynamic_rendezvous.py reads; a script then does not have to wait."""

    ahead = timedelta(0)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return datetime.now(tz) + Clock.ahead


def beat_by_clock() -> None:
    """Make handlers read `Clock` and write a heartbeat only when the script calls `_keep_alive`."""
    dr.datetime = Clock
    dr.DynamicRendezvousHandler._start_heartbeats = lambda self: None


def node(
    addr: str, nodes: tuple[int, int] = (2, 2), *, number: int = 1, beat: float = 5, attempts: int = 3,
    store: Store = NODES_STORE, cache_duration: int = 0, shares: bool = False, **timeouts: float,
) -> Any:  # fmt: skip
    """A handler; shares: rank 0 does not create another server, and publishes its address only in the first round."""
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = str(int(not shares))
    timeout = dr.RendezvousTimeout(**{name: timedelta(seconds=seconds) for name, seconds in timeouts.items()})
    settings = dr.RendezvousSettings("job", *nodes, timeout, timedelta(seconds=beat), attempts)
    backend = C10dRendezvousBackend(store, "job")
    holder = dr._BackendRendezvousStateHolder(backend, settings, cache_duration=cache_duration)
    return dr.DynamicRendezvousHandler(dr._NodeDesc(addr, number, 0), settings, backend.name, store, holder)


def between_polls(act: Callable[[], object]) -> None:
    """Replace the sleep of a node between two polls with this call, but not the random delay of a first join."""
    dr._delay = lambda seconds: act() if seconds == 1 else None


def waits() -> None:
    raise Waits


def begins(newcomer: Any, handler: Any) -> None:
    """The thread of a newcomer begins, once, and its handler joins, which completes the round."""
    if newcomer.ident is None:
        newcomer.start()
        while handler._keep_alive_timer is None:
            time.sleep(0.01)


def returns(said: str, handler: Any, worlds: list[int]) -> None:
    """The node joins; `said`, in which {} is the time, is printed with its rank and its world, which is noted."""
    info = handler.next_rendezvous()
    worlds.append(info.world_size)
    print(f"{said.format(Clock.ahead.total_seconds())} with rank {info.rank} in a world of {info.world_size}")


def leave(handler: Any) -> None:
    """Leave the round: the first half of next_rendezvous(), for example after the failure of a worker."""
    handler._op_executor.run(dr._RendezvousExitOp(), handler._get_deadline(timedelta(seconds=10)))


def shared(store: Store = NODES_STORE) -> Any:
    """The state that the nodes share."""
    return pickle.loads(C10dRendezvousBackend(store, "job").get_state()[0])


def participants(store: Store = NODES_STORE) -> list[str]:
    return sorted(member.addr for member in shared(store).participants)


def together(first: Any, second: Any) -> None:
    """Both nodes join: the second one, whose rank is 0, joins during the first one's sleep between two polls."""
    others = [second]
    between_polls(lambda: others.pop().next_rendezvous())
    first.next_rendezvous()
    members = " and ".join(participants())
    print(f"at {Clock.ahead.seconds:2} s {members} run, in round {shared().round}")

"""A node with a fast wall clock takes the others for dead: it returns with a world of its own, and removes them."""

import os
import sys
from contextlib import suppress
from datetime import datetime, timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # no server is needed here
store = HashStore()
clock = timedelta(0)


class Clock(datetime):
    """The wall clock that dynamic_rendezvous.py reads, so that nobody has to wait for it."""

    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) + clock


def node(name: str) -> dr.DynamicRendezvousHandler:
    settings = dr.RendezvousSettings("job", 2, 2, dr.RendezvousTimeout(), timedelta(seconds=5), 3)
    backend = C10dRendezvousBackend(store, "job")
    holder = dr._BackendRendezvousStateHolder(backend, settings, cache_duration=0)
    return dr.DynamicRendezvousHandler(dr._NodeDesc(name, 1, 0), settings, backend.name, store, holder)


def join(name: str, handler: dr.DynamicRendezvousHandler) -> None:
    info = handler.next_rendezvous()
    worlds.append(info.world_size)
    print(f"{name} returns with rank {info.rank} in a world of {info.world_size}")


class Waits(Exception):
    """A node waits for others."""


def meanwhile(seconds: object) -> None:
    """In the place of B's sleep between two polls: A joins, by its own clock, and the round is complete."""
    global clock
    if seconds != 1:
        return  # the random delay of a first join
    if worlds:
        raise Waits
    clock = timedelta(0)
    join("A", a)
    clock = ahead


dr._delay, dr.datetime = meanwhile, Clock
dr.DynamicRendezvousHandler._start_heartbeats = lambda self: None  # this script beats by its own clock
ahead = timedelta(seconds=20)  # of B's clock; a heartbeat lives for 3 x 5 s
worlds: list[int] = []
a, b = node("A"), node("B")
clock = ahead
with suppress(Waits):
    join("B", b)
clock = ahead + timedelta(seconds=6)
b._keep_alive()  # as its timer does
clock = timedelta(seconds=6)
state = a._state_holder
state.sync()
removed = a._this_node not in state.state.participants
print(f"six seconds later A, which lives, is {'no longer' if removed else 'still'} a participant")
shown = worlds == [2, 1] and removed
print("reproduced: a live member was taken for dead" if shown else "not reproduced: both have the same world")
sys.exit(int(shown))

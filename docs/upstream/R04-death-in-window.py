"""A member that died is dropped from a complete round: members that poll later return with a smaller world."""

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
    settings = dr.RendezvousSettings("job", 3, 3, dr.RendezvousTimeout(), timedelta(seconds=5), 3)
    backend = C10dRendezvousBackend(store, "job")
    holder = dr._BackendRendezvousStateHolder(backend, settings, cache_duration=0)
    return dr.DynamicRendezvousHandler(dr._NodeDesc(name, 1, 0), settings, backend.name, store, holder)


class Ends(Exception):
    """A node dies in its sleep between two polls, or waits for another round."""


def join(name: str, handler: dr.DynamicRendezvousHandler) -> None:
    info = handler.next_rendezvous()
    worlds.append(info.world_size)
    print(f"at {clock.total_seconds():4} s {name} returns with rank {info.rank} in a world of {info.world_size}")


def meanwhile(seconds: object) -> None:
    """In the place of the sleep between two polls."""
    global clock
    if seconds != 1:
        return  # the random delay of a first join
    if not clock:
        print("at  0.0 s B joins, and dies")
        raise Ends
    if worlds:
        raise Ends  # C waits: it has not returned with another world
    clock = timedelta(seconds=14.5)
    join("A", a)  # the third of three: the round is complete
    clock = timedelta(seconds=15.1)  # B's heartbeat is older than 3 x 5 s


dr._delay, dr.datetime = meanwhile, Clock
worlds: list[int] = []
a, b, c = node("A"), node("B"), node("C")
with suppress(Ends):
    b.next_rendezvous()
clock = timedelta(seconds=14.1)
print("at 14.1 s C joins")
with suppress(Ends):
    join("C", c)
shown = worlds == [3, 2]
print("reproduced: two members of one round have different worlds" if shown else "not reproduced: the worlds agree")
sys.exit(int(shown))

"""c10d rendezvous: members that poll a complete round before and after a dead member expires return with different
worlds

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. At 0 s B joins, and dies. Its heartbeat lives for 3 x 5 s.
2. At 14.1 s C joins.
3. At 14.5 s A joins as the third of three: the round is complete; A returns with a world of 3.
4. At 15.1 s C polls.

Expected:
A and C return with the same world, or C joins another round.

Seen:
at  0.0 s B joins, and dies
at 14.1 s C joins
at 14.5 s A returns with rank 0 in a world of 3
at 15.1 s C returns with rank 2 in a world of 2
reproduced: two members of one round have different worlds

Cause:
`_BackendRendezvousStateHolder._sanitize` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:472`) removes
an expired node from the local copy of a complete round, and `_get_world` (line 1365) takes rank and world from that
copy: C has rank 2 in a world of 2. Nothing writes this copy back.

Fix:
Return with the ranks and the world that were assigned when the round was completed. A member that has expired by then
is a reason for a new round, which all members have to see.
"""

import os
import sys
from contextlib import suppress
from datetime import datetime, timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

CONTROL = "--control" in sys.argv  # C polls at once
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
    clock = timedelta(seconds=14.5 if CONTROL else 15.1)  # B's heartbeat is older than 3 x 5 s


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

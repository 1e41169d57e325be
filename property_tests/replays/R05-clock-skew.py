"""c10d rendezvous: expiry compares wall clocks of different nodes, so that a fast clock removes live nodes

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. B's wall clock is 20 s ahead of A's; a heartbeat lives for 3 x 5 s.
2. A and B join a round of two.
3. Compare their worlds; look at the participants after B's next heartbeat.

Expected:
Both have a world of 2, and both stay participants: both beat in time.

Seen:
A returns with rank 0 in a world of 2
B returns with rank 1 in a world of 1
six seconds later A, which lives, is no longer a participant
reproduced: a live member was taken for dead

Cause:
`_sanitize` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:475`) compares the time in `last_heartbeats`,
which another node wrote with its clock (`_keep_alive`, line 720), with `datetime.now()` of its own.

Fix:
Take a node for dead when its heartbeat has not changed for interval x attempts of the observer's monotonic clock. The
value of a heartbeat is then a counter, and no clock is compared with another.
"""

import os
import sys
from contextlib import suppress
from datetime import datetime, timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

CONTROL = "--control" in sys.argv  # B's clock is ahead by less than a heartbeat lives
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
ahead = timedelta(seconds=0.25 if CONTROL else 20)  # of B's clock; a heartbeat lives for 3 x 5 s
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

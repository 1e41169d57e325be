"""c10d rendezvous: a member that leaves a complete round at once changes the world of members that have yet to poll it

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. B joins a round of two, and sleeps for its second between two polls.
2. A joins: the round is complete, with a world of 2.
3. A's worker fails; A's agent calls next_rendezvous() again, which removes A from the round.
4. B polls.

Expected:
B returns with the world of 2 that the round was completed with, or goes on to the next round.

Seen:
A returns from round 0 with rank 0 in a world of 2
B returns from round 0 with rank 1 in a world of 1
reproduced: members of one round have different worlds

Cause:
`_RendezvousExitOp` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:862`) removes a node from the
participants of a complete round, whose ranks are assigned already. `_get_world` (line 1365) computes rank and world
from the participants at the time of a node's own poll, so that they differ between members.

Fix:
Keep the ranks and the world of a complete round in the state as they were assigned, apart from the list of live
participants. A member that polls a round which another has left meanwhile should join the next one.
"""

import os
import sys
from contextlib import suppress
from datetime import timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

CONTROL = "--control" in sys.argv  # B polls before A's worker fails
os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # no server is needed here
store = HashStore()


def node(name: str) -> dr.DynamicRendezvousHandler:
    settings = dr.RendezvousSettings("job", 2, 2, dr.RendezvousTimeout(), timedelta(seconds=5), 3)
    backend = C10dRendezvousBackend(store, "job")
    holder = dr._BackendRendezvousStateHolder(backend, settings, cache_duration=0)
    return dr.DynamicRendezvousHandler(dr._NodeDesc(name, 1, 0), settings, backend.name, store, holder)


class WaitsForTheNextRound(Exception):
    """A node that would sleep here has nothing more to do in this script."""


def join(name: str, handler: dr.DynamicRendezvousHandler) -> None:
    info = handler.next_rendezvous()
    worlds.append(info.world_size)
    print(f"{name} returns from round 0 with rank {info.rank} in a world of {info.world_size}")


def meanwhile(seconds: object) -> None:
    """In the place of B's sleep between two polls: A completes the round, its worker fails, and A joins again."""
    if seconds != 1:
        return  # the random delay of a first join
    if worlds:
        raise WaitsForTheNextRound
    join("A", a)
    if CONTROL:
        return
    with suppress(WaitsForTheNextRound):
        a.next_rendezvous()


dr._delay = meanwhile
worlds: list[int] = []
a, b = node("A"), node("B")
with suppress(WaitsForTheNextRound):
    join("B", b)
shown = worlds == [2, 1]
print("reproduced: members of one round have different worlds" if shown else "not reproduced: the worlds agree")
sys.exit(int(shown))

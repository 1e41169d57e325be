"""A member leaves a complete round before another member has polled it: the other returns with a smaller world."""

import os
import sys
from contextlib import suppress
from datetime import timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

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

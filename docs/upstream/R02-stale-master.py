"""A member keeps the master of an earlier round, while the newcomer that is rank 0 serves another one."""

import sys
from datetime import timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.api import RendezvousInfo
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

store = HashStore()


def node(number: int) -> dr.DynamicRendezvousHandler:
    timeout = dr.RendezvousTimeout(last_call=timedelta(seconds=1))
    settings = dr.RendezvousSettings("job", 1, 2, timeout, timedelta(seconds=5), 3)
    backend = C10dRendezvousBackend(store, "job")
    holder = dr._BackendRendezvousStateHolder(backend, settings, cache_duration=0)
    return dr.DynamicRendezvousHandler(dr._NodeDesc("127.0.0.1", number, 0), settings, backend.name, store, holder)


def say(name: str, info: RendezvousInfo) -> None:
    port = info.bootstrap_store_info.master_port
    print(f"{name} has rank {info.rank} of {info.world_size}, and its workers get MASTER_PORT={port}")


a, b = node(2), node(1)  # B comes later, and sorts before A
say("round 0: A", a.next_rendezvous())
real_delay, seats = dr._delay, []


def b_joins(seconds: object) -> None:
    """In the place of A's first sleep between two polls: the newcomer joins, which completes the round."""
    if seconds != 1:
        return  # the random delay of a first join
    dr._delay = real_delay
    seats.append(b.next_rendezvous())


dr._delay = b_joins
seats.append(a.next_rendezvous())  # A restarts, as for a newcomer or a failed worker
for name, info in zip("BA", seats, strict=True):
    say(f"round 1: {name}", info)
ports = {info.bootstrap_store_info.master_port for info in seats}
shown = len(ports) > 1
print("reproduced: members of round 1 have different masters" if shown else "not reproduced: the masters agree")
sys.exit(int(shown))

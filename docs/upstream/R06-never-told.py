"""A live member that missed its heartbeats is removed and replaced, and nothing tells it: two groups run at once."""

import os
import pickle
import sys
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


def shared() -> dr._RendezvousState:
    return pickle.loads(C10dRendezvousBackend(store, "job").get_state()[0])


def together(first: dr.DynamicRendezvousHandler, second: dr.DynamicRendezvousHandler) -> None:
    """Both join: the second one, whose rank is 0, in the first one's sleep between two polls."""
    others = [second]
    dr._delay = lambda seconds: others.pop().next_rendezvous() if seconds == 1 else None
    first.next_rendezvous()
    round_, members = shared().round, sorted(shared().participants)
    print(f"at {clock.seconds:2} s " + " and ".join(node.addr for node in members) + f" run, in round {round_}")


dr.datetime = Clock
dr.DynamicRendezvousHandler._start_heartbeats = lambda self: None  # this script beats by its own clock
a, b, c = node("A"), node("B"), node("C")
together(c, a)
for seconds in (6, 12, 18):  # A's process is stopped, C's heartbeats go on
    clock = timedelta(seconds=seconds)
    c._keep_alive()
together(c, b)  # C's worker has lost its peer: C restarts, and B comes in A's place
clock = timedelta(seconds=20)
a._keep_alive()  # A's process goes on
print("at 20 s A beats, without an error")
print(f"at 20 s A sees num_nodes_waiting() = {a.num_nodes_waiting()}, is_closed() = {a.is_closed()}")
removed = a._this_node not in shared().participants
shown = removed and shared().complete and a.num_nodes_waiting() == 0 and not a.is_closed()
print("reproduced: A runs on beside the new group, and is told nothing" if shown else "not reproduced: A is told")
sys.exit(int(shown))

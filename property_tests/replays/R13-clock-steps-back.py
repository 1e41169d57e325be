"""c10d rendezvous: a wall clock that is set back stops the node's heartbeats, and the others remove it

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. A and B run; A's wall clock is set back by 60 s.
2. A and B beat every 6 s, for 18 s.

Expected:
A writes heartbeats, and stays a participant.

Seen:
at  0 s A and B run, in round 0
at 18 s A has called _keep_alive() three times, and is no longer a participant
reproduced: a live member was removed

Cause:
`_should_keep_alive` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:854`) compares the time of the last
heartbeat, written before the step, with `datetime.now()`: for a minute no heartbeat is due.

Fix:
Decide by a monotonic clock of the node whether a heartbeat is due. The timer that calls `_keep_alive` is one already.
"""

import os
import pickle
import sys
from datetime import datetime, timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

CONTROL = "--control" in sys.argv  # A's clock is set back by a second
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
a, b = node("A"), node("B")
together(b, a)
for seconds in (6, 12, 18):
    clock = timedelta(seconds=seconds - (1 if CONTROL else 60))  # A's, which has been set back
    a._keep_alive()
    clock = timedelta(seconds=seconds)
    b._keep_alive()
removed = a._this_node not in shared().participants
print(f"at 18 s A has called _keep_alive() three times, and is {'no longer' if removed else 'still'} a participant")
print("reproduced: a live member was removed" if removed else "not reproduced: A is still a participant")
sys.exit(int(removed))

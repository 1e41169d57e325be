"""c10d rendezvous: after a pause of the store longer than the keep-alive window no member ever beats again

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. A and B run in round 0; no call to the store gets through for 20 s, of a window of 3 x 5 s.
2. The store answers again, and A and B beat.
3. C and D join.

Expected:
A and B write a heartbeat after the pause, or are told that they are out before another group starts.

Seen:
at  0 s A and B run, in round 0
at 20 s A and B beat: no error, and no time in the store
at 26 s A and B beat: no error, and no time in the store
at 32 s A and B beat: no error, and no time in the store
at 32 s C and D run, in round 1
at 32 s A and B see a node that waits, or a rendezvous that is closed: False
reproduced: two groups run, and neither knows

Cause:
At its first read after the pause each node finds its own heartbeat expired, and `_sanitize`
(`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:488`) removes it from its local copy.
`_should_keep_alive` (line 849) then returns False for ever, because the node has no entry. The next node that joins
finds nobody.

Fix:
Do not let a node expire itself: write the heartbeat that is due before the state is sanitised, or skip the own node
there. A member that others have removed needs to be told (as for a member that was stopped).
"""

import os
import pickle
import sys
from datetime import datetime, timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

CONTROL = "--control" in sys.argv  # no call gets through for less than a heartbeat lives
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
a, b, c, d = node("A"), node("B"), node("C"), node("D")
together(b, a)
for seconds in (14, 20, 26) if CONTROL else (20, 26, 32):  # until the first, no call got through
    clock = timedelta(seconds=seconds)
    before = C10dRendezvousBackend(store, "job").get_state()
    a._keep_alive()
    b._keep_alive()
    wrote = C10dRendezvousBackend(store, "job").get_state() != before
    print(f"at {seconds} s A and B beat: no error, and {'a new' if wrote else 'no'} time in the store")
told = wrote
if not wrote:
    together(d, c)
    told = any(node.num_nodes_waiting() or node.is_closed() for node in (a, b))
    print(f"at 32 s A and B see a node that waits, or a rendezvous that is closed: {told}")
shown = not told and c._this_node in shared().participants
print("reproduced: two groups run, and neither knows" if shown else "not reproduced: A and B beat again, or are told")
sys.exit(int(shown))

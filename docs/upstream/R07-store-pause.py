"""After a pause of the store each member takes itself for dead: it stops beating for ever, and runs on."""

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
a, b, c, d = node("A"), node("B"), node("C"), node("D")
together(b, a)
for seconds in (20, 26, 32):  # for 20 s no call got through
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

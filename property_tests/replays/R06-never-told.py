"""c10d rendezvous: a member that was removed for missed heartbeats is never told, and runs on beside its replacement

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. A and C run in round 0; A's process is stopped for longer than 3 x 5 s.
2. C's heartbeat removes A; C's worker fails, C restarts, and B joins: round 1 of B and C.
3. A's process goes on: look at all that its agent asks for.

Expected:
A's agent learns that it is out: its heartbeat fails, or num_nodes_waiting() or is_closed() say so.

Seen:
at  0 s A and C run, in round 0
at 18 s B and C run, in round 1
at 20 s A beats, without an error
at 20 s A sees num_nodes_waiting() = 0, is_closed() = False
reproduced: A runs on beside the new group, and is told nothing

Cause:
`_should_keep_alive` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:847`) returns False for a node that
has no entry in `last_heartbeats`, so that `_RendezvousKeepAliveOp` (line 985) finishes without an error and without a
write. `num_nodes_waiting` (line 1265) and `is_closed` say nothing about the node itself, and the agent asks for
nothing else.

Fix:
Let the keep-alive operation raise, or set a flag that the agent reads, when the node is no participant of the round
that it returned from. The agent then stops its workers and joins again.
"""

import os
import pickle
import sys
from datetime import datetime, timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

CONTROL = "--control" in sys.argv  # A is stopped for less than its heartbeat lives
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
for seconds in (6, 12) if CONTROL else (6, 12, 18):  # A's process is stopped, C's heartbeats go on
    clock = timedelta(seconds=seconds)
    c._keep_alive()
if not CONTROL:
    together(c, b)  # C's worker has lost its peer: C restarts, and B comes in A's place
clock = timedelta(seconds=14 if CONTROL else 20)
a._keep_alive()  # A's process goes on
print(f"at {clock.seconds} s A beats, without an error")
print(f"at {clock.seconds} s A sees num_nodes_waiting() = {a.num_nodes_waiting()}, is_closed() = {a.is_closed()}")
removed = a._this_node not in shared().participants
shown = removed and shared().complete and a.num_nodes_waiting() == 0 and not a.is_closed()
print("reproduced: A runs on beside the new group, and is told nothing" if shown else "not reproduced: A is a member")
sys.exit(int(shown))

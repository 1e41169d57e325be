"""torchrun: when a node dies, nothing tells the agents of the others, and no restart happens

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. A and B run, two of at least two; A dies with its agent.
2. B beats on, and its heartbeat removes A from the participants.
3. Look at all that B's agent asks for.

Expected:
B's agent learns that its round has lost a member, stops its workers, and joins the next round.

Seen:
at  0 s A and B run, in round 0
at 24 s round 0 is complete: True, with 1 of at least 2 nodes
at 24 s B sees num_nodes_waiting() = 0, is_closed() = False
reproduced: nothing tells the survivor

Cause:
`_sanitize` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:510`) removes a dead participant, and leaves
the round complete. `SimpleElasticAgent._invoke_run` (`torch/distributed/elastic/agent/server/api.py:959`) restarts
only for `num_nodes_waiting()`, so that a missed heartbeat has no consequence for the members.

Fix:
Treat an expired participant of a complete round as a membership change, which the agent asks for beside the number of
waiting nodes. Today only a worker that fails by itself brings the restart about.
"""

import os
import pickle
import sys
from datetime import datetime, timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

CONTROL = "--control" in sys.argv  # A lives
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
for seconds in (6, 12, 18, 24):  # A has died; B's heartbeats go on
    clock = timedelta(seconds=seconds)
    b._keep_alive()
    if CONTROL:
        a._keep_alive()
state = shared()
print(f"at 24 s round {state.round} is complete: {state.complete}, with {len(state.participants)} of at least 2 nodes")
print(f"at 24 s B sees num_nodes_waiting() = {b.num_nodes_waiting()}, is_closed() = {b.is_closed()}")
alone = state.complete and len(state.participants) == 1
shown = alone and b.num_nodes_waiting() == 0 and not b.is_closed()
print("reproduced: nothing tells the survivor" if shown else "not reproduced: A is still a member, or B is told")
sys.exit(int(shown))

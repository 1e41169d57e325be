"""c10d rendezvous: cas_backoff_max_seconds pauses between reading the state and deciding on it, so that the next write
is lost as well

Versions: torch 2.15.0, which brought the option; Python 3.11 and 3.14, Linux, CPU. Lines are those of 2.15.0.

Steps:
1. A node decides to write; another node writes first.
2. The node pauses. Another node writes once in the pause, and not again.
3. The node writes.

Expected:
The write after the pause is won: nobody has written since the pause ended.

Seen:
set_closed() paused 6 times; another node wrote once in each of the first five pauses
5 writes were lost, before which nobody had written since the pause
reproduced: a pause makes the next write stale

Cause:
`_DistributedRendezvousOpExecutor.run` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:665`) calls `_delay`
after `sync()`. A lost `sync()` has fetched the state already, and the token of the next write with it: what other nodes
write during the pause makes both stale.

Fix:
Pause first and read then: after a lost write, sleep and call `sync()` again (it is not dirty, and reads) before the
next action is decided.
"""

import pickle
import sys
from datetime import UTC, datetime, timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

CONTROL = "--control" in sys.argv  # no node beats in the pauses
if not hasattr(dr.RendezvousSettings, "cas_backoff_max_seconds"):
    print("not reproduced: this torch has no cas_backoff_max_seconds")
    sys.exit(0)
store, pauses, writes = HashStore(), [], []
other = C10dRendezvousBackend(store, "job")


class Counting(C10dRendezvousBackend):
    """Says after each write whether it was won."""

    def set_state(self, state, token=None):
        if not writes:
            heartbeat()  # another node is first, once
        reply = super().set_state(state, token)
        writes.append(reply[2])
        return reply


def heartbeat() -> None:
    """Another node's heartbeat, as every few seconds."""
    bits, token = other.get_state() or (pickle.dumps(dr._RendezvousState()), None)
    state = pickle.loads(bits)
    state.last_heartbeats[dr._NodeDesc("other", 1, 0)] = datetime.now(UTC)
    assert other.set_state(pickle.dumps(state), token)[2]


def pause(seconds: tuple[float, float]) -> None:
    """The pause after a lost write: the other node beats once in each of the first five."""
    pauses.append(seconds)
    if len(pauses) <= 5 and not CONTROL:
        heartbeat()


heartbeat()
settings = dr.RendezvousSettings(
    "job", 1, 1, dr.RendezvousTimeout(), timedelta(seconds=5), 3, cas_backoff_max_seconds=1.0
)
backend = Counting(store, "job")
holder = dr._BackendRendezvousStateHolder(backend, settings, cache_duration=0)
node = dr.DynamicRendezvousHandler(dr._NodeDesc("node", 1, 0), settings, backend.name, store, holder)
dr._delay = pause
node.set_closed()
lost = writes.count(False) - 1  # without the first
print(f"set_closed() paused {len(pauses)} times; another node wrote once in each of the first five pauses")
print(f"{lost} writes were lost, before which nobody had written since the pause")
print(
    "reproduced: a pause makes the next write stale"
    if lost
    else "not reproduced: each write was decided on after its pause"
)
sys.exit(int(lost > 0))

"""c10d rendezvous: cas_backoff_max_seconds pauses between the read of the state and the decision, and the next write is
lost as well

Versions: torch 2.15.0, which added the option; Python 3.11 and 3.14, Linux, CPU. Line numbers refer to 2.15.0.

Steps:
1. A node decides to write; another node writes first.
2. The node pauses. Another node writes once in the pause, and not again.
3. The node writes.

Expected:
The write after the pause succeeds, because no node has written since the pause ended.

Seen:
set_closed() paused 6 times; another node wrote once in each of the first five pauses
5 writes were lost, although no other node had written since the pause
reproduced: a pause makes the next write stale

Cause:
`_DistributedRendezvousOpExecutor.run` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:665`) calls `_delay`
after `sync()`. A lost `sync()` has already fetched the state and the token of the next write. A write of another node
during the pause makes both stale.

Fix:
Pause first and then read: after a lost write, sleep and call `sync()` again (it is not dirty, and reads) before the
next decision.
"""

import pickle
from datetime import UTC, datetime, timedelta

from ending import CONTROL, end
from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

# With --control, no other node writes during the pauses.
if not hasattr(dr.RendezvousSettings, "cas_backoff_max_seconds"):
    print("this torch has no cas_backoff_max_seconds")
    end(False, "")
store, pauses, writes = HashStore(), [], []
other = C10dRendezvousBackend(store, "job")


class Counting(C10dRendezvousBackend):
    """Records for each write whether it was won."""

    def set_state(self, state, token=None):
        if not writes:
            heartbeat()  # another node writes first, once
        reply = super().set_state(state, token)
        writes.append(reply[2])
        return reply


def heartbeat() -> None:
    """Writes the heartbeat that another node writes every few seconds."""
    bits, token = other.get_state() or (pickle.dumps(dr._RendezvousState()), None)
    state = pickle.loads(bits)
    state.last_heartbeats[dr._NodeDesc("other", 1, 0)] = datetime.now(UTC)
    assert other.set_state(pickle.dumps(state), token)[2]


def pause(seconds: tuple[float, float]) -> None:
    """Replaces the pause after a lost write: the other node writes a heartbeat in each of the first five."""
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
lost = writes.count(False) - 1  # the first one does not count
print(f"set_closed() paused {len(pauses)} times; another node wrote once in each of the first five pauses")
print(f"{lost} writes were lost, although no other node had written since the pause")
end(lost > 0, "a pause makes the next write stale")

"""c10d rendezvous: expiry is judged by the observer's keep-alive settings, so that a node with a shorter window removes
live nodes

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. A and B run, with a heartbeat every 60 s and a window of 180 s.
2. 2.5 s later C joins, with keep_alive_interval=1 and keep_alive_max_attempt=2.

Expected:
A and B stay participants: they beat in time by the settings that they run with. Or C is refused, because its settings
differ.

Seen:
participants: ['A', 'B']; they beat every 60 s, and live for 180 s
participants: ['C']; C joined 2.5 s later, with keep_alive_interval=1,keep_alive_max_attempt=2
reproduced: live members were removed

Cause:
`_sanitize` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:475`) computes the age at which a heartbeat
expires from the settings of the node that looks. The settings are no part of the shared state.

Fix:
Keep interval and attempts in the shared state, written by the first node, and refuse or warn a node with others. Or
store with each heartbeat the time for which it is good.
"""

import os
import pickle
import sys
import time
from contextlib import suppress
from datetime import timedelta

from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

CONTROL = "--control" in sys.argv  # C has the settings of A and B
os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # no server is needed here
store = HashStore()


def node(name: str, interval: int, attempts: int) -> dr.DynamicRendezvousHandler:
    beat = timedelta(seconds=interval)
    settings = dr.RendezvousSettings("job", 2, 2, dr.RendezvousTimeout(), beat, attempts)
    backend = C10dRendezvousBackend(store, "job")
    holder = dr._BackendRendezvousStateHolder(backend, settings, cache_duration=0)
    return dr.DynamicRendezvousHandler(dr._NodeDesc(name, 1, 0), settings, backend.name, store, holder)


class Waits(Exception):
    """A node that would sleep here has nothing more to do in this script."""


def waits(seconds: object) -> None:
    """In the place of the sleep between two polls."""
    if seconds == 1:
        raise Waits


def participants() -> list[str]:
    state = pickle.loads(C10dRendezvousBackend(store, "job").get_state()[0])
    return sorted(member.addr for member in state.participants)


a, b = node("A", 60, 3), node("B", 60, 3)
dr._delay = lambda seconds: a.next_rendezvous() if seconds == 1 else None
b.next_rendezvous()  # A joins in B's sleep
print(f"participants: {participants()}; they beat every 60 s, and live for 180 s")
time.sleep(2.5)
dr._delay = waits
interval, attempts = (60, 3) if CONTROL else (1, 2)
with suppress(Waits):
    node("C", interval, attempts).next_rendezvous()
print(
    f"participants: {participants()}; C joined 2.5 s later, with keep_alive_interval={interval},"
    f"keep_alive_max_attempt={attempts}"
)
shown = not {"A", "B"} & set(participants())
print("reproduced: live members were removed" if shown else "not reproduced: A and B are still participants")
sys.exit(int(shown))

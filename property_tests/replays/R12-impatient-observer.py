"""c10d rendezvous: a node judges expiry by its own keep-alive settings, and a node with a shorter window removes live
nodes

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A and B run, with a heartbeat every 60 s and a window of 180 s.
2. 2.5 s later C joins, with keep_alive_interval=1 and keep_alive_max_attempt=2.

Expected:
A and B stay participants, because they send heartbeats in time by their own settings. Or C is refused, because its
settings differ.

Seen:
participants: ['A', 'B']; they send a heartbeat every 60 s, which is valid for 180 s
participants: ['C']; C joined 2.5 s later, with keep_alive_interval=1,keep_alive_max_attempt=2
reproduced: live members were removed

Cause:
`_sanitize` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:475`) computes the age at which a heartbeat
expires from the settings of the node that reads it. The settings are not part of the shared state.

Fix:
Keep interval and attempts in the shared state, written by the first node, and refuse or warn a node with different
settings. Or store with each heartbeat the time for which it is valid.
"""

import time
from contextlib import suppress

from ending import CONTROL, end
from nodes import Waits, between_polls, node, participants, waits

# With --control, C has the settings of A and B.


a, b = node("A", beat=60), node("B", beat=60)
between_polls(a.next_rendezvous)
b.next_rendezvous()  # A joins during B's sleep
print(f"participants: {participants()}; they send a heartbeat every 60 s, which is valid for 180 s")
time.sleep(2.5)
between_polls(waits)
interval, attempts = (60, 3) if CONTROL else (1, 2)
with suppress(Waits):
    node("C", beat=interval, attempts=attempts).next_rendezvous()
print(
    f"participants: {participants()}; C joined 2.5 s later, with keep_alive_interval={interval},"
    f"keep_alive_max_attempt={attempts}"
)
end(not {"A", "B"} & set(participants()), "live members were removed")

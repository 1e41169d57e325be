"""torchrun: an agent in the exit barrier cannot send heartbeats, and a spare replaces it, which restarts healthy
workers

Versions: torch 2.13.0 and 2.7.1; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A and B run in a round of at most two nodes, and C is a spare. The window is 3 x 1 s.
2. A's worker ends with success: A's agent waits in the exit barrier.
3. Look at B's worker.

Expected:
B's worker continues, and the job ends when this worker is done.

Seen:
the workers of A and B run, and C is a spare: the round has two seats
A's worker is done; after 6 s B's has been started 2 times,
and C's 1 times; A's agent lives
reproduced: healthy workers were restarted with a spare

Cause:
`_exit_barrier` (`torch/distributed/elastic/agent/server/api.py:994`) waits for the other agents on the store that the
rendezvous returned, and the backend of the heartbeats uses the same client (`_create_c10d_handler`, registry.py:46). A
TCPStore client serves one call at a time: the heartbeat waits for the barrier. B's heartbeat then drops A as dead, the
spare finds a free place and waits for the next round, and B's agent restarts its workers for the spare.

Fix:
Give the backend its own client (`store.clone()`). Or wait in the barrier in short steps.
"""

import time

from agents import SOON_DEAD, Job
from ending import CONTROL, end
from nodes import shared
from torch.distributed import TCPStore

# With --control, A's worker continues.
WORKER = """
echo started >> $1/$NAME
until [ -e $1/$NAME.end ] || [ -e $1/end ]; do sleep 0.1; done
"""


def starts(name: str) -> int:
    """The number of starts of a node's worker."""
    return job.text(name).count("started") if (job.folder / name).exists() else 0


job = Job(WORKER, (2, 2), **SOON_DEAD)
agents = job.start("A", "B")
job.wait_for("A", "B")
agents += job.start("C")
store = TCPStore("127.0.0.1", job.port)
while not shared(store).redundancy_list:
    time.sleep(0.1)
print("the workers of A and B run, and C is a spare: the round has two seats")
if not CONTROL:
    job.touch("A.end")
began = time.monotonic()
while not starts("C") and time.monotonic() - began < (6 if CONTROL else 20):
    time.sleep(0.1)
time.sleep(1)
again = starts("B") > 1
print(
    f"A's worker {'continues' if CONTROL else 'is done'}; after {time.monotonic() - began:.0f} s "
    f"B's has been started {starts('B')} times,"
)
print(f"and C's {starts('C')} times; A's agent {'lives' if agents[0].is_alive() else 'has ended'}")
for one in agents:
    one.kill()
    one.join()
job.touch("end")  # the workers that the agents leave behind
time.sleep(0.5)
end(again, "healthy workers were restarted with a spare")

"""torchrun: an agent that dies as a round begins ends the others, although they have restarts left

Versions: torch 2.6.0 and 2.13.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A and B join a round of 1 to 2 nodes, with 3 restarts; read_timeout is 4 s, and a node counts as dead after
   2 s.
2. B is killed before it has written `torchelastic/role_info/RANK`. (The script replaces, in B only, the function that
   would write it.)
3. A waits for the key.

Expected:
A drops B, and continues alone or with a node that replaces B: 1 node is enough, and 3 restarts are left.

Seen:
A and B have a round of 1 to 2 nodes; B is killed before it has written its number of workers
A, which may run alone and has 3 restarts, ends with DistStoreError
reproduced: an agent that dies ends the other

Cause:
`SimpleElasticAgent._rendezvous` (`torch/distributed/elastic/agent/server/api.py:541`) calls `_assign_worker_ranks`,
in which the agent of rank 0 waits for the keys of all agents (line 635), and each other agent waits for the ranks that
rank 0 writes (line 678). No agent checks the membership meanwhile. Nothing catches the store's DistStoreError after the
timeout: `run` raises it, and `launch_agent` closes the rendezvous. No other node can then begin a new round either.

Fix:
Wait in short steps and check the rendezvous between them. When a member has left, call `next_rendezvous` again instead
of raising.
"""

import os
import signal

from agents import Job
from ending import CONTROL, end
from torch.distributed.elastic.agent.server import api as agents
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

# With --control, B is killed when its worker runs.


def die(*_) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_b(name: str) -> None:
    """Kill B once it has its round."""
    if name == "B" and CONTROL:
        LocalElasticAgent._monitor_workers = die
    elif name == "B":
        agents.SimpleElasticAgent._assign_worker_ranks = die


job = Job(
    f"exec sleep {5 if CONTROL else 30}",
    (1, 2),
    restarts=3,
    barrier=1,  # A's worker ends without B
    prepare=kill_b,
    read_timeout=4,
    keep_alive_interval=1,
    keep_alive_max_attempt=2,
)
job.start("A", "B")
when = "when its worker runs" if CONTROL else "before it has written its number of workers"
print(f"A and B have a round of 1 to 2 nodes; B is killed {when}")
ended = job.ends(1)["A"]
print(f"A, which may run alone and has 3 restarts, ends with {ended}")
end(ended == "DistStoreError", "an agent that dies ends the other")

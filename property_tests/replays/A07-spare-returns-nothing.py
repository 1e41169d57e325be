"""torchrun: a redundant node ends with AttributeError: 'NoneType' object has no attribute 'is_failed' when the job
succeeds

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. The round has room for one node: A runs, and B is on the redundancy list.
2. A's worker succeeds, and A closes the rendezvous.

Expected:
B's launch_agent returns without an error.

Seen:
A's worker runs, B is a spare: the round has one seat
the worker succeeds: A ends with success, B with AttributeError
reproduced: a spare fails when the job succeeds

Cause:
The join of a redundant node raises RendezvousGracefulExitError when the rendezvous is closed.
`SimpleElasticAgent.run` (`torch/distributed/elastic/agent/server/api.py:750`) logs it and returns None, and
`launch_agent` (`torch/distributed/launcher/api.py:378`) calls `result.is_failed()`.

Fix:
Let `run` return a `RunResult` with state SUCCEEDED and no return values. Or let `launch_agent` return an empty
dictionary for None.
"""

import time

from agents import Job
from ending import CONTROL, end
from nodes import shared
from torch.distributed import TCPStore

# With --control, the round has room for B.
WORKER = """
touch $1/runs
until [ -e $1/end ]; do sleep 0.1; done
"""

job = Job(WORKER, (1, 2 if CONTROL else 1))
job.start("A")
job.wait_for("runs")
job.start("B")
store = TCPStore("127.0.0.1", job.port)
while len((state := shared(store)).participants) < 2 and not state.redundancy_list:
    time.sleep(0.1)
print(f"A's worker runs, B is {'a member: the round has two seats' if CONTROL else 'a spare: the round has one seat'}")
job.touch("end")
ends = job.ends(2)
print(f"the worker succeeds: A ends with {ends['A']}, B with {ends['B']}")
end(ends == {"A": "success", "B": "AttributeError"}, "a spare fails when the job succeeds")

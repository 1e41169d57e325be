"""torchrun: an agent that ends with success closes the rendezvous, and another agent that restarts gets
RendezvousClosedError

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. There are two nodes, with max_restarts 2. A's worker succeeds, and A waits in the exit barrier (2 s here, 300 s in
   torchrun).
2. B's worker fails. B restarts and waits for A.
3. A's barrier times out, and A ends with success.

Expected:
B's restart succeeds: A joins the round again, or B gets a result. The job does not succeed on A while it ends on B
with restarts left.

Seen:
A's worker succeeded, and the exit barrier is over: A ends with success
B's worker failed once, and may be restarted twice: B ends with RendezvousClosedError
reproduced: the agent that ended has closed the rendezvous

Cause:
`SimpleElasticAgent._invoke_run` (`torch/distributed/elastic/agent/server/api.py:938`) no longer calls
`num_nodes_waiting()` once its workers have succeeded, and its barrier ends after 300 s whether or not the others have
arrived. `launch_agent` (`torch/distributed/launcher/api.py:401`) then calls `rdzv_handler.shutdown()`, which closes
the rendezvous for all nodes.

Fix:
Let an agent in the exit barrier watch for waiting nodes and join again. Close the rendezvous only when all members
have reported success, or one has failed for good.
"""

from agents import Job
from ending import CONTROL, end

# With --control, A's worker still runs when B's fails.
WORKER = f"""
# A's worker is done at once. B's fails when it is first started.
if [ $NAME = A ]; then sleep {5 if CONTROL else 0}; exit 0; fi
if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then sleep 1; exit 1; fi
"""

job = Job(WORKER, (2, 2), restarts=2, barrier=2)
job.start("A", "B")
ends = job.ends(2)
print(f"A's worker succeeded{'' if CONTROL else ', and the exit barrier is over'}: A ends with {ends['A']}")
print(f"B's worker failed once, and may be restarted twice: B ends with {ends['B']}")
end(ends == {"A": "success", "B": "RendezvousClosedError"}, "the agent that ended has closed the rendezvous")

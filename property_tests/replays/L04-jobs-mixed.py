"""lighthouse: replicas of two jobs become members of one quorum

Versions: torchft 0.2.0; its main branch at 7eb7087 (April 2026) has the same code. Python 3.11, Linux, CPU.

Steps:
1. A replica of job one and a replica of job two request a quorum at the same lighthouse.

Expected:
Each has a quorum of its job, or one of them is refused.

Seen:
job one has quorum 1 of one, two
job two has quorum 1 of one, two
reproduced: replicas of two jobs are in one quorum

Cause:
Neither `LighthouseHeartbeatRequest` nor `QuorumMember` has the name of a job.

Fix:
Add the name of the job to both, and refuse a replica of another job.
"""

from ending import CONTROL, end
from torchft_servers import Lighthouse, Replica, answer

# With --control, each job has a lighthouse.
lighthouse = Lighthouse(min_replicas=1)
one = Replica("one", lighthouse)
two = Replica("two", Lighthouse(min_replicas=1) if CONTROL else lighthouse)
if not CONTROL:
    lighthouse.await_page(r"\[2 heartbeating")
calls = [one.ask(), two.ask()]
for name, call in zip(("one", "two"), calls, strict=True):
    print(f"job {name} has {answer(call)}")
end(len(calls[0].result().replica_ids) == 2, "replicas of two jobs are in one quorum")

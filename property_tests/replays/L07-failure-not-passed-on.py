"""manager: if the request to the lighthouse fails, the ranks are not answered

Versions: torchft 0.2.0; its main branch at 7eb7087 (April 2026) has the same code. Python 3.11, Linux, CPU.

Steps:
1. A replica has two ranks. Both request a quorum, which needs a second replica. quorum_retries is 0, the default.
2. The lighthouse ends.

Expected:
Both ranks have the error of the manager at once: RuntimeError.

Seen:
rank 0: TimeoutError
rank 1: TimeoutError
reproduced: the manager's request has failed, and the ranks have waited for their timeout

Cause:
`quorum` in manager.rs spawns `_run_quorum` and drops its result. `_run_quorum` sends to the channel of the ranks only
if the lighthouse has answered (TODO: "We don't broadcast in cases when this method returns an error").

Fix:
Let the channel have a result, and send the error to the ranks.
"""

from ending import CONTROL, end
from torchft_servers import SHORT, Lighthouse, Replica, answer

# With --control, a second replica requests the quorum, and the lighthouse does not end.
lighthouse = Lighthouse(min_replicas=2)
replica = Replica("a", lighthouse, ranks=2)
calls = [replica.ask(rank=rank, timeout=3 * SHORT) for rank in (0, 1)]
lighthouse.await_page("1/1 participants healthy")
if CONTROL:
    other = Replica("b", lighthouse)
    other.ask()
else:
    lighthouse.end()
found = [answer(call) for call in calls]
for rank, each in enumerate(found):
    print(f"rank {rank}: {each}")
end(found == ["TimeoutError"] * 2, "the manager's request has failed, and the ranks have waited for their timeout")

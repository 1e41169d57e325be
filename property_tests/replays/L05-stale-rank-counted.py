"""manager: a rank whose request has timed out still counts as a participant of the quorum

Versions: torchft 0.2.0; its main branch at 7eb7087 (April 2026) has the same code. Python 3.11, Linux, CPU.

Steps:
1. A replica has two ranks. Rank 1 requests a quorum, and its request times out.
2. Rank 0 requests a quorum.

Expected:
Rank 0 waits until rank 1 requests a quorum again.

Seen:
rank 1: TimeoutError
rank 0: quorum 1 of a
reproduced: rank 0 has a quorum although rank 1 does not wait for one

Cause:
`quorum` in manager.rs inserts the rank into `participants`. When the request ends with its timeout, tonic drops the
handler, and nothing removes the rank.

Fix:
Remove the rank from `participants` when the handler is dropped, with a guard that has a `Drop`.
"""

from ending import CONTROL, end
from torchft_servers import SHORT, Lighthouse, Replica, answer

# With --control, rank 1 has not requested a quorum.
replica = Replica("a", Lighthouse(min_replicas=1), ranks=2)
if not CONTROL:
    print(f"rank 1: {answer(replica.ask(rank=1, timeout=SHORT))}")
found = answer(replica.ask(rank=0, timeout=2 * SHORT))
print(f"rank 0: {found}")
end(found.startswith("quorum"), "rank 0 has a quorum although rank 1 does not wait for one")

"""manager: the vote of a rank whose should_commit has timed out decides a later step

Versions: torchft 0.2.0; its main branch at 7eb7087 (April 2026) has the same code. Python 3.11, Linux, CPU.

Steps:
1. A replica has two ranks, which have a quorum. Rank 1 votes against step 0, and its request times out.
2. Both ranks request a quorum again. Rank 0 votes for step 0, and then rank 1.

Expected:
Both votes of the second attempt are for the step: both ranks have the decision True.

Seen:
first attempt, rank 1: TimeoutError
second attempt, rank 0: False
second attempt, rank 1: TimeoutError
reproduced: a vote of the first attempt has decided the second one, before rank 1 has voted

Cause:
`should_commit` in manager.rs inserts the rank into `should_commit_count` and `should_commit_failures`. Nothing removes
it when the request ends with its timeout, and the step of a vote is not compared (`TODO: check step count`).

Fix:
Remove the vote when the handler is dropped, and compare `step`.
"""

from ending import CONTROL, end
from torchft_servers import SHORT, Lighthouse, Replica, answer

# With --control, rank 1 does not vote in the first attempt.
replica = Replica("a", Lighthouse(min_replicas=1), ranks=2)


def quorum() -> None:
    """Both ranks have a quorum."""
    for call in [replica.ask(rank=rank) for rank in (0, 1)]:
        call.result()


quorum()
if not CONTROL:
    print(f"first attempt, rank 1: {answer(replica.vote(1, agrees=False, timeout=SHORT))}")
    quorum()
first = replica.vote(0)
if not CONTROL:
    first.exception()  # wait for the decision, which comes before rank 1 has voted
votes = [answer(call) for call in (first, replica.vote(1, timeout=SHORT))]
for rank, found in enumerate(votes):
    print(f"second attempt, rank {rank}: {found}")
end(votes[0] == "False", "a vote of the first attempt has decided the second one, before rank 1 has voted")

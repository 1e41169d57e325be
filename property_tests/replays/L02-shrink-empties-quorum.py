"""lighthouse: with shrink_only a quorum can be empty, and every later one is a fast quorum without min_replicas

Versions: torchft 0.2.0; its main branch at 7eb7087 (April 2026) has the same code. Python 3.11, Linux, CPU.

Steps:
1. A lighthouse has min_replicas=2. Replicas a and b have a quorum. Both end, and their heartbeats become too old.
2. Replicas c and d request a quorum, c with shrink_only.
3. After these requests have timed out, c requests a quorum alone, without shrink_only.

Expected:
c and d have a quorum, or c has an error. Alone c does not have a quorum.

Seen:
a has quorum 1 of a, b
the page of the lighthouse has 0 members
c has TimeoutError, d has TimeoutError
c alone has quorum 3 of c, with min_replicas=2
reproduced: the quorum is empty, and a later one has fewer members than min_replicas

Cause:
`quorum_compute` in lighthouse.rs filters `candidate_participants` by the previous quorum, but compares the unfiltered
`healthy_participants` with min_replicas and the majority. The empty quorum becomes `prev_quorum`.
From then on `is_fast_quorum` is true, because all of no members are healthy, and a fast quorum skips both tests.

Fix:
Compare the filtered candidates with min_replicas and the majority, and ignore shrink_only if they are too few.
"""

from ending import CONTROL, end
from torchft_servers import SHORT, Lighthouse, Replica, answer

# With --control, no request has shrink_only.
lighthouse = Lighthouse(min_replicas=2, beats_ms=500)
a, b = Replica("a", lighthouse), Replica("b", lighthouse)
calls = [a.ask(), b.ask()]
print(f"a has {answer(calls[0])}")
for each in (a, b):
    each.server.shutdown()
lighthouse.await_page(r"0/0 participants healthy\]\[0 heartbeating")

c, d = Replica("c", lighthouse), Replica("d", lighthouse)
lighthouse.await_page(r"\[2 heartbeating")
calls = [c.ask(timeout=SHORT, shrink_only=not CONTROL), d.ask(timeout=SHORT)]
if not CONTROL:
    lighthouse.await_page("Num participants: 0")
    print("the page of the lighthouse has 0 members")
both = [answer(call) for call in calls]
print(f"c has {both[0]}, d has {both[1]}")
# The managers' requests end after the clients' calls.
lighthouse.await_page(r"0/0 participants healthy\]\[2 heartbeating")
alone = answer(c.ask(timeout=SHORT))
print(f"c alone has {alone}, with min_replicas=2")
shown = both == ["TimeoutError"] * 2 and alone.endswith("of c")
end(shown, "the quorum is empty, and a later one has fewer members than min_replicas")

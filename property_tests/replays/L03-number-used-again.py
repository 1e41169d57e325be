"""lighthouse: after its restart quorum_id begins at 1 again, and a replica keeps the process group of another quorum

Versions: torchft 0.2.0; its main branch at 7eb7087 (April 2026) has the same code. Python 3.11, Linux, CPU.

Steps:
1. Replicas a and b have quorum 1. Each has configured its process group for two replicas.
2. The lighthouse starts again on the same port. Replica c starts.
3. All three request a quorum.

Expected:
The quorum has another number than 1, because its members differ.

Seen:
before: quorum 1 of a, b
after: quorum 1 of a, b, c
reproduced: quorums with different members have the same number, and manager.py keeps the process group

Cause:
`Lighthouse::new` sets `quorum_id` to 0. `Manager._async_quorum` in manager.py configures the process group only if
`quorum_id != self._quorum_id`. So a and b keep the group of two, and c waits in `configure` for them.

Fix:
Begin `quorum_id` at a number that no earlier lighthouse has used, such as the time in ms.
"""

from ending import CONTROL, end
from torchft_servers import Lighthouse, Replica, answer

# With --control, the lighthouse does not start again.
lighthouse = Lighthouse(min_replicas=2)
a, b = Replica("a", lighthouse), Replica("b", lighthouse)
calls = [a.ask(), b.ask()]
before = calls[0].result()
print(f"before: {answer(calls[0])}")
if not CONTROL:
    port = lighthouse.port
    lighthouse.end()
    lighthouse = Lighthouse(min_replicas=2, port=port)
    lighthouse.await_page(r"\[2 heartbeating")
c = Replica("c", lighthouse)
lighthouse.await_page(r"\[3 heartbeating")
calls = [c.ask()]
lighthouse.await_page("1/1 participants healthy")
calls += [each.ask(step=1) for each in (a, b)]
after = calls[0].result()
print(f"after: {answer(calls[0])}")
shown = before.quorum_id == after.quorum_id and before.replica_ids != after.replica_ids
end(shown, "quorums with different members have the same number, and manager.py keeps the process group")

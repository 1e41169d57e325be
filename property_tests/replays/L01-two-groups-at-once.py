"""lighthouse: replicas that arrive while another one trains form a quorum without it, and both groups commit the same
step

Versions: torchft 0.2.0; its main branch at 7eb7087 (April 2026) has the same code. Python 3.11, Linux, CPU.

Steps:
1. A lighthouse has min_replicas=1 and join_timeout_ms=2000. Replica a requests a quorum and trains step 0.
2. Replicas b and c start and request a quorum, while a trains for more than 2 s.
3. Each group commits step 0. All three request the next quorum.

Expected:
b and c wait for a, whose heartbeats arrive; or the replicas that have not trained with a copy its weights at step 1.

Seen:
step 0: a has quorum 1 of a
step 0: b has quorum 2 of b, c
step 1: a, b, c have quorum 3 of a, b, c, and copy the weights: none
reproduced: two groups have committed step 0, and their different weights are averaged from then on

Cause:
`quorum_compute` in lighthouse.rs requires more than half of the replicas that send heartbeats. Two of three are
enough when b and c arrive. The test does not consider that a still trains in the previous quorum: both quorums have no
common member. `compute_quorum_results` in manager.rs copies weights to replicas at a lower step only.

Fix:
While a member of the previous quorum sends heartbeats, require that the new quorum has such a member. Wait for all
replicas that send heartbeats before the first quorum.
"""

from ending import CONTROL, end
from torchft_servers import Lighthouse, Replica, answer

# With --control, min_replicas is more than half of the replicas.
lighthouse = Lighthouse(2) if CONTROL else Lighthouse(1, join_timeout_ms=2000)
a = Replica("a", lighthouse)
first = a.ask()
if not CONTROL:
    print(f"step 0: a has {answer(first)}")
b, c = Replica("b", lighthouse), Replica("c", lighthouse)
lighthouse.await_page("b: seen.*c: seen|c: seen.*b: seen")
others = [b.ask(), c.ask()]
print(f"step 0: b has {answer(others[0])}")
if CONTROL:
    print(f"step 0: a has {answer(first)}")
calls = [a.ask(step=1)]
lighthouse.await_page("1/1 participants healthy")
calls += [each.ask(step=1) for each in (b, c)]
healing = [name for name, call in zip("abc", calls, strict=True) if call.result().heal]
print(f"step 1: a, b, c have {answer(calls[0])}, and copy the weights: {', '.join(healing) or 'none'}")

groups = {answer(first), answer(others[0]), answer(others[1])}
shown = len(groups) == 2 and not healing
end(shown, "two groups have committed step 0, and their different weights are averaged from then on")

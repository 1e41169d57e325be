"""c10d rendezvous: members keep MASTER_ADDR and MASTER_PORT of an earlier round when a new node becomes rank 0

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A is alone in round 0, has rank 0, and serves a store.
2. A's agent restarts. B, whose address sorts before A's, joins. This completes round 1, in which B has rank 0.
3. Compare the MASTER_PORT that the agents give to their workers.

Expected:
All members of round 1 have the address that its rank 0 published.

Seen:
round 0: A has rank 0 of 1, and its workers get MASTER_PORT=42771
round 1: B has rank 0 of 2, and its workers get MASTER_PORT=43983
round 1: A has rank 1 of 2, and its workers get MASTER_PORT=42771
reproduced: members of round 1 have different masters

Cause:
`DynamicRendezvousHandler.next_rendezvous` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1209`) returns
`_bootstrap_store_info` of an earlier round unless the node itself has rank 0 and no server. A node whose rank is not
0 in the new round never reads the new address.

Fix:
Call `RendezvousStoreInfo.build` in every round (as with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, where this does not
happen). The server may be kept; the address belongs to the round.
"""

from ending import CONTROL, end
from nodes import between_polls, node, real_delay
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.api import RendezvousInfo

# With --control, each member reads the address in each round.


def say(name: str, info: RendezvousInfo) -> None:
    port = info.bootstrap_store_info.master_port
    print(f"{name} has rank {info.rank} of {info.world_size}, and its workers get MASTER_PORT={port}")


a, b = (node("127.0.0.1", (1, 2), number=number, shares=not CONTROL, last_call=1) for number in (2, 1))
# B joins later, and sorts before A.
say("round 0: A", a.next_rendezvous())
seats = []


def b_joins() -> None:
    """The newcomer joins during A's first sleep, which completes the round."""
    dr._delay = real_delay
    seats.append(b.next_rendezvous())


between_polls(b_joins)
seats.append(a.next_rendezvous())  # A restarts, as for a newcomer or a failed worker
for name, info in zip("BA", seats, strict=True):
    say(f"round 1: {name}", info)
ports = {info.bootstrap_store_info.master_port for info in seats}
end(len(ports) > 1, "members of round 1 have different masters")

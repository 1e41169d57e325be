"""torchrun: a node whose rendezvous times out closes it for the healthy nodes, which then cannot restart

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A and B run in a round of two to three nodes.
2. A third torchrun waits for the next round, and gets RendezvousTimeoutError.
3. B restarts.

Expected:
B joins the next round. A node that was never a member does not end the job.

Seen:
A and B run in a world of 2, in which three nodes are allowed
a third torchrun waits for the next round, and gets RendezvousTimeoutError after join_timeout
B restarts, and gets RendezvousClosedError
reproduced: a node that was never a member has closed the rendezvous

Cause:
`launch_agent` calls `rdzv_handler.shutdown()` after every exception but a signal
(`torch/distributed/launcher/api.py:401`), and `DynamicRendezvousHandler.shutdown`
(`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1284`) marks the rendezvous closed, whichever node calls
it. The comment above, about signals, describes the effect: the rendezvous is closed permanently.

Fix:
Close the rendezvous only when the job has a result: after success, or after workers have failed with no restart left.
An agent that ends for another reason should only remove itself from the state.
"""

from agents import launch_config
from ending import CONTROL, end
from nodes import Waits, between_polls, node, real_delay, waits
from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.api import RendezvousClosedError, RendezvousTimeoutError
from torch.distributed.launcher.api import launch_agent

# With --control, the third node gives up without the launcher, which would close the rendezvous.
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def a_joins() -> None:
    dr._delay = real_delay
    a.next_rendezvous()


a, b = (node(name, (2, 3), store=store, last_call=1) for name in "AB")
between_polls(a_joins)
world = b.next_rendezvous().world_size
print(f"A and B run in a world of {world}, in which three nodes are allowed")

config = launch_config(store.port, (2, 3), {"join_timeout": 2, "is_host": False})
try:
    if CONTROL:
        node("C", (2, 3), store=store, join=2, last_call=1).next_rendezvous()
    launch_agent(config, "true", [])  # torchrun makes this call
except RendezvousTimeoutError:
    print("a third torchrun waits for the next round, and gets RendezvousTimeoutError after join_timeout")

between_polls(waits)
closed = False
try:
    b.next_rendezvous()
except RendezvousClosedError:
    closed = True
except Waits:
    pass
print(f"B restarts, and {'gets RendezvousClosedError' if closed else 'waits for A to restart too'}")
end(closed, "a node that was never a member has closed the rendezvous")

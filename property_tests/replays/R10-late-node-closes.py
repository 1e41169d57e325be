"""torchrun: a node whose rendezvous times out closes it for the healthy nodes, which then cannot restart

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. A and B run in a round of two to three nodes.
2. A third torchrun waits for the next round, and gets RendezvousTimeoutError.
3. B restarts.

Expected:
B joins the next round: a node that never was a member does not end the job.

Seen:
A and B run in a world of 2, which may have three nodes
a third torchrun waits for the next round, and gets RendezvousTimeoutError after join_timeout
B restarts, and gets RendezvousClosedError
reproduced: a node of no group has closed the rendezvous

Cause:
`launch_agent` calls `rdzv_handler.shutdown()` after every exception but a signal
(`torch/distributed/launcher/api.py:401`), and `DynamicRendezvousHandler.shutdown`
(`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1284`) marks the rendezvous closed, whoever calls it. The
comment above, about signals, names the harm: it is closed permanently.

Fix:
Close the rendezvous only when the job has a result: after success, or after workers have failed with no restart left.
An agent that ends for a reason of its own should only remove itself from the state.
"""

import os
import sys
from datetime import timedelta

from torch.distributed import TCPStore
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.api import RendezvousClosedError, RendezvousTimeoutError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.launcher.api import LaunchConfig, launch_agent

CONTROL = "--control" in sys.argv  # the third node gives up without the launcher, which closes
os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # no server of rank 0 is needed here
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def node(name: str, join_timeout: int = 600) -> dr.DynamicRendezvousHandler:
    timeout = dr.RendezvousTimeout(join=timedelta(seconds=join_timeout), last_call=timedelta(seconds=1))
    settings = dr.RendezvousSettings("job", 2, 3, timeout, timedelta(seconds=5), 3)
    backend = C10dRendezvousBackend(store, "job")
    holder = dr._BackendRendezvousStateHolder(backend, settings, cache_duration=0)
    return dr.DynamicRendezvousHandler(dr._NodeDesc(name, 1, 0), settings, backend.name, store, holder)


class Waits(Exception):
    """A node that would sleep here has nothing more to do in this script."""


def a_joins(seconds: object) -> None:
    """In the place of B's sleep between two polls."""
    if seconds == 1:
        dr._delay = real_delay
        a.next_rendezvous()


def waits(seconds: object) -> None:
    if seconds == 1:
        raise Waits


a, b, real_delay = node("A"), node("B"), dr._delay
dr._delay = a_joins
world = b.next_rendezvous().world_size
print(f"A and B run in a world of {world}, which may have three nodes")

config = LaunchConfig(
    min_nodes=2,
    max_nodes=3,
    nproc_per_node=1,
    run_id="job",
    rdzv_backend="c10d",
    rdzv_endpoint=f"127.0.0.1:{store.port}",
    rdzv_configs={"join_timeout": 2, "is_host": False},
    local_addr="127.0.0.1",
    logs_specs=DefaultLogsSpecs(),
)
try:
    if CONTROL:
        node("C", join_timeout=2).next_rendezvous()
    launch_agent(config, "true", [])  # as torchrun does
except RendezvousTimeoutError:
    print("a third torchrun waits for the next round, and gets RendezvousTimeoutError after join_timeout")

dr._delay = waits
closed = False
try:
    b.next_rendezvous()
except RendezvousClosedError:
    closed = True
except Waits:
    pass
print(f"B restarts, and {'gets RendezvousClosedError' if closed else 'waits for A to restart too'}")
print("reproduced: a node of no group has closed the rendezvous" if closed else "not reproduced: the group can restart")
sys.exit(int(closed))

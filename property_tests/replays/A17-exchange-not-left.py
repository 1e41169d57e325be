"""torchrun: an agent that dies as a round begins ends the others, which have restarts left

Versions: torch 2.6.0 and 2.13.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. A and B meet in a round of 1 to 2 nodes, with 3 restarts; read_timeout is 4 s, and a node is dead after 2 s.
2. B is killed before it has written `torchelastic/role_info/RANK`. (The script replaces the function that would write
   it, in B alone.)
3. A waits for the key.

Expected:
A drops B, and goes on alone or with whoever comes in its place: 1 node is enough, and 3 restarts are left.

Seen:
A and B have a round of 1 to 2 nodes; B is killed before it has told its number of workers
A, which may run alone and has 3 restarts, ends with DistStoreError
reproduced: an agent that dies ends the other

Cause:
`SimpleElasticAgent._rendezvous` (`torch/distributed/elastic/agent/server/api.py:541`) calls `_assign_worker_ranks`,
in which the agent of rank 0 waits for the keys of all (line 635), and each other agent for the ranks that rank 0 writes
(line 678). Nothing looks at the membership meanwhile. The DistStoreError of the store's timeout is caught nowhere:
`run` raises it, and `launch_agent` closes the rendezvous, so that no other node can begin a new round either.

Fix:
Wait in short steps, and look at the rendezvous between them: when a member is gone, call `next_rendezvous` again
instead of raising.
"""

import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from functools import partial

from torch.distributed import TCPStore
from torch.distributed.elastic.agent.server import api as agents
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher import api

CONTROL = "--control" in sys.argv  # B is killed when its worker runs
logging.disable()  # the log of the agents
fork = multiprocessing.get_context("fork")


def serve(port) -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port.put(server.port)
    time.sleep(120)


def die(*_) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def agent(name: str, folder: str, port: int, ended) -> None:
    """Do as torchrun does; B is killed once it has its round."""
    os.environ.update(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    api.LocalElasticAgent = partial(LocalElasticAgent, exit_barrier_timeout=1)  # A's worker ends without B
    if name == "B" and CONTROL:
        LocalElasticAgent._monitor_workers = die
    elif name == "B":
        agents.SimpleElasticAgent._assign_worker_ranks = die
    timeouts = {"read_timeout": 4, "last_call_timeout": 2, "keep_alive_interval": 1, "keep_alive_max_attempt": 2}
    config = api.LaunchConfig(
        min_nodes=1,
        max_nodes=2,
        nproc_per_node=1,
        max_restarts=3,
        run_id="job",
        rdzv_backend="c10d",
        rdzv_endpoint=f"127.0.0.1:{port}",
        rdzv_configs={"is_host": False, **timeouts},
        local_addr="127.0.0.1",
        logs_specs=DefaultLogsSpecs(log_dir=folder),
    )
    try:
        api.launch_agent(config, "sleep", ["5" if CONTROL else "30"])
        ended.put("success")
    except BaseException as error:
        ended.put(type(error).__name__)


port, ended = fork.SimpleQueue(), fork.SimpleQueue()
server = fork.Process(target=serve, args=(port,), daemon=True)
server.start()
with tempfile.TemporaryDirectory() as folder:
    number = port.get()
    for name in "AB":
        fork.Process(target=agent, args=(name, folder, number, ended)).start()
    when = "when its worker runs" if CONTROL else "before it has told its number of workers"
    print(f"A and B have a round of 1 to 2 nodes; B is killed {when}")
    end = ended.get()
print(f"A, which may run alone and has 3 restarts, ends with {end}")
shown = end == "DistStoreError"
print("reproduced: an agent that dies ends the other" if shown else "not reproduced: the job goes on")
sys.exit(int(shown))

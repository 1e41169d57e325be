"""torchrun: an agent that ends with success closes the rendezvous, and another agent that restarts gets
RendezvousClosedError

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. Two nodes, max_restarts 2. A's worker succeeds, and A waits in the exit barrier (2 s here, 300 s in torchrun).
2. B's worker fails, B restarts, and waits for A.
3. A's barrier ends, and A with success.

Expected:
B's restart succeeds: A joins the round again, or B gets a verdict. The job does not succeed on A while it ends on B
with restarts left.

Seen:
A's worker succeeded, and the exit barrier is over: A ends with success
B's worker failed once, and may be restarted twice: B ends with RendezvousClosedError
reproduced: the agent that ended has closed the rendezvous

Cause:
`SimpleElasticAgent._invoke_run` (`torch/distributed/elastic/agent/server/api.py:938`) does not look at
`num_nodes_waiting()` any more once its workers have succeeded, and its barrier ends after 300 s whether the others
have come or not. `launch_agent` (`torch/distributed/launcher/api.py:401`) then calls `rdzv_handler.shutdown()`, which
closes the rendezvous for all.

Fix:
Let an agent in the exit barrier watch for waiting nodes, and join again. Close the rendezvous only when all members
have reported success, or one has failed for good.
"""

import logging
import multiprocessing
import os
import sys
import tempfile
import time
from functools import partial

from torch.distributed import TCPStore
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher import api

CONTROL = "--control" in sys.argv  # A's worker still runs when B's fails
logging.disable()  # the log of the agents
fork = multiprocessing.get_context("fork")
WORKER = f"""
# A's worker is done at once, B's fails in its first life.
if [ $NAME = A ]; then sleep {5 if CONTROL else 0}; exit 0; fi
if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then sleep 1; exit 1; fi
"""


def serve(port) -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port.put(server.port)
    time.sleep(120)


def agent(name: str, folder: str, port: int, ended) -> None:
    """Do as torchrun does, with an exit barrier of 2 s in the place of 300 s."""
    os.environ.update(NAME=name, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    api.LocalElasticAgent = partial(LocalElasticAgent, exit_barrier_timeout=2)
    config = api.LaunchConfig(
        min_nodes=2,
        max_nodes=2,
        nproc_per_node=1,
        max_restarts=2,
        run_id="job",
        rdzv_backend="c10d",
        rdzv_endpoint=f"127.0.0.1:{port}",
        rdzv_configs={"is_host": False, "last_call_timeout": 2},
        local_addr="127.0.0.1",
        logs_specs=DefaultLogsSpecs(log_dir=folder),
    )
    try:
        api.launch_agent(config, "sh", ["-c", WORKER, "worker", folder])
        ended.put((name, "success"))
    except BaseException as error:
        ended.put((name, type(error).__name__))


port, ended = fork.SimpleQueue(), fork.SimpleQueue()
server = fork.Process(target=serve, args=(port,), daemon=True)
server.start()
with tempfile.TemporaryDirectory() as folder:
    args = (folder, port.get(), ended)
    agents = [fork.Process(target=agent, args=(name, *args)) for name in "AB"]
    for process in agents:
        process.start()
    ends = dict(ended.get() for _ in agents)
print(f"A's worker succeeded{'' if CONTROL else ', and the exit barrier is over'}: A ends with {ends['A']}")
print(f"B's worker failed once, and may be restarted twice: B ends with {ends['B']}")
shown = ends == {"A": "success", "B": "RendezvousClosedError"}
print("reproduced: the agent that ended has closed the rendezvous" if shown else "not reproduced: B can restart")
sys.exit(int(shown))

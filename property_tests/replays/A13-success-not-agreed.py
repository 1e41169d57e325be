"""torchrun: the exit barrier times out as if all had come, so that one node ends with success and another with failure

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. Two nodes, no restarts. A's worker succeeds; the exit barrier (2 s here, 300 s in torchrun) ends.
2. A ends.
3. B's worker fails.

Expected:
Both agents end with the same verdict: A waits for B, or says that it does not know.

Seen:
A's worker succeeded; A has ended: True; now B's worker fails
A ends with success
B ends with ChildFailedError
reproduced: a part of a job that fails says success

Cause:
`_exit_barrier` (`torch/distributed/elastic/agent/server/api.py:1007`) logs the timeout of the barrier and returns,
and `_invoke_run` (line 939) then returns SUCCEEDED. That the local workers have succeeded is taken for the success of
the job.

Fix:
Wait for as long as the other members beat, or return a result that says that the others are not known to be done. An
option for the timeout, which torchrun does not have, would help meanwhile.
"""

import logging
import multiprocessing
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from torch.distributed import TCPStore
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher import api

CONTROL = "--control" in sys.argv  # B's worker succeeds
logging.disable()  # the log of the agents
fork = multiprocessing.get_context("fork")
WORKER = f"""
# A's worker is done at once, B's ends when the script says so.
if [ $NAME = A ]; then exit 0; fi
until [ -e $1/fail ]; do sleep 0.1; done
exit {0 if CONTROL else 1}
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
        max_restarts=0,
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
    agents[0].join(40)
    print(
        f"A's worker succeeded; A has ended: {not agents[0].is_alive()}; "
        f"now B's worker {'succeeds' if CONTROL else 'fails'}"
    )
    Path(folder, "fail").touch()
    ends = [ended.get() for _ in agents]
for name, end in ends:
    print(f"{name} ends with {end}")
shown = ends == [("A", "success"), ("B", "ChildFailedError")]
print("reproduced: a part of a job that fails says success" if shown else "not reproduced: there is one verdict")
sys.exit(int(shown))

"""torchrun: max_restarts is counted by each agent, so that a job of N nodes restarts up to N x max_restarts times

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. Two nodes, max_restarts 1. A worker of A fails: both agents restart their workers.
2. A worker of B fails.

Expected:
The second failure ends the job: its one restart is used.

Seen:
max_restarts is 1; one worker of A has failed, then one of B: the job was started 3 times
A ends with success, B with success
reproduced: the job restarts twice

Cause:
`SimpleElasticAgent._invoke_run` (`torch/distributed/elastic/agent/server/api.py:941`) counts `_remaining_restarts`
down in the agent whose worker failed. The others restart for a waiting node (line 970), which they do not count.

Fix:
Count the restarts in the shared state of the rendezvous, with the round. Or say in the documentation of
--max-restarts that it holds for each node.
"""

import logging
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

from torch.distributed import TCPStore
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher import api

CONTROL = "--control" in sys.argv  # both failures are of A's worker
logging.disable()  # the log of the agents
SECOND = "A" if CONTROL else "B"
fork = multiprocessing.get_context("fork")
WORKER = f"""
# A's worker fails in its first life, {SECOND}'s in its second; the third one would succeed.
echo >> $1/$NAME
life=$(wc -l < $1/$NAME)
if [ $life = 3 ]; then exit 0; fi
touch $1/$NAME$life
until [ -e $1/A$life ] && [ -e $1/B$life ]; do sleep 0.1; done
if [ $NAME$life = A1 ] || [ $NAME$life = {SECOND}2 ]; then exit 1; fi
exec sleep 30
"""


def serve(port) -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port.put(server.port)
    time.sleep(120)


def agent(name: str, folder: str, port: int, ended) -> None:
    """Do as torchrun does."""
    os.environ.update(NAME=name, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    config = api.LaunchConfig(
        min_nodes=2,
        max_nodes=2,
        nproc_per_node=1,
        max_restarts=1,
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
    ends = dict([ended.get()])
    if CONTROL:
        agents[1].terminate()  # A's second failure has ended A: B would wait for it in the exit barrier
    ends |= [ended.get()]
    lives = max(Path(folder, name).read_text().count("\n") for name in "AB")
print(f"max_restarts is 1; one worker of A has failed, then one of {SECOND}: the job was started {lives} times")
print(f"A ends with {ends['A']}, B with {ends['B']}")
shown = lives == 3
print("reproduced: the job restarts twice" if shown else "not reproduced: the second failure ends the job")
sys.exit(int(shown))

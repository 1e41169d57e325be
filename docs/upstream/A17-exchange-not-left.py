"""An agent dies before it has told its number of workers: the other waits for it, and ends though restarts are left."""

import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time

from torch.distributed import TCPStore
from torch.distributed.elastic.agent.server import api as agents
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher import api

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
    if name == "B":
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
        api.launch_agent(config, "sleep", ["30"])
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
    print("A and B have a round of 1 to 2 nodes; B is killed before it has told its number of workers")
    end = ended.get()
print(f"A, which may run alone and has 3 restarts, ends with {end}")
shown = end == "DistStoreError"
print("reproduced: an agent that dies ends the other" if shown else "not reproduced: the job goes on")
sys.exit(int(shown))

"""torchrun: a pause of the store longer than read_timeout ends an agent with healthy workers

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. An agent's worker runs; read_timeout is 2 s.
2. The store's process is stopped for 4 s, and goes on.

Expected:
The agent asks again after the pause, and the worker runs on.

Seen:
A's worker runs; the store answers nobody for 4 s, its connections stay open
the agent ends with RendezvousConnectionError
reproduced: a pause of the store ends a healthy job

Cause:
`SimpleElasticAgent._invoke_run` (`torch/distributed/elastic/agent/server/api.py:959`) calls `num_nodes_waiting()` in
its monitor loop. `RendezvousConnectionError` of the backend is not caught there: `run` shuts the workers down, and
the agent ends.

Fix:
Catch RendezvousConnectionError in the monitor loop, log it, and go on while the workers are healthy. A limit in the
order of the keep-alive window would tell a pause from a store that is gone.
"""

import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from torch.distributed import TCPStore
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher import api

CONTROL = "--control" in sys.argv  # the store pauses for less than read_timeout
logging.disable()  # the log of the agents
PAUSE = 0.5 if CONTROL else 4.0  # seconds
fork = multiprocessing.get_context("fork")
WORKER = f"""
touch $1/runs
exec sleep {5 if CONTROL else 30}
"""


def serve(port) -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port.put(server.port)
    time.sleep(120)


def agent(name: str, folder: str, port: int, ended) -> None:
    """Do as torchrun does."""
    os.environ.update(NAME=name, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    config = api.LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=1,
        max_restarts=0,
        run_id="job",
        rdzv_backend="c10d",
        rdzv_endpoint=f"127.0.0.1:{port}",
        rdzv_configs={"is_host": False, "last_call_timeout": 2, "read_timeout": 2, "keep_alive_interval": 60},
        local_addr="127.0.0.1",
        logs_specs=DefaultLogsSpecs(log_dir=folder),
    )
    try:
        api.launch_agent(config, "sh", ["-c", WORKER, "worker", folder])
        ended.put((name, "success"))
    except BaseException as error:
        ended.put((name, type(error).__name__))


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.1)


port, ended = fork.SimpleQueue(), fork.SimpleQueue()
server = fork.Process(target=serve, args=(port,), daemon=True)
server.start()
with tempfile.TemporaryDirectory() as folder:
    process = fork.Process(target=agent, args=("A", folder, port.get(), ended))
    process.start()
    wait_for(Path(folder, "runs"))
    os.kill(server.pid, signal.SIGSTOP)
    print(f"A's worker runs; the store answers nobody for {PAUSE:g} s, its connections stay open")
    time.sleep(PAUSE)
    os.kill(server.pid, signal.SIGCONT)
    end = ended.get()[1]
print(f"the agent ends with {end}")
shown = end == "RendezvousConnectionError"
print("reproduced: a pause of the store ends a healthy job" if shown else "not reproduced: the job goes on")
sys.exit(int(shown))

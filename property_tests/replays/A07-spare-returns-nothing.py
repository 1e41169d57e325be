"""torchrun: a redundant node ends with AttributeError: 'NoneType' object has no attribute 'is_failed' when the job
succeeds

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. A round of one seat: A runs, B is on the redundancy list.
2. A's worker succeeds, and A closes the rendezvous.

Expected:
B's launch_agent returns without an error.

Seen:
A's worker runs, B is a spare: the round has one seat
the worker succeeds: A ends with success, B with AttributeError
reproduced: a spare fails when the job succeeds

Cause:
The join of a redundant node raises RendezvousGracefulExitError when the rendezvous is closed.
`SimpleElasticAgent.run` (`torch/distributed/elastic/agent/server/api.py:750`) logs it and returns None, and
`launch_agent` (`torch/distributed/launcher/api.py:378`) calls `result.is_failed()`.

Fix:
Let `run` return a `RunResult` with state SUCCEEDED and no return values. Or let `launch_agent` return an empty
dictionary for None.
"""

import logging
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
from pathlib import Path

from torch.distributed import TCPStore
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.launcher import api

CONTROL = "--control" in sys.argv  # the round has a seat for B
logging.disable()  # the log of the agents
fork = multiprocessing.get_context("fork")
WORKER = """
touch $1/runs
until [ -e $1/end ]; do sleep 0.1; done
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
        max_nodes=2 if CONTROL else 1,
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


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.1)


port, ended = fork.SimpleQueue(), fork.SimpleQueue()
server = fork.Process(target=serve, args=(port,), daemon=True)
server.start()
with tempfile.TemporaryDirectory() as folder:
    number = port.get()
    args = (folder, number, ended)
    fork.Process(target=agent, args=("A", *args)).start()
    wait_for(Path(folder, "runs"))
    fork.Process(target=agent, args=("B", *args)).start()
    backend = C10dRendezvousBackend(TCPStore("127.0.0.1", number), "job")
    while True:
        state = pickle.loads(backend.get_state()[0])
        if len(state.participants) == 2 or state.redundancy_list:
            break
        time.sleep(0.1)
    print(
        f"A's worker runs, B is {'a member: the round has two seats' if CONTROL else 'a spare: the round has one seat'}"
    )
    Path(folder, "end").touch()
    ends = dict(ended.get() for _ in "AB")
print(f"the worker succeeds: A ends with {ends['A']}, B with {ends['B']}")
shown = ends == {"A": "success", "B": "AttributeError"}
print("reproduced: a spare fails when the job succeeds" if shown else "not reproduced: the spare ends without an error")
sys.exit(int(shown))

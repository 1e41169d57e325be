"""torchrun: an agent in the exit barrier cannot send heartbeats, and a spare replaces it, which restarts healthy
workers

Versions: torch 2.13.0 and 2.7.1; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. A and B run in a round with two seats, and C is a spare; the window is 3 x 1 s.
2. A's worker ends with success: A's agent waits in the exit barrier.
3. Look at B's worker.

Expected:
B's worker runs on, and the job ends when it is done.

Seen:
the workers of A and B run, and C is a spare: the round has two seats
A's worker is done; after 6 s B's has been started 2 times,
and C's 1 times; A's agent lives
reproduced: healthy workers were restarted with a spare

Cause:
`_exit_barrier` (`torch/distributed/elastic/agent/server/api.py:994`) waits for the other agents on the store that the
rendezvous returned, and the backend of the heartbeats uses the same client (`_create_c10d_handler`, registry.py:46). A
TCPStore client serves one call at a time: the heartbeat waits for the barrier. B's heartbeat then drops A as dead, the
spare finds the round short of a member and waits for the next one, and B's agent restarts its workers for it.

Fix:
Give the backend a client of its own (`store.clone()`). Or wait in the barrier in short steps.
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

CONTROL = "--control" in sys.argv  # A's worker runs on
logging.disable()  # the log of the agents
fork = multiprocessing.get_context("fork")
WORKER = """
echo started >> $1/$NAME
until [ -e $1/$NAME.end ] || [ -e $1/end ]; do sleep 0.1; done
"""


def serve(port) -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port.put(server.port)
    time.sleep(120)


def agent(name: str, folder: str, port: int) -> None:
    """Do as torchrun does."""
    os.environ.update(NAME=name, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    config = api.LaunchConfig(
        min_nodes=2,
        max_nodes=2,
        nproc_per_node=1,
        max_restarts=0,
        run_id="job",
        rdzv_backend="c10d",
        rdzv_endpoint=f"127.0.0.1:{port}",
        rdzv_configs={"is_host": False, "last_call_timeout": 2, "keep_alive_interval": 1, "keep_alive_max_attempt": 3},
        local_addr="127.0.0.1",
        logs_specs=DefaultLogsSpecs(log_dir=folder),
    )
    api.launch_agent(config, "sh", ["-c", WORKER, "worker", folder])


def starts(folder: str, name: str) -> int:
    """How often the worker of a node was started."""
    path = Path(folder, name)
    return path.read_text().count("started") if path.exists() else 0


port = fork.SimpleQueue()
server = fork.Process(target=serve, args=(port,), daemon=True)
server.start()
with tempfile.TemporaryDirectory() as folder:
    number = port.get()
    agents = [fork.Process(target=agent, args=(name, folder, number)) for name in "ABC"]
    for one in agents[:2]:
        one.start()
    while not (starts(folder, "A") and starts(folder, "B")):
        time.sleep(0.1)
    agents[2].start()
    backend = C10dRendezvousBackend(TCPStore("127.0.0.1", number), "job")
    while not pickle.loads(backend.get_state()[0]).redundancy_list:
        time.sleep(0.1)
    print("the workers of A and B run, and C is a spare: the round has two seats")
    if not CONTROL:
        Path(folder, "A.end").touch()
    began = time.monotonic()
    while not starts(folder, "C") and time.monotonic() - began < (6 if CONTROL else 20):
        time.sleep(0.1)
    time.sleep(1)
    again = starts(folder, "B") > 1
    print(
        f"A's worker {'runs on' if CONTROL else 'is done'}; after {time.monotonic() - began:.0f} s "
        f"B's has been started {starts(folder, 'B')} times,"
    )
    print(f"and C's {starts(folder, 'C')} times; A's agent {'lives' if agents[0].is_alive() else 'has ended'}")
    for one in agents:
        one.kill()
        one.join()
    Path(folder, "end").touch()  # the workers that the agents leave behind
    time.sleep(0.5)
print("reproduced: healthy workers were restarted with a spare" if again else "not reproduced: B's worker runs on")
sys.exit(int(again))

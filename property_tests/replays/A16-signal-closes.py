"""torchrun: an agent that gets SIGTERM closes the rendezvous, and the agents of the other nodes cannot restart

Versions: torch 2.4 to 2.7; fixed in 2.8.0. Python 3.11, Linux, CPU.

Steps:
1. A and B run in a round of 1 to 2 nodes, with two restarts.
2. A gets SIGTERM, as a drained node does, and ends.
3. B's worker fails, and B restarts.

Expected:
B begins a new round without A.

Seen:
the workers of A and B run; A gets SIGTERM, and ends with SignalException
B's worker failed once, and may be restarted twice: B ends with RendezvousClosedError
reproduced: the agent that got a signal has closed the rendezvous

Cause:
`LocalElasticAgent._shutdown` (`torch/distributed/elastic/agent/server/local_elastic_agent.py`) shuts the rendezvous'
handler down, which closes the rendezvous for all, though `launch_agent` leaves it open after a `SignalException`.

Fix:
Leave the handler to `launch_agent`, as 2.8 does.
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

CONTROL = "--control" in sys.argv  # A gets no signal
logging.disable()  # the log of the agents
fork = multiprocessing.get_context("fork")
WORKER = """
# A's worker runs until B's second one, and B's first one fails when the script says so.
touch $1/$NAME$TORCHELASTIC_RESTART_COUNT
if [ $NAME = A ]; then until [ -e $1/B1 ]; do sleep 0.1; done; exit 0; fi
if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then exit 0; fi
until [ -e $1/end ]; do sleep 0.1; done
exit 1
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
        max_nodes=2,
        nproc_per_node=1,
        max_restarts=2,
        run_id="job",
        rdzv_backend="c10d",
        rdzv_endpoint=f"127.0.0.1:{port}",
        rdzv_configs={"is_host": False, "last_call_timeout": 2, "keep_alive_interval": 1, "keep_alive_max_attempt": 3},
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
    while not (Path(folder, "A0").exists() and Path(folder, "B0").exists()):
        time.sleep(0.1)
    ends = {}
    if not CONTROL:
        agents[0].terminate()
        ends = dict([ended.get()])
        print(f"the workers of A and B run; A gets SIGTERM, and ends with {ends['A']}")
    Path(folder, "end").touch()
    while len(ends) < 2:
        ends |= [ended.get()]
print(f"B's worker failed once, and may be restarted twice: B ends with {ends['B']}")
shown = ends["B"] == "RendezvousClosedError"
print("reproduced: the agent that got a signal has closed the rendezvous" if shown else "not reproduced: B restarts")
sys.exit(int(shown))

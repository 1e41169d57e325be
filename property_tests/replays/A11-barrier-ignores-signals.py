"""torchrun: an agent in the exit barrier does not react to SIGTERM before the barrier is over

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. Two nodes. A's worker is done: A waits for B in the exit barrier.
2. A gets SIGTERM.

Expected:
A ends at once with SignalException.

Seen:
A's worker is done: A waits for B in the exit barrier, and gets SIGTERM
six seconds later A still waits
the worker of B is done: A ends with SignalException, B with success
reproduced: the barrier delays the signal

Cause:
`_exit_barrier` (`torch/distributed/elastic/agent/server/api.py:994`) waits in `store.wait`
(`torch/distributed/elastic/utils/store.py:201`), which is one call of C++ for up to 300 s. Python runs the handler of
the signal, which raises SignalException, only when that call has returned.

Fix:
Wait in steps of a second or so: `store.wait` with a short timeout, or `store.check` and `time.sleep`, until the
barrier's time is over. Between two steps Python handles signals.
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

CONTROL = "--control" in sys.argv  # A's worker still runs when A gets SIGTERM
logging.disable()  # the log of the agents
fork = multiprocessing.get_context("fork")
WORKER = f"""
touch $1/$NAME
# A's worker is done at once, B's when the script says so.
if [ $NAME = A ] && {str(not CONTROL).lower()}; then exit 0; fi
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
    number = port.get()
    args = (folder, number, ended)
    agents = [fork.Process(target=agent, args=(name, *args)) for name in "AB"]
    for process in agents:
        process.start()
    if CONTROL:
        while not (Path(folder, "A").exists() and Path(folder, "B").exists()):
            time.sleep(0.1)
        print("the workers of A and B run, and A gets SIGTERM")
    else:
        TCPStore("127.0.0.1", number).wait(["torch.rendezvous.job.0/torchelastic/agent/terminal_state/num_members"])
        time.sleep(2)
        print("A's worker is done: A waits for B in the exit barrier, and gets SIGTERM")
    agents[0].terminate()
    agents[0].join(6)
    deaf = agents[0].is_alive()
    print(f"six seconds later A {'still waits' if deaf else 'has ended'}")
    if CONTROL:
        agents[1].terminate()  # it would wait for A in the exit barrier
    Path(folder, "end").touch()
    ends = dict(ended.get() for _ in agents)
print(f"{'B gets SIGTERM' if CONTROL else 'the worker of B is done'}: A ends with {ends['A']}, B with {ends['B']}")
print("reproduced: the barrier delays the signal" if deaf else "not reproduced: A ends at once")
sys.exit(int(deaf))

"""torchrun: workers of a stopped agent run on beside those of the next round

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. A and B run in a world of 2; B's agent alone gets SIGSTOP.
2. B's heartbeat expires; A's worker fails, and A restarts in a world of 1.
3. Look at B's worker.

Expected:
B's worker has ended before A's next one starts: B is in no round.

Seen:
workers of A and B run, in a world of 2; B's agent is stopped, its worker is not
A's worker failed and was restarted, in a world of 1; B's worker still runs
reproduced: workers of two rounds run at once

Cause:
Members that expire are removed from the state (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:472`), and
only their own agent can end their workers. An agent that is stopped does not, and after SIGCONT it is not told
either.

Fix:
Let a process beside the agent, or the workers themselves, end the workers when the agent has not renewed a lease for
the keep-alive window. The agent renews it with each heartbeat that the store has taken.
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

CONTROL = "--control" in sys.argv  # B's agent goes on before its heartbeats are missed
logging.disable()  # the log of the agents
fork = multiprocessing.get_context("fork")
WORKER = """
# torchrun makes $$ of $$$$
echo $$$$ > $1/$NAME.$TORCHELASTIC_RESTART_COUNT.$WORLD_SIZE
until [ -e $1/$NAME.fail ]; do sleep 0.1; done
rm $1/$NAME.fail
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
        max_restarts=1,
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


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.1)


def alive(pid: str) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


port, ended = fork.SimpleQueue(), fork.SimpleQueue()
server = fork.Process(target=serve, args=(port,), daemon=True)
server.start()
with tempfile.TemporaryDirectory() as folder:
    args = (folder, port.get(), ended)
    agents = [fork.Process(target=agent, args=(name, *args)) for name in "AB"]
    for process in agents:
        process.start()
    wait_for(Path(folder, "A.0.2"))
    wait_for(Path(folder, "B.0.2"))
    os.kill(agents[1].pid, signal.SIGSTOP)
    print("workers of A and B run, in a world of 2; B's agent is stopped, its worker is not")
    time.sleep(1 if CONTROL else 5)  # B's heartbeat lives for three
    old = Path(folder, "B.0.2").read_text().strip()
    if CONTROL:
        os.kill(agents[1].pid, signal.SIGCONT)
    Path(folder, "A.fail").touch()
    world = 2 if CONTROL else 1
    wait_for(Path(folder, f"A.1.{world}"))
    time.sleep(1)
    both = alive(Path(folder, f"A.1.{world}").read_text().strip()) and alive(old)
    print(
        f"A's worker failed and was restarted, in a world of {world}; "
        f"B's worker {'still runs' if both else 'has ended'}"
    )
    os.kill(agents[1].pid, signal.SIGCONT)
    for process in agents:
        process.terminate()
    for process in agents:
        process.join()
print("reproduced: workers of two rounds run at once" if both else "not reproduced: B's worker has ended")
sys.exit(int(both))

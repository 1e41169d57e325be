"""torchrun: workers outlive an agent that gets SIGKILL, and run on beside those of the restarted job

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Lines are those of 2.13.0.

Steps:
1. A's worker runs; A's agent gets SIGKILL.
2. B joins in A's place, and starts its worker.
3. Look at A's worker.

Expected:
A's worker has ended: it has no agent, and is in no round.

Seen:
A's worker runs; A gets SIGKILL, as from the kernel that is out of memory, and B comes in its place
B's worker runs in the next round, and A's too
reproduced: workers of two rounds run at once

Cause:
`SubprocessHandler._popen` (`torch/distributed/elastic/multiprocessing/subprocess_handler/subprocess_handler.py:63`)
starts workers in a session of their own, and nothing ends them when their parent dies. An agent ends them in
`_shutdown`, which SIGKILL does not let it reach.

Fix:
On Linux let each worker call prctl(PR_SET_PDEATHSIG, SIGKILL) before it executes its program. It is a dozen lines
with ctypes, in `SubprocessHandler` and in the function that starts Python workers.
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

CONTROL = "--control" in sys.argv  # A gets SIGTERM
logging.disable()  # the log of the agents
fork = multiprocessing.get_context("fork")
WORKER = """
# torchrun makes $$ of $$$$
echo $$$$ > $1/$NAME
exec sleep 40
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


def alive(name: str) -> bool:
    status = Path(f"/proc/{Path(folder, name).read_text().strip()}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


port, ended = fork.SimpleQueue(), fork.SimpleQueue()
server = fork.Process(target=serve, args=(port,), daemon=True)
server.start()
with tempfile.TemporaryDirectory() as folder:
    args = (folder, port.get(), ended)
    agents = [fork.Process(target=agent, args=(name, *args)) for name in "AB"]
    agents[0].start()
    wait_for(Path(folder, "A"))
    (agents[0].terminate if CONTROL else agents[0].kill)()
    sent = "SIGTERM" if CONTROL else "SIGKILL, as from the kernel that is out of memory"
    print(f"A's worker runs; A gets {sent}, and B comes in its place")
    agents[1].start()
    wait_for(Path(folder, "B"))
    time.sleep(1)
    both = alive("A") and alive("B")
    print(f"B's worker runs in the next round, and A's {'too' if both else 'does not'}")
    agents[1].terminate()
    agents[1].join()
    if both:
        os.kill(int(Path(folder, "A").read_text()), signal.SIGKILL)
print("reproduced: workers of two rounds run at once" if both else "not reproduced: A's worker has ended")
sys.exit(int(both))

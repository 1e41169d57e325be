"""torchrun: a pause of the store longer than read_timeout ends an agent with healthy workers

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. An agent's worker runs; read_timeout is 2 s.
2. The store's process is stopped for 4 s, and then continues.

Expected:
The agent tries again after the pause, and the worker continues to run.

Seen:
A's worker runs; the store answers no request for 4 s while its connections stay open
the agent ends with RendezvousConnectionError
reproduced: a pause of the store ends a healthy job

Cause:
`SimpleElasticAgent._invoke_run` (`torch/distributed/elastic/agent/server/api.py:959`) calls `num_nodes_waiting()` in
its monitor loop, which does not catch the backend's `RendezvousConnectionError`. `run` then shuts the workers down,
and the agent ends.

Fix:
Catch RendezvousConnectionError in the monitor loop, log it, and continue while the workers are healthy. A limit of
about one keep-alive window would distinguish a pause from a store that has ended.
"""

import os
import signal
import time

from agents import Job
from ending import CONTROL, end

# With --control, the store pauses for less than read_timeout.
PAUSE = 0.5 if CONTROL else 4.0  # seconds
WORKER = f"""
touch $1/runs
exec sleep {5 if CONTROL else 30}
"""

job = Job(WORKER, (1, 1), read_timeout=2, keep_alive_interval=60)
job.start("A")
job.wait_for("runs")
os.kill(job.server.pid, signal.SIGSTOP)
print(f"A's worker runs; the store answers no request for {PAUSE:g} s while its connections stay open")
time.sleep(PAUSE)
os.kill(job.server.pid, signal.SIGCONT)
ended = job.ends(1)["A"]
print(f"the agent ends with {ended}")
end(ended == "RendezvousConnectionError", "a pause of the store ends a healthy job")

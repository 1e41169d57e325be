"""torchrun: workers of a stopped agent continue next to the workers of the next round

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A and B run in a world of 2. Only B's agent gets SIGSTOP.
2. B's heartbeat expires; A's worker fails, and A restarts in a world of 1.
3. Look at B's worker.

Expected:
B's worker has ended before A's next one starts, because B does not belong to a round.

Seen:
workers of A and B run, in a world of 2; B's agent is stopped, its worker is not
A's worker failed and was restarted, in a world of 1; B's worker still runs
reproduced: workers of two rounds run at once

Cause:
Members that expire are removed from the state (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:472`), and
only their own agent can end their workers. A stopped agent does not, and after SIGCONT nothing reports the removal
to it.

Fix:
Let a separate process, or the workers themselves, end the workers when the agent has not renewed a lease within the
keep-alive window. The agent renews it with each heartbeat that the store has accepted.
"""

import os
import signal
import time

from agents import SOON_DEAD, Job, alive
from ending import CONTROL, end

# With --control, B's agent continues before its heartbeats are missed.
WORKER = """
# torchrun makes $$ of $$$$
echo $$$$ > $1/$NAME.$TORCHELASTIC_RESTART_COUNT.$WORLD_SIZE
until [ -e $1/$NAME.fail ]; do sleep 0.1; done
rm $1/$NAME.fail
exit 1
"""

job = Job(WORKER, (1, 2), restarts=1, **SOON_DEAD)
agents = job.start("A", "B")
job.wait_for("A.0.2", "B.0.2")
os.kill(agents[1].pid, signal.SIGSTOP)
print("workers of A and B run, in a world of 2; B's agent is stopped, its worker is not")
time.sleep(1 if CONTROL else 5)  # B's heartbeat lives for three
old = job.text("B.0.2")
if CONTROL:
    os.kill(agents[1].pid, signal.SIGCONT)
job.touch("A.fail")
world = 2 if CONTROL else 1
job.wait_for(f"A.1.{world}")
time.sleep(1)
both = alive(job.text(f"A.1.{world}")) and alive(old)
print(f"A's worker failed and was restarted, in a world of {world}; B's worker {'still runs' if both else 'has ended'}")
os.kill(agents[1].pid, signal.SIGCONT)
for process in agents:
    process.terminate()
for process in agents:
    process.join()
end(both, "workers of two rounds run at once")

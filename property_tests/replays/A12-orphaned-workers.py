"""torchrun: workers outlive an agent that gets SIGKILL, and continue next to the workers of the restarted job

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. A's worker runs; A's agent gets SIGKILL.
2. B joins instead of A, and starts its worker.
3. Look at A's worker.

Expected:
A's worker has ended, because it has no agent and does not belong to a round.

Seen:
A's worker runs; A gets SIGKILL, as when the kernel is out of memory, and B replaces it
B's worker runs in the next round, and A's runs too
reproduced: workers of two rounds run at once

Cause:
`SubprocessHandler._popen` (`torch/distributed/elastic/multiprocessing/subprocess_handler/subprocess_handler.py:63`)
starts each worker in its own session, and nothing ends it when its parent dies. An agent ends its workers in
`_shutdown`, which it does not reach after SIGKILL.

Fix:
On Linux let each worker call prctl(PR_SET_PDEATHSIG, SIGKILL) before it executes its program. This takes a dozen
lines with ctypes, in `SubprocessHandler` and in the function that starts Python workers.
"""

import os
import signal
import time

from agents import SOON_DEAD, Job, alive
from ending import CONTROL, end

# With --control, A gets SIGTERM.
WORKER = """
# torchrun makes $$ of $$$$
echo $$$$ > $1/$NAME
exec sleep 40
"""

job = Job(WORKER, (1, 1), **SOON_DEAD)
(a,) = job.start("A")
job.wait_for("A")
(a.terminate if CONTROL else a.kill)()
sent = "SIGTERM" if CONTROL else "SIGKILL, as when the kernel is out of memory"
print(f"A's worker runs; A gets {sent}, and B replaces it")
(b,) = job.start("B")
job.wait_for("B")
time.sleep(1)
both = alive(job.text("A")) and alive(job.text("B"))
print(f"B's worker runs in the next round, and A's {'runs too' if both else 'does not'}")
b.terminate()
b.join()
if both:
    os.kill(int(job.text("A")), signal.SIGKILL)
end(both, "workers of two rounds run at once")

"""torchrun: an agent in the exit barrier does not react to SIGTERM before the barrier is over

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. There are two nodes. A's worker is done, and A waits for B in the exit barrier.
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
(`torch/distributed/elastic/utils/store.py:201`), which is one C++ call of up to 300 s. Python runs the signal handler,
which raises SignalException, only after that call has returned.

Fix:
Wait in steps of a second or so: `store.wait` with a short timeout, or `store.check` and `time.sleep`, until the
barrier's timeout has passed. Python handles signals between two steps.
"""

import time

from agents import Job
from ending import CONTROL, end
from torch.distributed import TCPStore

# With --control, A's worker still runs when A gets SIGTERM.
WORKER = f"""
touch $1/$NAME
# A's worker is done at once, B's when the script makes the file end.
if [ $NAME = A ] && {str(not CONTROL).lower()}; then exit 0; fi
until [ -e $1/end ]; do sleep 0.1; done
"""

job = Job(WORKER, (2, 2))
agents = job.start("A", "B")
if CONTROL:
    job.wait_for("A", "B")
    print("the workers of A and B run, and A gets SIGTERM")
else:
    TCPStore("127.0.0.1", job.port).wait(["torch.rendezvous.job.0/torchelastic/agent/terminal_state/num_members"])
    time.sleep(2)
    print("A's worker is done: A waits for B in the exit barrier, and gets SIGTERM")
agents[0].terminate()
agents[0].join(6)
deaf = agents[0].is_alive()
print(f"six seconds later A {'still waits' if deaf else 'has ended'}")
if CONTROL:
    agents[1].terminate()  # it would wait for A in the exit barrier
job.touch("end")
ends = job.ends(2)
print(f"{'B gets SIGTERM' if CONTROL else 'the worker of B is done'}: A ends with {ends['A']}, B with {ends['B']}")
end(deaf, "the barrier delays the signal")

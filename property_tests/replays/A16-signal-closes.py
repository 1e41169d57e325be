"""torchrun: an agent that gets SIGTERM closes the rendezvous, and the agents of the other nodes cannot restart

Versions: torch 2.4 to 2.7; fixed in 2.8.0. Python 3.11, Linux, CPU.

Steps:
1. A and B run in a round of 1 to 2 nodes, with two restarts.
2. A gets SIGTERM, like a drained node, and ends.
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

from agents import SOON_DEAD, Job
from ending import CONTROL, end

# With --control, A gets no signal.
WORKER = """
# A's worker runs until B's second one starts. B's first one fails when the script makes the file end.
touch $1/$NAME$TORCHELASTIC_RESTART_COUNT
if [ $NAME = A ]; then until [ -e $1/B1 ]; do sleep 0.1; done; exit 0; fi
if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then exit 0; fi
until [ -e $1/end ]; do sleep 0.1; done
exit 1
"""

job = Job(WORKER, (1, 2), restarts=2, **SOON_DEAD)
agents = job.start("A", "B")
job.wait_for("A0", "B0")
ends = {}
if not CONTROL:
    agents[0].terminate()
    ends = job.ends(1)
    print(f"the workers of A and B run; A gets SIGTERM, and ends with {ends['A']}")
job.touch("end")
ends |= job.ends(2 - len(ends))
print(f"B's worker failed once, and may be restarted twice: B ends with {ends['B']}")
end(ends["B"] == "RendezvousClosedError", "the agent that got a signal has closed the rendezvous")

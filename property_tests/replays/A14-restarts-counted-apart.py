"""torchrun: each agent counts only its own restarts, and a job of N nodes restarts up to N x max_restarts times

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. There are two nodes, with max_restarts 1. A worker of A fails: both agents restart their workers.
2. A worker of B fails.

Expected:
The second failure ends the job, because its one restart is used.

Seen:
max_restarts is 1; one worker of A has failed, then one of B: the job was started 3 times
A ends with success, B with success
reproduced: the job restarts twice

Cause:
`SimpleElasticAgent._invoke_run` (`torch/distributed/elastic/agent/server/api.py:941`) counts down
`_remaining_restarts` in the agent whose worker failed. The others restart for a waiting node (line 970) and do not
count that restart.

Fix:
Count the restarts in the shared state of the rendezvous, with the round. Or document that --max-restarts is
a limit of each node.
"""

from agents import Job
from ending import CONTROL, end

# With --control, both failures are of A's worker.
SECOND = "A" if CONTROL else "B"
WORKER = f"""
# A's worker fails in its first life, {SECOND}'s in its second; the third one would succeed.
echo >> $1/$NAME
life=$(wc -l < $1/$NAME)
if [ $life = 3 ]; then exit 0; fi
touch $1/$NAME$life
until [ -e $1/A$life ] && [ -e $1/B$life ]; do sleep 0.1; done
if [ $NAME$life = A1 ] || [ $NAME$life = {SECOND}2 ]; then exit 1; fi
exec sleep 30
"""

job = Job(WORKER, (2, 2), restarts=1)
agents = job.start("A", "B")
ends = job.ends(1)
if CONTROL:
    agents[1].terminate()  # A's second failure has ended A: B would wait for it in the exit barrier
ends |= job.ends(1)
lives = max(job.text(name).count("\n") for name in "AB")
print(f"max_restarts is 1; one worker of A has failed, then one of {SECOND}: the job was started {lives} times")
print(f"A ends with {ends['A']}, B with {ends['B']}")
end(lives == 3, "the job restarts twice")

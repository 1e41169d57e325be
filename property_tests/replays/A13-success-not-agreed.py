"""torchrun: a timeout of the exit barrier counts as a success: one node ends with success and another with failure

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. There are two nodes and no restarts. A's worker succeeds; the exit barrier (2 s here, 300 s in torchrun) ends.
2. A ends.
3. B's worker fails.

Expected:
Both agents end with the same result: A waits for B, or reports that the result of the job is unknown.

Seen:
A's worker succeeded; A has ended: True; now B's worker fails
A ends with success
B ends with ChildFailedError
reproduced: a node of a job that fails ends with success

Cause:
`_exit_barrier` (`torch/distributed/elastic/agent/server/api.py:1007`) logs the timeout of the barrier and returns,
and `_invoke_run` (line 939) then returns SUCCEEDED. The success of the local workers is taken for the success of the
job.

Fix:
Wait while the other members send heartbeats, or return a result that marks the others' results as unknown. An option
for the timeout, which torchrun does not have, would help meanwhile.
"""

from agents import Job
from ending import CONTROL, end

# With --control, B's worker succeeds.
WORKER = f"""
# A's worker is done at once, B's when the script makes the file fail.
if [ $NAME = A ]; then exit 0; fi
until [ -e $1/fail ]; do sleep 0.1; done
exit {0 if CONTROL else 1}
"""

job = Job(WORKER, (2, 2), barrier=2)
agents = job.start("A", "B")
agents[0].join(40)
print(
    f"A's worker succeeded; A has ended: {not agents[0].is_alive()}; "
    f"now B's worker {'succeeds' if CONTROL else 'fails'}"
)
job.touch("fail")
ends = list(job.ends(2).items())
for name, how in ends:
    print(f"{name} ends with {how}")
end(ends == [("A", "success"), ("B", "ChildFailedError")], "a node of a job that fails ends with success")

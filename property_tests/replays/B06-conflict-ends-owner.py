"""FtRendezvousBarrierHandler: the owner of a slot ends with 'Unexpected rendezvous CAS conflict' if a slow node of
the round before writes there

Versions: NVRx 0.6.0 to main at d8686d9 (7 August 2026). Python 3.11, Linux, CPU.

Steps:
1. Node 1 finds round 0 of a job with --nnodes 1:3 open and pauses. Node 0 closes the round without it. The workers of
   node 0 fail, and it opens round 1.
2. In round 1 node 0 is counted first, and node 2 second. Node 2 reads slot 2, which is empty.
3. Node 1 continues. It is counted second in round 0, and writes its record of round 0 into slot 2.
4. Node 2 compares and sets slot 2.

Expected:
Node 2 writes its slot. Its record is of a later round.

Seen:
machine 0: rank 0
machine 1: waits, waits for an open round
machine 2: RuntimeError: Unexpected rendezvous CAS conflict for ...:slot_2_rank: attempted round 1, observed round 0
reproduced: the owner of the slot has ended, and not the slow node

Cause:
`_round_fenced_compare_set` tries once. If the value has changed, it raises unless the new value is of a later round.
But a value of an earlier round is not an error: its writer is slow. `launch_agent` then calls `shutdown()`, which
closes the rendezvous for all nodes with the reason `graceful`.

Fix:
If the value that compare_set returns is of an earlier round, use it as the expected value and try again.
"""

from barrier import settle, take, tcp_job, told
from ending import CONTROL, end

# With --control, node 1 writes its slot before node 2 reads it.
LATE = "take_slot(1) read_slot(1) write_slot(1)"
job = tcp_job(world=1)
take(job, "look_for_round(0) take_slot(0) read_slot(0) write_slot(0) read_counter fetch_slots look_for_round(1)")
take(job, "close_round read_rank(0) fail_workers(0) look_for_round(0) look_for_round(0) take_slot(0)")
take(job, "look_for_round(2) look_for_round(2) take_slot(2)")
take(job, f"{LATE} read_slot(2)" if CONTROL else f"read_slot(2) {LATE}")
take(job, "write_slot(2)")
settle(job)

lines = [line.replace("ft_rendezvous_barrier:job", "...") for line in told(job)]
print(*lines, sep="\n")
end("CAS conflict" in lines[2], "the owner of the slot has ended, and not the slow node")

"""FtRendezvousBarrierHandler: a node that is slow over the end of a round overwrites the slot of a node of the
next round

Versions: NVRx main before 8efe781 (24 April 2026); 0.6.0 does not have the defect. Python 3.11, Linux, CPU.

Steps:
1. In a job with --nnodes 1:3, node 0 joins round 0 and reads the counter. Node 1 joins too, reads that the round is
   open, and pauses before its writes.
2. Node 0 closes the round. Its workers fail, and it opens round 1. Node 2 is counted first there, and node 0 second:
   it writes slot 2.
3. Node 1 continues and writes its record of round 0 into slot 2.

Expected:
Round 1 closes.

Seen:
slot 2 is of the round 1
slot 2 is of the round 0
machine 0: waits, polls the counter
machine 1: waits, has written its slot, and waits until the round is closed
machine 2: waits, has written its slot, and waits until the round is closed
reproduced: a record of round 0 has replaced one of round 1, and the round never closes

Cause:
`perform_rendezvous` reads `round_done_0` and then sets the keys of the slot. The two are not atomic, and the keys are
used again in the next round.

Fix:
Compare and set the record, which has the number of its round. 8efe781 does so.
"""

from barrier import settle, take, tcp_job, told
from ending import CONTROL, end

# With --control, node 1 writes before the round is closed.
LATE = "write_slot(1)"
EARLY = LATE if CONTROL else ""
job = tcp_job(world=1)
take(job, "look_for_round(0) take_slot(0) read_slot(0) write_slot(0) read_counter fetch_slots look_for_round(1)")
take(job, f"take_slot(1) read_slot(1) {EARLY} close_round read_rank(0) fail_workers(0) look_for_round(2)")
take(job, "look_for_round(2) take_slot(2) look_for_round(0) look_for_round(0) take_slot(0) read_slot(0) write_slot(0)")
before = job.observe()["written[1]"]
if not CONTROL:
    take(job, LATE)
after = job.observe()["written[1]"]
settle(job)

print(f"slot 2 is of the round {before}", f"slot 2 is of the round {after}", *told(job), sep="\n")
shown = before == 1 and after == 0 and job.observe()["door[1]"].name == "OPEN"
end(shown, "a record of round 0 has replaced one of round 1, and the round never closes")

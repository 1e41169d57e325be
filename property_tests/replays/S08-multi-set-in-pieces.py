"""TCPStore: a multi_set is executed piece by piece, and overwrites values that were written after it

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls `multi_set([first, last], ["old", 4 MiB])`, which arrives in many reads.
2. As soon as `first` is visible and `last` is not, B sets `first` to NEW.
3. The rest of A's request arrives.

Expected:
Both keys appear together, and B's set, which happened after `first` was visible, is the last write.

Seen:
in 1 tries: one key of two was visible alone: 1; a later set of that key was undone: 1
reproduced: half of a multi_set was visible, and its rest undid a later set

Cause:
`torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp`, `UvClient::parse_multi_set_command` stores each pair as soon
as it has read the pair, and returns false when the next one is incomplete. With every further read `processBuf` begins
again at the start of the request, and stores the first pairs again.

Fix:
Read all pairs into a vector, and store them when the request is complete. The other handlers already read everything
before they act.
"""

from ending import CONTROL, end
from stores import Call, clients

# With --control, the multi_set is small and arrives at once.
TRIES, BIG = 50, "." * (4 if CONTROL else 4 << 20)
a, b = clients(5, 5)
half = undone = 0
for number in range(TRIES):
    first, last = f"first{number}", f"last{number}"
    writer = Call(a.multi_set, [first, last], ["old", BIG], begins=0)
    while not b.check([first]):
        pass
    if not b.check([last]):  # a part of A's request has arrived and was executed
        half += 1
        b.set(first, "NEW")
        b.check([first])
    writer.join()
    while not b.check([last]):
        pass
    undone += half and b.get(first) == b"old"
    b.delete_key(last)
    if half and undone:
        break

print(f"in {number + 1} tries: one key of two was visible alone: {half}; a later set of that key was undone: {undone}")
end(half and undone, "half of a multi_set was visible, and its rest undid a later set")

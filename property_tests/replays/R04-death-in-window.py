"""c10d rendezvous: members that poll a complete round before and after a dead member expires return with different
worlds

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU. Line numbers refer to 2.13.0.

Steps:
1. At 0 s B joins, and dies. Its heartbeat lives for 3 x 5 s.
2. At 14.1 s C joins.
3. At 14.5 s A joins as the third of three: the round is complete; A returns with a world of 3.
4. At 15.1 s C polls.

Expected:
A and C return with the same world, or C joins another round.

Seen:
at  0.0 s B joins, and dies
at 14.1 s C joins
at 14.5 s A returns with rank 0 in a world of 3
at 15.1 s C returns with rank 2 in a world of 2
reproduced: two members of one round have different worlds

Cause:
`_BackendRendezvousStateHolder._sanitize` (`torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:472`) removes
an expired node from the local copy of a complete round, and `_get_world` (line 1365) takes rank and world from that
copy: C has rank 2 in a world of 2. Nothing writes this copy back.

Fix:
Return with the ranks and the world that were assigned when the round was completed. A member that has expired by then
is a reason for a new round, and all members need a notice of that round.
"""

from contextlib import suppress
from datetime import timedelta

from ending import CONTROL, end
from nodes import Clock, Waits, beat_by_clock, between_polls, node, returns

# With --control, C polls at once.


def meanwhile() -> None:
    if not Clock.ahead:
        print("at  0.0 s B joins, and dies")
        raise Waits
    if worlds:
        raise Waits  # C waits: it has not returned with another world
    Clock.ahead = timedelta(seconds=14.5)
    returns("at {:4} s A returns", a, worlds)  # the third of three: the round is complete
    Clock.ahead = timedelta(seconds=14.5 if CONTROL else 15.1)  # B's heartbeat is older than 3 x 5 s


beat_by_clock()
between_polls(meanwhile)
worlds: list[int] = []
a, b, c = (node(name, (3, 3)) for name in "ABC")
with suppress(Waits):
    b.next_rendezvous()
Clock.ahead = timedelta(seconds=14.1)
print("at 14.1 s C joins")
with suppress(Waits):
    returns("at {:4} s C returns", c, worlds)
end(worlds == [3, 2], "two members of one round have different worlds")

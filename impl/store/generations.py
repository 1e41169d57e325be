"""The groups that meet one after the other at one URL: each has its own keys, and its members agree on them.

Theory of operation. `destroy_process_group` and then `init_process_group` at the same URL make a new group, and gloo
must not read the addresses of the old group. The processes are not ordered: a rank may come while the old server still
runs, while other ranks still use the old group, or after it was killed and restarted. The next group may have another
size. So groups of one world size are numbered, and each call of `meet` has a random token:

1. Every rank writes its token at its place in the group that forms, and arrives at a barrier with the barrier token of
   its rank. A rank that comes again, in a new process or not, overwrites the token of its earlier call and withdraws
   that call's arrival, even if the earlier process is frozen.
2. The barrier is released when all ranks have arrived and live: the stores withdraw the arrival of a process that died.
   Rank 0 reads all places at one moment and writes the list of tokens by compare-and-set. The group is formed. If rank
   0 has come again meanwhile, its earlier call finds another token than its own and leaves the list to the later call.
   A rank that comes again after the release arrives alone. It withdraws now and then, and looks for the list.
3. Every rank reads the list. If the list has the rank's token, the rank is a member. If it has another token of this
   rank, an earlier call of the rank counts as the member, and the rank continues with the next number.

torch names a group after a count of the process, and a failed `init_process_group` increments the count. A token also
contains that number, and the store of the group replaces each rank's name by the highest name (`Group`).

Without a prefix, two jobs at one URL would get groups with ranks of both. A token contains the job, if an agent has
named it, and the ranks of two jobs raise. A member keeps its rank while it has the group: it arrives at a barrier that
is never released, with a size that no other process uses. Another process that comes as this rank names another size
and is refused. A call that waits for its group raises if another process has overwritten its token: its rank was
started twice, or restarted while this process still ran.

Failures:

- A rank dies before the barrier is released: it is missing until it comes again, and the others wait.
- A rank dies later: it was a member, so its group fails like every group that loses a member. The next group has other
  keys.
- The server ends, and all of this with it: `meet` starts again at the next server in the rest of its time.

torch's servers have no barrier tokens and do not withdraw the arrival of a process that died. Such a rank counts as a
member there, and a rank that comes again before the group is formed counts twice. Such a group may fail at its timeout.
With torch's servers and with a file, no member keeps its rank.

Rule: each step is one request, so a process may be killed between any two steps.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from typing import Any
from urllib.parse import quote, unquote

from trystate.model.errors import UsageError

from ..host.deadlines import rounded
from ..host.visible import some
from .base import Store
from .errors import ConnectionLost, StoreError, StoreTimeout
from .operations import Barrier
from .prefix import PrefixStore
from .server.driver import LINGER_SECONDS
from .wire import TOKEN_BYTES

Make = Callable[[timedelta], Store]  # a store whose constructor keeps this timeout
HANDOVER_SECONDS = LINGER_SECONDS + 1.0  # between the death of rank 0 and the end of its server
RETRY_SECONDS = 0.05
SHOWN_RANKS_MAX = 8
LOOK_SECONDS, LOOK_SECONDS_MAX = 0.5, 60.0  # time between the barrier and a look for the list; doubled after each look
# The wait for a rank that another process keeps: the server notices late that a machine has lost its power.
HELD_SECONDS = 15.0
HELD_POLL_SECONDS = 0.1
TELL_SECONDS = 1.0  # time after the timeout to withdraw, and to find the missing ranks
TWO_JOBS = (
    "two jobs cannot share a URL: give each its own port, or its own prefix in the URL (?prefix=NAME); or end the "
    "processes of an earlier run"
)
_RANDOM = secrets.randbits(60)
NEXT = "next"  # a lower bound of the number of the group that forms, so no rank counts from 0


class TwoJobs(StoreError):
    """Processes of two jobs meet at one place, or two processes come as one rank."""


class Group(PrefixStore):
    """The keys of a group. torch's name of the group in this process is replaced by the highest name of any rank."""

    members: Sequence[str] = ()  # the tokens of the members
    own = highest = ""

    def agree(self, number: int | None) -> int | None:
        """The highest number that a rank has for the group; None if this process (`number`) or no rank has one."""
        numbers = [int(found) for token in self.members if (found := _parts(token)[1])]
        if number is None or not numbers:
            return None
        self.own, self.highest = f"default_pg/{number}/", f"default_pg/{max(numbers)}/"
        return max(numbers)

    def _key(self, operation: str, key: str) -> bytes:
        if self.own != self.highest and isinstance(key, str) and key.startswith(self.own):
            key = self.highest + key.removeprefix(self.own)
        return super()._key(operation, key)


def meet(make: Make, rank: int, world_size: int, timeout: timedelta, number: int | None = None, job: str = "") -> Group:
    """The store of a group whose ranks have all come. Closing it also closes the store that `make` made.

    Args:
        number: torch's number of the group in this process; None if torch does not count it.
        job: the name of this process's job; empty if it has no name.

    Raises:
        StoreTimeout: not all ranks came in time.
        TwoJobs: the ranks belong to two jobs, or another process is a member of a group as this rank.
        StoreError, ConnectionLost, UsageError: raised by `make`.
    """
    host = socket.gethostname()
    token = ",".join([secrets.token_hex(8), "" if number is None else str(number), quote(job), host, str(os.getpid())])
    seconds, began, placed = timeout.total_seconds(), time.monotonic(), set[int]()
    while True:
        left, store = max(began + seconds - time.monotonic(), 0.0), None
        try:
            store = make(timedelta(seconds=left))
            prefix, members = _agreed(store, rank, world_size, token, began + seconds, seconds, placed)
            break
        except BaseException as error:
            if store is not None:
                store.close()
            if not _passes(error, time.monotonic() - began, seconds, connected=store is not None):
                raise
        time.sleep(min(RETRY_SECONDS, left))
    met = Group.owning(prefix, store)
    met.members = members
    below: Any = met
    while below is not None:  # each of these stores was made with the rest of the time as its timeout
        below.set_timeout(timeout)
        below = getattr(below, "underlying_store", None)
    return met


def _passes(error: BaseException, waited: float, seconds: float, connected: bool) -> bool:
    """Whether the store of the previous group causes the error, and will end soon."""
    if waited >= seconds:
        return False
    if connected:  # its server ended while this rank waited for the others
        return isinstance(error, ConnectionLost)
    # Rank 0 was killed and restarted: its old server takes a moment to notice and to end.
    taken = isinstance(error, UsageError) and getattr(error.__cause__, "errno", None) == errno.EADDRINUSE
    return taken and waited < HANDOVER_SECONDS


def _agreed(
    store: Store, rank: int, world_size: int, token: str, deadline: float, seconds: float, placed: set[int]
) -> tuple[str, list[str]]:
    """The prefix of the keys of a group whose members have all come, and their tokens. Error texts name `seconds`.

    `placed` has the numbers of the groups in which this call has written its token.
    """
    with PrefixStore(f"groups-of-{world_size}", store) as groups:
        known = int(groups.get(NEXT)) if groups.check([NEXT]) else 0
        _refuse_if_kept(groups, rank, world_size, min(deadline, time.monotonic() + HELD_SECONDS))
        # The group before it may have this call's token, if the connection was lost after that group was formed.
        for number in count(max(known - 1, 0)):
            groups.set_timeout(timedelta(seconds=max(deadline - time.monotonic(), 0.0)))
            try:
                # The server closes the connection of a call when another process arrives as its rank.
                if number in placed:
                    _refuse_if_overtaken(groups, number, rank, world_size, token)
                placed.add(number)
                members = _formed(groups, number, rank, world_size, token, deadline)
            except (StoreTimeout, KeyboardInterrupt) as error:
                groups.set_timeout(timedelta(seconds=TELL_SECONDS))
                with contextlib.suppress(StoreError, ConnectionLost):  # the server may be frozen
                    if isinstance(error, StoreTimeout):
                        error.args = (_late(groups, number, world_size, seconds, store._where()),)
                    _withdraw(groups, number, rank, token)
                raise
            if members[rank : rank + 1] == [token]:
                if rank == 0:
                    groups.set(NEXT, str(number + 1))
                _refuse_two_jobs(groups, members)
                if not groups._keep(_kept(groups, rank)):
                    raise _taken(groups, rank, world_size)
                groups.set(f"kept/{rank}", token)
                return f"group-{number}-of-{world_size}", members
    raise AssertionError("unreachable")


def _formed(groups: Store, number: int, rank: int, world_size: int, token: str, deadline: float) -> list[str]:
    """The tokens of a group's members, by rank, when it is formed."""
    formed = f"formed/{number}"
    groups.set(_place(number, rank), token)
    if _released(groups, number, rank, world_size, token, deadline) and rank == 0:
        tokens = groups.multi_get([_place(number, other) for other in range(world_size)])
        if tokens[0] == token.encode():  # else a later call of rank 0 has withdrawn this arrival, and forms the group
            groups.compare_set(formed, "", b" ".join(tokens))
    members = groups.get(formed).decode().split()
    if members[rank : rank + 1] != [token]:
        _refuse_if_overtaken(groups, number, rank, world_size, token)
    return members


def _released(groups: Store, number: int, rank: int, world_size: int, token: str, deadline: float) -> bool:
    """Arrive at a group's barrier until it is released; False if the group was formed without this arrival.

    Raises StoreTimeout, or TwoJobs if another process has come as this rank.
    """
    name, look = groups._key("barrier", f"all/{number}"), LOOK_SECONDS
    while not groups.check([f"formed/{number}"]):
        left = max(deadline - time.monotonic(), 0.0)
        seconds = min(look, left) if groups._has_barrier_tokens else left
        if groups._await(Barrier(name, world_size, rank.to_bytes(TOKEN_BYTES, "big")), seconds):
            return True
        if seconds == left:
            raise groups._late("barrier", [name], seconds)
        _refuse_if_overtaken(groups, number, rank, world_size, token)
        look = min(2 * look, LOOK_SECONDS_MAX)
    return False


def _kept(groups: Store, rank: int) -> Barrier:
    """The barrier at which a member keeps its rank: it is never released, and no other process uses its size."""
    size = (1 << 40) + _RANDOM + os.getpid()  # a forked child has the same random number and another pid
    return Barrier(groups._key("barrier", f"kept/{rank}"), size, secrets.token_bytes(TOKEN_BYTES))


def _refuse_if_kept(groups: Store, rank: int, world_size: int, deadline: float) -> None:
    """Raise TwoJobs if another process is a member of a group as this rank and remains one until the deadline."""
    while not groups._keep(_kept(groups, rank), look=True):
        if time.monotonic() >= deadline:
            raise _taken(groups, rank, world_size)
        time.sleep(HELD_POLL_SECONDS)


def _taken(groups: Store, rank: int, world_size: int) -> TwoJobs:
    kept = f"kept/{rank}"
    who = _process_of(groups.get(kept).decode()) if groups.check([kept]) else "another process"
    return TwoJobs(f"{who} is rank {rank} of a group of {world_size} that meets here, and still lives or is frozen "
                   f"({groups._where()}); {TWO_JOBS}")  # fmt: skip


def _refuse_if_overtaken(groups: Store, number: int, rank: int, world_size: int, token: str) -> None:
    """Raise TwoJobs if another process has overwritten this token in a group that forms."""
    place = _place(number, rank)
    there = groups.get(place).decode() if groups.check([place]) else token  # a call that gave up deletes its token
    process = _parts(there)[3:]
    if all(process) and process != _parts(token)[3:]:
        raise TwoJobs(
            f"{_process_of(there)} has come as rank {rank} of the group of {world_size} that forms here, while this "
            f"process waited as that rank ({groups._where()}); start each rank once; {TWO_JOBS}"
        )


def _refuse_two_jobs(groups: Store, members: Sequence[str]) -> None:
    """Raise TwoJobs if agents have named the jobs of two members differently."""
    named = {job: rank for rank, token in enumerate(members) if (job := _parts(token)[2])}
    if len(named) > 1:
        (one, rank), (other, more), *_ = named.items()
        raise TwoJobs(f"rank {rank} belongs to job {unquote(one)!r}, but rank {more} to job {unquote(other)!r} "
                      f"({groups._where()}); {TWO_JOBS}")  # fmt: skip


def _parts(token: str) -> list[str]:
    """The parts of a token: its random part, number, job, host and process. Each may be empty."""
    return [*token.split(","), "", "", "", ""][:5]


def _process_of(token: str) -> str:
    return "process {1} on {0}".format(*_parts(token)[3:])


def _place(number: int, rank: int) -> str:
    return f"here/{number}/{rank}"


def _withdraw(groups: Store, number: int, rank: int, token: str) -> None:
    """Delete this call's token, so it cannot become a member later. Another process's token at this rank stays."""
    place = _place(number, rank)
    if groups.check([place]) and groups.get(place) == token.encode():
        groups.delete_key(place)


def _late(groups: Store, number: int, world_size: int, seconds: float, where: str) -> str:
    here = {int(key.rpartition("/")[2]) for key in groups.list_keys(f"here/{number}/")}
    missing = [str(rank) for rank in range(world_size) if rank not in here]
    shown = f"missing: rank {some(missing, SHOWN_RANKS_MAX)}" if missing else "a rank came and died"
    return (f"after {rounded(seconds)} s the group of {world_size} is not complete, {shown} ({where}); see whether it "
            "started and reaches this address with the same URL and world_size, or raise the "
            "timeout")  # fmt: skip

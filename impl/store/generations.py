"""The groups that meet one after the other at one URL: each has keys of its own, and its members agree on them.

Theory of operation. `destroy_process_group` and then `init_process_group` at the same URL make a new group, and gloo
must not read the addresses of the old one. Nothing orders the processes: a rank may come while the old server still
runs, while other ranks still use the old group, or after it was killed and started again; the next group may have
another size. So groups of one world size are numbered, and each call of `meet` has a random token:

1. Every rank writes its token at its place in the group that forms, and arrives at a barrier, with a
   barrier token that is its rank's. A rank that comes again, in a new process or not, overwrites the token of its
   earlier call, and withdraws that call's arrival, also if its process is frozen.
2. The barrier is released when all ranks are there and alive: the stores withdraw the arrival of a process that died.
   Rank 0 reads all places at one moment, and writes the list of tokens by compare-and-set: the group is formed. A rank
   0 that has come again meanwhile finds another token than its own, and leaves the list to its later call. A rank that
   comes again after the release arrives alone: it withdraws now and then, and looks for the list.
3. Every rank reads the list. Its own token is there: it is a member. Another one is there: an earlier call of this rank
   was taken for a member; the rank goes on to the next number.

torch names a group after a count of the process, and a failed `init_process_group` advances the count. A token contains
that number too, and the store of the group replaces each rank's name by the highest one (`Group`).

Without a prefix, two jobs at one URL would get groups with ranks of both. A token contains the job, if an agent has
named it, and the ranks of two jobs raise. A member keeps its rank while it has the group: it arrives at a barrier that
never opens, with a size that no other process uses. Another process that comes as this rank names another size, and is
refused. A call that waits for its group, and finds that another process has overwritten its token, raises: its rank was
started twice, or started again while this process still ran.

Three things can go wrong. A rank that dies before the barrier is released is missing until it comes again: the others
wait. A rank that dies later was a member: its group fails like every group one of whose members dies, and the next one
forms without its keys. A server that ends takes all of this with it: `meet` begins again at the next one, in what is
left of its time.

torch's servers have no barrier tokens, and withdraw no arrival of a process that died: there such a rank counts as a
member, and a rank that comes again before the group is formed is counted twice. Such a group may fail at its timeout.
There, and in a file, no member keeps its rank.

Rule: each step is one request, so that a process may be killed between any two of them.
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
from .base import Store
from .errors import ConnectionLost, FileLost, StoreError, StoreTimeout
from .operations import Barrier
from .prefix import PrefixStore
from .server.driver import LINGER_SECONDS
from .wire import TOKEN_BYTES

Make = Callable[[timedelta], Store]  # a store whose constructor keeps this timeout
HANDOVER_SECONDS = LINGER_SECONDS + 1.0  # from the death of rank 0 to the end of its server
RETRY_SECONDS = 0.05
SHOWN_RANKS_MAX = 8
LOOK_SECONDS, LOOK_SECONDS_MAX = 0.5, 60.0  # for the list, from the barrier: the second time after twice as long, ...
# The wait for a rank that another process keeps: the server learns late that a machine has lost its power.
HELD_SECONDS = 15.0
HELD_POLL_SECONDS = 0.1
TELL_SECONDS = 1.0  # at the end of the time: to withdraw, and to find out who is missing
TWO_JOBS = (
    "two jobs cannot share a URL: give each its own port, or its own prefix in the URL (?prefix=NAME); or end what is "
    "left of an earlier run"
)
NEXT = "next"  # a lower bound of the number of the group that forms, so that nobody counts from 0


class TwoJobs(StoreError):
    """Processes of two jobs have come to one place, or two processes as one rank."""


class Group(PrefixStore):
    """The keys of a group; torch's name of it in this process stands for the highest name that any rank has for it."""

    members: Sequence[str] = ()  # their tokens
    own = highest = ""

    def agree(self, number: int | None) -> int | None:
        """The highest number that a rank has for the group; this process has `number`, or none."""
        numbers = [int(found) for found in map(_number, self.members) if found]
        if number is None or not numbers:
            return None
        self.own, self.highest = f"default_pg/{number}/", f"default_pg/{max(numbers)}/"
        return max(numbers)

    def _key(self, operation: str, key: str) -> bytes:
        if self.own != self.highest and isinstance(key, str) and key.startswith(self.own):
            key = self.highest + key.removeprefix(self.own)
        return super()._key(operation, key)


def meet(make: Make, rank: int, world_size: int, timeout: timedelta, number: int | None = None, job: str = "") -> Group:
    """The store of a group whose ranks are all there; closing it closes what `make` made.

    Args:
        number: of the group, as torch counts the groups of this process; None: it does not.
        job: the name of this process's job; empty: it has none.

    Raises:
        StoreTimeout: not all ranks came in time.
        TwoJobs: the ranks are of two jobs, or another process is a member of a group as this rank.
        StoreError, ConnectionLost, UsageError: of `make`.
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
    while below is not None:  # each was made with what was left of the time
        below.set_timeout(timeout)
        below = getattr(below, "underlying_store", None)
    return met


def _passes(error: BaseException, waited: float, seconds: float, connected: bool) -> bool:
    """Whether the store of the group before is in the way, and will not be for long."""
    if waited >= seconds:
        return False
    if connected:  # its server ended, or its file was deleted, while this rank waited for the others
        return isinstance(error, ConnectionLost | FileLost)
    # Rank 0 was killed and started again: the server that it had takes a moment to notice and to end.
    taken = isinstance(error, UsageError) and getattr(error.__cause__, "errno", None) == errno.EADDRINUSE
    return taken and waited < HANDOVER_SECONDS


def _agreed(
    store: Store, rank: int, world_size: int, token: str, deadline: float, seconds: float, placed: set[int]
) -> tuple[str, list[str]]:
    """The prefix of the keys of a group whose members are all there, and their tokens; texts say `seconds`.

    `placed` has the numbers of the groups in which this call has written its token.
    """
    with PrefixStore(f"groups-of-{world_size}", store) as groups:
        known = int(groups.get(NEXT)) if groups.check([NEXT]) else 0
        _refuse_if_kept(groups, rank, world_size, min(deadline, time.monotonic() + HELD_SECONDS))
        # The one before it may have this call's token, if the connection was lost when it had been formed.
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
                with contextlib.suppress(StoreError, ConnectionLost):  # of a server that is frozen
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
        if tokens[0] == token.encode():  # else its arrival was withdrawn, not released
            groups.compare_set(formed, "", b" ".join(tokens))
    members = groups.get(formed).decode().split()
    if members[rank : rank + 1] != [token]:
        _refuse_if_overtaken(groups, number, rank, world_size, token)
    return members


def _released(groups: Store, number: int, rank: int, world_size: int, token: str, deadline: float) -> bool:
    """Arrive at a group's barrier until it is released, or the group is found formed (False).

    Raises StoreTimeout, and TwoJobs if another process has come as this rank.
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
    """The barrier at which a member keeps its rank: it never opens, and its size is of this process alone."""
    pid, size = _process
    if pid != os.getpid():  # in a forked child
        size = _new_process()[1]
    return Barrier(groups._key("barrier", f"kept/{rank}"), size, secrets.token_bytes(TOKEN_BYTES))


def _new_process() -> tuple[int, int]:
    global _process
    _process = os.getpid(), (1 << 40) + secrets.randbits(60)
    return _process


_process = _new_process()


def _refuse_if_kept(groups: Store, rank: int, world_size: int, deadline: float) -> None:
    """Raise TwoJobs if another process is a member of a group as this rank, and still is at the deadline."""
    while not groups._keep(_kept(groups, rank), look=True):
        if time.monotonic() >= deadline:
            raise _taken(groups, rank, world_size)
        time.sleep(HELD_POLL_SECONDS)


def _taken(groups: Store, rank: int, world_size: int) -> TwoJobs:
    kept = f"kept/{rank}"
    who = _process_of(groups.get(kept).decode()) if groups.check([kept]) else "another process"
    return TwoJobs(f"{who} is rank {rank} of a group of {world_size} that meets here, and lives or stands still "
                   f"({groups._where()}); {TWO_JOBS}")  # fmt: skip


def _refuse_if_overtaken(groups: Store, number: int, rank: int, world_size: int, token: str) -> None:
    """Raise TwoJobs if another process has written its token over this one, of a group that forms."""
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
        raise TwoJobs(f"rank {rank} is of job {unquote(one)!r}, and rank {more} of job {unquote(other)!r} "
                      f"({groups._where()}); {TWO_JOBS}")  # fmt: skip


def _parts(token: str) -> list[str]:
    """The token, and its number, its job, its host and its process; each may be empty."""
    return [*token.split(","), "", "", "", ""][:5]


def _number(token: str) -> str:
    return _parts(token)[1]


def _process_of(token: str) -> str:
    return "process {1} on {0}".format(*_parts(token)[3:])


def _place(number: int, rank: int) -> str:
    return f"here/{number}/{rank}"


def _withdraw(groups: Store, number: int, rank: int, token: str) -> None:
    """Do not be taken for a member later on. Another process of this rank may have overwritten the token: its stays."""
    place = _place(number, rank)
    if groups.check([place]) and groups.get(place) == token.encode():
        groups.delete_key(place)


def _late(groups: Store, number: int, world_size: int, seconds: float, where: str) -> str:
    here = {int(key.rpartition("/")[2]) for key in groups.list_keys(f"here/{number}/")}
    missing = [str(rank) for rank in range(world_size) if rank not in here]
    more = f" and {len(missing) - SHOWN_RANKS_MAX} more" if len(missing) > SHOWN_RANKS_MAX else ""
    shown = f"missing: rank {', '.join(missing[:SHOWN_RANKS_MAX])}{more}" if missing else "one came and died"
    return (f"after {rounded(seconds)} s the group of {world_size} is not complete, {shown} ({where}); see why it did "
            "not start, whether it reaches this address with the same URL and world_size, or raise the "
            "timeout")  # fmt: skip

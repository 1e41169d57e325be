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

Three things can go wrong. A rank that dies before the barrier is released is missing until it comes again: the others
wait. A rank that dies later was a member: its group fails like every group one of whose members dies, and the next one
forms without its keys. A server that ends takes all of this with it: `meet` begins again at the next one, in what is
left of its time.

torch's servers have no barrier tokens, and withdraw no arrival of a process that died: there such a rank counts as a
member, and a rank that comes again before the group is formed is counted twice. Such a group may fail at its timeout.

Rule: each step is one request, so that a process may be killed between any two of them.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

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
TELL_SECONDS = 1.0  # at the end of the time: to withdraw, and to find out who is missing
NEXT = "next"  # a lower bound of the number of the group that forms, so that nobody counts from 0


def meet(make: Make, rank: int, world_size: int, timeout: timedelta) -> PrefixStore:
    """The store of a group whose ranks are all there; closing it closes what `make` made.

    Raises:
        StoreTimeout: not all ranks came in time.
        StoreError, ConnectionLost, UsageError: of `make`.
    """
    token, seconds, began = secrets.token_hex(8), timeout.total_seconds(), time.monotonic()
    while True:
        left, store = max(began + seconds - time.monotonic(), 0.0), None
        try:
            store = make(timedelta(seconds=left))
            prefix = _agreed(store, rank, world_size, token, began + seconds, seconds)
            break
        except BaseException as error:
            if store is not None:
                store.close()
            if not _passes(error, time.monotonic() - began, seconds, connected=store is not None):
                raise
        time.sleep(min(RETRY_SECONDS, left))
    met = PrefixStore.owning(prefix, store)
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


def _agreed(store: Store, rank: int, world_size: int, token: str, deadline: float, seconds: float) -> str:
    """The prefix of the keys of a group whose members are all there; texts say `seconds`."""
    with PrefixStore(f"groups-of-{world_size}", store) as groups:
        known = int(groups.get(NEXT)) if groups.check([NEXT]) else 0
        # The one before it may have this call's token, if the connection was lost when it had been formed.
        for number in count(max(known - 1, 0)):
            groups.set_timeout(timedelta(seconds=max(deadline - time.monotonic(), 0.0)))
            try:
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
                return f"group-{number}-of-{world_size}"
    raise AssertionError("unreachable")


def _formed(groups: Store, number: int, rank: int, world_size: int, token: str, deadline: float) -> list[str]:
    """The tokens of a group's members, by rank, when it is formed."""
    formed = f"formed/{number}"
    groups.set(_place(number, rank), token)
    if _released(groups, number, rank, world_size, deadline) and rank == 0:
        tokens = groups.multi_get([_place(number, other) for other in range(world_size)])
        if tokens[0] == token.encode():  # else its arrival was withdrawn, not released
            groups.compare_set(formed, "", b" ".join(tokens))
    return groups.get(formed).decode().split()


def _released(groups: Store, number: int, rank: int, world_size: int, deadline: float) -> bool:
    """Arrive at a group's barrier until it is released, or the group is found formed (False). Raises StoreTimeout."""
    name, look = groups._key("barrier", f"all/{number}"), LOOK_SECONDS
    while not groups.check([f"formed/{number}"]):
        left = max(deadline - time.monotonic(), 0.0)
        seconds = min(look, left) if groups._has_barrier_tokens else left
        if groups._await(Barrier(name, world_size, rank.to_bytes(TOKEN_BYTES, "big")), seconds):
            return True
        if seconds == left:
            raise groups._late("barrier", [name], seconds)
        look = min(2 * look, LOOK_SECONDS_MAX)
    return False


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

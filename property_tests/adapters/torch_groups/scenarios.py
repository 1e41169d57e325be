"""P1 to P7, P9, P10: real gloo groups of the installed torch, a process for each rank, over TCPStore; its FileStore.

Rule: a scenario decides only which process calls new_group when, and computes from what the calls return or raise, and
from sums that the groups compute, whether the property was violated. `CONTROLS` runs the same code on a schedule that
does no harm. A creation that only its timeout ends counts as one that hangs: the timeout of that one creation is short.
All others wait as long as a busy machine may need.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

from ..replays import Catalogue, Observation, Say, ScheduleError, judge
from ..torch_store.isolated import Child, silence
from ..torch_store.server import HOST, TorchServer
from .files import left_over_file, lock_kept, torn_record

__all__ = ["CONTROLS", "SCENARIOS"]

HANGS = timedelta(seconds=2)
WORKS = timedelta(seconds=30)
HEARS_S = 90.0  # gloo gives up on a connection after several times its timeout
FIRST, SECOND = 1.0, 100.0  # the amounts that a rank gives to the sums of two groups


def outsider_skips(say: Say, *, benign: bool = False) -> Observation:
    """P1. Rank 2, no member of {0, 1}, does not call new_group for it; {0, 1, 2} is never made. Benign: it calls."""
    said = _world(_with_an_outsider, 3, benign, heard=(0, 1))
    for rank, (number, outcome) in enumerate(said):
        say(f"rank {rank}: the group of all, after {number - 1} names: {outcome}")
    facts = [f"rank {rank}: {outcome}" for rank, (_, outcome) in enumerate(said)]
    return judge(any(outcome != "created" for _, outcome in said), "a group that every member calls for is made", facts)


def groups_mixed(say: Say, *, benign: bool = False) -> Observation:
    """P2. Two threads make two groups, in another order on each rank: both give sums of both. Benign: in one order."""
    said = _world(_with_two_threads, 2, benign)
    wanted = {"first": 2 * FIRST, "second": 2 * SECOND}
    for rank, sums in enumerate(said):
        say(f"rank {rank}: {sums}; right: {wanted}")
    facts = [f"rank {rank}: first {sums['first']:g}, second {sums['second']:g}" for rank, sums in enumerate(said)]
    return judge(any(sums != wanted for sums in said), "members of a communicator have one group in mind", facts)


def names_reused(say: Say, *, benign: bool = False) -> Observation:
    """P3. Both destroy their group and make another over the same store, rank 1 last. Benign: below another prefix."""
    said = _world(_with_two_lives, 2, benign, in_turn=True)
    for rank, outcome in enumerate(said):
        say(f"rank {rank}: its second group: {outcome}")
    facts = [f"rank {rank}: {outcome}" for rank, outcome in enumerate(said)]
    return judge(any(outcome != "created" for outcome in said), "no address of an earlier group is read", facts)


def local_names_differ(say: Say, *, benign: bool = False) -> Observation:
    """P4. With use_local_synchronization, {0, 1} and then {0, 1, 2} is never made. Benign: without it."""
    said = _world(_with_local_synchronization, 3, benign)
    for rank, outcome in enumerate(said):
        say(f"rank {rank}: the group of all: {outcome}")
    facts = [f"rank {rank}: {outcome}" for rank, outcome in enumerate(said)]
    return judge(any(outcome != "created" for outcome in said), "a group that every member calls for is made", facts)


def local_name_taken(say: Say, *, benign: bool = False) -> Observation:
    """P9. Of two groups of the same ranks the first is destroyed; a third is refused. Benign: by the counter."""
    said = _world(_with_a_destroyed_group, 2, benign)
    for rank, outcome in enumerate(said):
        say(f"rank {rank}: a third group of the same ranks: {outcome}")
    facts = [f"rank {rank}: {outcome}" for rank, outcome in enumerate(said)]
    return judge(
        any(outcome != "created" for outcome in said), "a group can be made after another was destroyed", facts
    )


def ranks_not_compared(say: Say, *, benign: bool = False) -> Observation:
    """P10. Rank 0 makes {0, 1} while rank 3 makes {2, 3}: they sum with each other. Benign: every rank makes both."""
    said = _world(_with_a_pair, 4, benign, heard=(0, 3))
    wanted = [10.0**0 + 10.0**1, 10.0**2 + 10.0**3]
    for rank, total, right in zip((0, 3), said, wanted, strict=True):
        say(f"rank {rank}: its group's sum is {total}; right: {right:g}")
    facts = [f"rank {rank}: {total}" for rank, total in zip((0, 3), said, strict=True)]
    return judge([float(total) for total in said] != wanted, "members of a communicator have one group in mind", facts)


# fmt: off
_CATALOGUE = Catalogue.of((
    ("P1", "outsider-skips", outsider_skips, "A process outside a group does not call: its next group is never made."),
    ("P2", "groups-mixed", groups_mixed, "Two threads make two groups in another order: sums of both are mixed."),
    ("P3", "names-reused", names_reused, "A group over the store of an earlier one reads that one's addresses."),
    ("P4", "local-names-differ", local_names_differ, "use_local_synchronization: members name a group differently."),
    ("P5", "left-over-file", left_over_file, "A FileStore reads the keys of a job that crashed."),
    ("P6", "torn-record", torn_record, "A FileStore never opens a file that ends with part of a record."),
    ("P7", "lock-kept", lock_kept, "A set with a timeout hangs while another process has the lock of the file."),
    ("P9", "local-name-taken", local_name_taken, "use_local_synchronization: a living group's name is given again."),
    ("P10", "ranks-not-compared", ranks_not_compared, "Two disjoint groups are made at once: sums of other ranks."),
))
# fmt: on
SCENARIOS, CONTROLS = _CATALOGUE.scenarios, _CATALOGUE.controls


def _world(
    member: Callable[..., None], size: int, benign: bool, *, heard: Sequence[int] = (), in_turn: bool = False
) -> list[Any]:
    """The words of the members of a world, those `heard` or all; the others are ended when these have spoken.

    Raises:
        ScheduleError: one of them says nothing.
    """
    with TorchServer() as server, contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(member, server.port, rank, size, benign)) for rank in range(size)]
        said = [children[rank].hear(HEARS_S) for rank in heard or range(size)]
        if in_turn:  # each begins its second life when the one before is done with its own, benign: all at once
            for child in children if benign else ():
                child.tell("begin again")
            said = [_begins_again(child, benign) for child in children]
    if not all(isinstance(one, str | dict | tuple) for one in said):
        raise ScheduleError(f"a member said nothing: {said}")
    return said


def _begins_again(child: Child, benign: bool) -> Any:
    if not benign:
        child.tell("begin again")
    return child.hear(HEARS_S)


# ---- in the children


def _join(port: int, rank: int, size: int) -> Any:
    """Become a member of a world of gloo; returns the store."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import TCPStore

    silence()
    store = TCPStore(HOST, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=HEARS_S))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=WORKS)
    return store


def _made(store: Any, benign: bool, make: Callable[[timedelta], object]) -> str:
    """`created`, or the name of the exception, of a creation that gets its timeout."""
    import torch.distributed as dist

    timeout = WORKS if benign else HANGS
    store.set_timeout(timeout)
    try:
        make(timeout)
    except (dist.DistStoreError, RuntimeError, ValueError) as error:
        return type(error).__name__
    return "created"


def _with_an_outsider(line: Connection, port: int, rank: int, size: int, benign: bool) -> None:
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    store = _join(port, rank, size)
    if rank < 2 or benign:
        dist.new_group([0, 1], timeout=WORKS)
    outcome = _made(store, benign, lambda timeout: dist.new_group(timeout=timeout))
    line.send((distributed_c10d._world.group_count, outcome))
    _stay(line)


def _with_two_threads(line: Connection, port: int, rank: int, size: int, benign: bool) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    _join(port, rank, size)
    made: dict[str, Any] = {}
    names = ["first", "second"] if rank == 0 or benign else ["second", "first"]
    threads = []
    for name in names:
        before = distributed_c10d._world.group_count
        make = threading.Thread(target=lambda name=name: made.update({name: dist.new_group(timeout=WORKS)}))
        make.start()
        threads.append(make)
        while distributed_c10d._world.group_count == before:  # the other thread names its group after this one
            time.sleep(0.001)
    for make in threads:
        make.join(HEARS_S)
    sums = {name: torch.full((1,), amount) for name, amount in (("first", FIRST), ("second", SECOND))}
    works = [dist.all_reduce(sums[name], group=made[name], async_op=True) for name in sums]
    for work in works:
        work.wait()
    line.send({name: float(amount) for name, amount in sums.items()})
    _stay(line)


def _with_two_lives(line: Connection, port: int, rank: int, size: int, benign: bool) -> None:
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore

    store = _join(port, rank, size)
    dist.barrier()
    dist.destroy_process_group()
    line.send("destroyed")
    line.recv()
    below = PrefixStore("second", store) if benign else store
    how: dict[str, Any] = {"store": below, "rank": rank, "world_size": size}
    line.send(_made(store, benign, lambda timeout: dist.init_process_group("gloo", timeout=timeout, **how)))
    _stay(line)


def _with_local_synchronization(line: Connection, port: int, rank: int, size: int, benign: bool) -> None:
    import torch.distributed as dist

    store = _join(port, rank, size)
    how: dict[str, Any] = {"use_local_synchronization": not benign}
    if rank < 2 or benign:
        dist.new_group([0, 1], timeout=WORKS, **how)
    line.send(_made(store, benign, lambda timeout: dist.new_group([0, 1, 2], timeout=timeout, **how)))
    _stay(line)


def _with_a_destroyed_group(line: Connection, port: int, rank: int, size: int, benign: bool) -> None:
    import torch.distributed as dist

    store = _join(port, rank, size)
    how: dict[str, Any] = {"use_local_synchronization": not benign}
    made = [dist.new_group([0, 1], timeout=WORKS, **how) for _ in range(2)]
    dist.barrier(made[0])
    dist.destroy_process_group(made[0])
    line.send(_made(store, benign, lambda timeout: dist.new_group([0, 1], timeout=timeout, **how)))
    _stay(line)


def _with_a_pair(line: Connection, port: int, rank: int, size: int, benign: bool) -> None:
    import torch
    import torch.distributed as dist

    _join(port, rank, size)
    if benign or rank in (0, 3):  # the other two are late
        groups = [dist.new_group(ranks, timeout=WORKS) for ranks in ([0, 1], [2, 3]) if benign or rank in ranks]
        total = torch.tensor([10.0**rank])
        dist.all_reduce(total, group=next(group for group in groups if group != dist.GroupMember.NON_GROUP_MEMBER))
        line.send(f"{total.item():g}")
    _stay(line)


def _stay(line: Connection) -> None:
    """Until the scenario is over: a member that ends takes its connections along."""
    with contextlib.suppress(EOFError):
        line.recv()

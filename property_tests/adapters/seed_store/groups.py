"""The creation of groups in torch 1.9: a program on the client of its store, and `Groups` (edition SEED) on it.

Written from the description in ddp-initialisation 3.3.2; no line is copied. The calls have the order of
distributed_c10d.py of 1.9.

    Program.new_group              3.3.2.1: the name, the prefix, the members
    Program._connect_full_mesh     3.3.2.2: connectFullMesh, whose connections are not made
    Program._barrier               distributed_c10d.py: _store_based_barrier
    Program._number                3.3.2.2: setSequenceNumberForGroup

An address has a place for each other member of the group that its author assumes. A process that finds no place for
itself would wait until its timeout for a connection that no process makes. Here it waits without end, as in the model.

Rule: the subject stops a program before each of its steps, and before a wait for a missing key. Until the key exists,
the subject refuses the step that would end the wait.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from trystate.impl.store.wire import U64
from trystate.model.groups.creation import Groups
from trystate.model.groups.vocabulary import Creation
from trystate.model.language.sorts import ordinal

from ...harness.subjects import Disagreement, Refused
from ..torch_rendezvous.simulation import Operation, stop
from .store import POLL_S, Store

NUMBER_KEY, BARRIER_KEY = "SEQ_NUM_STORE_KEY", "store_based_barrier_key"
DEVICE = "0"  # the prefix of the only device
RAND_MAX = 2**31 - 1


def draw() -> int:
    """A number as C's rand() returns it."""
    return random.randint(0, RAND_MAX)


@dataclass(slots=True)
class Group:
    """A call of new_group: the group's name, and its sequence number, if it has one."""

    name: str
    sequence: int = 0


class Program:
    """A process of torch 1.9 whose default group is made; all keys of its job have `prefix`."""

    def __init__(self, store: Store, rank: int, world: int, prefix: str, draw: Callable[[], int] = draw) -> None:
        self._store, self._rank, self._world, self._prefix, self._draw = store, rank, world, prefix, draw
        self.count = 1  # the number of named groups: the default group is 0
        self.group: Group | None = None  # the group of the last call

    def new_group(self, ranks: Sequence[int]) -> Group | None:
        """Make the group of these ranks; returns None if this process is not a member."""
        group = self.group = Group(str(self.count))
        self.count += 1
        is_member = self._rank in ranks
        if is_member:
            self._connect_full_mesh(group, ranks)
        self._barrier()
        if is_member:
            self._number(group)
        return group if is_member else None

    def _connect_full_mesh(self, group: Group, ranks: Sequence[int]) -> None:
        self._before("publish")
        keys = {rank: self._key(group.name, DEVICE, str(rank)) for rank in ranks}
        self._store.set(keys[self._rank], bytes(rank for rank in ranks if rank != self._rank))
        self._before("connect")
        for rank, key in keys.items():
            if rank != self._rank:
                self._wait(key)
                while self._rank not in self._store.get(key):
                    self._before("connect")

    def _barrier(self) -> None:
        key = self._key(f"{BARRIER_KEY}:{self.count}")
        self._store.add(key, 1)
        self._before("barrier")
        while self._store.add(key, 0) != self._world:
            self._before("barrier")

    def _number(self, group: Group) -> None:
        self._before("number")
        key = self._key(group.name, NUMBER_KEY)
        if self._rank == 0:
            number = 1 + self._draw()
            self._store.set(key, U64.pack(number))
            group.sequence = number
        else:
            self._wait(key)
            group.sequence = U64.unpack(self._store.get(key))[0]

    def _key(self, *parts: str) -> str:
        return "/".join((self._prefix, *parts))

    def _wait(self, key: str) -> None:
        self._store.wait([key])

    def _before(self, where: str) -> None:
        """Called before "publish", before each poll of addresses ("connect") or of a barrier, and before "number"."""
        if where in ("connect", "barrier"):
            time.sleep(POLL_S)


class _Stepped(Program):
    """A program in a greenlet."""

    _at = ""

    def _before(self, where: str) -> None:
        self._at = where
        stop(where)

    def _wait(self, key: str) -> None:
        while not self._store.check([key]):
            stop(self._at)
        super()._wait(key)


class _Call:
    """A call of new_group that runs."""

    def __init__(self, program: Program, members: int) -> None:
        self._program = program
        self._made: Group | None = None
        self.operation = Operation(lambda: self._run(members))
        self.operation.resume()
        assert program.group is not None
        self.group = program.group

    def _run(self, members: int) -> None:
        self._made = self._program.new_group(range(members))

    @property
    def place(self) -> Creation:
        if not self.operation.over:
            return PLACES[self.operation.at]
        if self.operation.error is not None:
            raise Disagreement(f"new_group raises {self.operation.error!r}")
        return Creation.OUTSIDE if self._made is None else Creation.CREATED


PLACES = {
    "publish": Creation.NAMED, "connect": Creation.PUBLISHED, "barrier": Creation.BARRIER,
    "number": Creation.NUMBERING,
}  # fmt: skip
STEPS = {
    "publish": "publish", "connect": "connect", "leave_barrier": "barrier", "set_sequence_number": "number",
    "read_sequence_number": "number",
}  # fmt: skip


class SeedGroups(AbstractContextManager["SeedGroups"]):
    """Subject for `Groups`: a program for each process, each with a client of one daemon."""

    def __init__(self, system: Groups) -> None:
        self._sizes = system.sizes
        self._stack = ExitStack()
        master = self._stack.enter_context(Store(is_server=True))
        others = [self._stack.enter_context(Store(master.port)) for _ in range(1, self._sizes["process"])]
        self._stores, self._runs = [master, *others], 0
        self._calls: dict[tuple[int, int], _Call] = {}

    def __exit__(self, *_: object) -> None:
        self._abandon()
        self._stack.close()

    def reset(self) -> None:
        self._abandon()
        self._runs += 1
        self._group = 0  # the drawn number: as in the model, the position of the group's call in the program
        world = self._sizes["process"]
        self._programs = [
            _Stepped(store, rank, world, f"run {self._runs}", lambda: self._group)
            for rank, store in enumerate(self._stores)
        ]
        self._calls, self._skipped = {}, set[tuple[int, int]]()

    def _abandon(self) -> None:
        for call in self._calls.values():
            call.operation.abandon()

    def can_refuse(self, step: str) -> bool:
        return step in STEPS

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        process, group = indices
        if step == "skip":
            self._skipped.add((process, group))
        elif step == "call":
            members = self._sizes["process"] - (self._sizes["outsiders"] if group == 0 else 0)
            self._calls[process, group] = _Call(self._programs[process], members)
        else:
            self._go_on(step, process, group)

    def _go_on(self, step: str, process: int, group: int) -> None:
        call = self._calls.get((process, group))
        is_of_another = step.endswith("_number") and (step == "set_sequence_number") != (process == 0)
        if call is None or call.operation.at != STEPS[step] or is_of_another:
            raise Refused("the program is at another step")
        before, self._group = call.place, group
        call.operation.resume()
        self._stores[process].num_keys()  # the answer shows that the daemon has carried out a set before
        if call.place is before:
            raise Refused("the program waits")

    def observe(self) -> Mapping[str, int]:
        """The place of each call, the counters, and the names and sequence numbers of the groups."""
        seen = {f"named[{process}]": program.count - 1 for process, program in enumerate(self._programs)}
        for process, _ in enumerate(self._programs):
            for group in range(self._sizes["group"]):
                call = self._calls.get((process, group))
                skipped = (process, group) in self._skipped
                place = Creation.SKIPPED if skipped else Creation.IDLE if call is None else call.place
                at = f"[{process}][{group}]"
                seen[f"place{at}"] = ordinal(place)
                seen[f"number{at}"] = 0 if call is None else int(call.group.name)
                seen[f"sequence{at}"] = 0 if call is None else call.group.sequence
        return seen

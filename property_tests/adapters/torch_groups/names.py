"""The names that torch's own new_group gives, in a process for each member, and its registry, next to the model's.

Rule: torch's function runs completely, in real processes; only the backend is torch's fake backend. It
makes no connection, so each name can be read, and the model's steps that connect do nothing here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from multiprocessing.connection import Connection
from typing import Any

from trystate.model.groups.creation import Groups
from trystate.model.groups.registry import NAMES, Registry
from trystate.model.groups.vocabulary import Edition, Entry
from trystate.model.language.sorts import ordinal

from ..steps import Steps
from ..torch_store.isolated import Child, silence

HEARS_S = 60.0


class TorchNames(Steps, AbstractContextManager["TorchNames"]):
    """The processes of a world; `local` determines how they call new_group. torch refuses no step."""

    takes_all = False  # steps that connect are the model's alone

    def __init__(self, system: Groups, local: bool | None = None) -> None:
        self._sizes = system.sizes
        self._local = system.edition is Edition.LOCAL if local is None else local
        self._stack = ExitStack()
        world = self._sizes["process"]
        self._children = [self._stack.enter_context(Child(_member, rank, world)) for rank in range(world)]

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def reset(self) -> None:
        """Every process destroys its groups, and makes its default group."""
        self._named = [self._ask(process, None) for process in range(len(self._children))]
        self._numbers: dict[tuple[int, int], int] = {}

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        """Take a step; a step that connects does nothing."""
        if step in ("call", "call_ahead"):
            process, group = indices
            members = self._sizes["process"] - (self._sizes["outsiders"] if group == 0 else 0)
            self._named[process], self._numbers[process, group] = self._ask(process, (members, self._local))
        elif step in ("begin_again", "restart"):
            (process,) = indices
            self._named[process] = self._ask(process, None)
            self._numbers = {key: number for key, number in self._numbers.items() if key[0] != process}

    def observe(self) -> Mapping[str, int]:
        """The counters, and the numbers in the names."""
        groups = range(self._sizes["group"])
        numbers = {f"number[{p}][{g}]": self._numbers.get((p, g), 0) for p in range(len(self._named)) for g in groups}
        return {**numbers, **{f"named[{p}]": named for p, named in enumerate(self._named)}}

    def _ask(self, process: int, words: Any) -> Any:
        self._children[process].tell(words)
        return self._children[process].hear(HEARS_S)


def _member(line: Connection, rank: int, world: int) -> None:
    """In the child: None starts a new life; a number of ranks and a flag create a group."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d
    from torch.testing._internal.distributed.fake_pg import FakeStore

    silence()
    registry = distributed_c10d._world
    while True:
        words = line.recv()
        if words is None:
            if dist.is_initialized():
                dist.destroy_process_group()
            dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
            line.send(0)
            continue
        members, local = words
        ranks, before = list(range(members)), registry.group_count
        made = dist.new_group(ranks, use_local_synchronization=local)
        is_member = made is not None and made is not dist.GroupMember.NON_GROUP_MEMBER
        assert is_member == (rank < members)
        assert not is_member or registry.pg_group_ranks[made] == {rank: rank for rank in ranks}
        if local:
            number = _hashed(made.group_name, ranks) if is_member else 0
            line.send((len(registry.pg_names) - 1, number))
        else:
            assert not is_member or made.group_name == str(before)
            line.send((registry.group_count - 1, before))


def _hashed(name: str, ranks: list[int]) -> int:
    """The count in a hashed name."""
    text = "_".join(map(str, ranks))
    return next(
        n for n in range(100) if hashlib.sha1(f"{text}_{n}".encode(), usedforsecurity=False).hexdigest() == name
    )


# ---- the registry

RANKS = [0]


class TorchRegistry(Steps, AbstractContextManager["TorchRegistry"]):
    """A process that makes and destroys groups; `local` determines how it calls new_group. torch refuses no step."""

    def __init__(self, system: Registry, local: bool | None = None) -> None:
        self._groups = system.sizes["group"]
        is_local = system.edition is Edition.LOCAL if local is None else local
        self._child = Child(_registrar, is_local, self._groups)

    def __exit__(self, *error: Any) -> None:
        self._child.__exit__(*error)

    def reset(self) -> None:
        """Destroy all groups."""
        self.perform("end", ())

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        """Call torch's function of that step."""
        self._child.tell((step, indices))
        self._seen: Mapping[str, int] = self._child.hear(HEARS_S)

    def observe(self) -> Mapping[str, int]:
        """The tables of torch's module, and whether it refused."""
        return self._seen


def _registrar(line: Connection, local: bool, groups: int) -> None:
    """In the child: take steps, and send the tables after each."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    silence()
    made: dict[int, Any] = {}
    refused: set[int] = set()
    while True:
        step, indices = line.recv()
        if step == "begin":
            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
        elif step == "create":
            try:
                made[indices[0]] = dist.new_group(RANKS, use_local_synchronization=local)
                refused.discard(indices[0])
            except ValueError:
                refused.add(indices[0])
        elif step == "destroy":
            dist.destroy_process_group(made.pop(indices[0]))
        elif dist.is_initialized():
            dist.destroy_process_group()
            made.clear()
            refused.clear()
        line.send(_tables(made, refused, local, groups))


def _tables(made: Mapping[int, Any], refused: set[int], local: bool, groups: int) -> dict[str, int]:
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    world = distributed_c10d._world
    seen = {"world": int(dist.is_initialized()), "named": world.group_count}
    entries = len(made) + dist.is_initialized()
    assert [len(table) for table in (world.pg_map, world.pg_names, world.pg_group_ranks)] == [entries] * 3
    for g in range(groups):
        group = made.get(g)
        entry = Entry.ENTERED if g in made else Entry.REFUSED if g in refused else Entry.ABSENT
        seen |= {
            f"entry[{g}]": ordinal(entry), f"mapped[{g}]": int(group in world.pg_map),
            f"called[{g}]": _number(world.pg_names[group], local) + 1 if group in world.pg_names else 0,
            f"ranked[{g}]": int(group is not None and world.pg_group_ranks.get(group) == {0: 0}),
        }  # fmt: skip
    return seen


def _number(name: str, local: bool) -> int:
    number = _hashed(name, RANKS) if local else int(name)
    assert number < NAMES
    return number

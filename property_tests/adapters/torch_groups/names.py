"""The names that torch's own new_group gives, in a process for each member, beside the model's.

Rule: torch's function runs whole, in real processes; only the backend is torch's fake one, which connects to nobody, so
that a name is seen where no mesh would be made. So the steps of the model that connect are none here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from trystate.model.groups.creation import Groups
from trystate.model.groups.vocabulary import Edition

from ..torch_store.isolated import Child, silence

CALLS = ("call", "call_ahead")
LIVES = ("begin_again", "restart")
HEARS_S = 60.0


class TorchNames(AbstractContextManager["TorchNames"]):
    """The processes of a world; `local` says how they call new_group."""

    def __init__(self, system: Groups, local: bool | None = None) -> None:
        self._sizes = system.sizes
        self._local = system.edition is Edition.LOCAL if local is None else local
        self._stack = ExitStack()
        world = self._sizes["process"]
        self._children = [self._stack.enter_context(Child(_member, rank, world)) for rank in range(world)]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def reset(self) -> None:
        """Every process destroys its groups, and makes its default group."""
        self._named = [self._ask(process, None) for process in range(len(self._children))]
        self._numbers: dict[tuple[int, int], int] = {}

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        """Take a step; those that connect are none."""
        if step in CALLS:
            process, group = indices
            members = self._sizes["process"] - (self._sizes["outsiders"] if group == 0 else 0)
            self._named[process], self._numbers[process, group] = self._ask(process, (members, self._local))
        elif step in LIVES:
            (process,) = indices
            self._named[process] = self._ask(process, None)
            self._numbers = {key: number for key, number in self._numbers.items() if key[0] != process}

    def observe(self) -> Mapping[str, int]:
        """The counters, and the numbers in the names."""
        groups = range(self._sizes["group"])
        numbers = {f"number[{p}][{g}]": self._numbers.get((p, g), 0) for p in range(len(self._named)) for g in groups}
        return {**numbers, **{f"named[{p}]": named for p, named in enumerate(self._named)}}

    def can_refuse(self, step: str) -> bool:
        """torch refuses none: a process may call in any order."""
        return False

    def _ask(self, process: int, words: Any) -> Any:
        self._children[process].tell(words)
        return self._children[process].hear(HEARS_S)


def _member(line: Connection, rank: int, world: int) -> None:
    """In the child: None begins a life, a number of ranks and a flag make a group."""
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

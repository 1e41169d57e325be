"""The registry of torch's own module beside the model's: its tables after each new_group and destroy_process_group.

Rule: torch's functions run whole, in a process of their own; only the backend is torch's fake one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from trystate.model.groups.registry import NAMES, Registry
from trystate.model.groups.vocabulary import Edition, Entry
from trystate.model.language.sorts import ordinal

from ..torch_store.isolated import Child, silence
from .names import HEARS_S, _hashed

RANKS = [0]


class TorchRegistry(AbstractContextManager["TorchRegistry"]):
    """A process that makes and destroys groups; `local` says how it calls new_group."""

    def __init__(self, system: Registry, local: bool | None = None) -> None:
        self._groups = system.sizes["group"]
        is_local = system.edition is Edition.LOCAL if local is None else local
        self._child = Child(_process, is_local, self._groups)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._child.__exit__(kind, error, at)

    def reset(self) -> None:
        """There is no group."""
        self.perform("end", ())

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        """Call torch's function of that step."""
        self._child.tell((step, indices))
        self._seen: Mapping[str, int] = self._child.hear(HEARS_S)

    def observe(self) -> Mapping[str, int]:
        """The tables of torch's module, and whether it refused."""
        return self._seen

    def can_refuse(self, step: str) -> bool:
        """torch refuses none: a program may call in any order."""
        return False


def _process(line: Connection, local: bool, groups: int) -> None:
    """In the child: take steps, and tell the tables after each."""
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

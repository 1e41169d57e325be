"""The ranks of a process group, beside the addresses of its members.

torch names a group after a count that each process has of its own, and the name is the prefix of the group's keys: two
groups of other ranks can have one name, and read each other's addresses. gloo compares no groups, so that their
collectives would return sums of other ranks, without an error. So the first member that writes an address below a
prefix writes the ranks of its group there too, and each later one compares.

Rule: a program's own keys are left alone. Only keys below two prefixes (`//`) are looked at, and only while torch makes
a group on the same thread; the default group is of all ranks, and is not compared.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from torch.distributed import distributed_c10d

from .errors import GroupsDiffer

MADE_BY = inspect.unwrap(distributed_c10d._new_process_group_helper).__code__
BELOW_PREFIXES = "//"  # torch's prefixes end with "/", and one more follows
BESIDE = "ranks"  # the last part of the key, where those of addresses have a number
SHOWN_MAX = 16  # ranks of a text


def compare(key: str, compare_set: Callable[[str, str, str], bytes]) -> None:
    """Before an address is written to `key`: write the ranks of its group beside it, or compare them.

    Raises GroupsDiffer: a group of other ranks, or with another description, has this name.
    """
    making = _making()
    ranks: Sequence[int] = making.get("global_ranks_in_group", ())
    if not ranks:
        return
    mine = _text(ranks, making.get("group_desc"))
    place = f"{key.rpartition('/')[0]}/{BESIDE}"
    theirs = bytes(compare_set(place, "", mine)).decode("utf-8", "replace")
    if theirs != mine:
        raise GroupsDiffer(
            f"new_group: the group of {_shown(mine)} and the group of {_shown(theirs)} have one name "
            f"({making['group_name']!r}), and would read each other's addresses: torch names a group after how many "
            "its process has made, so call new_group on every process for every group, in one order and in one "
            "thread; a second life of a job needs another prefix of the store"
        )


def _making() -> dict[str, Any]:
    """The arguments of torch's function that makes a group, if this thread is in it."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code is not MADE_BY:
        frame = frame.f_back
    return {} if frame is None else frame.f_locals


def _text(ranks: Sequence[int], description: str | None) -> str:
    """Equal for equal groups, and short: a world may have thousands of ranks."""
    text = ", ".join(map(str, ranks[:SHOWN_MAX])) + (f" and {len(ranks) - SHOWN_MAX} more" * (len(ranks) > SHOWN_MAX))
    named = "" if description in (None, "", "undefined") else f" ({description:.80})"
    whole = f"{list(ranks)} {description or 'undefined'}"
    return f"{hashlib.sha256(whole.encode()).hexdigest()[:16]} the ranks {text}{named}"


def _shown(text: str) -> str:
    return text.partition(" ")[2]

"""The ranks of a process group, stored next to the addresses of its members.

torch names a group after a count that each process keeps for itself, and the name is the prefix of the group's keys.
Two groups of other ranks can therefore have one name and read each other's addresses. gloo does not compare groups, so
their collectives would return sums of other ranks without an error. To prevent that, the first member that writes an
address below a prefix also writes the ranks of its group there, and each later member compares them.

Rule: a program's own keys are left alone. Only keys below two prefixes (`//`) are compared, and only while torch makes
a group on the same thread. The default group has all ranks and is not compared.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence

from torch.distributed import distributed_c10d

from ..host.visible import some
from .errors import GroupsDiffer
from .lives import call_of

MADE_BY = inspect.unwrap(distributed_c10d._new_process_group_helper).__code__
BELOW_PREFIXES = "//"  # torch's prefixes end with "/", and one more follows
BESIDE = "ranks"  # the last part of the key; the keys of addresses have a number there
SHOWN_MAX = 16  # ranks in a text


def compare(key: str, compare_set: Callable[[str, str, str], bytes]) -> None:
    """Before an address is written to `key`, write the ranks of its group next to it, or compare them.

    Raises GroupsDiffer if a group of other ranks or with another description has this name.
    """
    frame = call_of(MADE_BY)
    making = {} if frame is None else frame.f_locals
    ranks: Sequence[int] = making.get("global_ranks_in_group", ())
    if not ranks:
        return
    mine = _text(ranks, making.get("group_desc"))
    place = f"{key.rpartition('/')[0]}/{BESIDE}"
    theirs = bytes(compare_set(place, "", mine)).decode("utf-8", "replace")
    if theirs != mine:
        raise GroupsDiffer(
            f"new_group: the group of {_shown(mine)} and the group of {_shown(theirs)} have one name "
            f"({making['group_name']!r}) and would read each other's addresses: torch names a group after the number "
            "of groups that its process has made, so call new_group on every process for every group, in one order and "
            "in one thread; a job that makes its groups again needs another prefix of the store"
        )


def _text(ranks: Sequence[int], description: str | None) -> str:
    """A text that is equal for equal groups, and short, since a world may have thousands of ranks."""
    named = "" if description in (None, "", "undefined") else f" ({description:.80})"
    whole = f"{list(ranks)} {description or 'undefined'}"
    return f"{hashlib.sha256(whole.encode()).hexdigest()[:16]} the ranks {some([*map(str, ranks)], SHOWN_MAX)}{named}"


def _shown(text: str) -> str:
    return text.partition(" ")[2]

"""torch's _new_process_group_helper in every context of its table, for a backend of each kind.

Rule: the real function decides. Records of the arguments replace only the entry in torch's registry and
the classes of the backends, which this torch may lack.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

from torch._C._distributed_c10d import HashStore, ProcessGroup
from torch.distributed import distributed_c10d as c10d

from trystate.model.groups.initialisation import NEW_GROUP, Made

from ..torch_rendezvous.contexts import Observed
from .initialisation import ERRORS, Answer, Words, _named, contexts, observe

BUILT_IN = ("mpi", "gloo", "nccl", "ucc", "xccl")  # the backends that torch makes itself
NUMBERED = ("gloo", "nccl")  # those whose collectives are numbered
PLUGIN = "other"  # the backend of a plug-in
MODULE: Any = c10d  # its functions are called with arguments of any type
NAME, RANK, SIZE, TIMEOUT = "7", 1, 3, timedelta(seconds=9)
NONE, PLAIN, EXTENDED = range(3)  # how a plug-in is registered
REGISTERED = ("_plugins", "backend_list", "backend_type_map", "backend_capability", "default_device_backend_map")
RAISED: dict[str, Answer] = {
    "already been created": Made.TAKEN, "built in": Made.NOT_BUILT, "to be of type": Made.OPTIONS,
    "nknown": Made.UNKNOWN,
}  # fmt: skip


class _Options:
    """The options of NCCL or XCCL, with any fields."""

    group_name: str
    global_ranks_in_group: list[int]

    def __init__(self) -> None:
        self._timeout = timedelta()  # which torch replaces


class _Backend(ProcessGroup):
    """The maker of a backend, and its arguments."""

    def __init__(self, maker: Made, *args: Any, timeout: timedelta | None = None) -> None:
        super().__init__(RANK, SIZE)  # type: ignore[call-arg]  # the constructor for subclasses of Python
        self.maker, self.args = maker, args if timeout is None else (*args, timeout)
        self.options, self.is_numbered = SimpleNamespace(), False

    def _set_sequence_number_for_group(self) -> None:
        self.is_numbered = True


def _maker(made: Made) -> type[_Backend]:
    def begin(self: _Backend, *args: Any, **more: Any) -> None:
        _Backend.__init__(self, made, *args, **more)

    return type(made.name, (_Backend,), {
        "__init__": begin, "create": classmethod(lambda cls, ranks: cls(ranks)), "Options": _Options,
    })  # fmt: skip


CLASSES = {
    "ProcessGroupMPI": _maker(Made.MPI), "ProcessGroupGloo": _maker(Made.GLOO), "ProcessGroupNCCL": _maker(Made.NCCL),
    "ProcessGroupUCC": _maker(Made.UCC), "ProcessGroupXCCL": _maker(Made.XCCL),
}  # fmt: skip
FUNCTIONS = {PLAIN: _maker(Made.PLUGIN), EXTENDED: _maker(Made.EXTENDED)}


@dataclass
class _World:
    """The world of torch's module in a context, and whether the group is entered."""

    built = True
    entered = False
    default_pg = None
    pg_names: dict[int, str] = field(default_factory=dict)

    def rank(self) -> int:
        return RANK

    def enter(self, *_: Any, **__: Any) -> None:
        self.entered = True


def new_group() -> Observed:
    """torch's _new_process_group_helper."""
    rows = (
        (words, {
            "taken": words["taken"], "outsider": bool(words["ranks"]) and RANK not in words["ranks"],
            **{name: words["backend"] == name for name in BUILT_IN}, "built": words["built"],
            "options": words["options"] == "other", "plugin": words["plugin"] != NONE,
            "extended": words["plugin"] == EXTENDED,
        })
        for words in contexts(
            taken=(False, True), ranks=((), (1, 4, 5), (2, 4, 5)), backend=(*BUILT_IN, PLUGIN), built=(True, False),
            options=(None, "own", "other"), plugin=(NONE, PLAIN, EXTENDED),
        )
    )  # fmt: skip
    world = _World()
    replaced: dict[str, Any] = {
        "_world": world, "_get_default_group": lambda: world, "_register_pg_in_world": world.enter, **CLASSES,
        **{f"is_{name.removeprefix('ProcessGroup').lower()}_available": lambda: world.built for name in CLASSES},
    }  # fmt: skip
    with (
        mock.patch.multiple(c10d, create=True, **replaced),
        mock.patch.object(c10d.Backend, PLUGIN.upper(), PLUGIN, create=True),
        mock.patch("warnings.warn"),
    ):
        return observe(tuple(atom.name for atom in NEW_GROUP.atoms), rows, lambda words: _ask(words, world))


def _ask(words: Words, world: _World) -> Answer:
    store, backend, plugin = HashStore(), words["backend"], words["plugin"]
    options = {None: None, "own": _Options(), "other": SimpleNamespace(_timeout=None)}[words["options"]]
    world.built, world.entered, world.pg_names = words["built"], False, {1: NAME} if words["taken"] else {}
    with mock.patch.multiple(c10d.Backend, **{name: copy(getattr(c10d.Backend, name)) for name in REGISTERED}):
        if plugin != NONE:
            c10d.Backend.register_backend(backend, FUNCTIONS[plugin], plugin == EXTENDED, ["cpu"])
        try:
            group, _ = MODULE._new_process_group_helper(
                SIZE, RANK, [*words["ranks"]], c10d.Backend(backend), store, NAME, options, TIMEOUT
            )
        except ERRORS as error:
            return _named(error, RAISED)
        if group is c10d.GroupMember.NON_GROUP_MEMBER:
            return "a group of others is entered" if world.entered else Made.OUTSIDER
        return group.maker if world.entered and _is_right(group, words, store, options) else f"{vars(group)}"


def _is_right(made: _Backend, words: Words, store: HashStore, options: Any) -> bool:
    """Whether the backend has the arguments of the table."""
    kind, ranks = made.maker, [*words["ranks"]]
    if made.is_numbered is not (words["backend"] in NUMBERED):
        return False
    if kind is Made.MPI:
        return made.args == (ranks,)
    if kind is Made.EXTENDED:
        of, given = made.args
        below, rank, size, timeout = of.store, of.group_rank, of.group_size, of.timeout
        named = given is options and (of.group_id, of.global_ranks_in_group) == (NAME, ranks)
    elif kind in (Made.NCCL, Made.XCCL):
        below, rank, size, its = made.args
        timeout, is_callers = its._timeout, kind is Made.NCCL and words["options"] == "own"
        named = (its is options) is is_callers and (its.group_name, its.global_ranks_in_group) == (NAME, ranks)
    else:
        below, rank, size, timeout = made.args
        named = kind is not Made.GLOO or vars(made.options) == {"group_name": NAME, "global_ranks_in_group": ranks}
    below.set("key", "value")
    first = next(iter(c10d.BackendConfig(c10d.Backend(words["backend"])).get_device_backend_map()))
    return named and (rank, size, timeout) == (RANK, SIZE, TIMEOUT) and store.check([f"{NAME}//{first}//key"])

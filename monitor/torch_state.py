"""The shared state of torch's dynamic rendezvous, read from its bytes without executing them.

Theory of operation. torch writes base64 of a pickle of `_RendezvousState`. A pickle is a program. Before it is loaded,
each of its instructions is checked. It must be in `INSTRUCTIONS`, like all instructions of every torch from 2.6 on, and
a tuple may only be the arguments of a call (a tuple of tuples takes exponential time as a key). It may load only the
names of a state: two plain classes replace torch's own, and the rest are `datetime`'s.
"""

from __future__ import annotations

import base64
import io
import pickle
import pickletools
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from trystate.impl.host.visible import visible
from trystate.model.errors import TrystateError

STATE_BYTES_MAX = 1 << 22  # some 20,000 nodes
MODULE = "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
TUPLES = {"TUPLE1", "TUPLE2", "TUPLE3"}
INSTRUCTIONS = {
    "PROTO", "FRAME", "MEMOIZE", "BINGET", "LONG_BINGET", "MARK", "STOP", "STACK_GLOBAL", "NEWOBJ", "REDUCE", "BUILD",
    "SHORT_BINUNICODE", "BINUNICODE", "SHORT_BINBYTES", "NEWFALSE", "NEWTRUE", "NONE", "BININT", "BININT1", "BININT2",
    "LONG1", "EMPTY_TUPLE", "EMPTY_DICT", "EMPTY_SET", "SETITEM", "SETITEMS", "ADDITEMS", *TUPLES,
}  # fmt: skip


class NoTorchState(TrystateError, ValueError):
    """These bytes are not a state of torch's rendezvous; the text gives the reason."""


class _NodeDesc:
    """The replacement of torch's class of this name."""

    addr: str
    pid: int
    local_id: int


class _RendezvousState:
    """The replacement of torch's class of this name."""


CLASSES: dict[tuple[str, str], Any] = {
    (MODULE, "_NodeDesc"): _NodeDesc,
    (MODULE, "_RendezvousState"): _RendezvousState,
    ("datetime", "datetime"): datetime,
    ("datetime", "timedelta"): timedelta,
    ("datetime", "timezone"): timezone,
}


@dataclass(frozen=True, slots=True, order=True)
class TorchNode:
    """A node with torch's three identifying fields; nodes are ordered like their ranks."""

    addr: str
    pid: int
    local_id: int

    def __str__(self) -> str:
        return visible(f"{self.addr}_{self.pid}_{self.local_id}")


@dataclass(frozen=True, slots=True)
class TorchState:
    """torch's state; times in seconds since the epoch, by the clock of the node that wrote them."""

    round: int = 0
    complete: bool = False
    closed: bool = False
    deadline: float | None = None
    participants: dict[TorchNode, int] = field(default_factory=dict)  # their ranks, 0 in a round that is not complete
    wait_list: frozenset[TorchNode] = frozenset()
    redundancy_list: frozenset[TorchNode] = frozenset()
    last_heartbeats: dict[TorchNode, float] = field(default_factory=dict)


def read(value: bytes) -> TorchState:
    """The state in a store's value.

    Raises:
        NoTorchState: the value is not a state, or is too large.
    """
    if len(value) > STATE_BYTES_MAX:
        raise NoTorchState(f"it has {len(value)} bytes, more than {STATE_BYTES_MAX}")
    try:
        data = base64.b64decode(value, validate=True)
        _inspect(data)
        return _checked(_Unpickler(io.BytesIO(data)).load())
    except NoTorchState:
        raise
    except Exception as error:  # a pickle that is cut or made up raises nearly anything
        raise NoTorchState(f"it is not base64 of a pickled state ({type(error).__name__})") from None


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in CLASSES:
            raise NoTorchState(f"it names {module[:80]}.{name[:80]}, which no state has")
        return CLASSES[module, name]


def _inspect(data: bytes) -> None:
    """Raise unless each instruction is allowed, and each tuple is the arguments of the next call."""
    tuples: set[int] = set()  # the numbers of remembered objects that are tuples
    remembered, before = 0, ""
    for opcode, argument, at in pickletools.genops(data):
        name = opcode.name
        if name not in INSTRUCTIONS:
            raise NoTorchState(f"its byte {at} is the instruction {name}, which no state has")
        if name == "MEMOIZE":
            tuples |= {remembered} if before in TUPLES else set()
            remembered += 1
            continue
        if (before in TUPLES and name != "REDUCE") or (before == "EMPTY_TUPLE" and name != "NEWOBJ"):
            raise NoTorchState(f"its byte {at} keeps a tuple, which no state does")
        if name in ("BINGET", "LONG_BINGET") and argument in tuples:
            raise NoTorchState(f"its byte {at} uses a tuple again, which no state does")
        before = name


def _checked(found: Any) -> TorchState:
    if not isinstance(found, _RendezvousState):
        raise NoTorchState(f"it is a {type(found).__name__}")
    said = vars(found)
    missing = set(TorchState.__slots__) - said.keys()
    if missing:
        raise NoTorchState(f"it lacks {', '.join(sorted(missing))}")
    ranks = {_node(one): _typed(rank, int, "rank") for one, rank in _typed(said["participants"], dict, "ranks").items()}
    if min(ranks.values(), default=0) < 0:
        raise NoTorchState(f"it has a rank {min(ranks.values())}")
    beats = {_node(one): _stamp(when) for one, when in _typed(said["last_heartbeats"], dict, "heartbeats").items()}
    return TorchState(
        round=_typed(said["round"], int, "round"),
        complete=_typed(said["complete"], bool, "complete"),
        closed=_typed(said["closed"], bool, "closed"),
        deadline=None if said["deadline"] is None else _stamp(said["deadline"]),
        participants=ranks,
        wait_list=frozenset(map(_node, _typed(said["wait_list"], set, "wait list"))),
        redundancy_list=frozenset(map(_node, _typed(said["redundancy_list"], set, "redundancy list"))),
        last_heartbeats=beats,
    )


def _typed(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        raise NoTorchState(f"its {name} is of kind {type(value).__name__}, not {kind.__name__}")
    return value


def _node(found: Any) -> TorchNode:
    said = vars(_typed(found, _NodeDesc, "node"))
    addr, pid, local_id = said.get("addr"), said.get("pid"), said.get("local_id")
    return TorchNode(
        _typed(addr, str, "address"), _typed(pid, int, "process"), _typed(local_id, int, "number of a handler")
    )


def _stamp(when: Any) -> float:
    return float(_typed(when, datetime, "time").timestamp())

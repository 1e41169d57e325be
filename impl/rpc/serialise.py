"""Arguments and results as bytes; tensors and RRefs in them are sent outside of the pickle.

Rule: a value that a restricted worker would not take is refused, with its type, where it is sent. The receiver refuses
it too, since the sender may be any process. A call whose arguments are only tensors has no pickle at all.
"""

from __future__ import annotations

import builtins
import collections
import datetime
import functools
import io
import pickle
import pickletools
import re
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.serialization import _get_layout

from .errors import NotAllowed, RpcError
from .functions import find, name_of
from .options import Options, Pickles

PROTOCOL = 5
REPEATED_BYTES_MAX = 1 << 10
# None of these types makes a large object from a few bytes, as range or bytes(length) would.
_HOMES: dict[Any, tuple[str, ...]] = {
    builtins: (
        "bool", "complex", "dict", "float", "frozenset", "int", "list", "set", "slice", "str", "tuple",
    ),
    collections: ("Counter", "OrderedDict", "defaultdict", "deque"),
    datetime: ("date", "datetime", "time", "timedelta", "timezone"),
    torch: ("Size", "device"),
}  # fmt: skip
PLAIN_TYPES = {home.__name__: {name: getattr(home, name) for name in names} for home, names in _HOMES.items()}
PLAIN_TYPES["torch.serialization"] = {"_get_layout": _get_layout}  # a torch.layout is pickled as a call of this
PLAIN_CLASSES = {kind for kinds in PLAIN_TYPES.values() for kind in kinds.values()}
# Functions are sent by name, like called functions, and the same option decides which ones are taken.
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)
NAMES = (pickle.PERSID, pickle.BINPERSID, pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.INST)  # each pushes an object
NUMBERING = (pickle.PUT, pickle.LONG_BINPUT)  # the memo of the unpickler gets as long as their number
FRAME_BYTES, HEAD_BYTES = 9, 11  # a FRAME with its length; PROTO and FRAME, with which a pickle begins
# A whole pickle of opcodes that neither number objects nor set attributes, without long texts: six times as fast as to
# look at each opcode. The opcode decides the length of its argument, and for a short text the first byte of it.
_SHORT = b"|".join(re.escape(bytes((size,))) + b".{%d}" % size for size in range(256))
_ALONE = b"[" + re.escape(b"(012NQRatlde)]}su\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94") + b"]"
USUAL = re.compile(
    b"(?s)\x80\x05(?:\x95.{8})?(?>" + _ALONE + b"|[Kh].|M..|[Jj].{4}|G.{8}|[\x8cC\x8a](?:" + _SHORT + b"))*+[.]"
)
TORCH_VALUES = (torch.dtype, torch.layout)  # found by name in `torch`


class Serialiser:
    """Pickles and unpickles the values that one worker sends and takes."""

    def __init__(self, options: Options, reference_type: type) -> None:
        """`reference_type` is RRef: RRefs are sent outside of the pickle, like tensors."""
        self.reference_type = reference_type
        self.restricted = options.pickles is Pickles.RESTRICTED
        self.allowed = {(kind.__module__, kind.__qualname__): kind for kind in options.allowed}
        self.classes = PLAIN_CLASSES | set(options.allowed)
        self.modules, self.name_bytes = options.modules, options.limits.name_bytes

    def packed(self, value: object) -> tuple[bytes, list[Tensor], list[Any]]:
        """The pickle, the tensors, the references. Raises NotAllowed for a value that pickle or `Options` refuses."""
        stream = io.BytesIO()
        pickler = _Pickler(stream, self)
        try:
            pickler.dump(value)
        except RecursionError as error:
            raise NotAllowed("the arguments are nested too deeply to be pickled: flatten them") from error
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            if isinstance(error, RpcError):
                raise
            raise NotAllowed(f"the arguments cannot be pickled: {error}") from error
        return stream.getvalue(), pickler.tensors, pickler.references

    def unpacked(self, data: bytes, tensors: Sequence[Tensor | None], references: Sequence[Any]) -> Any:
        """The value. Raises NotAllowed if a part of it is not taken, or if the bytes are not a pickle."""
        unpickler = _Unpickler(io.BytesIO(data), self, tensors, references)
        try:
            if self.restricted:
                _check_opcodes(data, may_build=bool(self.allowed))
            return unpickler.load()
        except RpcError:
            raise
        except Exception as error:  # pickle raises any exception for bytes that are not a pickle
            if not self.restricted and not isinstance(error, (pickle.UnpicklingError, EOFError)):
                raise
            raise NotAllowed(f"{len(data)} bytes are not a readable pickle: {error!r}") from error


def _check_opcodes(data: bytes, may_build: bool) -> None:
    """Raise NotAllowed if the pickle numbers an object, or sets attributes of one and `may_build` is False.

    The object may be a function or a class of this process. Plain data has no such opcodes. Most pickles do not have
    their bytes either, or nothing that BUILD could change, and are one frame: no opcode is looked at.
    """
    builds = not may_build and pickle.BUILD in data and any(name in data for name in NAMES)
    is_one_frame = data[2:3] == pickle.FRAME and int.from_bytes(data[3:HEAD_BYTES], "little") == len(data) - HEAD_BYTES
    if not builds and data.count(pickle.FRAME) <= is_one_frame and not any(opcode in data for opcode in NUMBERING):
        return
    if (is_one_frame or data[2:3] != pickle.FRAME) and USUAL.fullmatch(data):
        return
    found = (_opcodes if len(data) <= REPEATED_BYTES_MAX else _opcodes.__wrapped__)(data)
    if found.intersection(NUMBERING):
        raise NotAllowed("the pickle numbers an object itself: does the peer run the same version?")
    if not may_build and pickle.BUILD in found:
        raise NotAllowed("the pickle sets attributes of an object: does the peer run the same version?")


@functools.lru_cache(maxsize=1024)  # the same call has the same pickle, since tensors are not in it
def _opcodes(data: bytes) -> frozenset[bytes]:
    """The opcodes of a pickle. Raises NotAllowed if a frame ends within one.

    Python's unpickler would then skip the rest of the frame, and read other opcodes than these.
    """
    found, last, end = set[bytes](), 0, 0
    for opcode, argument, at in pickletools.genops(data):
        assert at is not None
        is_frame = opcode.name == "FRAME"
        if last < end < at or (is_frame and at < end):
            raise NotAllowed("a frame of the pickle ends within an opcode: does the peer run the same version?")
        if is_frame:
            end = at + FRAME_BYTES + (argument or 0)
        last = at
        found.add(opcode.code.encode("latin-1"))
    return frozenset(found)


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, serialiser: Serialiser) -> None:
        super().__init__(stream, PROTOCOL)
        self.tensors: list[Tensor] = []
        self.references: list[Any] = []
        self._known: dict[int, int] = {}  # a tensor that occurs twice arrives as one
        self._serialiser, self._reference_type = serialiser, serialiser.reference_type

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            index = self._known.get(id(value))
            if index is None:
                index = self._known[id(value)] = len(self.tensors)
                self.tensors.append(value)
            return (index, value.requires_grad) if isinstance(value, Parameter) else index
        if isinstance(value, self._reference_type):
            self.references.append(value)
            return (len(self.references) - 1,)
        if isinstance(value, FUNCTIONS) and self._serialiser.restricted and value is not _get_layout:
            return name_of(value)
        return None

    def reducer_override(self, value: Any) -> Any:
        """Called for every object that is not plain data."""
        serialiser = self._serialiser
        if not serialiser.restricted or isinstance(value, TORCH_VALUES) or type(value) in serialiser.classes:
            return NotImplemented
        if value is _get_layout or (isinstance(value, type) and value in serialiser.classes):
            return NotImplemented
        if isinstance(value, BaseException):
            return NotImplemented if type(value) in serialiser.classes else _refuse(type(value))
        return _refuse(value if isinstance(value, type) else type(value))


def _refuse(kind: type) -> Any:
    raise NotAllowed(f"a {kind.__module__}.{kind.__qualname__} is not sent: give Options(allowed=({kind.__name__},)), "
                     "or pickles=Pickles.ANY, on all workers; or send plain data and tensors")  # fmt: skip


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, stream: io.BytesIO, serialiser: Serialiser, tensors: Sequence[Tensor | None], references: Sequence[Any]
    ) -> None:
        super().__init__(stream)
        self._serialiser, self._tensors, self._references = serialiser, tensors, references
        self._parameters: dict[int, Parameter] = {}

    def persistent_load(self, what: Any) -> Any:
        if type(what) is int:
            return _of(self._tensors, what)
        if type(what) is str:
            return find(what, self._serialiser.modules, self._serialiser.name_bytes)
        if type(what) is not tuple or not 1 <= len(what) <= 2:
            raise NotAllowed(f"the reference {what!r} cannot be read: does the peer run the same version?")
        if len(what) == 1:
            return _of(self._references, what[0])
        tensor = _of(self._tensors, what[0])
        # A tensor in a graph represents the sender's parameter; any other becomes a parameter of this worker, once.
        if tensor.grad_fn is None and what[0] not in self._parameters:
            self._parameters[what[0]] = Parameter(tensor, bool(what[1]))
        return self._parameters.get(what[0], tensor)

    def find_class(self, module: str, name: str) -> Any:
        if not self._serialiser.restricted:
            return super().find_class(module, name)
        found = PLAIN_TYPES.get(module, {}).get(name) or self._serialiser.allowed.get((module, name))
        if found is not None:
            return found
        if module == "torch" and isinstance(found := getattr(torch, name, None), TORCH_VALUES):
            return found
        raise NotAllowed(f"a {module}.{name} is not taken: give Options(allowed=({name},)), or pickles=Pickles.ANY, on "
                         "all workers; or send plain data and tensors")  # fmt: skip


def _of(things: Sequence[Any], index: Any) -> Any:
    if type(index) is not int or not 0 <= index < len(things) or things[index] is None:
        raise NotAllowed(f"the pickle refers to number {index!r} of {len(things)}: does the peer run the same version?")
    return things[index]

"""Frames: the messages between two workers, as bytes. No socket, no clock, no thread.

A frame is its head, then its *front* (a description of each tensor, the body, the metadata), then the bytes of those
tensors that are not in shared memory. All integers are little endian. Rule: each announced size is compared with its
limit before memory is reserved for it. A frame over a limit, or bytes that are not a frame, end the connection.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from .arena import Arena, Window
from .errors import FrameRefused, LimitExceeded
from .limits import Limits
from .tensors import (
    CODES,
    DTYPES,
    are_dense,
    array,
    elements,
    flat,
    plain,
    size,
    strides_of,
    tensor_on,
)

Tensors: TypeAlias = Sequence[Tensor | None]

HEAD = Struct("<BBHIIIQ")  # kind, flags, tensors, bytes of descriptions, body and metadata, number of the request
# place, dtype, dimensions, flags. Then each dimension; each stride of a tensor that is not contiguous; the slot of a
# tensor in shared memory.
DESCRIPTION = Struct("<BBBB")
SLOT = Struct("<IQ")
DIMENSIONS = [Struct(f"<{count}Q") for count in range(65)]
DIMENSIONS_MAX = 64
DIMENSION_MAX = (1 << 48) - 1  # elements: a product of two sizes stays within torch's integers
BUFFER_BYTES = 1 << 18  # the most that is read at once; larger than a socket's buffer
PIECES_MAX = 512  # the most pieces of a frame for one system call (IOV_MAX is 1024)

Sparse: TypeAlias = tuple[int, Tensor, Tensor, tuple[int, ...], bool]  # index, indices, values, shape, is coalesced


class Kind(enum.IntEnum):
    """The kind of a frame. A request has a number, which its answer repeats."""

    ANSWER = 0
    FAILED = 1
    GOODBYE = 2
    CALL = 3
    REMOTE = 4
    RREF = 5
    INQUIRY = 6


class TensorPlace(enum.IntEnum):
    """Where the elements of a tensor are."""

    NOWHERE = 0  # None instead of a tensor
    HERE = 1  # after the front
    SLOT = 2
    SPARSE = 3  # its indices and values are the next two tensors


COALESCED = 1  # flag of a sparse tensor
STRIDED = 2  # flag of a dense tensor that is not contiguous


class Frame(NamedTuple):
    """One frame, complete."""

    kind: int
    flags: int
    number: int
    body: bytes
    metadata: bytes
    tensors: list[Tensor | None]


class Encoded(NamedTuple):
    """A frame as pieces of memory, in order."""

    pieces: list[Any]
    size: int
    slots: list[int]  # slots of the arena that the frame uses


def encode(
    kind: int, number: int, body: bytes, tensors: Tensors, metadata: bytes, limits: Limits, *, flags: int = 0,
    arena: Arena | None = None, shared_from: int = 0,
) -> Encoded:  # fmt: skip
    """A frame. Raises LimitExceeded and NotAllowed; then nothing of the arena is used."""
    if len(tensors) > limits.tensors:
        text = f"{len(tensors)} tensors in one frame, the limit is {limits.tensors}: use several calls, or stack them"
        raise LimitExceeded(text)
    for what, length, limit in (
        ("body", len(body), limits.body_bytes),
        ("metadata", len(metadata), limits.metadata_bytes),
    ):
        if length > limit:
            raise LimitExceeded(f"the {what} has {length} bytes, the limit is {limit}: send less, or send tensors")
    writer = _Writer(arena, shared_from)
    try:
        for tensor in tensors:
            writer.add(tensor)
        if writer.size > limits.tensor_bytes:
            raise LimitExceeded(
                f"the tensors of one frame have {writer.size} bytes, the limit is {limits.tensor_bytes}: send fewer"
            )
    except BaseException:
        for slot in writer.slots:
            arena.take_back(slot)  # type: ignore[union-attr]
        raise
    descriptions = b"".join(writer.descriptions)
    head = HEAD.pack(kind, flags, len(tensors), len(descriptions), len(body), len(metadata), number)
    front = b"".join((head, descriptions, body, metadata))
    pieces = [front, *writer.pieces]
    if writer.pieces and (writer.size < BUFFER_BYTES or len(pieces) > PIECES_MAX):
        pieces = [b"".join(pieces)]
    return Encoded(pieces, len(front) + writer.size, writer.slots)


class _Writer:
    """The tensors of one frame."""

    def __init__(self, arena: Arena | None, shared_from: int) -> None:
        self.arena, self.shared_from = arena, shared_from
        self.descriptions: list[bytes] = []
        self.pieces: list[Any] = []
        self.slots: list[int] = []
        self.size = 0

    def add(self, tensor: Tensor | None) -> None:
        if tensor is None:
            self.descriptions.append(DESCRIPTION.pack(TensorPlace.NOWHERE, 0, 0, 0))
            return
        tensor = plain(tensor)
        if tensor.layout is torch.sparse_coo:
            self._describe(TensorPlace.SPARSE, tensor, int(tensor.is_coalesced()))
            self.add(tensor._indices())
            self.add(tensor._values())
            return
        nbytes, strides = tensor.numel() * tensor.itemsize, strides_of(tensor)
        flags = STRIDED if strides else 0
        if self.arena is not None and nbytes >= self.shared_from and (found := self.arena.lay(tensor, strides)):
            self.slots.append(found[0])
            self._describe(TensorPlace.SLOT, tensor, flags, strides)
            self.descriptions.append(SLOT.pack(*found))
            return
        self._describe(TensorPlace.HERE, tensor, flags, strides)
        if nbytes:
            self.pieces.append(elements(flat(tensor, strides)).reshape(-1).view(np.uint8))
            self.size += nbytes

    def _describe(self, place: TensorPlace, tensor: Tensor, flags: int, strides: tuple[int, ...] = ()) -> None:
        shape = tensor.shape
        if len(shape) > DIMENSIONS_MAX:
            raise LimitExceeded(f"a tensor has {len(shape)} dimensions, the limit is {DIMENSIONS_MAX}: reshape it")
        self.descriptions.append(DESCRIPTION.pack(place, CODES[tensor.dtype], len(shape), flags))
        self.descriptions.append(DIMENSIONS[len(shape)].pack(*shape))
        if strides:
            self.descriptions.append(DIMENSIONS[len(shape)].pack(*strides))


class Parser:
    """The frames of one connection as their bytes arrive.

    `buffer()` is the memory for the next bytes. `received(count)` takes `count` new bytes from it and returns the
    frames that they complete. A frame's large tensors are read straight into their own memory.
    """

    def __init__(self, limits: Limits, window: Window | None = None) -> None:
        self.limits, self.window = limits, window
        self._data = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._data)
        self._begin = self._end = 0
        self._open: Frame | None = None  # a frame with tensors that have not come yet
        self._missing: list[memoryview] = []  # the memory of these tensors, the next one last
        self._sparse: list[Sparse] = []  # the sparse tensors of that frame

    def buffer(self) -> memoryview:
        """The memory for the next bytes; never empty."""
        if self._missing:
            return self._missing[-1]
        if self._begin == self._end:
            self._begin = self._end = 0
            if len(self._data) > BUFFER_BYTES:
                self._grow(BUFFER_BYTES)
        elif self._end == len(self._data):
            self._grow(len(self._data))
        return self._view[self._end :]

    def received(self, count: int) -> list[Frame]:
        """The frames that are complete now. After it raises FrameRefused, nothing more can be read."""
        frames: list[Frame] = []
        if self._missing:
            target = self._missing.pop()
            if count < len(target):
                self._missing.append(target[count:])
            elif not self._missing and self._open is not None:
                frames.append(_whole(self._open, self._sparse))
                self._open = None
            return frames
        self._end += count
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def _grow(self, size: int) -> None:
        """Move the unused bytes to the beginning of a buffer of this size."""
        rest = self._view[self._begin : self._end]
        if size == len(self._data) and self._begin:
            self._view[: len(rest)] = bytes(rest)
        else:
            data = bytearray(size)
            data[: len(rest)] = rest
            self._data, self._view = data, memoryview(data)
        self._begin, self._end = 0, len(rest)

    def _next(self) -> Frame | None:
        available = self._end - self._begin
        if available < HEAD.size:
            return None
        kind, flags, count, described, body, metadata, number = HEAD.unpack_from(self._data, self._begin)
        limits = self.limits
        if body > limits.body_bytes or metadata > limits.metadata_bytes or count > limits.tensors:
            raise FrameRefused(f"a frame has a body of {body} bytes, metadata of {metadata} and {count} tensors, the "
                               f"limits are {limits.body_bytes}, {limits.metadata_bytes} and {limits.tensors}"
                                                  )  # fmt: skip
        if described > 3 * count * (DESCRIPTION.size + 16 * DIMENSIONS_MAX + SLOT.size):
            raise FrameRefused(f"{count} tensors cannot take {described} bytes to describe")
        front = HEAD.size + described + body + metadata
        if available < front:
            if len(self._data) - self._begin < front:
                self._grow(max(front, len(self._data)))
            return None
        at = self._begin + HEAD.size
        reader = _Reader(self, at, at + described)
        tensors = [reader.tensor(index) for index in range(count)]
        if reader.at != reader.end:
            raise FrameRefused(
                f"{described} bytes describe {count} tensors, but {reader.end - reader.at} are left over"
            )
        at += described
        text = bytes(self._view[at : at + body])
        extra = bytes(self._view[at + body : at + body + metadata]) if metadata else b""
        self._begin += front
        self._sparse = reader.sparse
        frame = Frame(kind, flags, number, text, extra, tensors)
        if reader.targets and not self._filled(reader.targets):
            self._open = frame
            return None
        return _whole(frame, reader.sparse) if reader.sparse else frame

    def _filled(self, targets: list[memoryview]) -> bool:
        """Take the elements that have come already; returns whether all have come."""
        targets.reverse()
        while targets and (here := min(self._end - self._begin, len(targets[-1]))):
            target = targets.pop()
            target[:here] = self._view[self._begin : self._begin + here]
            self._begin += here
            if here < len(target):
                targets.append(target[here:])
        self._missing = targets
        return not targets


def _whole(frame: Frame, sparse: list[Sparse]) -> Frame:
    """The frame with its sparse tensors. Raises FrameRefused if the indices of one are not within its shape."""
    for index, indices, values, shape, coalesced in sparse:
        try:
            frame.tensors[index] = torch.sparse_coo_tensor(
                indices, values, shape, check_invariants=True, is_coalesced=coalesced
            )
        except RuntimeError as error:
            raise FrameRefused(f"a sparse tensor of shape {shape}: {error}") from None
    return frame


class _Reader:
    """The descriptions of one frame's tensors."""

    def __init__(self, parser: Parser, at: int, end: int) -> None:
        self.data, self.window, self.limits = parser._data, parser.window, parser.limits
        self.at, self.end = at, end
        self.bytes = 0
        self.targets: list[memoryview] = []
        self.sparse: list[Sparse] = []

    def tensor(self, index: int | None = None) -> Tensor | None:
        """The next tensor. None instead of a tensor, and for a sparse one, which is made when its parts have come."""
        place, code, dimensions, flags = self._read(DESCRIPTION)
        if place == TensorPlace.NOWHERE:
            return None
        if code >= len(DTYPES) or dimensions > min(DIMENSIONS_MAX, self.limits.dimensions):
            raise FrameRefused(f"a tensor of dtype {code} with {dimensions} dimensions")
        shape = self._read(DIMENSIONS[dimensions])
        if dimensions and max(shape) > DIMENSION_MAX:
            raise FrameRefused(f"a tensor of shape {shape}")
        strides: tuple[int, ...] = ()
        if flags & STRIDED and place != TensorPlace.SPARSE:
            strides = self._read(DIMENSIONS[dimensions])
            if max(strides, default=0) > DIMENSION_MAX or not are_dense(shape, strides):
                raise FrameRefused(f"a tensor of shape {shape} and strides {strides}")
        if place == TensorPlace.HERE:
            return self._here(code, shape, strides)
        if place == TensorPlace.SLOT and self.window is not None:
            slot, offset = self._read(SLOT)
            return self.window.tensor(slot, offset, code, shape, strides)
        if place == TensorPlace.SPARSE and index is not None:
            self._sparse(index, code, shape, bool(flags & COALESCED))
            return None
        raise FrameRefused(f"a tensor in place {place}")

    def _here(self, code: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
        nbytes = size(code, shape)
        self.bytes += nbytes
        if self.bytes > self.limits.tensor_bytes:
            raise FrameRefused(
                f"the tensors of one frame have {self.bytes} bytes, the limit is {self.limits.tensor_bytes}"
            )
        raw = np.empty(nbytes, np.uint8)
        if nbytes:
            self.targets.append(raw.data)
        return tensor_on(array(raw, code, shape, strides), code)

    def _sparse(self, place: int, code: int, shape: tuple[int, ...], coalesced: bool) -> None:
        at = self.at
        indices, values = self.tensor(), self.tensor()
        if indices is None or values is None or values.dtype != DTYPES[code]:
            raise FrameRefused("a sparse tensor without its indices or values")
        if self.data[at] == TensorPlace.SLOT:
            indices = indices.clone()  # the sender could change them after the check
        self.sparse.append((place, indices, values, shape, coalesced))

    def _read(self, struct: Struct) -> tuple[Any, ...]:
        at = self.at
        self.at += struct.size
        if self.at > self.end:
            raise FrameRefused("the description of a tensor is longer than announced")
        return struct.unpack_from(self.data, at)

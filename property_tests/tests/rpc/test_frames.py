"""Frames, tensors and shared memory without a peer: pieces are joined, and other bytes are refused."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trystate.impl.rpc import arena as arenas
from trystate.impl.rpc import frames
from trystate.impl.rpc.arena import HEAD_BYTES, PAGE_BYTES, Arena, Window
from trystate.impl.rpc.frames import DESCRIPTION, HEAD, SLOT, STRIDED, Encoded, Frame, Kind, Parser, TensorPlace, encode
from trystate.impl.rpc.tensors import CODES, DTYPES
from trystate.rpc import FrameRefused, LimitExceeded, Limits, NotAllowed

LIMITS = Limits(body_bytes=1 << 12, metadata_bytes=1 << 10, tensors=8, tensor_bytes=1 << 16, dimensions=6)


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Arena, Window]]:
    arena = Arena(1 << 18)
    yield arena, Window(os.dup(arena.fd))
    arena.close_descriptor()


@st.composite
def tensors(draw: st.DrawFn) -> Tensor | None:
    """Dense and sparse tensors of all types, with any strides, and with or without elements."""
    kind = draw(st.sampled_from(["none", "sparse", *["dense"] * 6]))
    if kind == "none":
        return None
    shape = draw(st.lists(st.integers(0, 7), max_size=4))
    if kind == "sparse":
        return torch.randint(0, 3, [2, *shape]).float().to_sparse()
    tensor = torch.randint(0, 2, shape).to(draw(st.sampled_from(DTYPES)))
    turned = draw(st.booleans())
    if shape and turned:
        tensor = tensor.transpose(0, -1)[:: draw(st.integers(1, 2))]
    laid = draw(st.sampled_from(["as it is", "permuted", "expanded"]))
    if shape and laid == "permuted":
        order: list[int] = draw(st.permutations(range(tensor.ndim)))
        tensor = tensor.permute(order)
    elif shape and laid == "expanded":
        tensor = tensor[..., :1].expand(tensor.shape)
    is_complex = tensor.dtype in (torch.complex64, torch.complex128)
    return (tensor * 1j).conj() if is_complex and draw(st.booleans()) else tensor


def data_of(frame: Encoded) -> bytes:
    data = b"".join(piece if isinstance(piece, bytes) else memoryview(piece) for piece in frame.pieces)
    assert len(data) == frame.size
    return data


def fed(parser: Parser, data: bytes, sizes: list[int]) -> list[Frame]:
    """The frames of bytes that arrive in pieces of these sizes, repeated as needed."""
    found, at, turn = [], 0, 0
    while at < len(data):
        buffer = parser.buffer()
        count = min(sizes[turn % len(sizes)], len(buffer), len(data) - at)
        buffer[:count] = data[at : at + count]
        found += parser.received(count)
        at, turn = at + count, turn + 1
    return found


def same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    if (one.dtype, one.shape, one.layout) != (other.dtype, other.shape, other.layout):
        return False
    if not one.is_sparse and strides(one.clone()) != strides(other):
        return False
    return torch.equal(*((t.to_dense() if t.is_sparse else t).to(torch.complex128) for t in (one, other)))


def strides(tensor: Tensor) -> list[int]:
    """The strides that matter: a dimension of one element may have any stride, and so may a tensor without elements."""
    found = zip(tensor.stride(), tensor.shape, strict=True)
    return [stride for stride, length in found if length > 1 and tensor.numel()]


SAID = st.tuples(st.binary(max_size=60), st.binary(max_size=9), st.lists(tensors(), max_size=4))


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@given(
    said=st.lists(SAID, min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=4),
    local=st.booleans(),
)
def test_frames_arrive_as_they_were_sent_in_whatever_pieces(
    shared: tuple[Arena, Window], said: list[tuple[bytes, bytes, list[Tensor | None]]], sizes: list[int], local: bool
) -> None:
    arena, window = shared if local else (None, None)
    data = b"".join(
        data_of(encode(Kind.CALL, number, body, some, extra, LIMITS, flags=1, arena=arena, shared_from=64))
        for number, (body, extra, some) in enumerate(said)
    )
    found = fed(Parser(LIMITS, window), data, sizes)
    assert [frame[:5] for frame in found] == [(Kind.CALL, 1, n, body, extra) for n, (body, extra, _) in enumerate(said)]
    for frame, (_, _, some) in zip(found, said, strict=True):
        assert all(same(one, other) for one, other in zip(some, frame.tensors, strict=True))


@given(data=st.binary(max_size=200))
def test_no_bytes_do_harm(data: bytes) -> None:
    parser = Parser(LIMITS)
    try:
        fed(parser, data, [17])
    except FrameRefused:
        return
    assert len(parser.buffer()) <= frames.BUFFER_BYTES


def head(*, count: int = 0, described: int = 0, body: int = 0, metadata: int = 0) -> bytes:
    return HEAD.pack(Kind.CALL, 0, count, described, body, metadata, 1)


def described(place: int, code: int, shape: tuple[int, ...], rest: bytes = b"", flags: int = 0) -> bytes:
    text = DESCRIPTION.pack(place, code, len(shape), flags) + struct.pack(f"<{len(shape)}Q", *shape) + rest
    return head(count=1, described=len(text)) + text


FLOAT = CODES[torch.float32]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (head(body=LIMITS.body_bytes + 1), "a body of 4097 bytes"),
        (head(metadata=LIMITS.metadata_bytes + 1), "metadata of 1025"),
        (head(count=LIMITS.tensors + 1), "9 tensors"),
        (head(count=1, described=1 << 20), "cannot take 1048576 bytes"),
        (described(TensorPlace.HERE, FLOAT, (1 << 40,)), "have 4398046511104 bytes"),
        (described(TensorPlace.HERE, FLOAT, (1 << 20, 1 << 60, 0)), "a tensor of shape"),
        (described(TensorPlace.HERE, FLOAT, (1,) * 7), "with 7 dimensions"),
        (described(TensorPlace.HERE, 99, ()), "a tensor of dtype 99"),
        (described(9, FLOAT, ()), "a tensor in place 9"),
        (described(TensorPlace.NOWHERE, 0, (), b"xx"), "2 are left over"),
        # The parser has no `window`, so it refuses a tensor in a slot.
        (described(TensorPlace.SLOT, FLOAT, (4,), SLOT.pack(0, HEAD_BYTES)), "a tensor in place 2"),
        (described(TensorPlace.SPARSE, FLOAT, (4,)), "longer than announced"),
        (described(TensorPlace.HERE, FLOAT, (2, 3), struct.pack("<2Q", 3, 2), STRIDED), r"strides \(3, 2\)"),  # gaps
        (described(TensorPlace.HERE, FLOAT, (2, 3), struct.pack("<2Q", 0, 1), STRIDED), r"strides \(0, 1\)"),
        (described(TensorPlace.HERE, FLOAT, (2, 1), struct.pack("<2Q", 1, 1 << 60), STRIDED), "strides"),
        (described(TensorPlace.HERE, FLOAT, (2, 0), struct.pack("<2Q", 1, 2), STRIDED), "strides"),
        (described(TensorPlace.HERE, FLOAT, (2, 3), struct.pack("<Q", 1), STRIDED), "longer than announced"),
    ],
)  # fmt: skip
def test_an_announced_length_is_limited_before_its_bytes_arrive(data: bytes, complaint: str) -> None:
    with pytest.raises(FrameRefused, match=complaint):
        fed(Parser(LIMITS), data, [13])


def test_a_sparse_tensor_points_nowhere_outside() -> None:
    sent = data_of(encode(Kind.CALL, 1, b"", [torch.eye(3).to_sparse()], b"", LIMITS))
    inside = torch.arange(3).numpy().tobytes()
    assert sent.count(inside) == 2
    with pytest.raises(FrameRefused, match="a sparse tensor of shape"):
        fed(Parser(LIMITS), sent.replace(inside, torch.tensor([0, 1, 1 << 30]).numpy().tobytes()), [50])


@pytest.mark.parametrize(
    ("body", "some", "complaint"),
    [
        (bytes(LIMITS.body_bytes + 1), [], "the body has 4097 bytes, the limit is 4096"),
        (b"", [None] * 9, "9 tensors in one frame, the limit is 8"),
        (b"", [torch.ones(1 << 15)], "131072 bytes, the limit is 65536"),
        (b"", [torch.ones((1,) * 65)], "65 dimensions"),
    ],
)
def test_a_value_that_is_too_large_is_not_sent(body: bytes, some: list[Tensor | None], complaint: str) -> None:
    with pytest.raises(LimitExceeded, match=complaint):
        encode(Kind.CALL, 1, body, some, b"", LIMITS)


def test_a_value_that_cannot_be_sent_is_named() -> None:
    for tensor, complaint in (
        (torch.ones(2, device="meta"), r"\.cpu\(\)"),
        (torch.eye(2).to_mkldnn(), "mkldnn"),
    ):
        with pytest.raises(NotAllowed, match=complaint):
            encode(Kind.CALL, 1, b"", [tensor], b"", LIMITS)


# Shared memory.


def test_the_sender_cannot_change_indices_that_were_checked(shared: tuple[Arena, Window]) -> None:
    arena, window = shared
    sent = data_of(encode(Kind.CALL, 1, b"", [torch.eye(3).to_sparse()], b"", LIMITS, arena=arena))
    (frame,) = fed(Parser(LIMITS, window), sent, [50])
    inside = torch.arange(3).numpy().tobytes()
    while (at := arena._map.find(inside)) >= 0:
        arena._map[at : at + len(inside)] = b"\xff" * len(inside)
    assert frame.tensors[0] is not None and frame.tensors[0]._indices().tolist() == [[0, 1, 2]] * 2


def test_an_interrupted_copy_frees_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    arena, whole = Arena(1 << 16), torch.zeros(1 << 14)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(np, "copyto", Mock(side_effect=KeyboardInterrupt))
        arena.lay(whole)
    assert arena.lay(whole) is not None
    arena.close_descriptor()


def test_an_arena_that_is_not_used_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arenas, "KEPT_BYTES", 4 * PAGE_BYTES)
    arena = Arena(1 << 22)
    window = Window(os.dup(arena.fd))

    def taken() -> int:
        return os.fstat(arena.fd).st_blocks * 512

    many = [received(arena, window, float(number)) for number in range(100)]
    assert taken() > 500 * PAGE_BYTES - PAGE_BYTES and arena.has_more
    kept = many[50][1]
    many.clear()
    arena.give_back()
    assert taken() > 400 * PAGE_BYTES, "it was used since the last look"
    arena.give_back()
    assert taken() <= (4 + 6) * PAGE_BYTES and bool((kept == 50).all())
    del kept
    arena.give_back()
    assert taken() <= 4 * PAGE_BYTES and not arena.has_more
    assert bool((received(arena, window, 7.0)[1] == 7).all())


def received(arena: Arena, window: Window, value: float) -> tuple[int, Tensor]:
    """A tensor of several pages that was received by shared memory, and its slot."""
    place = arena.lay(torch.full((5_000,), value))
    assert place is not None
    return place[0], window.tensor(*place, FLOAT, (5_000,))


def test_a_tensor_that_was_received_is_the_childs_own_in_a_fork(shared: tuple[Arena, Window]) -> None:
    arena = shared[0]
    (kept_slot, kept), (freed_slot, freed) = received(*shared, 1.0), received(*shared, 2.0)
    go, goes = os.pipe()
    child = os.fork()
    if not child:
        os.close(goes)
        os.read(go, 1)
        right = bool((kept == 1).all()) and bool((freed == 2).all())
        kept.fill_(54.0)
        del kept, freed  # frees nothing in the parent
        os._exit(0 if right else 1)
    del freed
    assert not arena._map[freed_slot] and received(*shared, 21.0)[0] == freed_slot
    os.close(go)
    os.close(goes)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert arena._map[kept_slot] and bool((kept == 1).all())


@given(st.lists(st.tuples(st.integers(1, 30_000), st.integers(0, 5)), max_size=40))
def test_no_two_tensors_lie_on_each_other(steps: list[tuple[int, int]]) -> None:
    arena = Arena(1 << 17)
    window = Window(os.dup(arena.fd))
    arena.close_descriptor()
    alive: list[tuple[Tensor, int]] = []
    for number, (size, drop) in enumerate(steps):
        found = arena.lay(torch.full((size,), number, dtype=torch.int32))
        if found is not None:
            alive.append((window.tensor(*found, CODES[torch.int32], (size,)), number))
        if found is None or not drop:
            del alive[: len(alive) // 2 + 1]
        assert all(bool((tensor == value).all()) for tensor, value in alive)
    alive.clear()
    assert arena.lay(torch.ones((1 << 17) // 4)) is not None, "all of it is free again, in one piece"


@pytest.mark.parametrize(
    "where",
    [(5000, HEAD_BYTES), (0, HEAD_BYTES + 1), (0, 0), (0, HEAD_BYTES + (1 << 18)), (0, 1 << 60)],
)
def test_a_slot_outside_of_the_memory_is_refused(shared: tuple[Arena, Window], where: tuple[int, int]) -> None:
    with pytest.raises(FrameRefused, match="is not in the"):
        shared[1].tensor(*where, FLOAT, (4,))


def test_memory_that_could_shrink_is_refused() -> None:
    fd = os.memfd_create("loose")
    os.ftruncate(fd, 4 * PAGE_BYTES)
    with pytest.raises(FrameRefused, match="the seals"):
        Window(fd)

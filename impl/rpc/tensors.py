"""Tensors as bytes and back, without a copy where their memory allows it.

Rule: a tensor that is not dense, or not in this machine's main memory, is either split into dense ones or refused. A
tensor arrives with the strides of its `clone()`: its own strides, unless its elements overlap or have gaps between
them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import NotAllowed

# The code of a dtype is its index: only append.
DTYPES: tuple[torch.dtype, ...] = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64,
    torch.complex32, torch.complex64, torch.complex128, torch.bool, torch.bfloat16, torch.uint16, torch.uint32,
    torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
)  # fmt: skip
CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
# numpy's type of the same code. For a dtype that numpy does not have: an integer type of that size, also in torch.
NUMPY: tuple[np.dtype[Any], ...] = tuple(
    np.dtype(name)
    for name in (
        "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "i4", "c8", "c16", "?", "i2", "u2", "u4", "u8",
        "u1", "u1", "u1", "u1",
    )
)  # fmt: skip
STAND_INS: dict[torch.dtype, torch.dtype] = {
    torch.complex32: torch.int32,
    torch.bfloat16: torch.int16,
    **dict.fromkeys(DTYPES[16:], torch.uint8),
}


def plain(tensor: Tensor) -> Tensor:
    """The tensor without its graph, with conj and neg applied. Raises NotAllowed if it cannot be sent."""
    if tensor.device.type != "cpu":
        raise NotAllowed(f"a tensor on {tensor.device} cannot be sent: move it with .cpu() first")
    if tensor.layout is torch.sparse_coo:
        return tensor.detach()
    if tensor.layout is not torch.strided or tensor.dtype not in CODES:
        raise NotAllowed(f"a tensor of {tensor.layout} and {tensor.dtype} cannot be sent: send dense tensors")
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def elements(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The memory of a `plain`, dense tensor."""
    stand_in = STAND_INS.get(tensor.dtype)
    return tensor.numpy() if stand_in is None else tensor.view(stand_in).numpy()


def strides_of(tensor: Tensor) -> tuple[int, ...]:
    """The strides, in elements, with which a `plain`, dense tensor is sent; () for a contiguous tensor."""
    return () if tensor.is_contiguous() else torch.empty_like(tensor, device="meta").stride()


def flat(tensor: Tensor, strides: tuple[int, ...]) -> Tensor:
    """A contiguous tensor of the elements in the order of `strides`; a view if the tensor has these strides."""
    if not strides:
        return tensor
    if tensor.stride() != strides:
        tensor = tensor.clone()
    return tensor.as_strided((tensor.numel(),), (1,))


def are_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the elements neither overlap nor have gaps between them."""
    expected = 1
    for stride, length in sorted(zip(strides, shape, strict=True)):
        if length != 1:
            if stride != expected:
                return False
            expected *= length
    return expected > 0


def array(
    buffer: Any, code: int, shape: tuple[int, ...], strides: tuple[int, ...] = (), offset: int = 0
) -> np.ndarray[Any, Any]:
    """The memory of a tensor in a buffer, as an array."""
    if not strides:
        return np.ndarray(shape, NUMPY[code], buffer, offset)
    itemsize = NUMPY[code].itemsize
    return np.ndarray(shape, NUMPY[code], buffer, offset, [stride * itemsize for stride in strides])


def tensor_on(memory: np.ndarray[Any, Any], code: int) -> Tensor:
    """The tensor in an `array`; it keeps the array alive."""
    tensor, dtype = torch.from_numpy(memory), DTYPES[code]
    return tensor.view(dtype) if dtype in STAND_INS else tensor


def size(code: int, shape: tuple[int, ...]) -> int:
    """The size of a tensor in bytes."""
    count: int = DTYPES[code].itemsize
    for dimension in shape:
        count *= dimension
    return count

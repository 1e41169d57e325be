"""A search whose large levels are torch tensors, on a GPU.

*Theory of operation.* The search begins on the processor, where a small level costs the least. A level of `LEVEL_MIN`
states moves it to the device. The same engine continues with the same generated steps (`TensorLayout`): the levels,
the set of states seen and the watches are evaluated there. Only numbers, the finds of the watches and the requested
levels return from there. The processor computes paths and liveness after the search.

Keys are int64 tensors, one row a state: torch sorts and compares no other integers of 64 bits everywhere. They are
ordered as NumPy orders them, and a find is the one that smaller chunks would give (`watch_evaluation`). So counts,
verdicts and runs do not depend on where a search runs.

Failures:

- The device has no memory left: the search stops as at any limit and keeps what it has found.
- A step computes beyond int64, which tensors cannot: NumPy evaluates it on the processor.
- torch or the device is missing: this is an error before the search (`machine.SearchOptions`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np
import torch

from trystate.model.checker.explicit.arrays import NUMPY, Arrays, built, leaves_int64
from trystate.model.checker.explicit.fused import fuse
from trystate.model.checker.explicit.packing import CHUNK, FusedSteps, Layout, Layouts
from trystate.model.checker.explicit.vectorise import Step
from trystate.model.checker.explicit.watch_evaluation import Watching
from trystate.model.checker.explicit.workers import Workers
from trystate.model.checker.kernel import Limits
from trystate.model.errors import UsageError
from trystate.model.language.fields import Cell

from . import kernels
from .memory import SHARE, available_bytes

Tensor = Any  # where the engine has an array of NumPy
Tensors = tuple[Tensor, ...]
TORCH_CPU = "torch-cpu"  # tensors in the memory of the processor
LEVEL_MIN = 1 << 15  # states of a level: fewer are searched as soon by NumPy
CHUNK_SHARE = 1 << 10  # the part of the memory that is a chunk; its successors, and copies of them, are many times that
CHUNK_MAX = 1 << 23  # states: with 255 successors each there are as many as torch sorts
SORT_MAX = (1 << 31) - 1  # keys
RUN_MAX = 1 << 29  # keys: a sort takes five times their memory
CROWDED_SHARE = 0.4  # share of the memory up to which levels stay on the device
DEVICES = f"cpu (NumPy), cuda, cuda:N, or {TORCH_CPU} (the code of cuda on the processor)"


class Device(Workers):
    """Searches large levels on the device of this name; use it for one search at a time.

    Args:
        name: `cuda`, `cuda:N` or `torch-cpu`.
        memory_bytes: how much of its memory the search takes; without it three quarters of what is free.

    Raises:
        UsageError: the machine has no such device.
    """

    def __init__(self, name: str, memory_bytes: int | None = None) -> None:
        self.name = name
        self.device = named(name)
        self.memory_bytes = memory_bytes or free_bytes(name)
        self.compile = kernels.compiler(self.device)
        self._measured = self.device.type == "cuda"
        self._base = 0
        self._moved = False

    def __enter__(self) -> Workers:
        self._moved = False
        if self._measured:
            torch.cuda.reset_peak_memory_stats(self.device)
            self._base = torch.cuda.memory_allocated(self.device)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, torch.OutOfMemoryError):
            raise MemoryError(str(error)) from error

    def layouts(self, states: int) -> Layouts | None:
        if states < LEVEL_MIN:
            return None
        self._moved = True
        return partial(TensorLayout, on=self)

    def memory(self, estimate: int) -> int:
        if not (self._measured and self._moved):
            return estimate
        return max(0, torch.cuda.max_memory_allocated(self.device) - self._base)

    def afterwards(self, limits: Limits) -> Limits:
        return replace(limits, memory_bytes=int(SHARE * available_bytes())) if self._measured else limits

    @property
    def crowded(self) -> bool:
        """Whether levels exceed their share of the device's memory, and the processor's memory has room for them."""
        if not self._measured:
            return False
        taken = torch.cuda.memory_allocated(self.device) - self._base
        return CROWDED_SHARE * self.memory_bytes < taken < SHARE * available_bytes()


def named(name: str) -> torch.device:
    """The device of this name.

    Raises:
        UsageError: the machine has no device of this name.
    """
    if name == TORCH_CPU:
        return torch.device("cpu")
    kind, _, number = name.partition(":")
    if kind != "cuda" or (":" in name and not (number.isascii() and number.isdecimal() and len(number) < 4)):
        raise UsageError(f"device is {name!r}: give {DEVICES}")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise UsageError(
            f"device {name}: torch {torch.__version__} finds no CUDA device; install a driver, and a torch that is "
            "built for CUDA, or leave the device out"
        )
    if number and int(number) >= count:
        raise UsageError(f"device {name}: there are {count}, so give cuda:0 to cuda:{count - 1}")
    return torch.device("cuda", int(number or torch.cuda.current_device()))


def free_bytes(name: str) -> int:
    """Three quarters of the memory that is free on the device."""
    device = named(name)
    if device.type == "cpu":
        return int(SHARE * available_bytes())
    gc.collect()  # engines of earlier searches, and their tensors
    torch.cuda.empty_cache()
    return int(SHARE * torch.cuda.mem_get_info(device)[0])


class TensorLayout(Layout):
    """Keys as int64 tensors on a device: one dimension for one word, else a row of words for each state."""

    def __init__(self, cells: Sequence[Cell], frozen: Mapping[int, int] | None, lanes: str, on: Device) -> None:
        super().__init__(cells, frozen, lanes)
        self._home = Layout(cells, frozen, lanes)
        self._on = on
        self._kernels: kernels.Kernels | None = None
        self._met = -1  # how many steps were, when these were made
        self.arrays = Arrays(
            where=torch.where, take=lambda array, rows: array.index_select(0, rows),
            flatnonzero=lambda mask: mask.nonzero().squeeze(1),
            every=lambda array: torch.arange(len(array), device=array.device),
            falses=partial(torch.zeros_like, dtype=torch.bool), wide=lambda array: array.to(torch.int64),
            byte=lambda array: array.view(torch.int8), minimum=torch.minimum, maximum=torch.maximum,
        )  # fmt: skip

    @property
    def home(self) -> Layout:
        return self._home

    @property
    def chunks(self) -> int:
        return max(1, min(CHUNK_MAX, self._on.memory_bytes // (CHUNK_SHARE * self.state_bytes)) // CHUNK)

    @property
    def run_max(self) -> int:
        return RUN_MAX

    @property
    def crowded(self) -> bool:
        return self._on.crowded

    def fetched(self, keys: Tensor) -> Tensor:
        return self._home.keys(tuple(_array(column) for column in self.columns(keys)))

    def sent(self, keys: Tensor) -> Tensor:
        return self.keys(tuple(map(self._tensor, self._home.columns(keys))))

    def _tensor(self, values: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._on.device)

    # ---- generated text

    def function(self, name: str, lines: Sequence[str]) -> Callable[..., Any]:
        if not leaves_int64(lines):
            return built(self.arrays, name, self.names, lines)
        run = built(NUMPY, name, self.names, lines)
        return lambda *columns: self._sent(run(*map(_array, columns)))

    def _sent(self, found: Any) -> Any:
        """The arrays in a result of NumPy as tensors."""
        if isinstance(found, tuple):
            return tuple(map(self._sent, found))
        return None if found is None else self._tensor(found)

    def first(self, masks: Sequence[Tensor]) -> list[int | None]:
        holds = torch.stack([mask.any() for mask in masks]).tolist() if masks else []
        return [int(mask.nonzero()[0]) if some else None for mask, some in zip(masks, holds, strict=True)]

    def fused(self, columns: Tensors, steps: Sequence[Step], watching: Watching) -> FusedSteps | None:
        if self._on.compile is None:
            return None
        met = sum(step.activated for step in steps)
        if met != self._met:
            fused = fuse(self, steps, watching)
            self._kernels = None if fused is None else kernels.Kernels(fused, self._on.compile)
            self._met = met
        if self._kernels is None:
            return None
        fused = self._kernels.fused
        counted = self._kernels.counted(columns)
        watching.busy((counted.busy & (1 << k)) != 0 for k in range(len(watching.idle_of)))
        return FusedSteps(counted.edges, counted.written(), fused.open(counted.marks, watching.found), fused.taken)

    # ---- keys

    def keys(self, columns: Tensors) -> Tensor:
        if self.words == 1:
            return columns[0]
        return torch.stack([self._ordered(column) for column in columns]).t()

    def joined(self, parts: Sequence[Tensors]) -> Tensor:
        if not parts:
            return self.concatenated([])
        return self.keys(tuple(torch.cat(columns) for columns in zip(*parts, strict=True)))

    def concatenated(self, parts: Sequence[Tensor]) -> Tensor:
        if not parts:
            return torch.empty(0 if self.words == 1 else (0, self.words), dtype=torch.int64, device=self._on.device)
        if self.words == 1:
            return torch.cat(list(parts))
        return torch.cat([part.t() for part in parts], dim=1).t()  # a word of all states stays in one piece

    def columns(self, keys: Tensor) -> Tensors:
        if self.words == 1:
            return (keys,)
        return tuple(self._ordered(keys[:, j], back=True) for j in range(self.words))

    def _ordered(self, column: Tensor, back: bool = False) -> Tensor:
        """A word as an int64 with the order of NumPy's keys: with three or more words the lower half comes first.

        A half is compared as a number without a sign.
        """
        if self.words < 3:
            return column
        sign = -(1 << 63)
        if back:
            column = column ^ sign
            return (column << 32) | ((column >> 32) & 0xFFFFFFFF)
        return ((column << 32) | (column >> 32)) ^ sign

    def differ(self, a: Tensor, b: Tensor) -> Tensor:
        if self.words == 1:
            return a != b
        differs = a[:, 0] != b[:, 0]
        for j in range(1, self.words):
            differs |= a[:, j] != b[:, j]
        return differs

    def seen(self, keys: Tensor, run: Tensor) -> Tensor:
        return self.find(keys, run)[1]

    def sort(self, keys: Tensor) -> Tensor:
        if len(keys) > SORT_MAX:
            raise MemoryError(f"torch sorts {SORT_MAX:,} keys at a time, and these are {len(keys):,}")
        if self.words == 1:
            return torch.unique(keys)  # keys alone: torch.sort moves their numbers as well
        rows = keys[:, -1].sort().indices
        for j in reversed(range(self.words - 1)):
            rows = rows[keys[:, j][rows].sort(stable=True).indices]
        return keys.t().index_select(1, rows).t()

    def sort_unique(self, keys: Tensor) -> Tensor:
        if self.words == 1:
            return self.sort(keys)
        if len(keys) < 2:
            return keys
        keys = self.sort(keys)
        fresh = self.arrays.falses(keys[:, 0])
        fresh[0] = True
        fresh[1:] = self.differ(keys[1:], keys[:-1])
        return keys.t()[:, fresh].t()

    def find(self, keys: Tensor, sorted_keys: Tensor) -> tuple[Tensor, Tensor]:
        at = torch.searchsorted(sorted_keys, keys) if self.words == 1 else self._search(keys, sorted_keys)
        at = at.masked_fill_(at == len(sorted_keys), 0)
        return at, ~self.differ(sorted_keys.t().index_select(-1, at).t(), keys)

    def _search(self, keys: Tensor, sorted_keys: Tensor) -> Tensor:
        """For each key the first row that is not before it: between the rows that agree on the first word."""
        column, wanted = sorted_keys[:, 0].contiguous(), keys[:, 0].contiguous()
        low, high = torch.searchsorted(column, wanted), torch.searchsorted(column, wanted, right=True)
        while bool((low < high).any()):
            middle = (low + high) >> 1
            there = sorted_keys.t().index_select(1, middle.clamp(max=len(sorted_keys) - 1))
            before = there[-1] < keys[:, -1]
            for j in reversed(range(1, self.words - 1)):
                before = (there[j] < keys[:, j]) | ((there[j] == keys[:, j]) & before)
            open_ = low < high
            low, high = torch.where(open_ & before, middle + 1, low), torch.where(open_ & ~before, middle, high)
        return low


def _array(tensor: Tensor) -> Any:
    return tensor.cpu().numpy()

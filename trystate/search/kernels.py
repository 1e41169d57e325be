"""Kernels compiled for a CUDA device when a search needs them, and run over tensors.

*Theory of operation.* NVRTC, which is part of every torch for CUDA, compiles a source to machine code; the driver loads
and starts it, on torch's stream. Both are called through ctypes: torch's own functions for this are private and need
CUDA's headers. If NVRTC cannot be loaded, a search runs without kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from trystate.model.checker.explicit.fused import Fused

Launch = Callable[..., None]  # (number of states, tensors and None, in the order of the parameters)
Compile = Callable[[Sequence[str]], list[Launch]]  # the kernel `steps` of each source
THREADS = 256  # threads of a block
BLOCKS_MAX = 1 << 16
COMPILERS = 8  # threads


def compiler(device: torch.device) -> Compile | None:
    """Compiles kernels for the device; None if it cannot."""
    if device.type != "cuda" or not torch.version.cuda:
        return None
    try:
        nvrtc = ctypes.CDLL(f"libnvrtc.so.{torch.version.cuda.split('.')[0]}")
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None

    done: dict[str, Launch] = {}

    def compiled(sources: Sequence[str]) -> list[Launch]:
        new = [source for source in dict.fromkeys(sources) if source not in done]
        with ThreadPoolExecutor(COMPILERS) as pool:
            programs = list(pool.map(lambda source: _program(nvrtc, device, source), new))
        done.update(zip(new, (_loaded(driver, device, program) for program in programs), strict=True))
        return [done[source] for source in sources]

    return compiled


def _program(nvrtc: Any, device: torch.device, source: str) -> bytes:
    """The machine code of a source."""
    major, minor = torch.cuda.get_device_capability(device)
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"steps.cu", 0, None, None), "create")
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture=sm_{major}{minor}".encode())
    if nvrtc.nvrtcCompileProgram(program, 1, options):
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"a kernel does not compile: {log.value.decode(errors='replace')[:2_000]}")
    _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "size")
    code = ctypes.create_string_buffer(size.value)
    _check(nvrtc.nvrtcGetCUBIN(program, code), "code")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw


def _loaded(driver: Any, device: torch.device, code: bytes) -> Launch:
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    with torch.cuda.device(device):
        torch.cuda.current_stream()  # there is a context
        _check(driver.cuModuleLoadData(ctypes.byref(module), code), "load")
        _check(driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"steps"), "find")

    def launch(count: int, *tensors: torch.Tensor | None) -> None:
        values = [ctypes.c_longlong(count), *(ctypes.c_void_p(None if t is None else t.data_ptr()) for t in tensors)]
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        blocks = min(BLOCKS_MAX, -(-count // THREADS))
        with torch.cuda.device(device):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            _check(driver.cuLaunchKernel(kernel, blocks, 1, 1, THREADS, 1, 1, 0, stream, places, None), "start")

    return launch


def _check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"CUDA failed to {what} a kernel (code {code})")


class Kernels:
    """The steps of a search, compiled."""

    def __init__(self, fused: Fused, compiled: Compile) -> None:
        self.fused = fused
        self._launches = compiled(fused.sources)

    def counted(self, columns: Sequence[Any]) -> Counted:
        """Count the successors of each state."""
        return Counted(self._launches, columns, len(self.fused.marks))


class Counted:
    """The states of a chunk, whose successors are counted, and not yet written.

    `marks` are the marks of `Fused`, `edges` is the number of steps; `busy` has a bit for each group of steps.
    """

    def __init__(self, launches: Sequence[Launch], columns: Sequence[Any], marks: int) -> None:
        like: Any = columns[0]
        self._launches = launches
        self._columns = [column.contiguous() for column in columns]
        self._counts = like.new_zeros(len(like), dtype=torch.int32)
        self._marks = like.new_zeros(1 + marks)
        self.busy = like.new_zeros(len(like), dtype=torch.uint8)
        self._run(None, [None] * len(columns))
        self._ends = self._counts.cumsum(0, dtype=torch.int64)
        self._total, outside, *found = torch.cat([self._ends[-1:], self._marks]).tolist()
        self.edges = self._total + outside
        self.marks = found

    def _run(self, places: Any, out: Sequence[Any]) -> None:
        for launch in self._launches:
            launch(len(self._counts), *self._columns, self._counts, places, *out, self._marks, self.busy)

    def written(self) -> tuple[Any, ...]:
        """The words of the successors."""
        out = tuple(self._ends.new_empty(self._total) for _ in self._columns)
        if self._total:
            self._run(self._ends - self._counts, out)
        return out

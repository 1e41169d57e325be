"""Shared memory between two workers of one machine: a sender's arena, and the receiver's window on it.

The arena begins with a byte for each slot: 1 while the slot is used. The sender sets this byte before it announces the
slot. The receiver clears the byte when the tensor in the slot dies. So the end of a tensor needs no message, and its
memory is used again while it is still in the caches. The system allocates the memory of an arena at its first use. The
sender gives back memory that it has not used for a while, except for the first megabytes.

Rule: a full arena is not an error. A tensor that does not fit goes through the socket.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import sys
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
from torch import Tensor

from trystate.model.errors import UnavailableError

from ..host.forking import copied_in_fork, shared_no_more
from .errors import FrameRefused
from .tensors import CODES, array, elements, size, tensor_on

if sys.platform != "linux":
    raise UnavailableError(f"RPC needs Linux (epoll, eventfd, sealed memory), and this is {sys.platform}: run it there")

SLOTS = 1024  # more tensors under way would be a queue, not a transport
HEAD_BYTES = 4096  # the head of the arena: a byte for each slot, padded to whole pages
PAGE_BYTES = 4096
KEPT_BYTES = 64 << 20  # an unused arena keeps them: the next step's gradients are copied there without a page fault
IDLE_SECONDS = 2.0  # time between two checks whether an arena was used; a training step usually takes less
LOCK_SECONDS = 1.0  # wait for another thread that looks for a slot (microseconds) or gives memory back (milliseconds)
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL  # a peer that maps it must not get SIGBUS


class Arena:
    """Memory of this process in which it puts tensors for one peer."""

    def __init__(self, arena_bytes: int) -> None:
        """Raises OSError where the system has no such memory."""
        self.fd = os.memfd_create("trystate rpc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.bytes = HEAD_BYTES + arena_bytes
        os.ftruncate(self.fd, self.bytes)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, SEALS)
        self._map = mmap.mmap(self.fd, self.bytes)
        self._lock = threading.Lock()
        self._used: list[tuple[int, int, int]] = []  # (begin, end, slot), in the order of addresses
        self._free = list(range(SLOTS - 1, -1, -1))
        self._reach = 0  # the end of the memory that was used
        self._is_in_use = False  # whether memory beyond KEPT_BYTES was used since the last check
        self.is_looked_at = False  # a call of `give_back` is due

    def lay(self, tensor: Tensor, strides: tuple[int, ...] = ()) -> tuple[int, int] | None:
        """Copy a plain dense tensor into a slot. Returns its number and place, or None if the arena has no room."""
        code, shape = CODES[tensor.dtype], tuple(tensor.shape)
        found = self._reserve(-(-size(code, shape) // PAGE_BYTES) * PAGE_BYTES)
        if found is not None:
            # This thread copies alone: torch's copy would wake torch's threads and wait for the last of them.
            try:
                np.copyto(array(self._map, code, shape, strides, found[1]), elements(tensor))
            except BaseException:  # Ctrl-C
                self.take_back(found[0])
                raise
        return found

    def take_back(self, slot: int) -> None:
        """Free a slot that was never announced."""
        self._map[slot] = 0

    def close_descriptor(self) -> None:
        """Close the descriptor: the peer has its own, or will never have one."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # the system did not give a descriptor
            self.close_descriptor()

    def _reserve(self, wanted: int) -> tuple[int, int] | None:
        if not self._lock.acquire(timeout=LOCK_SECONDS):
            return None  # the handler of a signal has interrupted this thread here: its tensor goes through the socket
        try:
            self._collect()
            at, index = HEAD_BYTES, 0
            for index, (begin, end, _) in enumerate(self._used):  # noqa: B007
                if begin - at >= wanted:
                    break
                at = end
            else:
                index = len(self._used)
            if not self._free or self.bytes - at < wanted:
                return None
            slot = self._free.pop()
            self._used.insert(index, (at, at + wanted, slot))
            self._map[slot] = 1
            self._reach = max(self._reach, at + wanted)
            self._is_in_use |= self.has_more
            return slot, at
        finally:
            self._lock.release()

    @property
    def has_more(self) -> bool:
        """Whether it has memory that it would give back if it were not used."""
        return self._reach > KEPT_BYTES

    def give_back(self) -> None:
        """Give memory without a tensor back to the system, unless the arena was used since the last call.

        The first KEPT_BYTES stay.
        """
        with self._lock:
            was_in_use, self._is_in_use = self._is_in_use, False
            if was_in_use or not self.has_more:
                return
            self._collect()
            at = KEPT_BYTES
            for begin, end in [*((begin, end) for begin, end, _ in self._used if end > at), (self._reach, self._reach)]:
                first, last = -(-at // mmap.PAGESIZE), begin // mmap.PAGESIZE  # numbers of the system's pages
                if first < last:
                    self._map.madvise(mmap.MADV_REMOVE, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)
                at = max(at, end)
            self._reach = max((end for _, end, _ in self._used), default=0)

    def _collect(self) -> None:
        """Note which slots the peer has freed."""
        used = []
        for entry in self._used:
            if self._map[entry[2]]:
                used.append(entry)
            else:
                self._free.append(entry[2])
        self._used = used


class _Lease(weakref.ref["np.ndarray[Any, Any]"]):
    """A weak reference that reports the end of the tensor on a slot, and so of the array below it."""

    __slots__ = ("slot",)
    slot: int


class Window:
    """The peer's arena, mapped into this process.

    In a fork a tensor that was received belongs to the child, like any other tensor. The child copies the slots that
    are used; until then no slot is freed (`hold`, `copy`, `let_go`).
    """

    def __init__(self, fd: int) -> None:
        """Map the arena and close `fd`. Raises FrameRefused if `fd` is not sealed memory of a sensible size."""
        try:
            self.bytes = os.fstat(fd).st_size
            sealed = 0
            with contextlib.suppress(OSError):
                sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
            if sealed & SEALS != SEALS or self.bytes <= HEAD_BYTES:
                raise FrameRefused(f"the peer's shared memory has {self.bytes} bytes and the seals {sealed}")
            self._map = mmap.mmap(fd, self.bytes)
        finally:
            os.close(fd)
        self._leases: dict[int, _Lease] = {}
        self._ended: deque[int] = deque()  # slots to be freed
        # Forks whose child has not copied yet. In a child it stays above 0, since a child frees no slot of its parent.
        self._holds = 0

    def tensor(
        self, slot: int, offset: int, code: int, shape: tuple[int, ...], strides: tuple[int, ...] = ()
    ) -> Tensor:
        """The tensor in a slot, which is freed when the tensor dies. Raises FrameRefused for an impossible slot."""
        nbytes = size(code, shape)
        if not (slot < SLOTS and HEAD_BYTES <= offset <= self.bytes - nbytes) or offset % PAGE_BYTES or not nbytes:
            raise FrameRefused(f"slot {slot} of {SLOTS} at {offset} with {nbytes} bytes is not in the {self.bytes} "
                               "bytes of the shared memory")  # fmt: skip
        memory = array(self._map, code, shape, strides, offset)
        lease = _Lease(memory, self._over)
        lease.slot = slot
        self._leases[slot] = lease
        copied_in_fork(self)
        return tensor_on(memory, code)

    def _over(self, lease: weakref.ref[Any]) -> None:
        slot = lease.slot  # type: ignore[attr-defined]
        self._leases.pop(slot, None)  # first: once it is free, the peer may use it again at once
        if not self._leases:
            shared_no_more(self)
            if self._leases:  # another thread has just received one
                copied_in_fork(self)
        self._ended.append(slot)
        if not self._holds:
            self._free_ended()

    def _free_ended(self) -> None:
        with contextlib.suppress(IndexError):  # another thread has freed the last one
            while self._ended:
                self._map[self._ended.popleft()] = 0

    def hold(self) -> None:
        self._holds += 1

    def let_go(self) -> None:
        self._holds -= 1
        if not self._holds:
            self._free_ended()

    def copy(self) -> None:
        for lease in list(self._leases.values()):
            memory = lease()
            if memory is not None:
                _make_private(memory.ctypes.data, memory.nbytes)


_mmap = ctypes.CDLL(None, use_errno=True).mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
MAP_FIXED = 0x10  # Linux's value on every processor that torch runs on; Python has no name for it


def _make_private(address: int, count: int) -> None:
    """Replace these pages of shared memory by private ones with the same bytes. No other thread may run."""
    begin = address - address % mmap.PAGESIZE
    length = -(-(address + count - begin) // mmap.PAGESIZE) * mmap.PAGESIZE
    data = ctypes.string_at(begin, length)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
    if _mmap(begin, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) != begin:
        raise OSError(ctypes.get_errno(), "a received tensor could not be copied in a fork")
    ctypes.memmove(begin, data, length)


def available() -> bool:
    """Whether this system has memfd_create(2)."""
    return hasattr(os, "memfd_create")

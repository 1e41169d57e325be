"""torchft's compiled extension: where it is, the clock that it reads, and clients whose connections can be cut.

Theory of operation. The extension is loaded from its file, without the package around it. Its servers and clients run
in their own threads of this process, over TCP on 127.0.0.1. The extension finds `clock_gettime` in its table of
imported functions. While a `Clock` is open, that entry is a function of ours, a few instructions, which returns a time
in memory. Time passes only when a test advances it, and a timer is seen at the next message that a thread receives.

Rule: nothing here depends on the model.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Self

PACKAGE = "torchft"
VERSION = "0.2.0"
LONG = timedelta(days=100)
MONOTONIC = 1  # CLOCK_MONOTONIC
HEADER, SECTIONS, SECTION, SYMBOLS = "<Q", "<HHH", "<IIQQQQIIQQ", 24  # ELF-64
RELOCATIONS = 4  # SHT_RELA
PAGE = 4096
GLANCE_S = 0.005
SECONDS_MAX = 30  # milliseconds suffice on an idle machine


def extension_file() -> Path | None:
    """The compiled extension of the installed package."""
    found = importlib.util.find_spec(PACKAGE)
    folders = found.submodule_search_locations or () if found else ()
    return next((path for folder in folders for path in Path(folder).glob("_torchft*.so")), None)


def missing() -> str | None:
    """Why nothing of torchft can run, and the remedy; None if it can."""
    return None if extension_file() else f"torchft is not installed: pip install 'trystate[torchft]' ({VERSION})"


def problem() -> str | None:
    """Why nothing can be compared with torchft, and the remedy; None if it can."""
    if platform.machine() != "x86_64" or sys.platform != "linux":
        return "torchft's clock can be replaced on Linux on x86-64 only: compare there"
    return missing()


@cache
def extension() -> ModuleType:
    """The module. Its servers have one thread each: their tasks run in the order of the messages."""
    os.environ.update(TOKIO_WORKER_THREADS="1", RUST_LOG="error")
    path = extension_file()
    assert path is not None
    spec = importlib.util.spec_from_file_location("_torchft", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Clock:
    """The monotonic clock of the extension, in ms. It is one for the process."""

    def __init__(self) -> None:
        extension()
        self._now = ctypes.create_string_buffer(16)
        self.now = 10**13
        self.set(self.now)
        self._slot = _imported(Path(str(extension_file())), b"clock_gettime")
        self._real = self._slot.value
        self._entry = _code(ctypes.addressof(self._now), self._real)

    def __enter__(self) -> Self:
        self._slot.value = self._entry
        return self

    def __exit__(self, *error: object) -> None:
        self._slot.value = self._real

    def set(self, ms: int) -> None:
        """Let the clock show this time, which may be before `now`."""
        struct.pack_into("<qq", self._now, 0, ms // 1000, ms % 1000 * 1_000_000)

    def advance(self, ms: int) -> None:
        self.now += ms
        self.set(self.now)


def _code(moment: int, real: int) -> int:
    """The address of a function: for the monotonic clock it copies the time, and for others it calls the real one."""
    copied = b"\x48\xb8" + struct.pack("<Q", moment)  # mov rax, moment
    copied += bytes.fromhex("488b10 488916 488b5008 48895608 31c0 c3")  # copy 16 bytes to [rsi]; return 0
    text = bytes([0x83, 0xFF, MONOTONIC, 0x75, len(copied)]) + copied  # cmp edi, 1; jne
    text += b"\x48\xb8" + struct.pack("<Q", real) + b"\xff\xe0"  # mov rax, real; jmp rax
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    at: int = libc.mmap(None, PAGE, 7, 0x22, -1, 0)  # read, write, execute; private, anonymous; never given back
    ctypes.memmove(at, text, len(text))
    return at


def _imported(path: Path, name: bytes) -> ctypes.c_uint64:
    """The entry of a function in the table of functions that a loaded library imports, made writable."""
    data = path.read_bytes()
    (first,), (size, number, _) = struct.unpack_from(HEADER, data, 40), struct.unpack_from(SECTIONS, data, 58)
    sections = [struct.unpack_from(SECTION, data, first + k * size) for k in range(number)]
    for section in (each for each in sections if each[1] == RELOCATIONS):
        symbols = sections[section[6]]
        names = sections[symbols[6]][4]
        for k in range(section[5] // SYMBOLS):
            offset, info = struct.unpack_from("<QQ", data, section[4] + SYMBOLS * k)
            (of,) = struct.unpack_from("<I", data, symbols[4] + SYMBOLS * (info >> 32))
            if info >> 32 and data.startswith(name + b"\0", names + of):
                at = _base(path) + offset
                assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(at & ~(PAGE - 1)), PAGE, 3) == 0
                return ctypes.c_uint64.from_address(at)
    raise AssertionError(f"{path} does not import {name.decode()}")


def _base(path: Path) -> int:
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(path.resolve())):
            span, _, offset = line.split()[:3]
            return int(span.partition("-")[0], 16) - int(offset, 16)
    raise AssertionError(f"{path} is not loaded")


class Call:
    """A call in its own thread."""

    def __init__(self, function: Callable[..., Any], *given: Any, **named: Any) -> None:
        self.result: Any = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(function, given, named), daemon=True)
        self._thread.start()

    def _run(self, function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> None:
        try:
            self.result = function(*given, **named)
        except Exception as error:
            self.error = error

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def settle(self) -> None:
        """Wait until the thread has ended, or sleeps although it could have Python's lock twice."""
        asleep = 0
        while asleep < 2 and not self.is_done:
            self._thread.join(GLANCE_S)
            with suppress(FileNotFoundError, ProcessLookupError):  # it ends while its file is read
                state = Path(f"/proc/self/task/{self._thread.native_id}/stat").read_text().rpartition(")")[2].split()[0]
                asleep = asleep + 1 if state == "S" else 0

    def join(self) -> None:
        self._thread.join(SECONDS_MAX)
        assert self.is_done, "the call does not end"


class Client:
    """A client of a server on this machine, and its connection."""

    def __init__(self, kind: str, port: int) -> None:
        before = {*connections(port)}
        self.of = getattr(extension(), kind)(f"http://127.0.0.1:{port}", LONG)
        (self._descriptor,) = {*connections(port)} - before

    def cut(self) -> None:
        """Close the connection: the server drops the requests that it has from here."""
        cut(self._descriptor)

    @property
    def bytes_acknowledged(self) -> int:
        """How many bytes the server's kernel has received (`tcp_info`)."""
        with socket.socket(fileno=os.dup(self._descriptor)) as one:
            (number,) = struct.unpack_from("<Q", one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), 120)
            return int(number)


def await_(condition: Callable[[], object], what: str) -> None:
    """Look until a condition holds."""
    end = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < end, f"{what} within {SECONDS_MAX} s: no"


def connections(port: int) -> Iterator[int]:
    """The descriptors of this process that are connected to a port."""
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor is closed by now, or not connected
            if str(link.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(link.name))) as one:
                    if one.family == socket.AF_INET and one.getpeername()[1] == port:
                        yield int(link.name)


def cut(descriptor: int) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as one:
        one.shutdown(socket.SHUT_RDWR)


def manager(number: int, port: int, ranks: int = 1) -> Any:
    """The manager of a replica, whose lighthouse is at this port."""
    address = f"http://127.0.0.1:{port}"
    return extension().ManagerServer(f"r{number}", address, "127.0.0.1", "127.0.0.1:0", "store", ranks, LONG, LONG, 0)


def port_of(server: Any) -> int:
    return int(server.address().rpartition(":")[2])


@contextmanager
def silence() -> Iterator[None]:
    """Drop what is written to the standard error: the extension logs there that no client waits for a quorum."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)

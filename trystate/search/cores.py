"""The processes and threads that share one search among the cores of this machine.

*Theory of operation.* Chunks of a level are expanded by processes: a step is many short loops, and threads would wait
for the interpreter's lock between them. Ranges of sorted arrays are sorted, searched and merged by threads: these are a
few long loops, in which NumPy lets go of that lock, and the arrays need not move. While the processes expand the first
chunks of a level, the caller merges the states of the levels before.

The processes are forked when the first large level begins: each has a copy of the engine and of the compiled code. A
chunk and its successors cross in slots of shared memory, `SLOTS` for each process; numbers and finds cross a pipe.
Chunk k goes to process k modulo their number. A fork does not copy the caller's other threads, but a lock that such a
thread holds stays locked in the process. So a process prints nothing, logs nothing and collects no garbage.

Failures:

- Processes or threads cannot be created: the caller's thread does everything.
- A piece raises: the first exception in the order of the pieces reaches the caller.
- A process is lost: `WorkerLost`.
- The caller leaves early: the processes are killed, and the pieces that a thread has begun are waited for.
- The caller has ended: a process reads the end of its pipe and ends.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from mmap import mmap
from multiprocessing import current_process, get_all_start_methods, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

import numpy as np

from trystate.model.checker.explicit.packing import Keys
from trystate.model.checker.explicit.workers import Expand, Expansion, Learn, Piece, Result, WorkerLost, Workers
from trystate.model.errors import UsageError

from .processes import JOIN_SECONDS, detach, done
from .signals import STOPS, handled

CORES_MAX = 64  # each process has a chunk of successors in memory
SLOTS = 3  # chunks that a process has, or has done: it need not wait while the caller compares successors with the set
RANGES = 2  # for each thread: some ranges take longer than others
SLOT_BYTES = 1 << 22  # at least; a chunk always fits. Successors that do not fit cross the pipe
ANSWER_SECONDS = 600.0  # limit for a chunk, which takes milliseconds: beyond it the process hangs or is out of memory


@dataclass(slots=True)
class _WorkerProcess:
    """A process, the pipe to it, and the memory shared with it."""

    process: BaseProcess
    pipe: Connection
    memory: mmap


class Cores(Workers):
    """The processes and threads of one search.

    Args:
        cores: number of each, at least 1 (the caller's thread alone); at most `CORES_MAX` are used.

    Raises:
        UsageError: fewer.
    """

    def __init__(self, cores: int) -> None:
        if cores < 1:
            raise UsageError(f"cores is {cores}: give at least 1")
        self._cores = min(cores, CORES_MAX)
        self._begun = False
        self._slot_bytes = SLOT_BYTES
        self._processes: list[_WorkerProcess] = []
        self._pool: ThreadPoolExecutor | None = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._kill()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._begun, self._pool = False, None

    def begin(self, expand: Expand, chunk_bytes: int, learn: Learn) -> None:
        if self._begun or self._cores == 1:
            return
        self._begun = True
        self._slot_bytes = max(SLOT_BYTES, chunk_bytes)
        try:
            if "fork" in get_all_start_methods() and not current_process().daemon:  # a daemon may have no children
                with _signals_wait():
                    for _ in range(self._cores):
                        self._fork(expand, learn)
            self._pool = self._threads()
        except (OSError, RuntimeError, MemoryError):  # a limit of this process, on memory, processes or threads
            self._kill()

    def _threads(self) -> ThreadPoolExecutor:
        """Threads that have started: a pool starts them late, and may fail then.

        Raises:
            RuntimeError: one cannot be started.
        """
        pool, started = ThreadPoolExecutor(self._cores, "explore"), threading.Barrier(self._cores)
        try:
            for _ in range(self._cores):
                pool.submit(started.wait, JOIN_SECONDS)
        except RuntimeError:
            started.abort()
            pool.shutdown()
            raise
        return pool

    def _fork(self, expand: Expand, learn: Learn) -> None:
        context = get_context("fork")
        ours, theirs = context.Pipe()
        memory = mmap(-1, SLOTS * self._slot_bytes)
        inherited = [ours, *(one.pipe for one in self._processes)]
        process = context.Process(
            target=_work, args=(expand, learn, theirs, memory, self._slot_bytes, inherited), daemon=True, name="explore"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork with other threads warns: see above
            process.start()
        theirs.close()
        self._processes.append(_WorkerProcess(process, ours, memory))

    def _kill(self) -> None:
        for one in self._processes:
            one.pipe.close()
            one.process.kill()
            one.process.join(JOIN_SECONDS)
        self._processes.clear()

    @property
    def chunks(self) -> int:
        return max(1, SLOTS * len(self._processes))

    @property
    def ranges(self) -> int:
        return RANGES * self._cores if self._pool is not None else 1

    def expanded(
        self, expand: Expand, level: int, chunks: Sequence[Keys], meanwhile: Callable[[], None]
    ) -> Iterator[Expansion]:  # fmt: skip
        if not self._processes or len(chunks) < 2:
            yield from super().expanded(expand, level, chunks, meanwhile)
            return
        given = 0
        try:
            for taken in range(len(chunks)):
                while given < min(len(chunks), taken + self.chunks):
                    self._give(given, level, chunks[given])
                    given += 1
                if not taken:
                    meanwhile()
                yield self._taken(taken)
        finally:
            if given and taken + 1 < given:  # the caller has left: the other pieces are not needed
                self._kill()

    def _place(self, number: int) -> tuple[_WorkerProcess, int]:
        """The process that has the chunk, and where its slot begins."""
        count = len(self._processes)
        return self._processes[number % count], number // count % SLOTS * self._slot_bytes

    def _give(self, number: int, level: int, chunk: Keys) -> None:
        one, start = self._place(number)
        np.frombuffer(one.memory, chunk.dtype, len(chunk), start)[:] = chunk
        try:
            one.pipe.send((level, start, len(chunk), chunk.dtype))
        except OSError:
            raise self._lost(one) from None

    def tell(self, news: Any) -> None:
        for one in self._processes:
            try:
                one.pipe.send((news,))
            except OSError:
                raise self._lost(one) from None

    def _taken(self, number: int) -> Expansion:
        one, start = self._place(number)
        try:
            if not one.pipe.poll(ANSWER_SECONDS):
                raise WorkerLost(f"stopped as a process of the search gave no answer for {ANSWER_SECONDS:.0f} s")
            answer: Expansion | Exception
            answer, in_slot = one.pipe.recv()
        except (EOFError, ConnectionError):
            raise self._lost(one) from None
        if isinstance(answer, Exception):
            raise answer
        if in_slot:
            return replace(answer, after=np.frombuffer(one.memory, answer.after.dtype, in_slot, start).copy())
        return answer

    def _lost(self, one: _WorkerProcess) -> WorkerLost:
        one.process.join(JOIN_SECONDS)
        return WorkerLost(
            f"stopped as a process of the search ended with {one.process.exitcode}: if the kernel killed it for its "
            "memory (-9), give fewer --cores or a smaller --max-memory"
        )

    def each(self, do: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
        pool = self._pool
        if pool is None or len(pieces) < 2:
            return super().each(do, pieces)
        begun = [pool.submit(do, piece) for piece in pieces]
        wait(begun)
        return [future.result() for future in begun]


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Signals are handled when the block is over: Python runs functions around a fork, and drops what they raise.

    Ctrl-C in one of these would be lost.
    """
    came: list[int] = []
    try:
        with handled({one: lambda number, _: came.append(number) for one in STOPS if callable(signal.getsignal(one))}):
            yield
    finally:
        for one in came:
            signal.raise_signal(one)


def _work(
    expand: Expand, learn: Learn, pipe: Connection, memory: mmap, slot_bytes: int, inherited: Sequence[Connection]
) -> None:  # fmt: skip
    """In a forked process: expand the chunks that come."""
    detach(inherited)
    gc.disable()
    try:
        while True:
            about, *given = pipe.recv()
            if not given:
                learn(about)
                continue
            start, count, dtype = given
            answer, error = done(partial(expand, about, np.frombuffer(memory, dtype, count, start)))
            if error is not None or answer.after.nbytes > slot_bytes:
                pipe.send((error or answer, 0))
                continue
            np.frombuffer(memory, answer.after.dtype, len(answer.after), start)[:] = answer.after
            pipe.send((replace(answer, after=answer.after[:0]), len(answer.after)))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        os._exit(0)

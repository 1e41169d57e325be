"""The ranks of a search over torch.distributed: processes that torchrun or `trystate run` has started.

*Theory of operation.* The launcher gives each process its rank and an address in the environment; from these the
process group is made, with gloo, which needs no GPU. A note is JSON in a frame of fixed size, and a longer one takes a
second collective; states are words, which gloo takes as int64, in pieces. No rank sends code or pickles. Each
collective has the timeout of the group. A lost rank is noticed at once if its machine closes its connections, and
otherwise when the timeout is over. Both raise `RankLost`.

A signal sets a flag, which the search reads once a round. The launcher gets the signal too, and kills its processes
half a minute later; a second signal makes no difference.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import struct
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trystate.model.checker.explicit.packing import Keys
from trystate.model.checker.explicit.ranks import RANKS_MAX, RankLost, Ranks
from trystate.model.errors import UnavailableError, UsageError
from trystate.version import __version__

from .signals import STOPS, handled

INCOMPLETE = 3  # the exit code of the command: `Exit.INCOMPLETE`
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # variables of the environment
FRAME = 1 << 10  # bytes of each rank's note that are sent at once; a longer one is sent whole afterwards
NOTE_BYTES_MAX = 1 << 28
PIECE_KEYS = 1 << 20  # keys of all ranks together that are in memory at a time
TIMEOUT_SECONDS = 300.0  # the longest step of a rank that the others wait for is a merge of its states: seconds
TIMEOUT_SECONDS_MAX = 1e6  # twelve days: a lost rank must be noticed some time
EXIT_SECONDS = 20  # limit for the exit of a process that has lost a rank
MEET_SECONDS = 0.02  # polling interval of the store until the ranks are connected


class TorchRanks(Ranks):
    """The default process group, as `joined` makes it."""

    def __init__(self, seconds: float) -> None:
        import torch
        from torch import distributed

        self._torch, self._distributed = torch, distributed
        self.rank, self.count = distributed.get_rank(), distributed.get_world_size()
        self._seconds = seconds
        self.stopped_by = ""  # the name of the signal that came first
        self.sent_bytes = 0  # bytes of states sent

    def stop_reason(self) -> str:
        return f"stopped by {self.stopped_by}" if self.stopped_by else ""

    def told(self, note: Any) -> list[Any]:
        text = json.dumps(note, separators=(",", ":")).encode()
        if len(text) > NOTE_BYTES_MAX:
            raise RankLost(f"rank {self.rank} has a note of {len(text):,} bytes (limit {NOTE_BYTES_MAX:,})")
        head = struct.pack("<q", len(text)) + text
        frames = [frame.tobytes() for frame in self._gathered(head, FRAME)]
        sizes = [struct.unpack_from("<q", frame)[0] + 8 for frame in frames]
        if max(sizes) > FRAME:
            if max(sizes) > NOTE_BYTES_MAX + 8:
                raise RankLost(f"a note of {max(sizes):,} bytes was announced (limit {NOTE_BYTES_MAX:,})")
            frames = [frame.tobytes() for frame in self._gathered(head, max(sizes))]
        return [json.loads(frame[8:size]) for frame, size in zip(frames, sizes, strict=True)]

    def _gathered(self, data: bytes, size: int) -> NDArray[np.uint8]:
        """The first `size` bytes of each rank."""
        mine = np.zeros(size, np.uint8)
        mine[: len(data)] = np.frombuffer(data[:size], np.uint8)
        out = np.empty((self.count, size), np.uint8)
        tensors = list(self._torch.from_numpy(out).unbind())
        with self._noticing():
            self._distributed.all_gather(tensors, self._torch.from_numpy(mine))
        return out

    def swapped(self, parts: Sequence[Keys]) -> Iterator[Keys]:
        dtype = parts[0].dtype
        words = dtype.itemsize // 8
        yield parts[self.rank]
        if self.count == 1:
            return
        sizes = np.array([0 if rank == self.rank else len(part) for rank, part in enumerate(parts)], np.int64)
        table = np.empty((self.count, 2), np.int64)
        self._all_to_all(table.reshape(-1), np.stack([sizes, np.full_like(sizes, sizes.max())], axis=1).reshape(-1))
        piece = max(1, PIECE_KEYS // self.count)
        for start in range(0, int(table[:, 1].max()), piece):
            giving = np.clip(sizes - start, 0, piece)
            coming = np.clip(table[:, 0] - start, 0, piece)
            out = np.concatenate([part[start : start + n] for part, n in zip(parts, giving.tolist(), strict=True)])
            received = np.empty(int(coming.sum()) * words, np.int64)
            self._all_to_all(received, out.view(np.int64), (coming * words).tolist(), (giving * words).tolist())
            self.sent_bytes += out.nbytes
            yield from np.split(received.view(dtype), np.cumsum(coming)[:-1])

    def _all_to_all(
        self, out: NDArray[np.int64], data: NDArray[np.int64], coming: list[int] | None = None,
        giving: list[int] | None = None,
    ) -> None:  # fmt: skip
        into, what = self._torch.from_numpy(out), self._torch.from_numpy(np.ascontiguousarray(data))
        with self._noticing():
            self._distributed.all_to_all_single(into, what, coming, giving)

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise RankLost(
                f"rank {self.rank} of {self.count} has lost another rank, which has ended or did not answer for "
                f"{self._seconds:g} s ({_first_line(error)})"
            ) from None


@contextmanager
def joined(seconds: float = TIMEOUT_SECONDS) -> Iterator[TorchRanks]:
    """The group of the processes that a launcher has started, while the block runs.

    Args:
        seconds: the longest wait of a rank for the others, at each step.

    Raises:
        UsageError: no launcher has started this process, or too many processes; or too many seconds.
        UnavailableError: torch is not installed, or has no gloo.
        RankLost: not all of them came in time.
    """
    missing = [name for name in NEEDED if not os.environ.get(name)]
    if missing:
        raise UsageError(
            f"the environment has no {', '.join(missing)}: start this command on several ranks, such as "
            "`torchrun --nproc-per-node 2 -m trystate search SYSTEM`, or search in one process with `trystate verify`"
        )
    _number("RANK", 0, _number("WORLD_SIZE", 1, RANKS_MAX) - 1)
    _number("MASTER_PORT", 0, (1 << 16) - 1)
    if seconds > TIMEOUT_SECONDS_MAX:
        raise UsageError(f"--timeout {seconds:g} is too long: give at most {TIMEOUT_SECONDS_MAX:,.0f} s")
    try:
        from torch import distributed
    except ImportError as error:
        raise UnavailableError(f"this command needs torch: {error}; pip install 'trystate[torch]'") from error
    if not distributed.is_available() or not distributed.is_gloo_available():
        raise UnavailableError("this command needs torch.distributed with gloo, which this torch was built without")
    try:
        _within(seconds, partial(_meet, seconds))
    except (RuntimeError, ValueError) as error:
        signal.alarm(EXIT_SECONDS)
        raise RankLost(f"the ranks did not meet within {seconds:g} s ({_first_line(error)})") from None
    ranks = TorchRanks(seconds)
    try:
        with _signals(ranks):
            _refuse_others(ranks)
            yield ranks
    except RankLost:
        # The group is left as it is: taking it apart may wait for the lost rank. If the interpreter does so at its end,
        # the system ends this process.
        signal.alarm(EXIT_SECONDS)
        raise
    except BaseException:
        distributed.destroy_process_group()
        raise
    distributed.destroy_process_group()


def _number(name: str, low: int, high: int) -> int:
    """The value of a variable that the launcher has put into the environment.

    Raises:
        UsageError: it is not a number from `low` to `high`.
    """
    text = os.environ[name]
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and low <= int(text) <= high):
        raise UsageError(f"{name} is {text!r} in the environment; a launcher sets {low} to {high:,}")
    return int(text)


def ranks_of_this_host() -> int:
    """The number of ranks that share the memory of this host, from the launcher's environment.

    Raises:
        UsageError: the variable has an invalid value.
    """
    return _number("LOCAL_WORLD_SIZE", 1, RANKS_MAX) if os.environ.get("LOCAL_WORLD_SIZE") else 1


def _meet(seconds: float) -> None:
    """Make the process group."""
    from torch import distributed
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    timeout = timedelta(seconds=seconds)
    store, rank, size = next(rendezvous("env://", timeout=timeout))
    store = PrefixStore(_attempt(store, rank, size, seconds), store)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timeout)


def _within(seconds: float, do: Callable[[], None]) -> None:
    """Run `do` for at most `seconds`: gloo waits without a limit for a rank that ended before it was connected.

    Raises:
        RuntimeError: `do` has failed, or takes longer; then its own thread still waits.
    """
    failed: list[Exception] = []

    def run() -> None:
        try:
            do()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise RuntimeError(_first_line(failed[0])) from failed[0]
    if thread.is_alive():
        atexit.register(_leave, thread)
        raise RuntimeError("not all ranks are connected")


def _leave(waiting: threading.Thread) -> None:
    """End this process with its exit code: a thread that still waits in gloo would abort it."""
    if waiting.is_alive():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INCOMPLETE)


def _attempt(store: Any, rank: int, size: int, seconds: float) -> str:
    """A prefix for the keys of these processes, which no earlier ones have used.

    torchrun starts its processes again with the same store, which still has the addresses of the earlier processes.
    Each rank writes its own name; the first rank collects them until all ranks have seen theirs in one collection.

    Raises:
        RuntimeError: not all ranks came in time.
    """
    mine, place, until = uuid.uuid4().hex, f"search of {size}", time.monotonic() + seconds
    store.set(f"{place}/{rank}", mine)
    if size == 1:
        return mine
    names = ""
    while time.monotonic() < until:
        if rank == 0:
            found = [store.get(f"{place}/{k}").decode() for k in range(size)]
            names = ",".join(found)
            store.set(f"{place}/all", names)
            if store.check([f"{place}/{k} has seen {names}" for k in range(1, size)]):
                store.set(f"{place}/begin {names}", b"")
                break
        else:
            names = store.get(f"{place}/all").decode()
            if mine in names.split(","):
                store.set(f"{place}/{rank} has seen {names}", b"")
                if store.check([f"{place}/begin {names}"]):
                    break
        time.sleep(MEET_SECONDS)
    else:
        raise RuntimeError("some ranks did not start")
    return f"{place}/{uuid.uuid5(uuid.NAMESPACE_OID, names)}"


def _refuse_others(ranks: Ranks) -> None:
    mine = [f"trystate {__version__}", f"{sys.byteorder}-endian"]
    for rank, theirs in enumerate(ranks.told(mine)):
        if theirs != mine:
            raise UsageError(
                f"rank {rank} is {', '.join(theirs)}, but rank {ranks.rank} is {', '.join(mine)}: install one release "
                "on all hosts, and use hosts of one byte order"
            )


@contextmanager
def _signals(ranks: TorchRanks) -> Iterator[None]:
    def note(number: int, frame: object) -> None:
        ranks.stopped_by = ranks.stopped_by or signal.Signals(number).name

    with handled(dict.fromkeys(STOPS, note)):
        yield


def _first_line(error: Exception) -> str:
    """The words of an error, without the advice that gloo adds to them."""
    return str(error).strip().partition("\n")[0].partition(". ")[0] or type(error).__name__

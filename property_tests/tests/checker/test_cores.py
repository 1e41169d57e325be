"""The explicit engine on several cores gives the answers of one core, to the last step of each run.

Chunks and ranges are tiny, so small systems have many of each.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from trystate.model.checker.check import check
from trystate.model.checker.explicit.vectorise import Step
from trystate.model.checker.explicit.visited import Visited
from trystate.model.checker.explicit.workers import Expansion, Workers
from trystate.model.errors import UsageError
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.property_tests.tests.checker.searches import answers, tiny
from trystate.search import cores
from trystate.search.cores import Cores

# ---- the processes and the threads


@contextmanager
def begun(count: int) -> Iterator[Workers]:
    with Cores(count) as shared:
        shared.begin(number_of, 0, lambda news: None)
        yield shared


def number_of(level: int, chunk: Any) -> Expansion:
    """The first chunk takes longest. `edges` carries the number in the chunk, `bytes` the process id."""
    time.sleep(0.03 * (chunk[0] == 0))
    return Expansion(int(chunk[0]), {}, [], chunk + 1, chunk[:0], os.getpid())


def slower_first(number: int) -> int:
    time.sleep(0.02 * (number == 0))
    return number


CHUNKS = [np.array([k, k], np.int64) for k in range(20)]


def test_results_come_in_the_order_of_the_pieces_and_not_of_their_ends() -> None:
    meanwhile: list[str] = []
    with begun(3) as shared:
        results = list(shared.expanded(number_of, 0, CHUNKS, lambda: meanwhile.append("merged")))
        assert shared.each(slower_first, range(20)) == list(range(20))
    assert [one.edges for one in results] == list(range(20))
    assert [one.after.tolist() for one in results] == [[k + 1, k + 1] for k in range(20)]
    assert len({one.bytes for one in results} - {os.getpid()}) == 3
    assert meanwhile == ["merged"]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGKILL, "stopped as a process of the search ended with -9"),
        (signal.SIGSTOP, "stopped as a process of the search gave no answer"),
        (None, "stopped since no memory could be allocated"),
    ],
)
def test_a_process_that_fails_ends_the_search_and_what_was_found_stays(
    number: int | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, caller = Step.run, os.getpid()

    def run(step: Step, columns: Any) -> Any:
        if number is None and os.getpid() != caller:
            raise MemoryError("planted")
        if number is not None and os.getpid() != caller:
            os.kill(os.getpid(), number)
        return right(step, columns)

    monkeypatch.setattr(Step, "run", run)
    with tiny():
        if number == signal.SIGSTOP:  # the others end by themselves, on a busy machine perhaps later
            monkeypatch.setattr(cores, "ANSWER_SECONDS", 0.2)
        distinct, _, _, stopped = answers(TwoPhaseCommit(rm=4), 2)["graph"]
    assert stopped.startswith(said) and 0 < distinct < 1_568


def test_ctrl_c_while_processes_are_forked_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Cores._fork

    def fork(self: Cores, expand: Any, learn: Any) -> None:
        right(self, expand, learn)
        with suppress(KeyboardInterrupt):  # like Python around a fork
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Cores, "_fork", fork)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with tiny(), pytest.raises(KeyboardInterrupt):
            answers(TwoPhaseCommit(rm=4), 2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not [one for one in multiprocessing.active_children() if one.name == "explore"]


@pytest.mark.parametrize(("what", "error"), [("mmap", OSError), ("ThreadPoolExecutor", RuntimeError)])
def test_without_processes_or_threads_the_callers_thread_does_everything(
    what: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise error("planted")

    monkeypatch.setattr(cores, what, refused)
    with begun(2) as shared:
        assert {one.bytes for one in shared.expanded(number_of, 0, CHUNKS, lambda: None)} == {os.getpid()}
        assert (shared.chunks, shared.ranges) == (1, 1)


def test_memory_that_ends_on_a_thread_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Visited.unseen

    def unseen(of: Visited, keys: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            raise MemoryError
        return right(of, keys)

    monkeypatch.setattr(Visited, "unseen", unseen)
    with tiny():
        distinct, _, _, stopped = answers(TwoPhaseCommit(rm=4), 2)["graph"]
    assert stopped.startswith("stopped since no memory could be allocated") and 0 < distinct < 1_568


def test_a_caller_that_leaves_kills_the_processes() -> None:
    with begun(2) as shared:
        results = shared.expanded(number_of, 0, CHUNKS, lambda: None)
        process = next(results).bytes
        results.close()  # type: ignore[attr-defined]
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


@pytest.mark.parametrize("count", [0, -1])
def test_a_number_of_cores_below_one_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match=f"cores is {count}: give at least 1"):
        check(TwoPhaseCommit(rm=2), engine="explicit", workers=Cores(count))


def test_the_room_of_a_chunk_is_for_the_largest_of_any_level() -> None:
    """The first level that processes share may have the smallest chunks: a larger one took its neighbour's room."""
    room, given = list[int](), list[int]()

    class Measured(Workers):
        def begin(self, expand: Any, chunk_bytes: int, learn: Any) -> None:
            room.append(chunk_bytes)

        def expanded(self, expand: Any, level: int, chunks: Any, meanwhile: Any) -> Any:
            given.extend(chunk.nbytes for chunk in chunks)
            return super().expanded(expand, level, chunks, meanwhile)

    with tiny():
        answers(TwoPhaseCommit(rm=3), Measured())
    assert max(given) <= min(room)

"""Tasks in several processes return their results and their errors, and no process outlives the caller."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import active_children
from typing import Any

import pytest

from trystate.search.processes import Processes, ProcessLost


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def slow_first(number: int) -> int:
    time.sleep(0.3 if number == 0 else 0.0)
    return number


def fail(message: str) -> None:
    raise LookupError(message)


class Unpicklable(Exception):
    """An exception that cannot be constructed again from its text."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fail_oddly() -> None:
    raise Unpicklable(1, 2)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def children() -> list[int]:
    return [child.pid or 0 for child in active_children() if child.name.startswith("verify-")]


def test_each_result_arrives_at_once_with_the_number_of_its_task() -> None:
    with Processes([partial(slow_first, n) for n in range(4)], 2) as processes:
        results = list(processes.results([0, 1, 2, 3]))
    assert sorted(results) == [(n, n) for n in range(4)]
    assert results[-1] == (0, 0)


@pytest.mark.parametrize("jobs", [1, 3])
def test_one_job_works_in_the_caller_and_more_in_processes_of_their_own(jobs: int) -> None:
    with Processes([partial(square, n) for n in range(9)], jobs) as processes:
        results = dict(processes.results(range(9)))
    assert [value for value, _ in (results[n] for n in range(9))] == [n * n for n in range(9)]
    pids = {pid for _, pid in results.values()}
    assert (os.getpid() in pids) == (jobs == 1)
    assert len(pids) <= jobs


@pytest.mark.parametrize(
    ("task", "error", "said"),
    [(partial(fail, "no key"), LookupError, "no key"), (fail_oddly, RuntimeError, r"Unpicklable\('1 and 2'\)")],
)
def test_an_error_of_a_task_has_the_traceback_of_its_process(
    task: Callable[[], Any], error: type[Exception], said: str
) -> None:
    with Processes([task, partial(square, 1)], 2) as processes, pytest.raises(error, match=said) as raised:
        list(processes.results([0, 1]))
    assert "in fail" in "".join((str(raised.value), *getattr(raised.value, "__notes__", ())))
    assert children() == []


def test_a_process_that_is_killed_is_lost_and_the_remedy_is_told() -> None:
    with Processes([die, partial(square, 1)], 2) as processes, pytest.raises(ProcessLost, match=r"-9.*--jobs"):
        list(processes.results([0, 1]))
    assert children() == []


def test_leaving_early_ends_every_process() -> None:
    with Processes([partial(time.sleep, 60)] * 3, 3) as processes:
        results = processes.results([0, 1, 2])
        assert len(children()) == 3
        del results
    assert children() == []

"""The explicit engine on several cores: its answers are those of one, to the last step of each run.

Chunks and ranges are made tiny, so that small systems have many of each, and slots tiny where a test says so.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trystate.model.checker.check import check, watches
from trystate.model.checker.explicit import engine as explicit
from trystate.model.checker.explicit import visited, workers
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.explicit.vectorise import Step
from trystate.model.checker.explicit.visited import Visited
from trystate.model.checker.explicit.workers import Expansion, Workers
from trystate.model.checker.kernel import Kernel, Lasso, Limits
from trystate.model.errors import UsageError
from trystate.model.language import Form, System
from trystate.property_tests.support.mutants import rewritten, survives, wrapped
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.runs import assert_is_a_fair_lasso
from trystate.property_tests.support.systems.engine_samples import Ring, ThreeWords, TwoWords
from trystate.property_tests.support.systems.random_systems import Declaration, declarations, system
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.property_tests.tests.checker.test_random_systems import assert_runs_show_what_they_claim, facts
from trystate.search import cores
from trystate.search.cores import Cores

COUNTS = (1, 2, 3)
MANY = Limits(states=20_000, seconds=30.0)


@contextmanager
def tiny(chunk: int = 3, slot: int = 1 << 16) -> Iterator[None]:
    """Chunks of so many states, ranges of two keys, and a comparison with the set after every nine successors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explicit, "CHUNK", chunk)
        patch.setattr(visited, "PENDING_MIN", 8)
        patch.setattr(workers, "RANGE_MIN", 2)
        patch.setattr(cores, "SLOT_BYTES", slot)
        patch.setattr(cores, "ANSWER_SECONDS", 10.0)
        yield


def answers(of: System, count: int, limits: Limits = MANY, **options: Any) -> dict[str, Any]:
    """Everything that a search says, but for times and bytes."""
    kernel = Kernel(of)
    engine = ExplicitEngine(kernel, limits, workers=Cores(count), **options)
    seen = engine.explore([replace(watch, path=True) for watch in watches(kernel)])
    said: dict[str, Any] = {
        "graph": (seen.distinct, seen.edges, seen.depth, seen.stopped),
        "found": list(seen.found.items()),
        "levels": [level[:].tobytes() for level in engine.levels],
    }
    if seen.complete and engine.symmetry is None:
        said["edges"] = engine.explored().graph.after.tobytes()
    return said


def assert_alike(of: System, limits: Limits = MANY, **options: Any) -> None:
    alone, *others = (answers(of, count, limits, **options) for count in COUNTS)
    for other in others:
        assert other == alone


@given(declarations())
@settings(max_examples=examples(8))
def test_random_systems_have_the_same_answers_on_any_number_of_cores(declared: Declaration) -> None:
    with tiny():
        assert_alike(system(declared))
        report = check(system(declared), engine="explicit", workers=Cores(2))
        assert facts(report) == facts(check(system(declared), engine="interpret"))
        assert_runs_show_what_they_claim(report)


SYSTEMS: dict[str, Callable[[], System]] = {
    "one word": lambda: TwoPhaseCommit(rm=4),
    "two words": lambda: TwoWords(rm=2),
    "six words": lambda: ThreeWords(rm=3),
    "several initial states": lambda: Ring(node=2, faults=["loss"]),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_states_of_any_width_have_the_same_answers(name: str) -> None:
    with tiny(chunk=32):
        assert_alike(SYSTEMS[name]())


def test_successors_that_do_not_fit_their_slot_are_the_same() -> None:
    with tiny(chunk=4, slot=4 * 8):
        assert_alike(TwoPhaseCommit(rm=3))


def test_symmetry_gives_the_same_answers() -> None:
    with tiny():
        assert_alike(TwoPhaseCommit(rm=6), symmetry=True)


@pytest.mark.parametrize("states", [1, 7, 100, 500, 1_567, 1_568])
def test_a_limit_of_states_stops_at_the_same_state(states: int) -> None:
    with tiny():
        assert_alike(TwoPhaseCommit(rm=4), replace(MANY, states=states))


@pytest.mark.parametrize("limits", [replace(MANY, memory_bytes=1 << 12), replace(MANY, seconds=0.0)])
def test_memory_and_seconds_stop_a_search_of_several_cores_as_well(limits: Limits) -> None:
    with tiny():
        for count in COUNTS[1:]:
            *_, stopped = answers(TwoPhaseCommit(rm=5), count, limits)["graph"]
            assert "MiB (limit 0 MiB" in stopped if limits.seconds else "s (limit 0 s" in stopped


def test_lassos_of_a_search_on_several_cores_are_those_of_one() -> None:
    def lassos(count: int) -> list[Lasso | None]:
        engine = ExplicitEngine(Kernel(Ring(node=2)), MANY, workers=Cores(count))
        engine.explore([])
        (served,) = (p for p in engine.kernel.system.properties if p.form is Form.LEADS_TO)
        premise, goal = served.exprs
        return [engine.lasso(premise, goal, {served.params[0]: k}) for k in range(2)]

    with tiny():
        alone, *others = map(lassos, COUNTS)
    assert others == [alone, alone]
    for lasso in filter(None, alone):
        assert_is_a_fair_lasso(Ring(node=2), lasso)


# ---- the processes and the threads


def nothing(level: int, chunk: Any) -> Expansion:
    """Begins workers of which only the threads are used."""
    raise AssertionError(level)


@contextmanager
def begun(count: int, expand: Any = nothing) -> Iterator[Workers]:
    with Cores(count) as shared:
        shared.begin(expand, 0, lambda news: None)
        yield shared


@given(st.lists(st.lists(st.integers(0, 40), max_size=60), min_size=1, max_size=6), st.integers(1, 5))
@settings(max_examples=examples(20))
def test_ranges_have_every_key_once_and_equal_keys_together(values: list[list[int]], count: int) -> None:
    runs = [np.array(sorted(run), np.int64) for run in values]
    with tiny(), begun(count) as shared:
        ranges = shared.cut(runs)
    assert len(ranges) <= count
    for number, run in enumerate(runs):
        assert np.concatenate([of[number] for of in ranges]).tolist() == run.tolist()
    held = [{key for run in of for key in run.tolist()} for of in ranges]
    filled = [keys for keys in held if keys]
    assert all(max(before) < min(after) for before, after in pairwise(filled))


def test_ranges_of_many_keys_are_of_about_the_same_size() -> None:
    rng = np.random.default_rng(7)
    runs = [np.sort(rng.integers(0, 1 << 40, size)) for size in (300_000, 70_000, 9)]
    with begun(3) as shared:
        sizes = [sum(map(len, of)) for of in shared.cut(runs)]
    assert len(sizes) == 3 and max(sizes) < 1.05 * min(sizes)


def number_of(level: int, chunk: Any) -> Expansion:
    """Takes longest of the first chunk; `edges` is the number that is in the chunk, `bytes` the process."""
    time.sleep(0.03 * (chunk[0] == 0))
    return Expansion(int(chunk[0]), {}, [], chunk + 1, chunk[:0], os.getpid())


def slower_first(number: int) -> int:
    time.sleep(0.02 * (number == 0))
    return number


CHUNKS = [np.array([k, k], np.int64) for k in range(20)]


def test_results_come_in_the_order_of_the_pieces_and_not_of_their_ends() -> None:
    with begun(3, number_of) as shared:
        results = list(shared.expanded(number_of, 0, CHUNKS))
        assert shared.each(slower_first, range(20)) == list(range(20))
    assert [one.edges for one in results] == list(range(20))
    assert [one.after.tolist() for one in results] == [[k + 1, k + 1] for k in range(20)]
    assert len({one.bytes for one in results} - {os.getpid()}) == 3


def test_threads_beside_the_search_do_not_matter() -> None:
    ended = threading.Event()

    def work() -> None:
        with Path(os.devnull).open("w") as file:
            while not ended.is_set():
                print(gc.collect(0), file=file, flush=True)

    other = threading.Thread(target=work)
    other.start()
    try:
        with begun(2, number_of) as shared:
            assert len({one.bytes for one in shared.expanded(number_of, 0, CHUNKS)}) == 2
    finally:
        ended.set()
        other.join()


def test_a_process_that_may_have_no_children_expands_its_chunks_itself() -> None:
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def search() -> None:
        with begun(2, number_of) as shared:
            theirs.send({one.bytes for one in shared.expanded(number_of, 0, CHUNKS)})

    child = multiprocessing.get_context("fork").Process(target=search, daemon=True)
    child.start()
    assert ours.poll(10) and ours.recv() == {child.pid}
    child.join(10)


class Broken(Exception):
    """Planted."""


class Unsendable(Broken):
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError


def in_a_process(caller: int, act: Callable[[], None]) -> Callable[[Any], Any]:
    """A step that does something else in another process than the caller."""
    right = Step.run

    def run(step: Step, columns: Any) -> Any:
        if os.getpid() != caller:
            act()
        return right(step, columns)

    return lambda patch: patch.setattr(Step, "run", run)


def raises(error: type[Exception]) -> Callable[[], None]:
    def act() -> None:
        raise error("planted")

    return act


@pytest.mark.parametrize(("error", "seen"), [(Broken, Broken), (Unsendable, RuntimeError)])
def test_an_exception_of_a_process_reaches_the_caller_and_nothing_is_left(
    error: type[Exception], seen: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_process(os.getpid(), raises(error))(monkeypatch)
    with tiny(), pytest.raises(seen, match="planted") as raised:
        answers(TwoPhaseCommit(rm=4), 2)
    assert "in a process of the search" in "".join((str(raised.value), *getattr(raised.value, "__notes__", ())))
    threads = [one.name for one in threading.enumerate()]  # other tests may have left others
    processes = [one.name for one in multiprocessing.active_children()]
    assert not [name for name in threads + processes if name.startswith("explore")]


def test_a_process_that_is_killed_ends_the_search_and_what_was_found_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_process(os.getpid(), lambda: os.kill(os.getpid(), signal.SIGKILL))(monkeypatch)
    with tiny():
        distinct, _, _, stopped = answers(TwoPhaseCommit(rm=4), 2)["graph"]
    assert stopped.startswith("stopped as a process of the search ended with -9") and 0 < distinct < 1_568


def test_a_process_that_is_stopped_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_process(os.getpid(), lambda: os.kill(os.getpid(), signal.SIGSTOP))(monkeypatch)
    with tiny():
        monkeypatch.setattr(cores, "ANSWER_SECONDS", 0.2)
        *_, stopped = answers(TwoPhaseCommit(rm=4), 2)["graph"]
    assert stopped.startswith("stopped as a process of the search gave no answer")


def test_ctrl_c_while_processes_are_forked_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Cores._fork

    def fork(self: Cores, expand: Any, learn: Any) -> None:
        right(self, expand, learn)
        with suppress(KeyboardInterrupt):  # as Python does around a fork
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
    with begun(2, number_of) as shared:
        assert {one.bytes for one in shared.expanded(number_of, 0, CHUNKS)} == {os.getpid()}
        assert (shared.chunks, shared.ranges) == (1, 1)


def test_memory_that_ends_in_a_process_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_process(os.getpid(), raises(MemoryError))(monkeypatch)
    with tiny():
        distinct, _, _, stopped = answers(TwoPhaseCommit(rm=4), 2)["graph"]
    assert stopped.startswith("stopped as the process got no more memory") and 0 < distinct < 1_568


def test_memory_that_ends_on_a_thread_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Visited.unseen

    def unseen(of: Visited, keys: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            raise MemoryError
        return right(of, keys)

    monkeypatch.setattr(Visited, "unseen", unseen)
    with tiny():
        distinct, _, _, stopped = answers(TwoPhaseCommit(rm=4), 2)["graph"]
    assert stopped.startswith("stopped as the process got no more memory") and 0 < distinct < 1_568


def test_a_caller_that_leaves_kills_the_processes() -> None:
    with begun(2, number_of) as shared:
        results = shared.expanded(number_of, 0, CHUNKS)
        process = next(results).bytes
        results.close()  # type: ignore[attr-defined]
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_process_whose_caller_is_killed_ends() -> None:
    reading, writing = os.pipe()
    caller = os.fork()
    if caller == 0:
        with begun(2, number_of) as shared:
            pids = {one.bytes for one in shared.expanded(number_of, 0, CHUNKS)}
            os.write(writing, " ".join(map(str, pids)).encode())
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(caller, 0)
    processes = [int(pid) for pid in os.read(reading, 100).split()]
    os.close(reading)
    os.close(writing)
    assert len(processes) == 2
    until = time.monotonic() + 30.0
    while any(map(lives, processes)):
        assert time.monotonic() < until
        time.sleep(0.01)


def lives(pid: int) -> bool:
    """Does the process run? One that has ended may wait for its new parent, which need not be in a hurry."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("count", [0, -1])
def test_a_number_of_cores_below_one_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match=f"cores is {count}: give at least 1"):
        check(TwoPhaseCommit(rm=2), engine="explicit", workers=Cores(count))


# ---- planted mistakes


def backwards(right: Any) -> Any:
    def expanded(*args: Any) -> Iterator[Any]:
        return iter(list(right(*args))[::-1])

    return expanded


def without_the_last(right: Any) -> Any:
    def each(of: Workers, do: Any, pieces: Sequence[Any]) -> Any:
        results = right(of, do, pieces)
        return results[:-1] if len(results) > 1 and results[0] is not None else results

    return each


def merged_later(right: Any) -> Any:
    """The caller goes on before a merge has begun."""

    def each(of: Workers, do: Any, pieces: Sequence[Any]) -> Any:
        return right(of, do, pieces) if do.__name__ != "merge" or len(pieces) < 2 else []

    return each


def on_the_caller_only(right: Any) -> Any:
    """Only the thread of the caller compares a range with the set."""

    def unseen(of: Visited, keys: Any) -> Any:
        return right(of, keys) if threading.current_thread() is threading.main_thread() else keys

    return unseen


MUTANTS = {
    "expansions come in another order": wrapped(Cores, "expanded", backwards),
    "the last range is lost": wrapped(Cores, "each", without_the_last),
    "a merge is not waited for": wrapped(Cores, "each", merged_later),
    "a range is not compared with the set": wrapped(Visited, "unseen", on_the_caller_only),
    "each run is cut where its own parts end": rewritten(
        Workers.cut, "np.searchsorted(run, cuts).tolist()", "[len(run) * k // parts for k in range(1, parts)]"
    ),
    "two processes have one chunk": rewritten(Cores._give, "self._place(number)", "self._place(number // 2)"),
    "a slot is used before it is free": rewritten(Cores._place, "% SLOTS * self._slot_bytes", "* 0"),
    "the caller does not know which steps were met": rewritten(
        ExplicitEngine._successors, "self.compiled.steps[number].meet()", "pass"
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def claim() -> None:
        assert answers(Ring(node=2), 2, replace(MANY, states=5_000)) == expected

    with tiny():
        expected = answers(Ring(node=2), 1)
        claim()
        monkeypatch.setattr(cores, "ANSWER_SECONDS", 0.5)
        assert not survives(MUTANTS[name], claim)

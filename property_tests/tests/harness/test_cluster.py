"""Tasks on a Ray cluster return each result once, even if workers are lost; errors come in time and name the remedy.

These tests use a double of Ray. The tests of a real cluster are in command_line/test_ray.py.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trystate.model.errors import UnavailableError, UsageError
from trystate.property_tests.adapters.campaigns.kinds import kinds
from trystate.property_tests.adapters.campaigns.pieces import pieces
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.ray_double import EXCEPTIONS, Double, doubled
from trystate.search import cluster
from trystate.search.cluster import RUNS_MAX, Cluster, WorkerLost
from trystate.search.processes import Processes


@dataclass(frozen=True)
class Square:
    """A task whose result is its square; task 13 raises an error."""

    number: int

    @property
    def name(self) -> str:
        return f"square {self.number}"

    def __call__(self) -> int:
        if self.number == 13:
            raise LookupError("no square of 13")
        return self.number**2


def squares(first: int, size: int) -> list[Square]:
    return [Square(n) for n in range(first, first + size)]


def done(
    double: Double, size: int, order: Sequence[int] | None = None, first: int = 0, address: str = "auto"
) -> list[tuple[int, Any]]:
    with Cluster(address, squares(first, size), partial(squares, first, size)) as workers:
        assert double.up
        found = list(workers.results(range(size) if order is None else order))
    assert not double.up
    return found


def lost(kind: str = "WorkerCrashedError") -> Exception:
    error: Exception = EXCEPTIONS[kind]("the worker died\nmore")
    return error


# ---- results


@st.composite
def losses(draw: st.DrawFn) -> tuple[int, int, dict[int, list[Exception]]]:
    size = draw(st.integers(1, 12))
    kinds = st.lists(st.sampled_from([*EXCEPTIONS]).map(lost), max_size=RUNS_MAX - 1)
    return size, draw(st.integers(0, 99)), draw(st.dictionaries(st.integers(0, size - 1), kinds))


@settings(max_examples=examples(40))
@given(losses())
def test_each_result_comes_once_whatever_is_lost(case: tuple[int, int, dict[int, list[Exception]]]) -> None:
    size, seed, gone = case
    with doubled(seed=seed, losses=gone) as double:
        found = done(double, size)
    with Processes(squares(0, size), 1) as processes:
        assert sorted(found) == list(processes.results(range(size)))
    assert double.runs == {n: 1 + len(gone.get(n, ())) for n in range(size)}


def test_results_arrive_as_tasks_end_and_few_tasks_are_submitted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "GIVEN_MAX", 3)
    with doubled(seed=1) as double:
        given_at_a_time: list[int] = []
        wait = double.wait

        def counting(refs: list[Any], **how: Any) -> Any:
            given_at_a_time.append(len(refs))
            return wait(refs, **how)

        monkeypatch.setattr(double, "wait", counting)
        found = [number for number, _ in done(double, 9, [*range(8, -1, -1)])]
    assert sorted(found) == [*range(9)] != found
    assert found[0] in (8, 7, 6) and max(given_at_a_time) == 3, "the first of the order are given first"


def test_a_task_that_is_lost_repeatedly_is_given_up_with_the_remedy() -> None:
    with doubled(losses={1: [lost() for _ in range(RUNS_MAX)]}) as double:
        with pytest.raises(
            WorkerLost, match=rf"square 1 was lost .* {RUNS_MAX} times.*the worker died; .*--max-memory"
        ):
            done(double, 3)
        assert double.runs[1] == RUNS_MAX and not double.up


def test_an_error_of_a_task_has_the_traceback_of_its_worker() -> None:
    with doubled() as double:
        with pytest.raises(LookupError, match="no square of 13") as raised:
            done(double, 5, first=10)
        assert "in __call__" in "".join(raised.value.__notes__) and not double.up


@pytest.mark.parametrize("other", ["release", "list"])
def test_a_worker_that_would_do_something_else_is_refused(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if other == "release":
        told = count()
        monkeypatch.setattr(cluster, "releases", lambda: f"trystate {next(told)}")
    with doubled(), Cluster("local", squares(0, 1), partial(squares, 4, 1)) as workers:  # noqa: SIM117
        with pytest.raises(UsageError, match="install one release"):
            list(workers.results([0]))


# ---- addresses, and clusters that do not answer


@pytest.mark.parametrize("address", ["", "host", "host:", "host:0", "host:70000", "http://host:1", "local:x", "a b:1"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with doubled(), pytest.raises(UsageError, match=r"is not an address: give local, auto, HOST"), entered(address):
        pass


def entered(address: str) -> Cluster:
    return Cluster(address, squares(0, 1), partial(squares, 0, 1))


@pytest.mark.parametrize("prefix", ["", "ray://"])
def test_an_address_at_which_nothing_answers_is_refused_at_once(prefix: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # the port is bound, but nothing listens
        address = f"{prefix}127.0.0.1:{taken.getsockname()[1]}"
        with doubled(), pytest.raises(UsageError, match=r"nothing answers there .*ray start --head"), entered(address):
            pass


def test_a_cluster_that_does_not_answer_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.05)
    began = time.monotonic()
    with doubled(hangs=1.0), pytest.raises(UnavailableError, match=r"nothing answers within 0\.05 s"), entered("auto"):
        pass
    assert time.monotonic() - began < 0.9


@pytest.mark.parametrize(
    ("fails", "error", "said"),
    [
        (ConnectionError("no running Ray\nx"), UsageError, r"auto: no running Ray; start a cluster with `ray start"),
        (RuntimeError("Version mismatch"), UsageError, "Version mismatch"),
        (ImportError("no grpc"), UnavailableError, r"pip install 'ray\[client\]'"),
    ],
)
def test_an_error_of_ray_about_an_address_has_a_remedy(fails: Exception, error: type[Exception], said: str) -> None:
    with doubled(fails=fails) as double, pytest.raises(error, match=said), entered("auto"):
        pass
    assert not double.up


def test_without_ray_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with doubled():
        monkeypatch.setitem(sys.modules, "ray", None)
        with (
            pytest.raises(UnavailableError, match=r"pip install 'trystate\[ray\]', or leave out --ray"),
            entered("auto"),
        ):
            pass


def test_a_cluster_without_a_node_that_takes_a_task_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "IDLE_SECONDS", 0.1)
    began = time.monotonic()
    with doubled(cpus=0) as double, pytest.raises(WorkerLost, match=r"no node with 1 CPUs for 0\.1 s, with 2 tasks"):
        done(double, 2)
    assert 0.1 <= time.monotonic() - began < 5.0


def test_a_local_cluster_listens_on_the_loopback_and_sends_no_statistics() -> None:
    with doubled() as double:
        done(double, 1, address="local")
        assert (os.environ["RAY_USAGE_STATS_ENABLED"], os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"]) == ("0", "0")
    assert (double.how["_node_ip_address"], double.how["include_dashboard"]) == ("127.0.0.1", False)
    assert double.options == {"num_cpus": 1, "max_retries": 0}
    assert not os.path.exists(double.how["_temp_dir"])


# ---- campaigns


def test_pieces_of_a_campaign_have_the_same_tallies_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["ours", "rooms"]
    for name in names:
        monkeypatch.setattr(kinds()[name], "batch", 16)
    make = partial(pieces, names, 25, 30, 3)
    tasks = make()
    with doubled(seed=3, losses={1: [lost()]}) as double, Cluster("local", tasks, make, jobs=2) as cluster:
        found = dict(cluster.results(range(len(tasks))))
    assert len(double.runs) == len(tasks) == 4
    for number, task in enumerate(tasks):
        here = {**task().data(), "cpu_seconds": 0.0}
        assert {**found[number].data(), "cpu_seconds": 0.0} == here and here["seeds"] == len(task.seeds)

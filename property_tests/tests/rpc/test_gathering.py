"""Workers that meet: each gets the values of all, whatever the order in which they come, leave, and are lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.futures import Future

from trystate import rpc
from trystate.impl.rpc import gathering
from trystate.impl.rpc.gathering import Gatherings, Ranks
from trystate.impl.rpc.invocations import Invocations
from trystate.model.errors import UsageError
from trystate.property_tests.support.rpc.worlds import PATIENCE_SECONDS, eventually, processes, world
from trystate.rpc import PeerLost, RpcError, RpcTimeout

ALL = (0, 1, 2)
# Of members: a come is True, a leave of the last that is not over False.
MOVES = st.lists(st.tuples(st.sampled_from(ALL), st.sampled_from((True, True, False))), max_size=24)


class StaysAfterItsTime(Gatherings):
    """A member that leaves is still counted."""

    def leave(self, ranks: Ranks, member: int, number: int) -> list[int]:
        return []


class CountsArrivals(Gatherings):
    """A round is complete when as many have come as there are members, twice the same or not."""

    def come(self, ranks: Ranks, member: int, number: int, value: Any) -> Future[dict[int, Any]]:
        rounds = self._rounds.setdefault(ranks, [gathering._Round()])
        rounds[0].come[len(rounds[0].come)] = number, value
        found = rounds[0]
        if len(found.come) == len(ranks):
            self._drop(ranks, found)
            found.all_there.set_result({rank: found.come[rank][1] for rank in ranks})
        return found.all_there


class BeginsAnew(Gatherings):
    """Each member that comes begins a round."""

    def come(self, ranks: Ranks, member: int, number: int, value: Any) -> Future[dict[int, Any]]:
        self._rounds.setdefault(ranks, []).append(found := gathering._Round())
        found.come[member] = number, value
        return found.all_there


class ForgetsTheLost(Gatherings):
    """A worker that is lost is waited for."""

    def lost(self, peer: int, reason: str) -> None:
        pass


def check(table: type[Gatherings], moves: list[tuple[int, bool]]) -> None:
    """Make the moves, and as many more as let all members come equally often; then lose one of them."""
    rounds = table(lambda rank: None)
    waiting: dict[tuple[int, int], Future[dict[int, Any]]] = {}
    given_up: set[tuple[int, int]] = set()
    for number, (member, comes) in enumerate(moves):
        open_here = [key for key, future in waiting.items() if key[0] == member and not future.done()]
        if comes:
            waiting[member, number] = rounds.come(ALL, member, number, (member, number))
        elif open_here:
            late = rounds.leave(ALL, *open_here[-1])
            assert member not in late and late, "somebody had not come, or the future was set"
            given_up.add(open_here[-1])
            del waiting[open_here[-1]]
    counts = Counter(member for member, _ in waiting)
    for member in ALL:
        for number in range(100, 100 + max(counts.values(), default=0) - counts[member]):
            waiting[member, number] = rounds.come(ALL, member, number, (member, number))
    assert all(future.done() for future in waiting.values()) and rounds.open() == {}
    for key, future in waiting.items():
        values = future.value()
        assert set(values) == set(ALL) and all(value[0] == rank for rank, value in values.items())
        assert values[key[0]] == key and not given_up.intersection(values.values())
    last = rounds.come(ALL, 0, 200, None)
    rounds.lost(1, "it died")
    assert last.done() and rounds.open() == {}
    with pytest.raises(PeerLost, match="it died"):
        last.wait()


@given(MOVES)
def test_every_member_gets_one_value_of_each(moves: list[tuple[int, bool]]) -> None:
    check(Gatherings, moves)


@pytest.mark.parametrize("mutant", [StaysAfterItsTime, CountsArrivals, BeginsAnew, ForgetsTheLost])
def test_mutants_of_the_table_are_caught(mutant: type[Gatherings]) -> None:
    caught = settings(database=None, max_examples=200, report_multiple_bugs=False)(
        given(MOVES)(lambda moves: check(mutant, moves))
    )
    with pytest.raises((AssertionError, KeyError, RuntimeError)):
        caught()


def test_who_is_no_member_or_lost_is_told_at_once() -> None:
    rounds = Gatherings(lambda rank: "worker 'C' is lost" if rank == 2 else None)
    with pytest.raises(RpcError, match=r"worker 2 is none of the workers \(0, 1\)"):
        rounds.come((0, 1), 2, 0, None)
    with pytest.raises(PeerLost, match="worker 'C' is lost"):
        rounds.come(ALL, 0, 0, None)
    assert rounds.open() == {}


def at_once(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """The result of each thread, or its error."""
    found: list[Any] = [None] * len(works)

    def run(place: int) -> None:
        try:
            found[place] = works[place]()
        except RpcError as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE_SECONDS)
    return found


def each_gathers(calls: list[Invocations], ranks: Ranks, times: int = 1) -> list[Any]:
    """Each worker gathers its rank, with so many threads."""
    return at_once([partial(calls[me].all_gather, me, ranks, None) for me in ranks] * times)


def test_several_threads_of_each_worker_meet() -> None:
    with world(3) as calls:
        assert each_gathers(calls, ALL, times=4) == [{"A": 0, "B": 1, "C": 2}] * 12
        assert each_gathers(calls, (1, 2)) == [{"B": 1, "C": 2}] * 2


def test_who_did_not_come_in_time_is_named_and_all_may_come_again() -> None:
    with world(3) as calls:
        late = at_once([partial(calls[me].all_gather, me, ALL, 0.2) for me in (0, 1)])
        assert all(isinstance(error, RpcTimeout) for error in late)
        assert any("of A, B, C: C did not come" in str(error) for error in late), late
        assert calls[0]._gatherings.open() == {}
        assert each_gathers(calls, ALL) == [{"A": 0, "B": 1, "C": 2}] * 3


# In processes of their own, by the functions that a program calls.


def gathered(value: object, workers: list[str] | None = None, timeout: float | None = None) -> Any:
    try:
        return rpc.all_gather(value, workers, timeout)
    except (RpcError, UsageError) as error:
        return f"{type(error).__name__}: {error}"


def passed(seconds: float) -> float:
    """When it came through a barrier for which it was late by so much."""
    time.sleep(seconds)
    rpc.barrier()
    return time.monotonic()


def test_processes_meet_and_a_killed_one_is_not_waited_for(tmp_path: Path) -> None:
    with processes(tmp_path, 3) as workers:
        for rank, worker in enumerate(workers):
            worker.tell(gathered, rank)
        assert [worker.heard() for worker in workers] == [{"w0": 0, "w1": 1, "w2": 2}] * 3
        assert "the workers w1, w2 do not meet 'w0'" in workers[0].does(gathered, 0, ["w1", "w2"])
        began = time.monotonic()
        for rank, worker in enumerate(workers):
            worker.tell(passed, 0.3 * rank)
        assert min(worker.heard() for worker in workers) - began >= 0.6
        for worker in workers[:2]:
            worker.tell(gathered, None)
        time.sleep(0.1)
        workers[2].child.kill()
        assert all("w2' is lost" in worker.heard() for worker in workers[:2])
        assert eventually(lambda: workers[0].does(gathered, None).startswith(("PeerLost", "RemotePeerLost")))

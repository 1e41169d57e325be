"""Each worker gets the values of all workers, in whatever order they come, leave, and are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.futures import Future

from trystate.impl.rpc.gathering import Gatherings
from trystate.property_tests.support.rpc.worlds import world
from trystate.rpc import PeerLost, RpcError, RpcTimeout

ALL = (0, 1, 2)
# Moves of members. True: the member comes. False: it leaves its last round that is not over.
MOVES = st.lists(st.tuples(st.sampled_from(ALL), st.sampled_from((True, True, False))), max_size=24)


@given(MOVES)
def test_every_member_gets_one_value_of_each(moves: list[tuple[int, bool]]) -> None:
    """Make the moves. Let members come until all have come equally often. Then lose a member."""
    rounds = Gatherings(lambda rank: None)
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
    assert all(future.done() for future in waiting.values()) and not rounds._rounds
    for key, future in waiting.items():
        values = future.value()
        assert set(values) == set(ALL) and all(value[0] == rank for rank, value in values.items())
        assert values[key[0]] == key and not given_up.intersection(values.values())
    last = rounds.come(ALL, 0, 200, None)
    rounds.lost(1, "it died")
    assert last.done() and not rounds._rounds
    with pytest.raises(PeerLost, match="it died"):
        last.wait()


def test_a_stranger_or_a_lost_member_fails_at_once() -> None:
    rounds = Gatherings(lambda rank: "worker 'C' is lost" if rank == 2 else None)
    with pytest.raises(RpcError, match=r"worker 2 is not one of the workers \(0, 1\)"):
        rounds.come((0, 1), 2, 0, None)
    with pytest.raises(PeerLost, match="worker 'C' is lost"):
        rounds.come(ALL, 0, 0, None)
    assert not rounds._rounds


def at_once(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """The result of each thread, or its error."""
    with ThreadPoolExecutor(len(works)) as threads:
        begun = [threads.submit(work) for work in works]
        return [each.exception() or each.result() for each in begun]


def test_late_workers_are_named_and_all_may_gather_again() -> None:
    with world(3) as calls:
        late = at_once([partial(calls[me].all_gather, me, ALL, 0.2) for me in (0, 1)])
        assert all(isinstance(error, RpcTimeout) for error in late)
        assert any("of A, B, C: C did not come" in str(error) for error in late), late
        assert not calls[0]._gatherings._rounds
        gather = [partial(calls[me].all_gather, me, ALL, None) for me in ALL] * 2  # two threads of each worker
        assert at_once(gather) == [{"A": 0, "B": 1, "C": 2}] * 6

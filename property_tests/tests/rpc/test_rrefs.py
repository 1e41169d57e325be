"""RRefs: a value exists as long as any worker holds a reference to it, and is then deleted on all workers."""

from __future__ import annotations

import gc
import itertools
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trystate.impl.rpc import references as tables
from trystate.impl.rpc.frames import Kind
from trystate.impl.rpc.invocations import Invocations
from trystate.impl.rpc.references import NOTICE, Fork, Happened
from trystate.property_tests.support.rpc import functions as f
from trystate.property_tests.support.rpc.worlds import PATIENCE_SECONDS, WORLD, eventually, world
from trystate.rpc import (
    AgentClosed,
    FrameRefused,
    LimitExceeded,
    Limits,
    NotAllowed,
    Options,
    PeerLost,
    Pickles,
    RemoteError,
    RpcError,
    RpcTimeout,
    RRef,
    RRefGone,
)

A, B, C = range(3)
NOTHING = {"owned": 0, "held": 0, "passed": 0}


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "three" in request.fixturenames:
        f.KEPT.clear()
        assert all_gone(), [calls.references.counts() for calls in WORLD]


def all_gone() -> bool:
    def look() -> bool:
        return all(calls.references.counts() == NOTHING for calls in WORLD)

    if not eventually(look, 0.02):
        gc.collect()  # the exceptions that a test expects hold objects in cycles
    return eventually(look)


def own(calls: Invocations, value: Any) -> RRef[Any]:
    owned = calls.references.own()
    owned.set(value)
    return RRef._of(owned, calls)


def test_a_value_stays_where_it_is_made_and_its_methods_run_there(three: list[Invocations]) -> None:
    rref = three[A].remote(B, f.Counter, (5,), None, None)
    assert (rref.owner_name(), rref.owner().id, rref.is_owner()) == ("B", B, False)
    assert rref.rpc_sync().add() == 6 and rref.rpc_async().add(4).wait() == 10
    assert rref.remote().add(2).to_here() == 12 and rref.confirmed_by_owner()
    assert rref.rpc_sync().scaled(torch.ones(2)).tolist() == [12, 12]
    with pytest.raises(NotAllowed, match="begins with '_' and cannot be called"):
        rref.rpc_sync()._secret()
    with pytest.raises(RpcError, match=r"localValue\(\) on user .* Call it on owner WorkerInfo\(id=\d, name=B\)"):
        rref.local_value()
    with pytest.raises(NotAllowed, match=r"Counter is not sent: give Options\(allowed="):
        rref.to_here()
    assert eventually(lambda: three[A].references.counts() == {"owned": 0, "held": 1, "passed": 0})
    assert eventually(lambda: three[B].references.counts()["owned"] == 1)  # the value of `remote().add` was deleted


def test_the_type_of_a_value_is_requested_once(three: list[Invocations]) -> None:
    rref = three[A].remote(B, f.add, (torch.ones(2), torch.ones(2)), None, None)
    any_type = Options(timeout=PATIENCE_SECONDS, pickles=Pickles.ANY)
    with pytest.raises(NotAllowed, match=r"is not sent: give Options\(allowed="):  # a type is sent like any other value
        rref.get_type()
    with world(2, any_type) as calls:
        rref = calls[A].remote(B, f.Counter, (1,), None, None)
        assert rref.get_type() is f.Counter and rref.get_type(blocking=False) is rref.get_type(blocking=False)
        with f.closed_gate():
            late = calls[A].remote(B, f.wait_for_gate, (), None, None)
            with pytest.raises(RpcTimeout):
                late.get_type(0.05)
        assert late.get_type() is bool  # an error is not kept


def test_a_future_says_when_the_owner_has_taken_in_the_call(three: list[Invocations]) -> None:
    with f.closed_gate():
        rref = three[A].remote(B, f.wait_for_gate, (), None, None)
        assert rref.get_future().wait() is None and rref.confirmed_by_owner()  # the function still runs
    assert rref.to_here() is not None and rref.get_future() is rref.get_future()
    passed_on = three[A].sync(C, f.given_back, (rref,), None, None)
    assert passed_on.get_future().wait() is None
    mine = three[A].remote(A, f.both, (1,), None, None)
    assert mine.get_future().wait() is None and mine.local_value() == (1, None)


def test_the_future_of_a_call_that_was_never_taken_in_has_its_error() -> None:
    with world(2) as calls:
        calls[B].agent.close("it leaves")
        rref = calls[A].remote(B, f.both, (1,), None, None)
        with pytest.raises(PeerLost):
            rref.get_future().wait()


def test_waiting_for_a_value_ends_at_the_timeout(three: list[Invocations]) -> None:
    with f.closed_gate():
        for to in (A, B):
            rref = three[A].remote(to, f.wait_for_gate, (), None, None)
            with pytest.raises(RpcTimeout):
                rref.to_here(0.05)


def test_an_rref_in_a_result_and_in_an_answer_that_is_too_late(three: list[Invocations]) -> None:
    rref = three[A].remote(B, f.Counter, (1,), None, None)
    assert three[A].sync(C, f.given_back, ([rref, rref],), None, None)[1].rpc_sync().add() == 2
    with f.closed_gate(), pytest.raises(RpcTimeout):
        three[A].sync(C, f.given_back_at_gate, (rref,), None, 0.05)


def test_nobody_pickles_an_rref_past_the_counts(three: list[Invocations]) -> None:
    with pytest.raises(RpcError, match="it can only be an argument or a result of a call, since calls count it"):
        pickle.dumps(own(three[A], 1))


def test_an_rref_of_an_earlier_group_is_no_argument() -> None:
    """Its number is the number of another value."""
    with world(2) as before:
        earlier = own(before[A], "first")
    with world(2) as calls:
        assert own(calls[A], "second").id == earlier.id
        with pytest.raises(AgentClosed, match="of a group that has ended"):
            calls[A].sync(B, f.given_back, ([earlier],), None, None)


def test_an_argument_that_cannot_be_sent_raises_at_once_and_leaves_nothing(three: list[Invocations]) -> None:
    mine, refused = own(three[A], 1), torch.empty(2, device="meta")
    for send, to in itertools.product((three[A].begin, three[A].remote), (A, B)):
        with pytest.raises(NotAllowed):
            send(to, f.both, (mine, refused), None, None)
    del mine
    assert all_gone()


def test_rrefs_that_are_given_to_a_lost_worker_end() -> None:
    with world(3) as calls:
        rrefs = [own(calls[A], 1), calls[A].remote(B, f.Counter, (1,), None, None)]
        calls[C].agent.close("it is killed")
        assert eventually(lambda: calls[A].agent.loss(C))
        for rref in rrefs:
            with pytest.raises(PeerLost):
                calls[A].sync(C, f.given_back, (rref,), None, None)
        assert calls[A].references.forks() == calls[A].references.counts()["passed"] == 0


def test_a_deleted_value_raises_that_it_is_gone(three: list[Invocations]) -> None:
    gone = three[A].remote(B, f.add, (1, 2), None, None).id
    three[A].remote(B, f.add, (1, 2), None, None).to_here()
    assert eventually(lambda: gone not in three[B].references._known)
    with pytest.raises(RRefGone, match="does not have the value"):
        three[A].sync(B, ":fetch", gone, None, None)


STEP = st.tuples(
    st.sampled_from(["make", "pass", "drop", "use"]), st.integers(0, 2), st.integers(0, 2), st.integers(0, 9)
)


def run(steps: list[tuple[str, int, int, int]]) -> None:
    """Each worker's RRefs are in KEPT. Any two workers call each other, not only holder and owner."""
    calls = WORLD
    for what, at, to, which in steps:
        held = f.KEPT.setdefault(at, [])
        if what == "make":
            held.append(calls[at].remote(to, f.Counter, (which,), None, None))
        elif held and what == "pass":
            calls[at].sync(to, f.keep, (to, held[which % len(held)]), None, None)
        elif held and what == "drop":
            del held[which % len(held)]
        elif held:
            assert held[which % len(held)].rpc_sync().add(1) > 0
    for rrefs in f.KEPT.values():
        assert all(rref.rpc_sync().add(1) > 0 for rref in rrefs)
    f.KEPT.clear()


@given(st.lists(STEP, max_size=25))
def test_counts_come_to_zero_whatever_way_rrefs_took(
    three: list[Invocations], steps: list[tuple[str, int, int, int]]
) -> None:
    run(steps)
    assert all_gone(), [calls.references.counts() for calls in three]


def test_a_notice_that_a_limit_has_stopped_is_sent_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "AGAIN_SECONDS", 0.01)
    with world(2, Options(timeout=PATIENCE_SECONDS, limits=Limits(unanswered=2), arena_bytes=0)) as two:
        with f.closed_gate():
            rref = two[A].remote(B, f.Counter, (1,), None, None)
            assert eventually(lambda: not two[A].agent.busy[0])
            futures = [two[A].begin(B, f.wait_for_gate, (), None, None) for _ in range(2)]
            del rref
            with pytest.raises(LimitExceeded, match="2 requests of this worker have no answer"):
                two[A].sync(B, f.nothing, (), None, None)
            assert eventually(lambda: two[A].references._untold) and two[B].references.counts()["owned"] == 1
        assert all(future.wait() for future in futures) and all_gone()


def test_a_handle_that_a_limit_hides_from_its_owner_keeps_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "AGAIN_SECONDS", 0.01)
    with world(3, Options(timeout=PATIENCE_SECONDS, limits=Limits(unanswered=2), arena_bytes=0)) as calls:
        rref = calls[A].remote(B, f.Counter, (1,), None, None)
        rref.get_future().wait()
        with f.closed_gate():
            futures = [calls[C].begin(B, f.wait_for_gate, (), None, None) for _ in range(2)]
            calls[A].sync(C, f.keep, (C, rref), None, None)
            del rref
            assert eventually(lambda: calls[C].references._untold)
        assert all(future.wait() for future in futures)
        assert eventually(lambda: calls[A].references.counts() == NOTHING)
        assert f.KEPT.pop(C)[0].rpc_sync().add() == 2


def test_a_reference_may_come_before_what_makes_its_value() -> None:
    """Another worker sends it: frames of two connections arrive in any order."""
    with world(2) as calls:  # not `three`: after this, B refuses each smaller number of A whose value it does not have
        here, reference = calls[B].references, (A, 1 << 40)
        place = here.owned(reference)
        assert not place.made.done()
        assert here.created(Fork(reference, (A, 1 << 41), B), A) is place
        with pytest.raises(FrameRefused):
            here.created(Fork(reference, (A, 1 << 42), B), A)
        place.set(5)
        assert here.owned(reference).get() == 5


def test_a_reference_to_what_is_never_made_says_so(three: list[Invocations], monkeypatch: pytest.MonkeyPatch) -> None:
    here = three[B].references
    with pytest.raises(RRefGone):
        here.owned((B, 1 << 40))  # the owner makes this value itself
    after = three[B].agent.after
    monkeypatch.setattr(three[B].agent, "after", lambda seconds, act: after(0.02, act))
    place = here.owned((A, 1 << 50))
    assert eventually(place.made.done)
    with pytest.raises(RRefGone, match="keep an RRef to it"):
        place.get()


def test_a_worker_ends_and_takes_no_fork_of_another(three: list[Invocations]) -> None:
    rref = three[A].remote(B, f.Counter, (1,), None, None)
    three[A].sync(C, f.keep, (C, rref), None, None)
    tables_of_b, reference = three[B].references, rref.id
    assert eventually(  # B may get the call of C before it has made the value
        lambda: (
            reference in tables_of_b._shared
            and len(tables_of_b._shared[reference].forks) == 2
            and three[A].references.counts()["passed"] == 0
        )
    )
    forks = dict(tables_of_b._shared[reference].forks)
    for fork, holder in forks.items():
        other = A + C - holder
        three[other].agent.ask(B, Kind.RREF, NOTICE.pack(Happened.DELETED, *reference, *fork), (), PATIENCE_SECONDS)
        with pytest.raises(RemoteError, match="which belongs to another worker"):
            three[other].agent.ask(B, Kind.RREF, NOTICE.pack(Happened.FORKED, *reference, *fork), (), PATIENCE_SECONDS)
    assert tables_of_b._shared[reference].forks == forks
    passed = three[A].references.fork(rref._ref, C)
    accepted = NOTICE.pack(Happened.ACCEPTED, *reference, *passed.fork)
    three[B].agent.ask(A, Kind.RREF, accepted, (), PATIENCE_SECONDS)
    assert three[A].references.counts()["passed"] == 1
    three[C].agent.ask(A, Kind.RREF, accepted, (), PATIENCE_SECONDS)
    assert three[A].references.counts()["passed"] == 0


def test_many_references_that_come_before_their_calls_take_no_thread_each(three: list[Invocations]) -> None:
    here, few = three[B].references, threading.active_count() + 5
    places = [here.owned((A, number)) for number in range(1 << 50, (1 << 50) + 50)]
    assert threading.active_count() < few
    here._peer_lost(A, "the test is over")
    assert all(place.made.done() for place in places) and not three[B].agent._acts

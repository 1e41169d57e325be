"""The writes of an operator: a name must match one node, and a drain that would stop the job is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trystate.impl.rendezvous.encoding import decode, encode
from trystate.impl.rendezvous.errors import RendezvousConnectionError, RendezvousStateError
from trystate.impl.rendezvous.outsider import Outsider, named_node
from trystate.impl.rendezvous.state import Closed, Node, State
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.model.errors import UsageError
from trystate.property_tests.adapters.our_rendezvous.parts import changed, participant, settings
from trystate.store import HashStore


def of(*members: int, low: int = 2, high: int = 4, **more: Any) -> State:
    return State("life", settings(low, high), complete=True, participants=tuple(map(participant, members)), **more)


def held(store: HashStore) -> State:
    return decode(StoreBackend(store, "job").read() or b"")


def on(state: State) -> HashStore:
    store = HashStore()
    StoreBackend(store, "job").write(encode(state), None)
    return store


def test_a_name_is_a_node_or_a_host_that_has_one() -> None:
    state = of(0, 1)
    twin = replace(participant(2), node=Node("node1", 7, 0, "twin"))
    both = replace(state, participants=(*state.participants, twin))
    assert named_node(state, "node1").token == "token-1"
    assert named_node(both, "node1_7_0").token == "twin"
    assert named_node(both, "node0").token == "token-0"
    with pytest.raises(UsageError, match="node1 has 2 nodes of this job; give one of node1_101_0, node1_7_0"):
        named_node(both, "node1")
    with pytest.raises(UsageError, match="the job has no node 'node': its nodes are node0_100_0, node1_101_0"):
        named_node(state, "node")
    with pytest.raises(UsageError, match="it has no node"):
        named_node(State("life", settings()), "node0")


REFUSED = {
    "too few stay": (of(0, 1), "the job has 1 node, fewer than min_nodes=2"),
    "another one is drained already": (
        changed("drain", of(0, 1, 2), participant(9), participant(2).node), "the job has 1 node"
    ),
    "the job is about to succeed": (of(0, 1, 2, done=("token-1",)), "the workers of 1 node have succeeded"),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_a_drain_is_refused_and_writes_nothing_unless_it_is_forced(why: str) -> None:
    state, said = REFUSED[why]
    with on(state) as store, Outsider(store, "job") as operator:
        with pytest.raises(UsageError, match=said):
            operator.drain("node0")
        assert held(store) == state
        assert operator.drain("node0", force=True) == (participant(0).node, True)
        assert "token-0" in held(store).draining


def test_nothing_is_drained_of_a_job_that_is_closed_or_without_the_node() -> None:
    state = of(0, 1, 2)
    with on(state) as store, Outsider(store, "job") as operator:
        StoreBackend(store, "job").write(encode(changed("withdraw", state, participant(0))), encode(state))
        with pytest.raises(UsageError, match="nothing was drained: node0_100_0 has left by itself"):
            operator.drain("node0")
    with on(replace(state, closed=Closed("node1_101_0", "over"))) as store, Outsider(store, "job") as operator:
        with pytest.raises(UsageError, match="the job was closed by node1_101_0: over"):
            operator.drain("node0")
        assert not operator.close_rendezvous("again")
        assert held(store).closed == Closed("node1_101_0", "over")


def test_a_wait_ends_with_its_state_its_limit_or_the_loss_of_the_state() -> None:
    with on(of(0, 1)) as store, Outsider(store, "job") as operator:
        assert operator.wait(lambda state: state.complete, 0.1)
        assert not operator.wait(lambda state: not state.complete, 0.1)
        store.delete_key("trystate/job/state")
        with pytest.raises(RendezvousConnectionError, match="has come back empty"):
            operator.wait(lambda state: not state.complete, 5.0)
    with HashStore() as empty, pytest.raises(RendezvousStateError, match="no state of the job 'job'"):
        Outsider(empty, "job")

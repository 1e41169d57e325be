"""The rendezvous over etcd: its promises, a violation of each promise, and torch's class compared with the model.

Every property is violated by a model that is wrong in one place. Each rule that torch's class keeps is broken once,
and the replay of the model's edges notices it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from unittest import mock

import pytest

# ruff: noqa: E402  (what follows imports that module)
er = pytest.importorskip(  # older releases need python-etcd to import it
    "torch.distributed.elastic.rendezvous.etcd_rendezvous", exc_type=ModuleNotFoundError
)
from trystate.model.language.transitions import fault_bounds
from trystate.model.rendezvous.etcd import EtcdRendezvous
from trystate.model.rendezvous.vocabulary import Edition, EtcdRound
from trystate.property_tests.adapters.torch_rendezvous.conformance import ETCD_SLICES
from trystate.property_tests.adapters.torch_rendezvous.etcd import ETCD, Client, TorchEtcd
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.support.mutants import altered, wrong
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import Asked, model_tests, of_plan

TWO, FULL, THREE = "node=2 min_nodes=1 max_nodes=2", "node=3 min_nodes=2 max_nodes=2", "node=3 min_nodes=2 max_nodes=3"


# fmt: off
AdmitsAll = altered(
    "AdmitsAll", EtcdRendezvous, "join",
    "s.rank[node] = self.next_rank(s)\n    s.joined = s.joined + 1\n"
    "    s.status = ite(s.joined >= self.max_nodes, Round.FROZEN, Round.JOINABLE)",
    "s.joined = ite(s.joined < self.max_nodes, s.joined + 1, s.joined)")
GivesOneRank = wrong("GivesOneRank", EtcdRendezvous, next_rank=lambda self, s: 0)
CountsFromOne = wrong("CountsFromOne", EtcdRendezvous, next_rank=lambda self, s: s.joined + 1)
FreezesBelowMin = wrong("FreezesBelowMin", EtcdRendezvous,
                        has_last_call=lambda self, s: (s.joined == 1) & (s.status == EtcdRound.JOINABLE))
OneConfirms = wrong("OneConfirms", EtcdRendezvous, is_confirmed_by_enough=lambda self, s: s.confirmed.count() >= 1)
CreatesOverClosed = wrong("CreatesOverClosed", EtcdRendezvous,
                          is_free=lambda self, s: s.status.isin((EtcdRound.NONE, EtcdRound.CLOSED)))
EndlessLastCall = wrong("EndlessLastCall", EtcdRendezvous, end_last_call={"fair": False})
MUTANTS = (
    ("agree_on_world", GivesOneRank, TWO, ()),
    ("ranks_are_dense", CountsFromOne, TWO, ()),
    ("at_most_max", AdmitsAll, FULL, ()),
    ("at_least_min", FreezesBelowMin, FULL, ()),
    ("final_means_confirmed", OneConfirms, FULL, ()),
    ("closed_stays_closed", CreatesOverClosed, FULL, ("job_end",)),
    ("a_round_ends", EndlessLastCall, THREE, ()),
    ("enough_nodes_complete_a_round", EndlessLastCall, THREE, ()),
    ("the_waiting_are_answered", wrong("PollsNever", EtcdRendezvous, restart_workers={"fair": False}), FULL, ()),
    ("closing_reaches_everyone", wrong("ReadsNoClosing", EtcdRendezvous, see_closed={"fair": False}), FULL,
     ("job_end",)),
    ("deadlock_freedom", wrong("StaysWhereItIs", EtcdRendezvous, go_back=None), FULL, ("crash",)),
)
# fmt: on

ASKED = (  # the largest of the plan is not explored by day
    *of_plan(EtcdRendezvous),
    Asked(EtcdRendezvous, Edition.TORCH, FULL, 7349, "", ("job_end", "join_timeout")),
    Asked(EtcdRendezvous, Edition.TORCH, THREE, 44617, "", ("crash", "late", "join_timeout"), 2),
    Asked(EtcdRendezvous, Edition.TORCH, THREE, 35469, "", ("crash", "job_end", "worker_failure")),
)
TestModel = model_tests(ASKED, MUTANTS, [Asked(EtcdRendezvous, Edition.TORCH, sizes, 0) for sizes in (TWO, FULL)])


# ---- torch's class

EVERY_FAULT = tuple(fault_bounds(EtcdRendezvous.declarations()))


def disagree(sizes: Mapping[str, int], faults: tuple[str, ...]) -> bool:
    """Whether torch's class differs from the model along an edge."""
    model = EtcdRendezvous(faults=faults, **sizes)
    with TorchEtcd(model) as subject:
        return bool(replay_every_edge(model, subject, refusals=True, repeats=False, stop_after=1).disagreements)


@pytest.mark.skipif(not NIGHTLY, reason="48,000 edges: under HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize(("least", "nodes", "faults"), [(2, 3, ("crash",)), (2, 2, EVERY_FAULT)], ids=str)
def test_torch_does_it_in_larger_ones(least: int, nodes: int, faults: tuple[str, ...]) -> None:
    assert not disagree({"node": nodes, "min_nodes": least, "max_nodes": nodes}, faults)


def joins_again(self: Any, version: str) -> Any:
    """A node joins although the round is frozen."""
    while True:
        active, state = self.get_rdzv_state()
        rank = len(state["participants"])
        state["participants"].append(rank)
        try:
            return self.client.test_and_set(key=self.get_path("/rdzv/active_version"), value=json.dumps(state),
                                            prev_value=active.value), rank  # fmt: skip
        except ETCD.EtcdCompareFailed:
            pass


def announces_nothing(self: Any, version: str) -> Any:
    """A waiting node is not counted."""
    return self.get_rdzv_state()[0]


BROKEN = (
    (er, "CONST_ETCD_SETUP_TTL", None, 0), (er, "CONST_ETCD_JOINABLE_EPHEMERAL_TTL", None, 1),
    (er, "CONST_ETCD_FROZEN_TTL", None, 0), (er, "CONST_WORKER_KEEPALIVE_TTL", None, 0),
    (er.EtcdRendezvous, "join_rendezvous", joins_again, 2), (Client, "delete", mock.Mock(), 0),
    (Client, "has_event", lambda *_: False, 0), (er.EtcdRendezvous, "set_closed", mock.Mock(), 1),
    (er.EtcdRendezvous, "announce_self_waiting", announces_nothing, 2),
)  # fmt: skip


@pytest.mark.parametrize(("where", "name", "broken", "slice_"), BROKEN, ids=[name for _, name, _, _ in BROKEN])
def test_a_rule_that_torch_breaks_is_a_disagreement(where: Any, name: str, broken: Any, slice_: int) -> None:
    with mock.patch.object(where, name, broken):
        assert disagree(*ETCD_SLICES[slice_])

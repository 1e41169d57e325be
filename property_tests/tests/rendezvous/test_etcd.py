"""The rendezvous over etcd: its promises. Each is violated by a model that is wrong in one place."""

from __future__ import annotations

from trystate.model.rendezvous.etcd import EtcdRendezvous
from trystate.model.rendezvous.vocabulary import Edition, EtcdRound
from trystate.property_tests.support.mutants import altered, wrong
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

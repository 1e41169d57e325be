"""torch's agent loop and its exchange of ranks compared with the models, edge by edge, as `trystate verify` runs it.

Rule: steps that the model forbids are tried in each state. A sample has some edges of some systems. Up to torch 2.7
nothing is compared: that agent closes the rendezvous at a signal, in the replaced part, and has other differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from trystate.impl.torch_release import is_before
from trystate.model.agent import Edition
from trystate.model.agent.ranks import Ranks
from trystate.model.agent.vocabulary import Assignment

from ...harness.checks import Check, Outcome, sampled
from ...harness.paths import replay_systems
from ..our_agent.conformance import Slice
from .loop import TorchLoop
from .ranks import Exchanges

Report = Callable[[str], None]
SIGNAL = () if is_before("2.8") else ("signal",)
FAULTS = ("worker_failure", "outage", "crash", "stall", "freeze", *SIGNAL)  # and newcomer, which needs a crash
SLICES = (
    *(Slice("2 2:2", (fault,)) for fault in ("worker_failure", "outage", *SIGNAL)),
    *(Slice("2 1:1", (fault,)) for fault in FAULTS),
    *(Slice("2 1:2", faults) for faults in ((), *((fault,) for fault in ("worker_failure", "crash")))),
    Slice("2 2:2", ("crash", "newcomer")), Slice("2 2:2", ("worker_failure",), max_restarts=0),
    Slice("3 2:2"),
)  # fmt: skip
SAMPLE_EDGES, SAMPLE_STRIDE = 100, 3


def compare(slices: Iterable[Slice], report: Report, edges_max: int | None = None) -> Outcome:
    """Take every edge of each slice on torch's loop, or about `edges_max`, and try the forbidden steps.

    Raises:
        NotInRelease: as TorchLoop.
    """
    return replay_systems((one.build(Edition.TORCH) for one in slices), TorchLoop, report, edges_max)


RANKS = tuple(
    Ranks(edition=edition, faults=faults, node=nodes, kind=kinds, round=rounds)
    for edition in (Assignment.TORCH, Assignment.TRYSTATE)
    for nodes, kinds, rounds, faults in ((2, 4, 1, ()), (2, 2, 2, ("crash", "newcomer")), (3, 2, 2, ("crash",)))
)


def compare_ranks(models: Iterable[Ranks], report: Report, edges_max: int | None = None) -> Outcome:
    """Take every edge of each model on the exchange of ranks, or about `edges_max`, and try the forbidden steps."""
    return replay_systems(models, Exchanges, report, edges_max)


CHECKS: tuple[Check, ...] = (
    sampled("torch's agent loop", compare, SLICES, SAMPLE_STRIDE, SAMPLE_EDGES),
    Check(
        "the exchange of ranks",
        partial(compare_ranks, RANKS),
        partial(compare_ranks, RANKS[1:], edges_max=SAMPLE_EDGES),
    ),
)

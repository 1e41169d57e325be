"""The comparisons of the model with the installed torch, as `trystate verify` runs them.

Rule: a row or a valuation without a context is a disagreement. So a comparison without disagreements, unless it is of a
sample, has compared everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from trystate.model.language import DecisionTable
from trystate.model.rendezvous.deadlines import Deadlines
from trystate.model.rendezvous.holder import Holders
from trystate.model.rendezvous.operators import OPERATORS
from trystate.model.rendezvous.vocabulary import Edition

from ...harness.checks import Check, Outcome
from ...harness.paths import replay_systems
from .contexts import TORCH_OPERATORS, Compared, Observed, compare, observe
from .deadlines import TorchDeadlines
from .executors import TorchHolders
from .hosting import every_edge as every_edge_of_jobs

TABLES = OPERATORS[Edition.TORCH]
SAMPLE_EDGES = 500
Report = Callable[[str], None]


def operator_contexts(name: str, report: Report) -> Outcome:
    """Compare one operator of torch with its table in every context."""
    report(f"asking torch's {name} operator in every context")
    return compared_with(TABLES[name], lambda: observe(TABLES, {name: TORCH_OPERATORS[name]})[name])


def compared_with(table: DecisionTable, ask: Callable[[], Observed], who: str = "torch") -> Outcome:
    """Compare the answers of an operator, which `ask` returns, with its table."""
    started = time.perf_counter()
    compared = compare(table, ask(), who)
    differences = (*compared.disagreements, *gaps(table.name, compared))
    return Outcome(compared.contexts, "contexts", differences, time.perf_counter() - started)


def gaps(name: str, compared: Compared) -> list[str]:
    """The gaps of a comparison, in words."""
    out = [f"{name}: row {k} was never compared" for k, hits in enumerate(compared.hits, 1) if not hits]
    if compared.unreached:
        out.append(f"{name}: {len(compared.unreached)} valuations that the table allows were never compared")
    return out


def every_edge(report: Report, edges_max: int | None = None) -> Outcome:
    """Replay every step of two state holders on torch's executors, or a sample, and try what the model forbids."""
    system = Holders(node=2, min_nodes=2, max_nodes=2, rounds=2, edition=Edition.TORCH)
    return replay_systems([system], TorchHolders, report, edges_max)


def every_edge_of_calls(report: Report, edges_max: int | None = None) -> Outcome:
    """Replay every step of a node's calls and heartbeats on torch's handler, or a sample."""
    return replay_systems([Deadlines(edition=Edition.TORCH, faults=("corrupt",))], TorchDeadlines, report, edges_max)


CHECKS: tuple[Check, ...] = (
    *(Check(f"{name} operator", partial(operator_contexts, name)) for name in TABLES),
    Check("state holders and executors", every_edge, partial(every_edge, edges_max=SAMPLE_EDGES)),
    Check("calls other than heartbeats", every_edge_of_calls, partial(every_edge_of_calls, edges_max=SAMPLE_EDGES)),
    Check("jobs at one endpoint", every_edge_of_jobs),
)

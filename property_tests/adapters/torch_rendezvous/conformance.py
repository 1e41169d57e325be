"""The comparisons of the model with the installed torch, as `trystate verify` runs them.

Rule: an outcome of the whole without disagreements means that everything was compared: a row that no context hits, or a
valuation that none reaches, is a disagreement too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from trystate.model.errors import UnavailableError
from trystate.model.rendezvous.deadlines import Deadlines
from trystate.model.rendezvous.etcd import EtcdRendezvous
from trystate.model.rendezvous.holder import Holders
from trystate.model.rendezvous.operators import OPERATORS
from trystate.model.rendezvous.vocabulary import Edition

from ...harness.checks import Check, Outcome
from ...harness.paths import replay_every_edge
from .contexts import TORCH_OPERATORS, Compared, compare, observe
from .deadlines import TorchDeadlines
from .executors import TorchHolders
from .hosting import every_edge as every_edge_of_jobs

TABLES = OPERATORS[Edition.TORCH]
SAMPLE_EDGES = 500
Report = Callable[[str], None]


def operator_contexts(name: str, report: Report) -> Outcome:
    """Ask one operator of torch in every context, and its table."""
    started = time.perf_counter()
    report(f"asking torch's {name} operator in every context")
    compared = compare(TABLES[name], observe(TABLES, {name: TORCH_OPERATORS[name]})[name])
    differences = (*compared.disagreements, *gaps(name, compared))
    return Outcome(compared.contexts, "contexts", differences, time.perf_counter() - started)


def gaps(name: str, compared: Compared) -> list[str]:
    """The gaps of a comparison, in words."""
    out = [f"{name}: row {k} was never compared" for k, hits in enumerate(compared.hits, 1) if not hits]
    if compared.unreached:
        out.append(f"{name}: {len(compared.unreached)} valuations that the table allows were never compared")
    return out


def every_edge(report: Report, edges_max: int | None = None) -> Outcome:
    """Replay every step of two state holders on torch's executors, or a sample, and try what the model forbids."""
    started = time.perf_counter()
    system = Holders(node=2, min_nodes=2, max_nodes=2, rounds=2, edition=Edition.TORCH)
    with TorchHolders(system) as subject:
        replayed = replay_every_edge(system, subject, refusals=True, repeats=False, edges_max=edges_max, report=report)
    seconds = time.perf_counter() - started
    return Outcome(replayed.edges, "edges", replayed.disagreements, seconds, replayed.edges_of_all)


def every_edge_of_calls(report: Report, edges_max: int | None = None) -> Outcome:
    """Replay every step of a node's calls beside its heartbeats on torch's handler, or a sample."""
    started = time.perf_counter()
    system = Deadlines(edition=Edition.TORCH, faults=("corrupt",))
    with TorchDeadlines(system) as subject:
        replayed = replay_every_edge(system, subject, refusals=True, repeats=False, edges_max=edges_max, report=report)
    seconds = time.perf_counter() - started
    return Outcome(replayed.edges, "edges", replayed.disagreements, seconds, replayed.edges_of_all)


ETCD_SLICES = (
    ({"node": 2, "min_nodes": 1, "max_nodes": 2}, ("crash", "restart")),
    ({"node": 2, "min_nodes": 1, "max_nodes": 2}, ("worker_failure", "job_end", "late", "join_timeout")),
    ({"node": 3, "min_nodes": 2, "max_nodes": 3}, ()),
)


def every_etcd_edge(report: Report, edges_max: int | None = None) -> Outcome:
    """Replay every step of the rendezvous over etcd on torch's, or a sample of each slice.

    Raises:
        UnavailableError: torch's module cannot be imported without python-etcd, as in older releases.
    """
    try:
        from .etcd import TorchEtcd
    except ModuleNotFoundError as missing:
        raise UnavailableError(f"this torch needs {missing.name} for it: pip install python-etcd") from None
    started, edges, of, disagreements = time.perf_counter(), 0, 0, list[str]()
    for sizes, faults in ETCD_SLICES:
        system = EtcdRendezvous(faults=faults, **sizes)
        with TorchEtcd(system) as subject:
            found = replay_every_edge(system, subject, refusals=True, repeats=False, edges_max=edges_max, report=report)
        edges, of = edges + found.edges, of + found.edges_of_all
        disagreements += found.disagreements
    return Outcome(edges, "edges", tuple(disagreements), time.perf_counter() - started, of)


CHECKS: tuple[Check, ...] = (
    *(Check(f"{name} operator", partial(operator_contexts, name)) for name in TABLES),
    Check("state holders and executors", every_edge, partial(every_edge, edges_max=SAMPLE_EDGES)),
    Check("calls beside heartbeats", every_edge_of_calls, partial(every_edge_of_calls, edges_max=SAMPLE_EDGES)),
    Check("rendezvous over etcd", every_etcd_edge, partial(every_etcd_edge, edges_max=SAMPLE_EDGES)),
    Check("jobs at one endpoint", every_edge_of_jobs),
)

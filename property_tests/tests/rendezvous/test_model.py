"""The repaired rendezvous holds every property in every planned size; its counts are pinned.

Rule: what takes longer than a few seconds is explored by `trystate verify`, and pinned in docs/verdicts.md; under
HYPOTHESIS_PROFILE=nightly here as well, with what is too large for that.
"""

from __future__ import annotations

import os

import pytest
from trystate.model.errors import UsageError
from trystate.model.language.expressions import Expr
from trystate.model.rendezvous import Edition, Rendezvous
from trystate.model.rendezvous.findings import PLAN
from trystate.model.rendezvous.holder import Holders
from trystate.property_tests.support.pinned import Asked, assert_all_happens, assert_as_pinned

EVERY = "worker_failure crash restart stall outage partition join_timeout job_end other_min other_expiry"
BEARABLE = EVERY.replace("other_min ", "")
# Size, faults, and at most how many of them happen in a run: without a number, each as often as its own bound says.
Searched = tuple[str, str, int | None]
PLANNED: dict[Searched, int] = {
    ("2 1:1", "worker_failure crash restart stall", None): 4_350,
    ("2 1:2", "worker_failure crash restart stall join_timeout job_end", None): 184_674,
    ("3 2:3", "", None): 1_096,
    ("3 2:3", "clock_skew clock_step", None): 10_600,
    ("3 2:3", "worker_failure crash restart stall", None): 453_736,
    ("3 1:2", "worker_failure", None): 3_856,
    ("3 1:2", "crash restart join_timeout", None): 82_896,
    ("3 2:4", "other_min other_expiry join_timeout", None): 13_928,
}
LONG: dict[Searched, int] = {
    ("3 2:3", EVERY, 2): 893_161,
    ("3 2:2", BEARABLE, 2): 366_138,
    ("2 2:2", BEARABLE, None): 1_803_622,
    ("4 2:3", "crash stall", None): 3_394_248,
}
A_PART: dict[Searched, int] = {("3 2:3", EVERY, 1): 56_093}  # of a long one: what every fault does, quickly
NIGHTLY: dict[Searched, int] = {
    ("2 1:2", EVERY, None): 5_166_128,
    ("3 2:3", EVERY, 3): 6_335_025,
    ("4 2:4", "crash stall", None): 3_040_556,
    ("3 2:3", "crash stall join_timeout job_end other_min other_expiry", None): 3_249_081,
    ("3 2:3", "worker_failure crash restart stall outage partition", None): 13_252_579,
    ("3 2:3", "worker_failure join_timeout job_end", None): 98_444,
    ("3 2:3", "crash restart partition", None): 168_138,
    ("3 2:3", "crash restart outage", None): 170_420,
}
LATER = {**LONG, **NIGHTLY} if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else {}


def asked(size: str, faults: str, together: int | None, states: int) -> Asked:
    nodes, low, high = size.replace(":", " ").split()
    sizes = f"node={nodes} min_nodes={low} max_nodes={high}"
    return Asked(Rendezvous, Edition.TRYSTATE, sizes, states, "", tuple(faults.split()), together)


@pytest.mark.parametrize("run", [asked(*run, n) for run, n in {**PLANNED, **A_PART, **LATER}.items()], ids=str)
def test_every_property_holds_and_the_counts_are_pinned(run: Asked) -> None:
    assert_as_pinned(run)


def test_what_is_pinned_is_what_is_planned_and_no_defect_is_declared() -> None:
    ours = [run for run in PLAN if run.edition is Edition.TRYSTATE and run.system is Rendezvous]
    assert [run.findings for run in ours] == [{}] * len(ours)
    sizes = ("node", "min_nodes", "max_nodes")
    spans = ["{} {}:{}".format(*(run.sizes[name] for name in sizes)) for run in ours]
    planned = {(span, " ".join(run.faults), run.max_faults) for span, run in zip(spans, ours, strict=True)}
    assert planned == {*PLANNED, *LONG}


def test_everything_happens_that_the_repaired_protocol_declares() -> None:
    assert_all_happens(asked(*run, states) for run, states in {**PLANNED, **A_PART}.items())


def reads(expr: Expr) -> set[str]:
    """The fields that a tree reads."""
    inner = set[str]().union(*(reads(x) for x in expr.args if isinstance(x, Expr)))
    return inner | {expr.args[0]} if expr.op == "read" else inner


CLOCKS = ("clock_skew", "clock_step")


def test_no_step_and_no_property_reads_a_clock_so_that_clocks_cannot_matter() -> None:
    """But the faults themselves, which happen to a clock once: that is why no other run needs them."""
    system = Rendezvous(edition=Edition.TRYSTATE, faults=(*EVERY.split(), *CLOCKS))
    moves = {name: t.effects[name] for t in system.transitions for name in t.effects if t.fault not in CLOCKS}
    assert "clock_behind" not in moves
    steps = [e for t in system.transitions if t.fault not in CLOCKS for e in (t.guard, *t.effects.values())]
    asked = [e for p in system.properties for e in (*p.exprs, *(p.conditions or {}).values())]
    machines = [machine.control for machine in system.machines.values()]
    assert "clock_behind" not in set[str]().union(*map(reads, (*steps, *asked, *machines, system.terminal)))
    torchs = Rendezvous(edition=Edition.TORCH)
    assert "clock_behind" in set[str]().union(*(reads(t.guard) for t in torchs.transitions))


def test_the_finer_system_has_only_the_editions_that_it_takes_apart() -> None:
    with pytest.raises(UsageError, match="Holders has no edition 'TRYSTATE': it has SEED, TORCH"):
        Holders(edition="TRYSTATE")

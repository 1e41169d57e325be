"""Known defects of the elastic agent, and the runs that show them. Data only: `trystate verify` checks it.

A2 to A15 are defects of torch 2.13's agent, which the checker finds in the edition TORCH. A17 is a defect in the ranks
of its workers. A16 is a defect of torch up to 2.7, and A18 of 1.9. R6, R8 and R14 are defects of the rendezvous below
(`model/rendezvous/findings.py`) that this model shows too. The edition TRYSTATE has no defects.
"""

from __future__ import annotations

from typing import Any

from ..checker.expectations import Found, Run, read_findings, search
from ..language.transitions import fault_bounds
from ..rendezvous.findings import FINDINGS as RENDEZVOUS
from .properties import Agents
from .ranks import Ranks
from .vocabulary import Assignment, Edition

FINDINGS = read_findings(__name__)


def run(
    edition: Edition, nodes: int, min_nodes: int, max_nodes: int, faults: tuple[str, ...], *known: Found, ends: int = 1,
    max_restarts: int = 1, **found: Any,
) -> Run:  # fmt: skip
    """One search of `Agents`; `known` and `found`: for each property, the findings that explain its violation.

    If several of them have a property, the last counts.
    """
    sizes = {"node": nodes, "min_nodes": min_nodes, "max_nodes": max_nodes, "ends": ends}
    if max_restarts != 1:
        sizes["max_restarts"] = max_restarts
    every = {name: value for each in (*known, found) for name, value in each.items()}
    return search({**FINDINGS, **RENDEZVOUS}, Agents, edition, *faults, sizes=sizes, **every)


def ranks(edition: Assignment, nodes: int, kinds: int, rounds: int, *faults: str, **found: Any) -> Run:
    """One search of the exchange of ranks."""
    return search(FINDINGS, Ranks, edition, *faults, sizes={"node": nodes, "kind": kinds, "round": rounds}, **found)


SEED, TORCH, TORCH_2_7, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TORCH_2_7, Edition.TRYSTATE
# Every fault of torch's edition except workers that ignore a signal.
EVERY_FAULT = tuple(fault for fault in fault_bounds(Agents.for_edition(TORCH).declarations()) if fault != "deaf")

# The violations of most runs of torch's agents.
SUCCEEDS: Found = {"success_is_everybodys": "A13"}
CLOSES: Found = {"closing_says_why": "A2", **SUCCEEDS}
LEAVES: Found = {"restarts_left_are_used": "A2", **CLOSES}
DIFFERS: Found = {"restarts_left_are_used": "A2", "closing_says_why": "A2", "one_verdict": "A2", **SUCCEEDS}
FAILS: Found = {**DIFFERS, "one_verdict": ("A2", "A13")}
RESTARTS: Found = {**FAILS, "restarts_are_limited": "A14"}
SIGNALS: Found = {**CLOSES, "restarts_left_are_used": "A16", "signals_are_obeyed": "A11"}
DEAF: Found = dict.fromkeys(("stopped_workers_end", "everybody_ends", "joins_end", "the_waiting_are_answered"), "A18")
MANY: Found = {
    **CLOSES, "restarts_left_are_used": ("A16", "A2"), "one_verdict": ("A2", "A13"), "one_group_in_the_job": "A15",
    "outages_are_survived": "A4", "signals_are_obeyed": "A11", "restarts_are_limited": "A14",
}  # fmt: skip
# Workers that run until they are stopped reach none of these.
RUNS_ON = ("all_succeed", "one_waits_for_another", "it_is_closed")
# Edition, nodes, min, max, faults, the violations of most such runs; then property = finding. `idle`: states that such
# a run cannot reach. `ends=0`: workers run until they are stopped.
# fmt: off
PLAN: tuple[Run, ...] = (
    run(TORCH, 2, 2, 2, ("worker_failure",), RESTARTS),
    run(TORCH, 2, 2, 2, (), CLOSES, idle=("a_round_is_replaced",)),
    run(TORCH, 2, 2, 2, ("outage",), LEAVES, idle=("a_round_is_replaced",), outages_are_survived="A4"),
    run(TORCH, 2, 2, 2, ("signal",), CLOSES, idle=("a_round_is_replaced",), signals_are_obeyed="A11"),
    run(TORCH, 2, 2, 2, ("crash", "newcomer"), DIFFERS, one_group_on_a_node="A12", one_group_in_the_job="A12"),
    run(TORCH, 2, 1, 2, (), DIFFERS),
    run(TORCH, 2, 1, 2, ("crash",), DIFFERS, one_group_in_the_job="A12"),
    run(TORCH, 2, 1, 2, ("stall",), DIFFERS, one_group_in_the_job="A15"),
    run(TORCH, 2, 1, 2, ("freeze",), DIFFERS, one_group_in_the_job="R6"),
    run(TORCH, 2, 1, 2, ("crash",),
        ends=0, idle=RUNS_ON, one_group_in_the_job="A12", departures_are_noticed="R14"),
    run(TORCH, 2, 2, 2, ("worker_failure",),
        ends=0, idle=("all_succeed", "one_waits_for_another"), restarts_left_are_used="A2", closing_says_why="A2",
        restarts_are_limited="A14", the_verdict_reaches_everybody="R14"),
    run(TORCH, 3, 2, 2, (), DIFFERS, idle=("a_round_is_replaced", "all_succeed"), everybody_gets_an_answer="A7"),
    run(TORCH, 3, 2, 2, ("worker_failure",), RESTARTS,
        idle=("all_succeed",), everybody_gets_an_answer="A7", everybody_ends="R8", joins_end="R8",
        the_waiting_are_answered="R8"),
    run(TORCH, 3, 2, 3, ("worker_failure",), RESTARTS),
    run(TORCH, 3, 2, 3, ("signal",), DIFFERS, signals_are_obeyed="A11"),
    run(TORCH, 3, 2, 3, ("crash", "newcomer"), DIFFERS, one_group_on_a_node="A12", one_group_in_the_job="A12"),
    run(TORCH, 3, 2, 3, ("outage",), DIFFERS, outages_are_survived="A4"),
    run(TORCH, 2, 2, 2, ("worker_failure",), FAILS, max_restarts=0, idle=("a_round_is_replaced",)),
    run(TORCH, 2, 1, 2, ("deaf",), DIFFERS),
    run(TORCH, 2, 2, 2, ("worker_failure", "deaf"), RESTARTS),
    run(TORCH, 3, 1, 4, (), ends=0, idle=RUNS_ON),
    run(TORCH_2_7, 2, 2, 2, ("signal",), SIGNALS, idle=("a_round_is_replaced",)),
    run(TORCH_2_7, 2, 1, 2, ("deaf",), DIFFERS),
    run(TORCH_2_7, 2, 2, 2, ("worker_failure", "crash"), RESTARTS),
    run(TORCH_2_7, 2, 1, 2, ("outage", "stall", "worker_failure", "signal"), MANY, max_faults=2),
    run(SEED, 2, 2, 2, ("signal",), SIGNALS, idle=("a_round_is_replaced",)),
    run(SEED, 2, 1, 2, ("deaf",), DEAF, DIFFERS),
    run(SEED, 2, 2, 2, ("worker_failure", "deaf"), DEAF, RESTARTS, the_verdict_reaches_everybody="A18"),
    run(SEED, 2, 2, 2, ("worker_failure",), CLOSES, max_restarts=0, idle=("a_round_is_replaced",), one_verdict="A13"),
    run(SEED, 2, 2, 2, ("worker_failure", "crash", "newcomer"), RESTARTS,
        one_group_on_a_node="A12", one_group_in_the_job="A12"),
    run(SEED, 2, 1, 2, ("outage", "stall", "worker_failure", "signal"), MANY, max_faults=2),
    run(SEED, 3, 2, 2, (), DIFFERS, idle=("a_round_is_replaced", "all_succeed")),
    run(SEED, 3, 1, 4, (), ends=0, idle=RUNS_ON),
    run(TRYSTATE, 2, 2, 2, (), idle=("a_round_is_replaced",)),
    run(TRYSTATE, 2, 2, 2, EVERY_FAULT),
    run(TRYSTATE, 2, 1, 2, EVERY_FAULT),
    run(TRYSTATE, 2, 1, 2, EVERY_FAULT,
        ends=0, idle=("all_succeed", "one_waits_for_another", "one_gets_a_signal_when_done")),
    run(TRYSTATE, 2, 2, 2, ("worker_failure", "crash", "newcomer"), max_restarts=0, idle=("a_round_is_replaced",)),
    run(TRYSTATE, 2, 1, 2, ("worker_failure", "crash", "newcomer", "stall", "deaf")),
    run(TRYSTATE, 2, 1, 2, ("freeze", "deaf")),
    run(TRYSTATE, 2, 2, 2, ("worker_failure", "final_failure", "crash", "newcomer")),
    run(TRYSTATE, 2, 2, 2, ("stall", "outage", "signal", "deaf")),
    run(TRYSTATE, 3, 2, 3, ("worker_failure", "deaf")),
    run(TRYSTATE, 3, 1, 4, (), ends=0, idle=RUNS_ON),
    run(TRYSTATE, 3, 2, 2, ("worker_failure", "crash", "newcomer")),
    run(TRYSTATE, 3, 2, 2, ("outage", "signal")),
    run(TRYSTATE, 3, 2, 3, ("worker_failure", "crash", "newcomer")),
    run(TRYSTATE, 3, 2, 3, ("worker_failure", "stall")),
    run(TRYSTATE, 3, 2, 3, ("worker_failure", "signal")),
    run(TRYSTATE, 3, 2, 3, ("crash", "stall")),
    run(TRYSTATE, 3, 2, 3, ("stall", "freeze")),
    run(TRYSTATE, 3, 2, 3, ("outage", "signal")),
    run(TRYSTATE, 3, 1, 3, ("crash", "newcomer")),
    run(TRYSTATE, 3, 2, 3, ("worker_failure", "crash", "newcomer"),
        ends=0, idle=("all_succeed", "one_waits_for_another")),
    run(TRYSTATE, 3, 2, 3, ("stall", "outage"), ends=0, idle=RUNS_ON),
    *(ranks(edition, 3, 4, 1) for edition in Assignment),
    ranks(Assignment.TORCH, 2, 4, 2, "crash", "newcomer", a_death_ends_nobody="A17"),
    ranks(Assignment.SEED, 2, 4, 2, "crash", "newcomer", a_death_ends_nobody="A17"),
    ranks(Assignment.TRYSTATE, 2, 4, 2, "crash", "newcomer"),
    ranks(Assignment.TRYSTATE, 3, 2, 2, "crash", "newcomer", idle=("two_roles_have_ranks",)),
)
# fmt: on

"""What is known to be wrong with the elastic agent, and the runs that show it. Data only: `trystate verify` checks it.

A2 to A15 are defects of torch 2.13's agent that the checker finds in the edition TORCH. R6, R8 and R14 are of the
rendezvous below it (`model/rendezvous/findings.py`), seen from here. The edition TRYSTATE has none.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..checker.expectations import Finding, Run, explained
from ..rendezvous.findings import FINDINGS as RENDEZVOUS
from .claims import Agents
from .vocabulary import Edition

_FINDINGS = (
    Finding("leaving-closes", "A2",
            "Whoever ends closes the rendezvous and gives no reason: one that restarts gets RendezvousClosedError.",
            "let only a verdict close; let who waits in the exit barrier look at the round, and run again"),
    Finding("outage-ends-agent", "A4",
            "While the store cannot be reached num_nodes_waiting raises: healthy workers are stopped, the agent ends.",
            "go on until the lease ends, then join again"),
    Finding("spare-returns-nothing", "A7",
            "A spare of a closed rendezvous gets RendezvousGracefulExitError: run() returns None, launch_agent fails.",
            "end a spare with the verdict of the job"),
    Finding("barrier-ignores-signals", "A11",
            "An agent in the exit barrier does not react to SIGTERM or Ctrl-C until the barrier is over.",
            "wait in steps that a signal interrupts"),
    Finding("orphaned-workers", "A12",
            "Workers outlive an agent that is killed, and run on beside those of the next round.",
            "give workers a parent-death signal"),
    Finding("success-not-agreed", "A13",
            "The exit barrier ends after 300 s as if all had come: an agent ends with success, another may yet fail.",
            "report success in the shared state, and end when all members have"),
    Finding("restarts-counted-apart", "A14",
            "Each agent counts the restarts for itself: the job restarts more often than max_restarts allows.",
            "count restarts once, in the shared state"),
    Finding("stopped-agent", "A15",
            "Workers of an agent that is stopped, and expelled, run on beside those of the next round.",
            "let a process of its own kill them when the lease ends"),
)  # fmt: skip
FINDINGS: Mapping[str, Finding] = {f.name: f for f in _FINDINGS}
_KNOWN = (*RENDEZVOUS.values(), *_FINDINGS)

REFUSED = ("restarts_left_are_used",)
UNSAID = ("closing_says_why",)
SPLIT = ("one_verdict",)
EARLY = ("success_is_everybodys",)
SURVIVED = ("outages_are_survived",)
NOTHING = ("everybody_gets_an_answer",)
DEAF = ("signals_are_obeyed",)
BESIDE = ("one_group_in_the_job",)
TWICE = ("one_group_on_a_node", *BESIDE)
LIMIT = ("restarts_are_limited",)
RESTLESS = ("joins_end", "the_waiting_are_answered")
ENDLESS = ("everybody_ends", *RESTLESS)
UNHEARD = ("the_verdict_reaches_everybody",)
UNNOTICED = ("departures_are_noticed",)
NO_RESTART = ("a_round_is_replaced",)
NO_END = ("all_succeed", "one_waits_for_another")
OPEN = (*NO_END, "it_is_closed")
NOT_ALL = ("all_succeed",)


def _run(
    edition: Edition, size: str, *faults: str, ends: int = 1, idle: tuple[str, ...] = (), **found: tuple[str, ...]
) -> Run:
    """`size` is nodes and min:max, such as `3 2:3`; `A2=SPLIT` says which finding explains which violations."""
    nodes, span = size.split()
    low, high = span.split(":")
    sizes = {"node": int(nodes), "min_nodes": int(low), "max_nodes": int(high), "ends": ends}
    return Run(Agents, sizes, edition, faults, explained(_KNOWN, found), idle)


TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
CLOSES = REFUSED + UNSAID + SPLIT
ALL = ("worker_failure", "crash", "newcomer", "stall", "freeze", "outage", "signal")

# fmt: off
_TORCH_RUNS = (
    _run(TORCH, "2 2:2", "worker_failure", A2=CLOSES, A13=EARLY + SPLIT, A14=LIMIT),
    _run(TORCH, "2 2:2", idle=NO_RESTART, A2=UNSAID, A13=EARLY),
    _run(TORCH, "2 2:2", "outage", idle=NO_RESTART, A2=REFUSED + UNSAID, A4=SURVIVED, A13=EARLY),
    _run(TORCH, "2 2:2", "signal", idle=NO_RESTART, A2=UNSAID, A11=DEAF, A13=EARLY),
    _run(TORCH, "2 2:2", "crash", "newcomer", A2=CLOSES, A12=TWICE, A13=EARLY),
    _run(TORCH, "2 1:2", A2=CLOSES, A13=EARLY),
    _run(TORCH, "2 1:2", "crash", A2=CLOSES, A12=BESIDE, A13=EARLY),
    _run(TORCH, "2 1:2", "stall", A2=CLOSES, A13=EARLY, A15=BESIDE),
    _run(TORCH, "2 1:2", "freeze", A2=CLOSES, A13=EARLY, R6=BESIDE),
    _run(TORCH, "2 1:2", "crash", ends=0, idle=OPEN, A12=BESIDE, R14=UNNOTICED),
    _run(TORCH, "2 2:2", "worker_failure", ends=0, idle=NO_END, A2=REFUSED + UNSAID, A14=LIMIT, R14=UNHEARD),
    _run(TORCH, "3 2:2", idle=NO_RESTART + NOT_ALL, A2=CLOSES, A7=NOTHING, A13=EARLY),
    _run(TORCH, "3 2:2", "worker_failure", idle=NOT_ALL, A2=CLOSES, A7=NOTHING, A13=EARLY + SPLIT, A14=LIMIT,
         R8=ENDLESS),
    _run(TORCH, "3 2:3", "worker_failure", A2=CLOSES, A13=EARLY + SPLIT, A14=LIMIT),
    _run(TORCH, "3 2:3", "signal", A2=CLOSES, A11=DEAF, A13=EARLY),
    _run(TORCH, "3 2:3", "crash", "newcomer", A2=CLOSES, A12=TWICE, A13=EARLY),
    _run(TORCH, "3 2:3", "outage", A2=CLOSES, A4=SURVIVED, A13=EARLY),
)
_OUR_RUNS = (
    _run(TRYSTATE, "2 2:2", idle=NO_RESTART),
    _run(TRYSTATE, "2 2:2", *ALL),
    _run(TRYSTATE, "2 1:2", *ALL),
    _run(TRYSTATE, "2 1:2", *ALL, ends=0, idle=(*NO_END, "one_gets_a_signal_when_done")),
    _run(TRYSTATE, "3 2:2", "worker_failure", "crash", "newcomer"),
    _run(TRYSTATE, "3 2:2", "outage", "signal"),
    _run(TRYSTATE, "3 2:3", "worker_failure", "crash", "newcomer"),
    _run(TRYSTATE, "3 2:3", "worker_failure", "stall"),
    _run(TRYSTATE, "3 2:3", "worker_failure", "signal"),
    _run(TRYSTATE, "3 2:3", "crash", "stall"),
    _run(TRYSTATE, "3 2:3", "stall", "freeze"),
    _run(TRYSTATE, "3 2:3", "outage", "signal"),
    _run(TRYSTATE, "3 1:3", "crash", "newcomer"),
    _run(TRYSTATE, "3 2:3", "worker_failure", "crash", "newcomer", ends=0, idle=NO_END),
    _run(TRYSTATE, "3 2:3", "stall", "outage", ends=0, idle=OPEN),
)
# fmt: on
PLAN: tuple[Run, ...] = _TORCH_RUNS + _OUR_RUNS

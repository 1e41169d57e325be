"""Known defects of the elastic agent, and the runs that show them. Data only: `trystate verify` checks it.

A2 to A15 are defects of torch 2.13's agent that the checker finds in the edition TORCH, and A17 in the ranks of its
workers. A16 is of torch up to 2.7, and A18 of 1.9. R6, R8 and R14 are of the rendezvous below it
(`model/rendezvous/findings.py`), seen from here. The edition TRYSTATE has none.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..checker.expectations import Finding, Run, explained
from ..language.transitions import fault_bounds
from ..rendezvous.findings import FINDINGS as RENDEZVOUS
from .properties import Agents
from .ranks import Ranks
from .vocabulary import Assignment, Edition

_FINDINGS = (
    Finding("leaving-closes", "A2",
            "An agent that ends closes the rendezvous without a reason: one that restarts gets RendezvousClosedError.",
            "let only a verdict close; let an agent in the exit barrier look at the round, and run again",
            "After a failed worker a node ends with RendezvousClosedError, though restarts are left.",
            "Workers of one node end with success while those of another may yet fail.",
            "End the training script with a barrier of all ranks."),
    Finding("outage-ends-agent", "A4",
            "While the store cannot be reached num_nodes_waiting raises: healthy workers are stopped, the agent ends.",
            "go on until the lease ends, then join again",
            "Healthy workers are stopped, and the job ends with RendezvousConnectionError.",
            "The store does not answer for longer than read_timeout (60 s).",
            "Set a larger read_timeout in --rdzv-conf; start torchrun again, from a checkpoint."),
    Finding("spare-returns-nothing", "A7",
            "A spare of a closed rendezvous gets RendezvousGracefulExitError: run() returns None, launch_agent fails.",
            "end a spare with the verdict of the job",
            "The job succeeds, and torchrun on a spare node ends with an AttributeError of NoneType.",
            "More nodes than max are started.",
            "Start no more nodes than max, or ignore how a spare ends.",
            since="2.4"),
    Finding("barrier-ignores-signals", "A11",
            "An agent in the exit barrier does not react to SIGTERM or Ctrl-C until the barrier is over.",
            "wait in steps that a signal interrupts",
            "torchrun does not react to SIGTERM or Ctrl-C, until the scheduler kills it.",
            "The workers of its node are done, and those of another run on (for up to 300 s).",
            "End the training script with a barrier of all ranks; send SIGKILL after a while."),
    Finding("orphaned-workers", "A12",
            "Workers outlive an agent that is killed, and run on beside those of the next round.",
            "give workers a parent-death signal",
            "Workers of a dead torchrun keep its GPUs, and write beside those of the job that was started again.",
            "torchrun gets SIGKILL, for example when memory runs out.",
            "Run each torchrun in a container or cgroup that ends as a whole, or let the script call "
            "prctl(PR_SET_PDEATHSIG)."),
    Finding("success-not-agreed", "A13",
            "The exit barrier ends after 300 s as if all had come: an agent ends with success, another may yet fail.",
            "report success in the shared state, and end when all members have",
            "torchrun ends with exit code 0 on one node, and the job fails on another.",
            "Workers of one node end more than 300 s before those of another.",
            "End the training script with a barrier of all ranks; judge a job by all of its nodes."),
    Finding("restarts-counted-apart", "A14",
            "Each agent counts the restarts for itself: the job restarts more often than max_restarts allows.",
            "count restarts once, in the shared state",
            "The job restarts up to max_restarts times for each node.",
            "max_restarts is 1 or more, and workers fail on different nodes.",
            "Set a smaller --max-restarts."),
    Finding("stopped-agent", "A15",
            "Workers of an agent that is stopped, and expelled, run on beside those of the next round.",
            "let a process of its own kill them when the lease ends",
            "Two groups train at once, and write the same checkpoints.",
            "An agent is stopped for more than 15 s, and its workers are not: SIGSTOP, a debugger.",
            "Stop a node as a whole."),
    Finding("signal-closes", "A16",
            "An agent that gets SIGTERM closes the rendezvous for all: the others can begin no new round.",
            "let an agent that a signal ends leave its round, and the others go on",
            "One torchrun gets SIGTERM, and the others fail at their next restart with RendezvousClosedError.",
            "A scheduler or user sends SIGTERM to one node: scaling down, preemption, a drained host.",
            "Upgrade to 2.8, or end the torchrun and the workers of that node with SIGKILL.",
            since="2.4", until="2.7"),
    Finding("exchange-not-left", "A17",
            "An agent that dies before its number of workers is told, or their ranks assigned, ends the others.",
            "end the waits of the exchange with the round, and go on to the next one",
            "A node dies as a round begins, and torchrun ends on the others with DistStoreError after read_timeout "
            "(60 s).",
            "An agent ends, or stands still, between the end of next_rendezvous and the start of its workers.",
            "Start torchrun again on every node; a smaller read_timeout in --rdzv-conf ends the wait sooner."),
    Finding("deaf-worker-waited-for", "A18",
            "An agent waits without a time-out for a worker that ignores SIGTERM, and all other nodes wait for it.",
            "send SIGKILL after a time-out",
            since="1.9", until="1.9"),
)  # fmt: skip
FINDINGS: Mapping[str, Finding] = {f.name: f for f in _FINDINGS}


def run(
    edition: Edition,
    nodes: int,
    min_nodes: int,
    max_nodes: int,
    faults: tuple[str, ...],
    *,
    ends: int = 1,
    max_restarts: int = 1,
    max_faults: int | None = None,
    idle: tuple[str, ...] = (),
    **found: str | tuple[str, ...],
) -> Run:
    """One search: its edition, size and faults, and property = the findings that explain its violation."""
    sizes = {"node": nodes, "min_nodes": min_nodes, "max_nodes": max_nodes, "ends": ends}
    if max_restarts != 1:
        sizes["max_restarts"] = max_restarts
    return Run(Agents, sizes, edition, faults, explained(found, FINDINGS, RENDEZVOUS), idle, max_faults)


def ranks(
    edition: Assignment,
    nodes: int,
    kinds: int,
    rounds: int,
    faults: tuple[str, ...],
    idle: tuple[str, ...] = (),
    **found: str,
) -> Run:
    """One search of the exchange of ranks."""
    sizes = {"node": nodes, "kind": kinds, "round": rounds}
    return Run(Ranks, sizes, edition, faults, explained(found, FINDINGS), idle)


SEED, TORCH, TORCH_2_7, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TORCH_2_7, Edition.TRYSTATE
# Every fault of torch's edition but workers that ignore a signal.
EVERY_FAULT = tuple(fault for fault in fault_bounds(Agents.for_edition(TORCH).declarations()) if fault != "deaf")

# Edition, nodes, min, max, faults; then property = finding. `idle`: states that such a run cannot reach. `ends=0`:
# workers run until they are stopped.
# fmt: off
PLAN: tuple[Run, ...] = (
    run(TORCH, 2, 2, 2, ("worker_failure",),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict=("A2", "A13"), success_is_everybodys="A13",
        restarts_are_limited="A14"),
    run(TORCH, 2, 2, 2, (), idle=("a_round_is_replaced",), closing_says_why="A2", success_is_everybodys="A13"),
    run(TORCH, 2, 2, 2, ("outage",),
        idle=("a_round_is_replaced",), restarts_left_are_used="A2", closing_says_why="A2", outages_are_survived="A4",
        success_is_everybodys="A13"),
    run(TORCH, 2, 2, 2, ("signal",),
        idle=("a_round_is_replaced",), closing_says_why="A2", signals_are_obeyed="A11", success_is_everybodys="A13"),
    run(TORCH, 2, 2, 2, ("crash", "newcomer"),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict="A2", one_group_on_a_node="A12",
        one_group_in_the_job="A12", success_is_everybodys="A13"),
    run(TORCH, 2, 1, 2, (),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict="A2", success_is_everybodys="A13"),
    run(TORCH, 2, 1, 2, ("crash",),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict="A2", one_group_in_the_job="A12",
        success_is_everybodys="A13"),
    run(TORCH, 2, 1, 2, ("stall",),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict="A2", success_is_everybodys="A13",
        one_group_in_the_job="A15"),
    run(TORCH, 2, 1, 2, ("freeze",),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict="A2", success_is_everybodys="A13",
        one_group_in_the_job="R6"),
    run(TORCH, 2, 1, 2, ("crash",),
        ends=0, idle=("all_succeed", "one_waits_for_another", "it_is_closed"), one_group_in_the_job="A12",
        departures_are_noticed="R14"),
    run(TORCH, 2, 2, 2, ("worker_failure",),
        ends=0, idle=("all_succeed", "one_waits_for_another"), restarts_left_are_used="A2", closing_says_why="A2",
        restarts_are_limited="A14", the_verdict_reaches_everybody="R14"),
    run(TORCH, 3, 2, 2, (),
        idle=("a_round_is_replaced", "all_succeed"), restarts_left_are_used="A2", closing_says_why="A2",
        one_verdict="A2", everybody_gets_an_answer="A7", success_is_everybodys="A13"),
    run(TORCH, 3, 2, 2, ("worker_failure",),
        idle=("all_succeed",), restarts_left_are_used="A2", closing_says_why="A2", one_verdict=("A2", "A13"),
        everybody_gets_an_answer="A7", success_is_everybodys="A13", restarts_are_limited="A14", everybody_ends="R8",
        joins_end="R8", the_waiting_are_answered="R8"),
    run(TORCH, 3, 2, 3, ("worker_failure",),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict=("A2", "A13"), success_is_everybodys="A13",
        restarts_are_limited="A14"),
    run(TORCH, 3, 2, 3, ("signal",),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict="A2", signals_are_obeyed="A11",
        success_is_everybodys="A13"),
    run(TORCH, 3, 2, 3, ("crash", "newcomer"),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict="A2", one_group_on_a_node="A12",
        one_group_in_the_job="A12", success_is_everybodys="A13"),
    run(TORCH, 3, 2, 3, ("outage",),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict="A2", outages_are_survived="A4",
        success_is_everybodys="A13"),
    run(TORCH, 2, 2, 2, ("worker_failure",),
        max_restarts=0, idle=("a_round_is_replaced",), restarts_left_are_used="A2", closing_says_why="A2",
        one_verdict=("A2", "A13"), success_is_everybodys="A13"),
    run(TORCH, 2, 1, 2, ("deaf",),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict="A2", success_is_everybodys="A13"),
    run(TORCH, 2, 2, 2, ("worker_failure", "deaf"),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict=("A2", "A13"), success_is_everybodys="A13",
        restarts_are_limited="A14"),
    run(TORCH, 3, 1, 4, (), ends=0, idle=("all_succeed", "one_waits_for_another", "it_is_closed")),
    run(TORCH_2_7, 2, 2, 2, ("signal",),
        idle=("a_round_is_replaced",), restarts_left_are_used="A16", closing_says_why="A2", signals_are_obeyed="A11",
        success_is_everybodys="A13"),
    run(TORCH_2_7, 2, 1, 2, ("deaf",),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict="A2", success_is_everybodys="A13"),
    run(TORCH_2_7, 2, 2, 2, ("worker_failure", "crash"),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict=("A2", "A13"), success_is_everybodys="A13",
        restarts_are_limited="A14"),
    run(TORCH_2_7, 2, 1, 2, ("outage", "stall", "worker_failure", "signal"), max_faults=2,
        restarts_left_are_used=("A16", "A2"), closing_says_why="A2", one_verdict=("A2", "A13"),
        one_group_in_the_job="A15", outages_are_survived="A4", signals_are_obeyed="A11",
        success_is_everybodys="A13", restarts_are_limited="A14"),
    run(SEED, 2, 2, 2, ("signal",),
        idle=("a_round_is_replaced",), restarts_left_are_used="A16", closing_says_why="A2", signals_are_obeyed="A11",
        success_is_everybodys="A13"),
    run(SEED, 2, 1, 2, ("deaf",),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict="A2", success_is_everybodys="A13",
        stopped_workers_end="A18", everybody_ends="A18", joins_end="A18", the_waiting_are_answered="A18"),
    run(SEED, 2, 2, 2, ("worker_failure", "deaf"),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict=("A2", "A13"), success_is_everybodys="A13",
        restarts_are_limited="A14", stopped_workers_end="A18", everybody_ends="A18", joins_end="A18",
        the_waiting_are_answered="A18", the_verdict_reaches_everybody="A18"),
    run(SEED, 2, 2, 2, ("worker_failure",),
        max_restarts=0, idle=("a_round_is_replaced",), closing_says_why="A2", one_verdict="A13",
        success_is_everybodys="A13"),
    run(SEED, 2, 2, 2, ("worker_failure", "crash", "newcomer"),
        restarts_left_are_used="A2", closing_says_why="A2", one_verdict=("A2", "A13"), success_is_everybodys="A13",
        restarts_are_limited="A14", one_group_on_a_node="A12", one_group_in_the_job="A12"),
    run(SEED, 2, 1, 2, ("outage", "stall", "worker_failure", "signal"), max_faults=2,
        restarts_left_are_used=("A16", "A2"), closing_says_why="A2", one_verdict=("A2", "A13"),
        one_group_in_the_job="A15", outages_are_survived="A4", signals_are_obeyed="A11",
        success_is_everybodys="A13", restarts_are_limited="A14"),
    run(SEED, 3, 2, 2, (),
        idle=("a_round_is_replaced", "all_succeed"), restarts_left_are_used="A2", closing_says_why="A2",
        one_verdict="A2", success_is_everybodys="A13"),
    run(SEED, 3, 1, 4, (), ends=0, idle=("all_succeed", "one_waits_for_another", "it_is_closed")),
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
    run(TRYSTATE, 3, 1, 4, (), ends=0, idle=("all_succeed", "one_waits_for_another", "it_is_closed")),
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
    run(TRYSTATE, 3, 2, 3, ("stall", "outage"), ends=0, idle=("all_succeed", "one_waits_for_another", "it_is_closed")),
    *(ranks(edition, 3, 4, 1, ()) for edition in Assignment),
    ranks(Assignment.TORCH, 2, 4, 2, ("crash", "newcomer"), a_death_ends_nobody="A17"),
    ranks(Assignment.SEED, 2, 4, 2, ("crash", "newcomer"), a_death_ends_nobody="A17"),
    ranks(Assignment.TRYSTATE, 2, 4, 2, ("crash", "newcomer")),
    ranks(Assignment.TRYSTATE, 3, 2, 2, ("crash", "newcomer"), idle=("two_roles_have_ranks",)),
)
# fmt: on

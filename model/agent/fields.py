"""The elastic agent on top of the rendezvous: its fields and machines, and the helpers that all editions share.

Theory of operation. Each node has an agent and a group of workers. The agent calls next_rendezvous (JOINING), starts
its workers (STARTING), and monitors them and the membership (MONITORING). When its workers have succeeded, it waits for
the other agents (BARRIER). When a worker has failed or the membership has changed, it stops its workers, leaves the
round (RESTARTING), and joins the next one. When it ends, it may notify the others (LEAVING).

Failures:

- An agent dies or stops while its workers continue to run.
- The store cannot be reached.
- Agents end with different verdicts.

Below the agent is a coarser version of `model/rendezvous`: a node joins in one step, and a round completes in one step;
members, waiting nodes, spares and expected nodes are the same as in the finer model. The defects of torch's rendezvous
(R1 to R15) are found there; here the rendezvous is assumed to work, so each violation is the agent's.

    environment.py   agents and workers that start, succeed and fail, and faults: the same in every edition
    torch.py         torch up to 2.7, and 2.13
    seed.py          torch 1.10
    ours.py          the edition TRYSTATE
    properties.py    the properties of every edition

Abstractions. Time: heartbeats are left out; any other agent that reaches the store may expel an agent that has left or
is stopped. Rounds are not counted: `current` is true if a node has its world from the present round. If only an agent
is stopped, its workers still run, succeed and fail; if a node is stopped, its workers do not. A node that continues
after its lease stops its workers in the same step: the few milliseconds between are not in the model. Workers that are
stopped end at once, unless the fault `deaf` is on: then SIGTERM, the wait for them, and SIGKILL after a time-out are
three steps. The join deadline passes when too few agents are up for a quorum. Workers may succeed or fail whatever the
workers of other nodes do.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from ..rendezvous.vocabulary import Membership
from .vocabulary import Ending, Loop, Pace, Stopping, Verdict, WorkerState

PROCESSES = (WorkerState.HEALTHY, WorkerState.UNHEALTHY)  # worker processes exist
ASKS, KILLS = may(Stopping.DEAF, Stopping.ASKED), may(Stopping.ASKED, Stopping.PROMPT)
UP = (Loop.JOINING, Loop.STARTING, Loop.MONITORING, Loop.BARRIER, Loop.RESTARTING)


class Fields(System):
    """The fields and machines, and the helpers that the steps of every edition share."""

    node = index(2)
    min_nodes = constant(2)
    max_nodes = constant(2)
    max_restarts = constant(1)
    counted = constant(2, "restarts are counted up to here, so that one too many is seen")
    ends = constant(1, "1: workers end by themselves, 0: they run until they are stopped")

    complete = flag()
    verdict = choice(Verdict)
    member = choice(Membership, per="node")
    succeeded = flag(per="node", doc="its workers succeeded in this round; that is reported, or it is in the barrier")
    spent = integer(0, "counted", doc="restarts of the job after a failure or departure")
    store_down = flag()

    loop = choice(Loop, per="node")
    workers = choice(WorkerState, per="node")
    current = flag(per="node", doc="next_rendezvous returned from the present round")
    ending = choice(Ending, per="node")
    pace = choice(Pace, per="node")
    signalled = flag(per="node", doc="got SIGTERM or Ctrl-C")
    stopping = choice(Stopping, per="node")
    final = flag(per="node", doc="its worker ended with an exit code that is not restarted")
    failed_for_good = flag(doc="a failure that is not restarted has closed the rendezvous")
    orphans = flag(per="node", doc="workers of an agent that died run at the same time as those of its successor")

    def lifelines(self) -> Lifelines:
        """The store has the shared state."""
        restarts = dict.fromkeys(("spent", "own"), self.sizes["max_restarts"])
        truth = "current spent failed_for_good broken"
        return served("store", "member succeeded arrived", here=truth, totals=restarts)

    worker_group = machine_of(workers, "The workers of a node.")
    agent_loop = machine_of(loop, "The loop of a node's agent.")
    end_of_workers = machine_of(stopping, "The end of the workers of a node.")
    job_verdict = machine_of(verdict, "The verdict on the job.")

    # ---- what a step sees

    def goes(self, s: SymbolicState, node: Expr, *loops: Loop) -> None:
        """The agent is not stopped, and its loop is in one of these states."""
        s.when(s.pace[node] == Pace.GOES_ON, s.loop[node].isin(loops))

    def acts(self, s: SymbolicState, node: Expr, *loops: Loop) -> None:
        """The agent is not stopped and reaches the store."""
        self.goes(s, node, *loops)
        s.when(~s.store_down)

    def is_open(self, s: SymbolicState) -> Condition:
        return s.verdict == Verdict.NONE

    def members(self, s: SymbolicState) -> Condition:
        return s.member.count(Membership.PARTICIPANT)

    def is_dead(self, s: SymbolicState, node: Expr) -> Condition:
        """Its agent sends no heartbeats; an agent that waits for a worker to end before it ends still sends them."""
        waits = (s.stopping[node] == Stopping.ASKED) & (s.ending[node] != Ending.KILLED)
        return ((s.loop[node] == Loop.LEFT) & ~waits) | (s.pace[node] != Pace.GOES_ON)

    def runs(self, s: SymbolicState, node: Expr) -> Condition:
        """Worker processes of this node run, whether its agent is alive, stopped or dead."""
        processes = s.workers[node].isin(PROCESSES) | (s.stopping[node] == Stopping.ASKED)
        return processes & (s.pace[node] != Pace.NODE_STOPPED)

    def has_stopped(self, s: SymbolicState, node: Expr) -> None:
        """The agent does not wait for a worker that it has sent SIGTERM."""
        s.when(s.stopping[node] != Stopping.ASKED)

    def is_seated(self, s: SymbolicState, node: Expr) -> Condition:
        """The node is a member of a complete round."""
        return s.complete & (s.member[node] == Membership.PARTICIPANT)

    def too_few(self, s: SymbolicState) -> Condition:
        """Too few agents are up for a round to complete: the join deadline will pass."""
        return ~s.complete & (count(s.loop[j] != Loop.LEFT for j in s.node) < self.min_nodes)

    # ---- what a step does

    def settle(self, s: SymbolicState, when: Any) -> None:
        """The round completes: its members are fixed."""
        s.complete = s.complete | when

    def forget_round(self, s: SymbolicState, replaced: Any) -> None:
        """A new round begins, and the nodes' fields of the previous round are reset."""
        s.complete = ite(replaced, False, s.complete)
        reset(s.current, s.succeeded, when=replaced)

    def unlist(self, s: SymbolicState, node: Expr) -> None:
        reset(s.member, s.succeeded, at=node)

    def end(self, s: SymbolicState, node: Expr, ending: Any) -> None:
        """The agent's process ends and stops the workers that run."""
        s.loop[node] = Loop.LEFT
        s.ending[node] = ending
        self.stop(s, node)

    def stop(self, s: SymbolicState, node: Expr) -> None:
        """The agent stops the workers that run."""
        self.terminate(s, node)
        s.workers[node] = ite(s.workers[node].isin(PROCESSES), WorkerState.STOPPED, s.workers[node])

    def terminate(self, s: SymbolicState, node: Expr) -> None:
        """The agent sends SIGTERM to the workers that run, and waits for a worker that does not end."""
        runs_on = s.workers[node].isin(PROCESSES) & (s.stopping[node] == Stopping.DEAF)
        s.stopping[node] = ite(runs_on, Stopping.ASKED, s.stopping[node])

    def kill(self, s: SymbolicState, node: Expr) -> None:
        """The workers that run get SIGKILL."""
        s.stopping[node] = ite(s.stopping[node] == Stopping.ASKED, Stopping.PROMPT, s.stopping[node])
        s.workers[node] = ite(s.workers[node].isin(PROCESSES), WorkerState.STOPPED, s.workers[node])

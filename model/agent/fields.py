"""The elastic agent on top of the rendezvous: its fields, its machines, and what the steps of every edition share.

Theory of operation. Each node has an agent and a group of workers. The agent calls next_rendezvous (JOINING), starts
its workers (STARTING), and looks after them and at the membership (MONITORING). When its workers have succeeded it
waits for the other agents (BARRIER); when a worker has failed or the membership has changed it stops its workers,
leaves the round (RESTARTING), and joins the next one; when it ends it tells the others, or does not (LEAVING). Three
things go wrong: an agent dies or stops while its workers run on, the store cannot be reached, and agents end with
different verdicts.

Below it is the rendezvous of `model/rendezvous`, coarser: a node joins in one step, and a round completes in one;
members, waiting nodes, spares and expected nodes are those of the finer model. The defects of torch's rendezvous (R1 to
R15) are found there; here the rendezvous is taken to work, so that each violation is the agent's.

    environment.py   agents and workers that start, succeed and fail, and faults: the same in every edition
    torch.py         torch up to 2.7, and 2.13
    seed.py          torch 1.10
    ours.py          the edition TRYSTATE
    properties.py    what is asked of both

Abstractions. Time: a heartbeat is left out; an agent that has left or does not go on may be expelled by any other agent
that reaches the store. Rounds are not counted: `current` says whether a node has its world from the present one. An
agent that is stopped alone has workers that run, succeed and fail on; a node that stands still has none that do. A node
that goes on after its lease, and the end of its workers, are one step: their few milliseconds are not in the model.
Workers that are stopped end at once, unless the fault `deaf` is on: then SIGTERM, the wait for them, and SIGKILL after
a time-out are three steps. The join deadline passes when too few agents are up for a quorum. Workers may succeed or
fail whatever those of other nodes do.
"""

from __future__ import annotations

from typing import Any

from ..language import Expr, SymbolicState, System, choice, constant, count, flag, index, integer, ite, machine, may
from ..language.lifelines import Lifelines, served
from ..rendezvous.vocabulary import Membership
from .vocabulary import Ending, Loop, Pace, Stopping, Verdict, WorkerState

Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
PROCESSES = (WorkerState.HEALTHY, WorkerState.UNHEALTHY)  # worker processes exist
ASKS, KILLS = may(Stopping.DEAF, Stopping.ASKED), may(Stopping.ASKED, Stopping.PROMPT)
UP = (Loop.JOINING, Loop.STARTING, Loop.MONITORING, Loop.BARRIER, Loop.RESTARTING)


class Fields(System):
    """The fields, the machines, and the helpers that the steps of every edition share."""

    node = index(2)
    min_nodes = constant(2)
    max_nodes = constant(2)
    max_restarts = constant(1)
    counted = constant(2, "how far restarts are counted: one too many must be seen")
    ends = constant(1, "1: workers come to an end by themselves; 0: they run until they are stopped")

    complete = flag()
    verdict = choice(Verdict)
    member = choice(Membership, per="node")
    succeeded = flag(per="node", doc="its workers succeeded in the present round: reported, or in the exit barrier")
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
    failed_for_good = flag(doc="such a failure has closed the rendezvous")
    orphans = flag(per="node", doc="workers of an agent that died run beside those of its successor")

    def lifelines(self) -> Lifelines:
        """The store has the shared state."""
        restarts = dict.fromkeys(("spent", "own"), self.sizes["max_restarts"])
        truth = "current spent failed_for_good broken"
        return served("store", "member succeeded arrived", here=truth, totals=restarts)

    @machine(WorkerState, each="node")
    def worker_group(self, s: SymbolicState, node: Expr) -> Any:
        """The workers of a node."""
        return s.workers[node]

    @machine(Loop, each="node")
    def agent_loop(self, s: SymbolicState, node: Expr) -> Any:
        """The loop of a node's agent."""
        return s.loop[node]

    @machine(Stopping, each="node")
    def end_of_workers(self, s: SymbolicState, node: Expr) -> Any:
        """The end of the workers of a node."""
        return s.stopping[node]

    @machine(Verdict)
    def job_verdict(self, s: SymbolicState) -> Any:
        """The verdict on the job."""
        return s.verdict

    # ---- what a step sees

    def goes(self, s: SymbolicState, node: Expr, *loops: Loop) -> None:
        """The agent is there, and goes on, in one of these states of its loop."""
        s.when(s.pace[node] == Pace.GOES_ON, s.loop[node].isin(loops))

    def acts(self, s: SymbolicState, node: Expr, *loops: Loop) -> None:
        """The agent goes on, and reaches the store."""
        self.goes(s, node, *loops)
        s.when(~s.store_down)

    def is_open(self, s: SymbolicState) -> Condition:
        return s.verdict == Verdict.NONE

    def members(self, s: SymbolicState) -> Condition:
        return s.member.count(Membership.PARTICIPANT)

    def is_dead(self, s: SymbolicState, node: Expr) -> Condition:
        """Its heartbeat stands still: not while the agent, before it ends, waits for a worker that does not end."""
        waits = (s.stopping[node] == Stopping.ASKED) & (s.ending[node] != Ending.KILLED)
        return ((s.loop[node] == Loop.LEFT) & ~waits) | (s.pace[node] != Pace.GOES_ON)

    def runs(self, s: SymbolicState, node: Expr) -> Condition:
        """Worker processes of this agent, dead, stopped or alive, run."""
        processes = s.workers[node].isin(PROCESSES) | (s.stopping[node] == Stopping.ASKED)
        return processes & (s.pace[node] != Pace.NODE_STOPPED)

    def has_stopped(self, s: SymbolicState, node: Expr) -> None:
        """The agent does not wait for a worker that it stops."""
        s.when(s.stopping[node] != Stopping.ASKED)

    def is_seated(self, s: SymbolicState, node: Expr) -> Condition:
        """The node is a member of a complete round."""
        return s.complete & (s.member[node] == Membership.PARTICIPANT)

    def too_few(self, s: SymbolicState) -> Condition:
        """So few agents are up that no round can complete: the join deadline will pass."""
        return ~s.complete & (count(s.loop[j] != Loop.LEFT for j in s.node) < self.min_nodes)

    # ---- what a step does

    def settle(self, s: SymbolicState, when: Any) -> None:
        """The round completes: its members are fixed."""
        s.complete = s.complete | when

    def forget_round(self, s: SymbolicState, replaced: Any) -> None:
        """A new round begins: what nodes had from the one before is over."""
        s.complete = ite(replaced, False, s.complete)
        for j in s.node:
            s.current[j] = ite(replaced, False, s.current[j])
            s.succeeded[j] = ite(replaced, False, s.succeeded[j])

    def unlist(self, s: SymbolicState, node: Expr) -> None:
        s.member[node] = Membership.OUTSIDE
        s.succeeded[node] = False

    def end(self, s: SymbolicState, node: Expr, ending: Any) -> None:
        """The process ends; workers that run are stopped."""
        s.loop[node] = Loop.LEFT
        s.ending[node] = ending
        self.stop(s, node)

    def stop(self, s: SymbolicState, node: Expr) -> None:
        """The agent stops the workers that run."""
        self.terminate(s, node)
        s.workers[node] = ite(s.workers[node].isin(PROCESSES), WorkerState.STOPPED, s.workers[node])

    def terminate(self, s: SymbolicState, node: Expr) -> None:
        """SIGTERM to the workers that run: one that does not end runs on, and the agent waits for it."""
        runs_on = s.workers[node].isin(PROCESSES) & (s.stopping[node] == Stopping.DEAF)
        s.stopping[node] = ite(runs_on, Stopping.ASKED, s.stopping[node])

    def kill(self, s: SymbolicState, node: Expr) -> None:
        """SIGKILL to the workers that run."""
        s.stopping[node] = ite(s.stopping[node] == Stopping.ASKED, Stopping.PROMPT, s.stopping[node])
        s.workers[node] = ite(s.workers[node].isin(PROCESSES), WorkerState.STOPPED, s.workers[node])

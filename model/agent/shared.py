"""The elastic agent on top of the rendezvous: what is shared, what each node has, and the steps common to the editions.

Each node has an agent, its loop, and a group of workers. Below it is the rendezvous of `model/rendezvous`, coarser: a
node joins in one step, and a round completes in one; members, waiting nodes, spares and expected nodes are those of
the finer model. What is wrong with torch's rendezvous itself (R1 to R14) is found there; here it is taken to work, so
that what is found is the agent's.

Abstractions. Time: a heartbeat is left out; who has left or does not go on may be expelled by any other agent that
reaches the store. Rounds are not counted: `current` says whether a node has its world from the present one. An agent
that is stopped alone has workers that run, succeed and fail on; a node that stands still has none that do. A node that
goes on after its lease, and the end of its workers, are one step: their few milliseconds are not in the model. The join
deadline passes when too few agents are up for a quorum. Workers may succeed or fail whatever those of other nodes do.
"""

from __future__ import annotations

from typing import Any

from ..language import (
    Expr,
    SymbolicState,
    System,
    arc,
    choice,
    constant,
    count,
    environment,
    fault,
    flag,
    index,
    integer,
    ite,
    machine,
    may,
    transition,
)  # fmt: skip
from ..rendezvous.vocabulary import Membership
from .vocabulary import Edition, Ending, Loop, Pace, Verdict, WorkerState

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
E, L, M, P, V, W = Ending, Loop, Membership, Pace, Verdict, WorkerState
TORCH, TRYSTATE = (Edition.TORCH,), (Edition.TRYSTATE,)
PROCESSES = (W.HEALTHY, W.UNHEALTHY)  # worker processes exist
UP = (L.JOINING, L.STARTING, L.MONITORING, L.BARRIER, L.RESTARTING)


class Shared(System):
    """The fields, the machines, and the steps that every edition has."""

    Edition = Edition

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
    orphans = flag(per="node", doc="workers of an agent that died run beside those of its successor")

    own = integer(0, "max_restarts", per="node", editions=TORCH, doc="restarts that this agent has spent")
    world = integer(0, "node", editions=TORCH, doc="how many members the round had when it completed")
    broken = flag(editions=TORCH, doc="a member of the present round has failed")

    @machine(WorkerState, each="node")
    def worker_group(self, s: S, node: Expr) -> Any:
        """The workers of a node."""
        return s.workers[node]

    @machine(Loop, each="node")
    def agent_loop(self, s: S, node: Expr) -> Any:
        """The loop of a node's agent."""
        return s.loop[node]

    @machine(Verdict)
    def job_verdict(self, s: S) -> Any:
        """The verdict on the job."""
        return s.verdict

    # ---- what a step sees

    def goes(self, s: S, node: Expr, *loops: Loop) -> None:
        """The agent is there, and goes on."""
        s.when(s.pace[node] == P.GOES_ON, s.loop[node].isin(loops))

    def acts(self, s: S, node: Expr, *loops: Loop) -> None:
        """The agent goes on, and reaches the store."""
        self.goes(s, node, *loops)
        s.when(~s.store_down)

    def is_open(self, s: S) -> Condition:
        return s.verdict == V.NONE

    def members(self, s: S) -> Condition:
        return s.member.count(M.PARTICIPANT)

    def is_dead(self, s: S, node: Expr) -> Condition:
        """Its heartbeat stands still."""
        return (s.loop[node] == L.LEFT) | (s.pace[node] != P.GOES_ON)

    def runs(self, s: S, node: Expr) -> Condition:
        """Worker processes of this agent, dead, stopped or alive, run."""
        return s.workers[node].isin(PROCESSES) & (s.pace[node] != P.NODE_STOPPED)

    def is_seated(self, s: S, node: Expr) -> Condition:
        """The node is a member of a complete round."""
        return s.complete & (s.member[node] == M.PARTICIPANT)

    # ---- what a step does

    def settle(self, s: S, when: Any) -> None:
        """The round completes: its members are fixed."""
        s.complete = s.complete | when
        if self.edition in TORCH:
            s.world = ite(when, self.members(s), s.world)

    def forget_round(self, s: S, replaced: Any) -> None:
        """A new round begins: what nodes had from the one before is over."""
        s.complete = ite(replaced, False, s.complete)
        for j in s.node:
            s.current[j] = ite(replaced, False, s.current[j])
            s.succeeded[j] = ite(replaced, False, s.succeeded[j])
        if self.edition in TORCH:
            s.world = ite(replaced, 0, s.world)
            s.broken = ite(replaced, False, s.broken)

    def unlist(self, s: S, node: Expr) -> None:
        s.member[node] = M.OUTSIDE
        s.succeeded[node] = False

    def end(self, s: S, node: Expr, ending: Any) -> None:
        """The process ends; workers that run are stopped."""
        s.loop[node] = L.LEFT
        s.ending[node] = ending
        self.stop(s, node)

    def stop(self, s: S, node: Expr) -> None:
        """The agent stops the workers that run."""
        s.workers[node] = ite(s.workers[node].isin(PROCESSES), W.STOPPED, s.workers[node])

    # ---- the life of workers

    @environment(each="node", fair=True, moves=[arc(L.AWAY, L.JOINING)])
    def start_agent(self, s: S, node: Expr) -> None:
        """An agent starts, early or late."""
        self.goes(s, node, L.AWAY)
        s.loop[node] = L.JOINING

    @transition(each="node", moves=[arc(L.JOINING, L.STARTING)], cite="api.py:_rendezvous")
    def return_with_a_round(self, s: S, node: Expr) -> None:
        """The round is complete: next_rendezvous returns with its world."""
        self.acts(s, node, L.JOINING)
        s.when(self.is_open(s), self.is_seated(s, node))
        s.current[node] = True
        s.loop[node] = L.STARTING

    @transition(
        each="node", moves=[arc(L.STARTING, L.MONITORING), arc((W.INIT, W.STOPPED), W.HEALTHY)],
        cite="api.py:_initialize_workers",
    )  # fmt: skip
    def start_workers(self, s: S, node: Expr) -> None:
        """The agent starts its workers."""
        self.goes(s, node, L.STARTING)
        s.workers[node] = W.HEALTHY
        s.loop[node] = L.MONITORING

    @environment(each="node", fair=True, moves=[arc(W.HEALTHY, W.SUCCEEDED)])
    def workers_succeed(self, s: S, node: Expr) -> None:
        """All workers of a node end with exit code 0; other nodes may need longer."""
        s.when(s.pace[node] != P.NODE_STOPPED, s.workers[node] == W.HEALTHY)
        if self.ends == 0:
            s.when(False)
        s.workers[node] = W.SUCCEEDED

    @fault("worker_failure", each="node", bound=2, moves=[arc(W.HEALTHY, W.UNHEALTHY)], cite="elastic-node-change 3.3")
    def worker_fails(self, s: S, node: Expr) -> None:
        """A worker fails."""
        s.when(s.pace[node] != P.NODE_STOPPED, s.loop[node] == L.MONITORING, s.workers[node] == W.HEALTHY)
        s.workers[node] = W.UNHEALTHY

    # ---- faults

    @fault(
        "crash", each="node",
        moves=[arc((L.JOINING, L.STARTING, L.MONITORING, L.BARRIER, L.RESTARTING), L.LEFT), may(L.LEAVING, L.LEFT),
               *may(PROCESSES, W.STOPPED)],
    )  # fmt: skip
    def crash(self, s: S, node: Expr) -> None:
        """An agent is killed; in ours its workers die with it, for they have a parent-death signal."""
        s.when(s.loop[node].isin((*UP, L.LEAVING)))
        s.loop[node] = L.LEFT
        s.ending[node] = E.KILLED
        s.pace[node] = P.GOES_ON
        if self.dies_with_its_agent():
            self.stop(s, node)

    def dies_with_its_agent(self) -> bool:
        """Workers get a signal when their agent dies. torch starts them in a session of their own."""
        return self.edition in TRYSTATE

    @fault(
        "newcomer", each="node", moves=[arc(L.LEFT, L.JOINING), *may(tuple(W)[1:], W.INIT)],
        cite="elastic-node-change 2.1",
    )  # fmt: skip
    def start_again(self, s: S, node: Expr) -> None:
        """A new agent starts where another has ended, once that one is off the lists."""
        s.when(s.loop[node] == L.LEFT, s.member[node] == M.OUTSIDE)
        s.orphans[node] = self.runs(s, node)
        s.loop[node] = L.JOINING
        s.workers[node] = W.INIT
        s.ending[node] = E.NONE
        s.signalled[node] = False
        s.current[node] = False
        if self.edition in TORCH:
            s.own[node] = 0

    @fault("stall", each="node")
    def stall(self, s: S, node: Expr) -> None:
        """An agent alone stops for a while (SIGSTOP, Ctrl-Z, a debugger): its workers run on."""
        self.goes(s, node, *UP)
        s.pace[node] = P.AGENT_STOPPED

    @fault("freeze", each="node")
    def freeze(self, s: S, node: Expr) -> None:
        """A node stops for a while, its workers included (swap, a frozen host)."""
        self.goes(s, node, *UP)
        s.pace[node] = P.NODE_STOPPED

    @fault("outage")
    def store_stops(self, s: S) -> None:
        """The store cannot be reached."""
        s.when(~s.store_down)
        s.store_down = True

    @environment(fair=True)
    def store_returns(self, s: S) -> None:
        """The store can be reached again, with its state."""
        s.when(s.store_down)
        s.store_down = False

    def too_few(self, s: S) -> Condition:
        """So few agents are up that no round can complete: the join deadline will pass."""
        return ~s.complete & (count(s.loop[j] != L.LEFT for j in s.node) < self.min_nodes)

"""The elastic agent of torch 1.10 (SEED), as the article on node changes describes it.

Theory of operation. Its loop is the loop of 2.7, with three differences. First, when a worker has failed and no restart
is left, the agent stops its other workers and then waits in the exit barrier too, for up to 300 s. An agent that
succeeds passes the barrier when all have arrived, whether they have succeeded or not (A13). An agent that fails does
not react to signals there (A11). Second, there is no graceful exit: a spare of a closed rendezvous gets
RendezvousClosedError, like every other node. Third, an agent waits without a time-out for a worker that got SIGTERM
(A18). That is the code of torch 1.9, which the article prints; 1.10 sends SIGKILL after 30 s.
"""

from __future__ import annotations

from ..language import *
from .fields import ASKS
from .torch import CLOSES, OUT, Torch, Torch27
from .vocabulary import Edition, Ending, Loop, Stopping, WorkerState


class Seed(Torch27, edition=Edition.SEED):
    """The steps of torch 1.10's agent."""

    # A18. `_close` calls terminate() and join() for each process (elastic-node-change 2.3.3.3): join() has no time-out.
    kill_workers = None  # type: ignore[assignment]

    arrived = flag(per="node", doc="has arrived at the exit barrier of the present round, in success or failure")

    def forget_round(self, s: SymbolicState, replaced: object) -> None:
        super().forget_round(s, replaced)
        reset(s.arrived, when=replaced)

    @transition(moves=[arc(Loop.MONITORING, Loop.BARRIER)], cite="elastic-node-change 2.3: _invoke_run")
    def enter_barrier(self, s: SymbolicState, node: Expr) -> None:
        """The workers have succeeded: the agent waits for as many agents as the round had members, and only waits."""
        Torch.enter_barrier.body(self, s, node)
        s.arrived[node] = s.current[node]

    @transition(
        moves=[
            arc(WorkerState.UNHEALTHY, WorkerState.FAILED),
            arc(Loop.MONITORING, (Loop.RESTARTING, Loop.BARRIER)),
            *ASKS,
        ],
        cite="elastic-node-change 3.3: self._exit_barrier()",
    )
    def find_failure(self, s: SymbolicState, node: Expr) -> None:
        """A worker has failed: the agent stops the others; it restarts if its own count allows, else it waits too."""
        before = s.fork()
        Torch.find_failure.body(self, s, node)
        none_left = s.loop[node] == Loop.LEAVING
        s.loop[node] = ite(none_left, Loop.BARRIER, s.loop[node])
        s.ending[node] = before.ending[node]
        s.arrived[node] = none_left & s.current[node]

    def leaves_barrier(self, s: SymbolicState, node: Expr) -> None:
        """A signal that arrived while the agent waited is raised now; else the agent ends like its workers."""
        self.has_stopped(s, node)
        super().leaves_barrier(s, node)
        failed = (s.workers[node] == WorkerState.FAILED) & ~s.signalled[node]
        s.ending[node] = ite(failed, Ending.FAILED, s.ending[node])

    @transition(moves=[*OUT, *CLOSES], cite="elastic-node-change 3.3: self._exit_barrier()")
    def pass_barrier(self, s: SymbolicState, node: Expr) -> None:
        """As many agents have arrived as the round had members, in success or failure: run() returns."""
        self.acts(s, node, Loop.BARRIER)
        here = count(s.arrived[j] & (s.stopping[j] != Stopping.ASKED) for j in s.node)
        s.when(s.current[node], here == s.world)
        self.leaves_barrier(s, node)

    @transition(moves=[arc(Loop.JOINING, Loop.LEAVING)], cite="rendezvous-engine 3.2.4")
    def error_closed(self, s: SymbolicState, node: Expr) -> None:
        """The rendezvous is closed: next_rendezvous raises RendezvousClosedError, for a spare as well."""
        self.acts(s, node, Loop.JOINING)
        s.when(~self.is_open(s))
        self.fails(s, node, Ending.CLOSED)

"""The elastic agent of torch 1.10 (SEED), as the article on node changes describes it.

Theory of operation. Its loop is that of 2.7, with three differences. An agent whose worker has failed and that has no
restart left stops the others, and then waits in the exit barrier too, for up to 300 s: an agent that succeeds passes
the barrier when all have come, whether they have succeeded or not (A13), and one that fails hears no signal there
(A11). There is no graceful exit: a spare of a closed rendezvous gets RendezvousClosedError, as every other node does.
And an agent waits without a time-out for a worker that got SIGTERM (A18): that is the code that the article prints,
of torch 1.9; 1.10 sends SIGKILL after 30 s.
"""

from __future__ import annotations

from ..language import Expr, SymbolicState, arc, count, flag, ite, may, transition
from .fields import ASKS
from .torch import CLOSES, Torch, Torch27
from .vocabulary import Edition, Ending, Loop, Stopping, WorkerState

OUT = (*arc(Loop.BARRIER, Loop.LEAVING), *may(Loop.BARRIER, Loop.LEFT))


class Seed(Torch27, edition=Edition.SEED):
    """The steps of torch 1.10's agent."""

    # A18. `_close` calls terminate() and join() for each process (elastic-node-change 2.3.3.3): join() has no time-out.
    kill_workers = None  # type: ignore[assignment]

    arrived = flag(per="node", doc="has come to the exit barrier of the present round, whether it succeeded or failed")

    def forget_round(self, s: SymbolicState, replaced: object) -> None:
        super().forget_round(s, replaced)
        for j in s.node:
            s.arrived[j] = ite(replaced, False, s.arrived[j])

    @transition(each="node", moves=[arc(Loop.MONITORING, Loop.BARRIER)], cite="elastic-node-change 2.3: _invoke_run")
    def enter_barrier(self, s: SymbolicState, node: Expr) -> None:
        """The workers have succeeded: the agent waits for as many as the round had members, and looks at nothing."""
        Torch.enter_barrier.body(self, s, node)
        s.arrived[node] = s.current[node]

    @transition(
        each="node",
        moves=[
            arc(WorkerState.UNHEALTHY, WorkerState.FAILED),
            arc(Loop.MONITORING, Loop.RESTARTING),
            arc(Loop.MONITORING, Loop.BARRIER),
            *ASKS,
        ],
        cite="elastic-node-change 3.3: self._exit_barrier()",
    )
    def find_failure(self, s: SymbolicState, node: Expr) -> None:
        """A worker has failed: the agent stops the others; it restarts if its own count allows, else it waits, too."""
        before = s.fork()
        Torch.find_failure.body(self, s, node)
        none_left = s.loop[node] == Loop.LEAVING
        s.loop[node] = ite(none_left, Loop.BARRIER, s.loop[node])
        s.ending[node] = before.ending[node]
        s.arrived[node] = none_left & s.current[node]

    def leaves_barrier(self, s: SymbolicState, node: Expr) -> None:
        """A signal that came while the agent waited is raised now; else it ends as its workers have."""
        self.has_stopped(s, node)
        super().leaves_barrier(s, node)
        failed = (s.workers[node] == WorkerState.FAILED) & ~s.signalled[node]
        s.ending[node] = ite(failed, Ending.FAILED, s.ending[node])

    @transition(each="node", moves=[*OUT, *CLOSES], cite="elastic-node-change 3.3: self._exit_barrier()")
    def pass_barrier(self, s: SymbolicState, node: Expr) -> None:
        """As many have come as the round had members, in success or failure: run() returns."""
        self.acts(s, node, Loop.BARRIER)
        here = count(s.arrived[j] & (s.stopping[j] != Stopping.ASKED) for j in s.node)
        s.when(s.current[node], here == s.world)
        self.leaves_barrier(s, node)

    @transition(each="node", moves=[arc(Loop.JOINING, Loop.LEAVING)], cite="rendezvous-engine 3.2.4")
    def error_closed(self, s: SymbolicState, node: Expr) -> None:
        """The rendezvous is closed: RendezvousClosedError, for a spare as well."""
        self.acts(s, node, Loop.JOINING)
        s.when(~self.is_open(s))
        self.fails(s, node, Ending.CLOSED)

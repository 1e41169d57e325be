"""The environment of a context: messages are lost or late, parts of a pass fail, workers die."""

from __future__ import annotations

from ...language import *
from ..vocabulary import CallState, CleanUp, ContextState, Shipped
from .fields import CREATOR, LIVE, S
from .steps import UNUSED, Steps

DIES = may(LIVE, ContextState.ABSENT)
UNSAID = may((CleanUp.LOST, CleanUp.PASSING_ON), CleanUp.NONE, of="others")
TELLS = may(CleanUp.NONE, CleanUp.SENT, of="others")


class Environment(Steps):
    """Faults, and the steps by which workers notice them."""

    @fault("timeout", cite="tensorpipe_agent.cpp: pollTimeoutRpcs")
    def time_out(self, s: S, worker: Expr) -> None:
        """The caller of a worker stops waiting; the call continues."""
        s.when(s.call[worker] != CallState.IDLE, any_(s.caller[j, worker] & ~s.dead[j] for j in s.worker))
        for j in s.worker:
            s.caller[j, worker] = False

    @fault("error", bound=2, moves=[arc(Shipped.RUNNING, Shipped.FAILED), UNUSED])
    def fail_part(self, s: S, worker: Expr) -> None:
        """A node raises."""
        move(s.shipped, Shipped.RUNNING, Shipped.FAILED, ~s.dead[worker], at=worker)

    @fault("lose", moves=[arc(CleanUp.SENT, CleanUp.LOST)])
    def lose(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """A CLEAN is lost."""
        move(s.clean, CleanUp.SENT, CleanUp.LOST, ~s.dead[worker0], at=(worker0, worker1))

    @environment(fair=True, moves=[arc(CleanUp.LOST, CleanUp.SENT)], cite="rpc_agent.cpp: sendWithRetries")
    def repeat(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """A lost CLEAN is not answered in time and is sent again."""
        move(s.clean, CleanUp.LOST, CleanUp.SENT, ~s.dead[worker0], at=(worker0, worker1))

    # ---- workers that are lost

    @fault("creator_crash", moves=[DIES, UNSAID])
    def creator_crashes(self, s: S, worker: Expr) -> None:
        """The creator dies."""
        s.when(ord_(worker) == CREATOR)
        s.open = False
        s.running = False
        self.dies(s, worker)

    @fault("crash", moves=[DIES])
    def crash(self, s: S, worker: Expr) -> None:
        """Another worker dies."""
        s.when(not_(ord_(worker) == CREATOR))
        self.dies(s, worker)

    @environment(
        fair=True,
        moves=[
            TELLS,
            may(tuple(CleanUp)[1:], CleanUp.NONE),
            arc((CallState.REQUESTED, CallState.RUNNING, CallState.ANSWERED), CallState.IDLE),
            may((Shipped.SENT, Shipped.RUNNING, Shipped.DONE), Shipped.FAILED),
        ],
        cite="tensorpipe_agent.cpp: the pipe to a peer fails",
    )
    def notice(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """A worker finds that another is lost: its calls of that worker fail, and messages from there do not arrive."""
        move(s.noticed, False, True, s.dead[worker1], ~s.dead[worker0], at=(worker0, worker1))
        self.forgets_call(s, worker1, s.caller[worker0, worker1])
        self.forgets_call(s, worker0, s.caller[worker1, worker0] & (s.call[worker0] == CallState.REQUESTED))
        shipped = and_(ord_(worker0) == CREATOR, s.shipped[worker1] != Shipped.NONE)
        s.shipped[worker1] = ite(shipped, Shipped.FAILED, s.shipped[worker1])
        untold = s.clean[worker0, worker1] != CleanUp.NONE
        s.clean[worker0, worker1] = CleanUp.NONE
        s.clean[worker1, worker0] = CleanUp.NONE
        self.hears_of_loss(s, worker0, worker1, untold)

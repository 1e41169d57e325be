"""torch 2.13: a worker does not remember a context that is over, so a late call brings it back (G11).

A worker that receives CLEAN and has the context erases it and sends CLEAN to all workers in its list, including the
sender. A worker without the context does nothing. Each CLEAN is sent up to 21 times, and then no more (G14).
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ..vocabulary import CleanUp, ContextState, Edition
from .environment import DIES, TELLS, UNSAID
from .fields import CREATOR, LIVE, S
from .properties import Contexts

GONE = may(LIVE, ContextState.RELEASED)
# The creator has the context again, and releases it again.
AGAIN = (
    *may((CleanUp.NONE, CleanUp.LOST, CleanUp.AGAIN), CleanUp.SENT),
    *may((CleanUp.NONE, CleanUp.LOST, CleanUp.AGAIN), CleanUp.SENT, of="others"),
)


class Torch(Contexts, edition=Edition.TORCH):
    """A worker with the context erases it and sends CLEAN to the workers in its list, to each up to 21 times."""

    take_request = Contexts.take_request.also(
        arc(ContextState.RELEASED, ContextState.CREATED),
        may(ContextState.RELEASED, ContextState.IN_USE),
    )
    answer = Contexts.answer.also(arc(ContextState.CREATED, ContextState.SHARED))
    take_answer = Contexts.take_answer.also(arc(ContextState.RELEASED, ContextState.CREATED, of="others"))
    hear_answer = Contexts.hear_answer.also(arc(ContextState.IN_USE, ContextState.SHARED, of="others"))
    creator_crashes = Contexts.creator_crashes.claiming(DIES, may(LIVE, ContextState.RELEASED), UNSAID)
    crash = Contexts.crash.claiming(DIES, may(LIVE, ContextState.RELEASED))

    def notes_caller(self, s: S, worker: Expr) -> None:
        for j in s.worker:
            s.known[worker, j] = s.known[worker, j] | (s.caller[j, worker] & s.carries[worker])

    def calls_back(self, s: S, failed: Any) -> None:
        """The first error ends the pass; each writes to the context by a bare pointer."""
        self.writes_to_the_context(s, failed)
        s.running = s.running & ~failed

    @transition(
        moves=[arc((ContextState.CREATED, ContextState.SHARED), ContextState.RELEASED), TELLS],
        cite="distributed-autograd-contexts 4.3.2: __exit__",
    )
    def leave(self, s: S, worker: Expr) -> None:
        """The creator leaves the context, in which no pass runs."""
        s.when(ord_(worker) == CREATOR, s.open)
        if not self.outlives:
            s.when(~self.waits(s, worker))
        s.when(~s.running)
        s.open = False
        self.releases(s, worker, True)

    @transition(
        moves=[GONE, AGAIN, arc((CleanUp.SENT, CleanUp.AGAIN), CleanUp.NONE)],
        cite="container.cpp: releaseContextIfPresent",
    )
    def take_clean_up(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """A worker receives CLEAN."""
        state = s.clean[worker0, worker1]
        s.when(state.isin((CleanUp.SENT, CleanUp.AGAIN)), ~s.dead[worker1])
        first = self.is_news(s, worker1)
        s.clean[worker0, worker1] = self.taken(state, first)
        self.has_answers(s, worker0)
        self.releases(s, worker1, first, worker0)

    def is_news(self, s: S, worker: Expr) -> Condition:
        """A worker that does not have the context does nothing."""
        return s.has[worker]

    @environment(
        fair=True,
        moves=[arc(CleanUp.SENT, CleanUp.NONE), may(CleanUp.LOST, CleanUp.NONE)],
        cite="rpc_agent.cpp: sendWithRetries",
    )
    def give_up(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """The last of 21 attempts to send CLEAN to a dead worker has failed, which is logged."""
        s.when(s.clean[worker0, worker1] != CleanUp.NONE, s.noticed[worker0, worker1])
        s.clean[worker0, worker1] = CleanUp.NONE

    @fault("duplicate", moves=[GONE, AGAIN, arc(CleanUp.SENT, CleanUp.AGAIN)])
    def duplicate(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """A CLEAN arrives, and will arrive again."""
        s.when(s.clean[worker0, worker1] == CleanUp.SENT, ~s.dead[worker1], self.is_news(s, worker1))
        self.releases(s, worker1, True, worker0)
        s.clean[worker0, worker1] = CleanUp.AGAIN

"""The environment of a backward pass: backward() is called twice, messages are lost, nodes raise, workers die."""

from __future__ import annotations

from ...language import *
from ..vocabulary import NodeKind, NodeState, Part
from .fields import ENDED, OTHERS, OWN, SKIPS, Call, Each, Fields, Outcome, S, moves

RAISES = (*arc(Part.RUNNING, Part.FAILED, of=OTHERS), *arc(NodeState.READY, NodeState.SKIPPED), *SKIPS)


class Environment(Fields):
    """Faults, the end of the context, and the states in which a system may stop."""

    @terminal
    def at_rest(self, s: S) -> Condition:
        """No call of backward() is running, or its process has ended."""
        home = self.shape.home
        over = (s.outcome[a].isin((Outcome.AWAITED, *ENDED)) for a in self.attempts())
        return or_(~s.alive[home], and_(s.outcome[0] != Outcome.AWAITED, *over))

    @fault("again", cite="dist_engine.cpp:computeDependencies: INTERNAL ASSERT")
    def begin_beside(self, s: S, attempt: Expr) -> None:
        """backward() is called while another call runs: it raises."""
        earlier = (and_(ord_(attempt) > a, s.outcome[a] == Outcome.RUNNING) for a in self.attempts()[:-1])
        move(s.outcome, Outcome.AWAITED, Outcome.RAISED, or_(*earlier), at=attempt)

    @fault("lose")
    def lose(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A gradient or its answer is lost."""
        move(s.call, (Call.OUT, Call.DONE, Call.FAILED), Call.LOST, at=(attempt, pair))

    @fault("error", moves=RAISES)
    def raise_error(self, s: S, node: Expr) -> None:
        """An operator raises instead of running."""
        s.when(named("an operator", self.kind(node, NodeKind.OP)), self.has_inputs(s, node))
        self.fails(s, [self.is_of(node, w) for w in self.workers()])

    @fault("die", moves=[moves(OWN, Part, Part.CANCELLED), SKIPS])
    def die(self, s: S, worker: Expr) -> None:
        """A worker dies: it answers nothing more."""
        move(s.alive, True, False, at=worker)
        s.phase[worker] = Part.CANCELLED
        self.clears(s, self.only(worker))
        self.releases_held(s, self.requests(s), self.only(worker), Call.LOST)

    @fault("leave", moves=[SKIPS])
    def leave(self, s: S) -> None:
        """The context is left, even if a pass runs."""
        home = self.shape.home
        s.when(s.alive[home], ~s.released[home], s.outcome[0] != Outcome.AWAITED)
        self.releases(s, [w == home for w in self.workers()])

    @transition(moves=[SKIPS])
    def clean(self, s: S, worker: Expr) -> None:
        """A worker receives CLEAN and releases the context."""
        s.when(s.released[self.shape.home], ~s.released[worker], s.alive[worker])
        self.releases(s, self.only(worker))

    def releases(self, s: S, when: Each) -> None:
        """The context is over on these workers."""
        for j in s.worker:
            s.released[j] = or_(s.released[j], self.at(j, when))

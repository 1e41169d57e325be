"""The environment of a backward pass: it is called twice, messages are lost, nodes raise, workers die."""

from __future__ import annotations

from ...language import Expr, and_, arc, fault, ite, named, or_, ord_, terminal, transition
from ..vocabulary import NodeKind, NodeState, Part
from .fields import ENDED, OTHERS, OWN, SKIPS, Call, Condition, Each, Fields, Outcome, S, moves

RAISES = (*arc(Part.RUNNING, Part.FAILED, of=OTHERS), *arc(NodeState.READY, NodeState.SKIPPED), *SKIPS)


class Environment(Fields):
    """Faults, the end of the context, and where a system may rest."""

    @terminal
    def at_rest(self, s: S) -> Condition:
        """No call of backward() is running, or its process is gone."""
        home = self.shape.home
        over = (s.outcome[a].isin((Outcome.AWAITED, *ENDED)) for a in self.attempts())
        return or_(~s.alive[home], and_(s.outcome[0] != Outcome.AWAITED, *over))

    @fault("again", each="attempt", cite="dist_engine.cpp:computeDependencies: INTERNAL ASSERT")
    def begin_beside(self, s: S, attempt: Expr) -> None:
        """backward() is called while another call runs: it raises."""
        earlier = (and_(ord_(attempt) > a, s.outcome[a] == Outcome.RUNNING) for a in self.attempts()[:-1])
        s.when(s.outcome[attempt] == Outcome.AWAITED, or_(*earlier))
        s.outcome[attempt] = Outcome.RAISED

    @fault("lose", each=("attempt", "pair"))
    def lose(self, s: S, attempt: Expr, pair: Expr) -> None:
        """A gradient is lost, or the answer to one."""
        s.when(s.call[attempt, pair].isin((Call.OUT, Call.DONE, Call.FAILED)))
        s.call[attempt, pair] = Call.LOST

    @fault("error", each="node", moves=RAISES)
    def raise_error(self, s: S, node: Expr) -> None:
        """An operator raises instead."""
        s.when(
            named("an operator", self.kind(node, NodeKind.OP)),
            self.at(node, [self.is_ready(s, k) for k in self.nodes()], "all its inputs are there"),
        )
        self.fails(s, [self.is_of(node, w) for w in self.workers()])

    @fault("die", each="worker", moves=[moves(OWN, Part, Part.CANCELLED), SKIPS])
    def die(self, s: S, worker: Expr) -> None:
        """A worker dies: nothing more is answered."""
        s.when(s.alive[worker])
        s.alive[worker] = False
        s.phase[worker] = Part.CANCELLED
        gone = [worker == w for w in self.workers()]
        self.clears(s, gone)
        self.loses(s, gone)

    def loses(self, s: S, gone: Each) -> None:
        """A request to a lost worker gets no answer."""
        for a in s.attempt:
            for p in s.pair:
                for cells in self.requests(s):
                    lost = and_(cells[a, p] == Call.HELD, self.at_taker(p, gone))
                    cells[a, p] = ite(lost, Call.LOST, cells[a, p])

    @fault("leave", moves=[SKIPS])
    def leave(self, s: S) -> None:
        """The context is left, whether a pass runs or not."""
        home = self.shape.home
        s.when(s.alive[home], ~s.released[home], s.outcome[0] != Outcome.AWAITED)
        self.releases(s, [w == home for w in self.workers()])

    @transition(each="worker", moves=[SKIPS])
    def clean(self, s: S, worker: Expr) -> None:
        """A worker is told that the context is left, and releases it."""
        s.when(s.released[self.shape.home], ~s.released[worker], s.alive[worker])
        self.releases(s, [worker == w for w in self.workers()])

    def releases(self, s: S, when: Each) -> None:
        """The context is over on these workers."""
        for j in s.worker:
            s.released[j] = or_(s.released[j], self.at(j, when))

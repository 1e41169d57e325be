"""What happens to the protocol: time that passes, and the faults that can be switched on."""

from __future__ import annotations

from ..language import Expr, any_, arc, environment, fault, may, named
from .shared import BEFORE, LEASED, Condition, D, H, M, P, R, S
from .steps import Protocol
from .vocabulary import Patience


class Surroundings(Protocol):
    """What happens to the protocol: time, and the faults that can be switched on."""

    @environment(fair=True, moves=[arc(R.LAST_CALL, R.LAST_CALL)], cite="rendezvous-engine 3.2.4")
    def last_call_passes(self, s: S) -> None:
        """The last call ends; in the editions before ours, after every live node that is trying has polled."""
        s.when(s.deadline == D.RUNNING)
        s.deadline = D.PASSED
        if self.edition not in BEFORE:
            return
        trying = (
            (s.place[j] == P.JOINING) & self.live(s, j) & ~s.cut[j] & ~s.store_down & (s.member[j] != M.PARTICIPANT)
            for j in s.node
        )
        s.when(named("every live node has polled", ~any_(trying)))

    @environment(each="node", fair=True, moves=[arc(H.FRESH, H.DUE)])
    def heartbeat_ages(self, s: S, node: Expr) -> None:
        """The keep-alive interval passes."""
        s.when(s.hb[node] == H.FRESH)
        s.hb[node] = H.DUE

    @environment(each="node", fair=True, moves=[arc(H.DUE, H.EXPIRED)])
    def heartbeat_expires(self, s: S, node: Expr) -> None:
        """Interval × attempts pass for a node that does not beat."""
        s.when(s.hb[node] == H.DUE, self.falls_silent(s, node))
        s.hb[node] = H.EXPIRED

    def falls_silent(self, s: S, node: Expr) -> Condition:
        """The node is down, gone, cut off, or its clock went back.

        In ours no clock is compared, and an observer that does not reach the store counts no silence. A node that is
        cut off there has stopped its workers before others take it for dead: its lease ends first.
        """
        down = s.crashed[node] | s.stalled[node] | (s.place[node] == P.LEFT)
        if self.edition in BEFORE:
            return down | s.store_down | s.cut[node] | (s.clock_low[node] & ~s.stamp_low[node])
        return (down | s.ghost[node] | (s.cut[node] & ~s.place[node].isin(LEASED))) & ~s.store_down

    @environment(each="node", switch="join_timeout", bound=1, cite="rendezvous-engine 3.2.4")
    def join_deadline_passes(self, s: S, node: Expr) -> None:
        """A node's join deadline passes."""
        s.when(s.place[node] == P.JOINING, s.patience[node] == Patience.IN_TIME)
        if self.edition not in BEFORE:
            s.when(s.member[node] != M.REDUNDANT)
        s.patience[node] = Patience.ROLLBACK

    @environment(each="node", editions=BEFORE, cite="rendezvous-engine 3.2.4")
    def rollback_window_passes(self, s: S, node: Expr) -> None:
        """The 5 s for taking a join back pass."""
        s.when(s.place[node] == P.JOINING, s.patience[node] == Patience.ROLLBACK)
        s.patience[node] = Patience.OVER

    @environment(each="node", switch="job_end", bound=2, moves=[arc(P.RUNNING, P.DONE)])
    def job_ends(self, s: S, node: Expr) -> None:
        """The workers of a node are done."""
        s.when(s.place[node] == P.RUNNING, self.live(s, node))
        s.place[node] = P.DONE

    @fault("worker_failure", each="node", moves=[arc(P.RUNNING, P.EXITING)], cite="elastic-node-change 3.3")
    def worker_fails(self, s: S, node: Expr) -> None:
        """A worker fails: the agent stops the others and calls next_rendezvous."""
        s.when(s.place[node] == P.RUNNING, self.live(s, node))
        self.restart(s, node)

    @fault("crash", each="node")
    def crash(self, s: S, node: Expr) -> None:
        """A process dies."""
        s.when(~s.crashed[node], s.place[node] != P.LEFT)
        s.crashed[node] = True
        s.stalled[node] = False
        s.cut[node] = False
        s.lapsed[node] = True

    @fault(
        "restart", each="node", editions=BEFORE,
        moves=[arc((P.JOINING, P.CONNECTING, P.RUNNING), P.EXITING),
            may((P.RETURNING, P.DONE, P.FAILED), P.EXITING)],
    )  # fmt: skip
    def start_again(self, s: S, node: Expr) -> None:
        """A new process starts under the address of a dead one; it remembers nothing."""
        s.when(s.crashed[node])
        s.crashed[node] = False
        s.master[node] = 0
        self.restart(s, node)

    @fault("stall", each="node")
    def stall(self, s: S, node: Expr) -> None:
        """A process stops for a while (swap, a debugger, a frozen host)."""
        s.when(self.live(s, node), s.place[node] != P.LEFT)
        s.stalled[node] = True
        s.lapsed[node] = True

    @environment(each="node", editions=BEFORE, fair=True)
    def come_back(self, s: S, node: Expr) -> None:
        """A stalled process goes on."""
        s.when(s.stalled[node])
        s.stalled[node] = False

    @fault("partition", each="node")
    def cut_off(self, s: S, node: Expr) -> None:
        """A node cannot reach the store for a while, and runs on."""
        s.when(self.live(s, node), ~s.cut[node], s.place[node] != P.LEFT)
        s.cut[node] = True
        s.lapsed[node] = True

    @environment(each="node", fair=True)
    def reconnect(self, s: S, node: Expr) -> None:
        """A node that was cut off reaches the store again."""
        s.when(s.cut[node])
        s.cut[node] = False

    @fault("outage")
    def store_stops(self, s: S) -> None:
        """The store cannot be reached."""
        s.when(~s.store_down)
        s.store_down = True
        for j in s.node:
            s.lapsed[j] = True

    @environment(fair=True)
    def store_returns(self, s: S) -> None:
        """The store can be reached again, with its state."""
        s.when(s.store_down)
        s.store_down = False

    def _configures(self, s: S, node: Expr) -> None:
        s.when(s.place[node] == P.EXITING, s.member[node] == M.OUTSIDE, self.live(s, node))

    @fault("other_min", each="node")
    def start_with_other_min(self, s: S, node: Expr) -> None:
        """A node starts with min + 1 (differing settings)."""
        self._configures(s, node)
        s.when(~s.sterner[node])
        s.when(self.min_nodes < self.max_nodes)  # every edition refuses a min above max before it asks the store
        s.sterner[node] = True

    @fault("other_expiry", each="node")
    def start_with_shorter_expiry(self, s: S, node: Expr) -> None:
        """A node starts with interval × attempts below the others' interval (differing settings)."""
        self._configures(s, node)
        s.when(~s.impatient[node])
        s.impatient[node] = True

    @fault("clock_skew", each="node")
    def start_with_late_clock(self, s: S, node: Expr) -> None:
        """A node starts on a host whose clock is behind by more than the expiry window."""
        self._configures(s, node)
        s.when(~s.clock_low[node])
        s.clock_low[node] = True

    @fault("clock_step", each="node")
    def clock_steps_back(self, s: S, node: Expr) -> None:
        """A running node's wall clock is set back by more than the expiry window."""
        s.when(~s.clock_low[node], self.live(s, node), s.member[node] != M.OUTSIDE)
        s.clock_low[node] = True

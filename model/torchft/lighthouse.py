"""torchft's lighthouse: replicas request quorums, and the members of a quorum train one step.

Theory of operation. A replica is one copy of the model. Its manager sends heartbeats to the lighthouse. Before each
step the replica requests a quorum, and is a *participant* until the next quorum is formed. The lighthouse computes the
quorum at each request and at each tick. If all members of the previous quorum participate, they and all other
participants are the next one: a fast quorum. Otherwise three tests apply: there are at least `least` participants
(min_replicas), they are more than half of the replicas that send heartbeats, and either all of these participate or a
participant waits since join_timeout. The members are answered. A participant that is left out continues to wait.

A quorum has a number, which increases if the members change or a member reports a failed step. A replica makes its
process group again if the number differs from the number of its group. The members copy the weights of a member at the
highest step, and train the step together. If a member does not take part, the others' step fails.

Failures:

- A replica dies, and its heartbeats are valid until their timeout.
- The heartbeats of a replica that lives do not arrive.
- The lighthouse restarts, and has lost its state.
- A request allows only members of the previous quorum (shrink_only).
- Replicas of two jobs use one lighthouse.

Abstractions. A step is trained by all members at once: each of them commits it or none. A participant that is left out
participates again at once. When the join timeout has passed, it has passed for all participants. A replica that starts
again is another replica, as in torchft, where it has a new id. A request does not time out: the program ends then. The
replica at the highest step lives until the weights are copied. Training ends after `steps` steps, and the number of
different quorums is bounded. Source: github.com/meta-pytorch/torchft.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import At, Edition

S = SymbolicState
LIVE = (At.IDLE, At.WAITING, At.TRAINING)


class Lighthouse(System):
    """The replicas of a job, and the lighthouse that forms their quorums."""

    title = "torchft's lighthouse"
    Edition = Edition

    node = index(3, "the replicas")
    quorum = index(4, "at most so many different quorums are formed")
    least = constant(1, "min_replicas")
    steps = constant(2, "the training is complete after so many steps")
    jobs = constant(1, "the replicas belong to so many jobs")

    at = choice(At, per="node")
    step = integer(0, "steps", per="node", doc="how many steps its weights have")
    of = one_of(quorum, optional=True, per="node", doc="the quorum that it was answered with")
    group = one_of(quorum, optional=True, per="node", doc="the quorum of its process group")
    failed = flag(per="node", doc="its last step has failed: commit_failures")

    beats = flag(per="node", doc="its last heartbeat is younger than heartbeat_timeout")
    asks = flag(per="node", doc="participates")
    shrinks = flag(per="node", doc="its request has shrink_only")
    ripe = flag(per="node", doc="participates since join_timeout or longer")
    last = one_of(quorum, optional=True, doc="prev_quorum")
    number = integer(0, "quorum", doc="quorum_id")
    settled = flag(initial=True, editions=(Edition.MENDED,), doc="each live replica may have sent a heartbeat")

    formed = integer(0, "quorum", doc="how many different quorums were formed")
    member = flag(per=("quorum", "node"))
    number_of = integer(0, "quorum", per="quorum", doc="the number of a quorum")
    forked = flag(doc="a step was committed by two groups without a common member")

    def lifelines(self) -> Lifelines:
        """The lighthouse has heartbeats, participants, and quorums."""
        kept = "beats asks shrinks ripe last number settled formed member number_of"
        return served("lighthouse", kept, here="forked")

    replica = machine_of(at, "A replica.")

    # ---- the lighthouse computes a quorum

    def healthy(self, s: S, n: Expr) -> Any:
        return s.asks[n] & s.beats[n]

    def was(self, s: S, n: Expr) -> Any:
        """Replica n was a member of the previous quorum."""
        return any_((s.last == q) & s.member[q, n] for q in s.quorum)

    def shrinking(self, s: S) -> Any:
        """Whether only members of the previous quorum are taken."""
        return ~s.last.absent & any_(self.healthy(s, n) & s.shrinks[n] for n in s.node)

    def candidate(self, s: S, n: Expr) -> Any:
        return self.healthy(s, n) & (not_(self.shrinking(s)) | self.was(s, n))

    def tested(self, s: S, n: Expr) -> Any:
        """Whether replica n counts in the tests of a new quorum."""
        return self.healthy(s, n)

    def is_fast(self, s: S) -> Any:
        return ~s.last.absent & all_(not_(self.was(s, n)) | self.healthy(s, n) for n in s.node)

    def is_met(self, s: S) -> Any:
        """Whether a quorum can be formed."""
        size, beating = count(self.tested(s, n) for n in s.node), count(s.beats)
        late = any_(self.healthy(s, n) & s.ripe[n] for n in s.node)
        return self.is_fast(s) | ((size >= self.least) & (size + size > beating) & ((size == beating) | late))

    def is_changed(self, s: S) -> Any:
        """Whether the quorum that would be formed has a new number."""
        other = any_(self.candidate(s, n) != self.was(s, n) for n in s.node)
        return s.last.absent | other | any_(self.candidate(s, n) & s.failed[n] for n in s.node)

    def form(self, s: S) -> None:
        """Form a quorum if one can be formed: its members are answered, and the other requests wait further."""
        b = s.fork()
        met, changed = self.is_met(b), self.is_met(b) & self.is_changed(b)
        s.when(not_(changed) | (b.formed < self.sizes["quorum"]))
        for q in s.quorum:
            made = changed & (b.formed == ord_(q))
            s.number_of[q] = ite(made, b.number + 1, b.number_of[q])
            for n in s.node:
                s.member[q, n] = ite(made, self.candidate(b, n), b.member[q, n])
        s.number = ite(changed, b.number + 1, b.number)
        s.last = ite(changed, s.quorum[b.formed % self.sizes["quorum"]], b.last)
        s.formed = ite(changed, b.formed + 1, b.formed)
        for n in s.node:
            waits = b.at[n] == At.WAITING
            answered = met & waits & self.candidate(b, n)
            s.at[n], s.of[n] = ite(answered, At.TRAINING, b.at[n]), ite(answered, s.last, b.of[n])
            s.group[n] = ite(answered & not_(self.has_number(s, n, s.last)), s.last, b.group[n])
            s.asks[n] = ite(met, waits & not_(answered), b.asks[n])
            s.shrinks[n], s.ripe[n] = b.shrinks[n] & s.asks[n], b.ripe[n] & not_(met)

    def has_number(self, s: S, n: Expr, quorum: Any) -> Any:
        """The process group of replica n is of a quorum with the number of this one."""
        return ~s.group[n].absent & (s.number_of[s.group[n]] == s.number_of[quorum])

    @transition(moves=[may(At.WAITING, At.TRAINING, of="others")], cite="lighthouse.rs: _run_quorum")
    def tick(self, s: S) -> None:
        """A tick: the lighthouse forms a quorum that needs no further request."""
        left = any_(s.asks[n] & (self.candidate(s, n) | (s.at[n] != At.WAITING)) for n in s.node)
        s.when(self.is_met(s), self.is_changed(s) | left)
        self.form(s)

    @environment(
        fair=True, moves=[may(At.WAITING, At.TRAINING, of="others")], cite="lighthouse.rs: quorum_compute, first_joined"
    )
    def join_timeout_passes(self, s: S) -> None:
        """The join timeout of all participants has passed, and the next tick comes."""
        s.when(any_(s.asks[n] & ~s.ripe[n] for n in s.node))
        for n in s.node:
            s.ripe[n] = s.asks[n]
        self.form(s)

    # ---- a replica

    @environment(moves=[arc(At.AWAY, At.IDLE)], cite="manager.rs: _run_heartbeat")
    def start(self, s: S, node: Expr) -> None:
        """A replica starts: its manager sends heartbeats."""
        move(s.at, At.AWAY, At.IDLE, self.is_admitted(node), at=node)
        s.beats[node] = True

    def is_admitted(self, node: Expr) -> Any:
        return True

    def request(self, s: S, node: Expr, shrinks: bool) -> None:
        s.when(s.at[node] == At.IDLE, s.step[node] < self.steps)
        s.at[node], s.asks[node], s.ripe[node] = At.WAITING, True, False
        s.beats[node], s.shrinks[node] = True, shrinks
        self.form(s)

    @transition(
        moves=[arc(At.IDLE, (At.WAITING, At.TRAINING)), may(At.WAITING, At.TRAINING, of="others")],
        cite="lighthouse.rs: quorum",
    )
    def ask(self, s: S, node: Expr) -> None:
        """A replica requests a quorum, which is a heartbeat too; the lighthouse forms a quorum if it can."""
        self.request(s, node, False)

    @environment(
        switch="shrink", moves=[arc(At.IDLE, (At.WAITING, At.TRAINING)), may(At.WAITING, At.TRAINING, of="others")],
        cite="manager.py: start_quorum(shrink_only=True)",
    )  # fmt: skip
    def ask_to_shrink(self, s: S, node: Expr) -> None:
        """A replica requests a quorum of members of the previous one only."""
        self.request(s, node, True)

    def trains(self, s: S, quorum: Any, n: Expr) -> Any:
        """Replica n trains in this quorum, with the process group of this quorum."""
        return (s.at[n] == At.TRAINING) & (s.of[n] == quorum) & (s.group[n] == quorum)

    def is_together(self, s: S, quorum: Expr) -> Any:
        """All members of the quorum train in it."""
        return all_(~s.member[quorum, n] | self.trains(s, quorum, n) for n in s.node)

    @transition(moves=[arc(At.TRAINING, At.IDLE, of="others")], cite="manager.py: should_commit")
    def commit(self, s: S, quorum: Expr) -> None:
        """The members of a quorum commit a step. Those at a lower step have copied the weights before."""
        s.when(any_(s.member[quorum, n] for n in s.node), self.is_together(s, quorum))
        b = s.fork()
        highest = max_(ite(b.member[quorum, n], b.step[n], 0) for n in s.node)
        beyond = any_(~b.member[quorum, n] & b.at[n].isin(LIVE) & (b.step[n] > highest) for n in s.node)
        s.forked = s.forked | beyond
        for n in s.node:
            joins = b.member[quorum, n]
            s.at[n], s.step[n] = ite(joins, At.IDLE, b.at[n]), ite(joins, highest + 1, b.step[n])
            s.failed[n], s.of[n] = b.failed[n] & ~joins, ite(joins, None, b.of[n])

    @environment(fair=True, moves=[arc(At.TRAINING, At.IDLE)], cite="manager.py: should_commit, report_error")
    def fail_step(self, s: S, node: Expr) -> None:
        """A step fails: a member of the quorum does not train in it, or has another process group."""
        s.when(s.at[node] == At.TRAINING, not_(any_((s.of[node] == q) & self.is_together(s, q) for q in s.quorum)))
        s.at[node], s.of[node], s.failed[node] = At.IDLE, None, True

    @environment(fair=True, moves=[arc(At.IDLE, At.GONE)])
    def complete(self, s: S, node: Expr) -> None:
        """The training of a replica is complete: it ends."""
        s.when(s.at[node] == At.IDLE, s.step[node] == self.steps)
        self.end(s, node)

    def end(self, s: S, node: Expr) -> None:
        s.at[node] = At.GONE
        reset(s.step, s.of, s.group, s.failed, at=node)

    @environment(fair=True, cite="lighthouse.rs: quorum_compute, healthy_replicas")
    def expire(self, s: S, node: Expr) -> None:
        """The last heartbeat of a replica that has ended becomes too old."""
        s.when(s.at[node] == At.GONE, s.beats[node])
        s.beats[node] = False

    @environment(fair=True, cite="lighthouse.rs: heartbeat")
    def beat(self, s: S, node: Expr) -> None:
        """A heartbeat arrives again."""
        s.when(s.at[node].isin(LIVE), ~s.beats[node])
        s.beats[node] = True

    # ---- faults

    @fault("crash", moves=[arc(LIVE, At.GONE)])
    def crash(self, s: S, node: Expr) -> None:
        """A replica dies."""
        s.when(s.at[node].isin(LIVE))
        self.end(s, node)

    @fault("pause")
    def pause(self, s: S, node: Expr) -> None:
        """The heartbeats of a replica that lives do not arrive within their timeout."""
        s.when(s.at[node].isin(LIVE), s.beats[node])
        s.beats[node] = False

    @fault("restart", moves=[may(At.WAITING, At.IDLE, of="others")], cite="lighthouse.rs: Lighthouse::new")
    def restart(self, s: S) -> None:
        """The lighthouse starts again without its state; the requests of replicas fail, and are sent again."""
        s.when(s.at.any(*LIVE))
        for n in s.node:
            s.at[n] = ite(s.at[n] == At.WAITING, At.IDLE, s.at[n])
        reset(s.beats, s.asks, s.shrinks, s.ripe)
        s.last = None
        self.forget(s)

    def forget(self, s: S) -> None:
        """The lighthouse counts its quorums from 0 again."""
        s.number = 0

    # ---- what must hold

    def of_job(self, n: Expr) -> Any:
        return ord_(n) % self.jobs

    def waits_in_vain(self, s: S) -> Any:
        """Replicas wait, enough replicas live, and a further quorum can be formed."""
        live = count(a.isin(LIVE) for a in s.at) >= self.least
        return s.at.any(At.WAITING) & live & (s.formed < self.sizes["quorum"])

    @terminal
    def at_rest(self, s: S) -> Condition:
        """No replica waits, or fewer live than must train, or the bound of quorums is reached."""
        return not_(self.waits_in_vain(s))

    @sometimes()
    def a_step_is_committed(self, s: S) -> Condition:
        """A replica has committed a step."""
        return any_(s.step[n] > 0 for n in s.node)

    @sometimes()
    def a_replica_joins_later(self, s: S) -> Condition:
        """A replica at step 0 trains together with one that has committed a step."""
        return any_(
            self.trains(s, q, n) & self.trains(s, q, m) & (s.step[n] == 0) & (s.step[m] > 0)
            for q in s.quorum
            for n in s.node
            for m in s.node
        )

    @always(witness="a_step_is_committed")
    def a_step_is_of_one_group(self, s: S) -> Condition:
        """No step is committed by a group while a live replica outside of the group has committed it in another."""
        return ~s.forked

    @always(witness="a_step_is_committed")
    def a_quorum_has_enough_members(self, s: S) -> Condition:
        """Each quorum has at least `least` members."""
        return all_((ord_(q) >= s.formed) | (count(s.member[q, n] for n in s.node) >= self.least) for q in s.quorum)

    @always(witness="a_replica_joins_later")
    def a_group_has_the_members_of_its_quorum(self, s: S) -> Condition:
        """A replica trains with the process group of its quorum."""
        return all_((s.at[n] != At.TRAINING) | (s.group[n] == s.of[n]) for n in s.node)

    @always(witness="a_step_is_committed")
    def a_quorum_is_of_one_job(self, s: S) -> Condition:
        """The members of a quorum belong to one job."""
        return all_(
            ~(s.member[q, n] & s.member[q, m]) | (self.of_job(n) == self.of_job(m))
            for q in s.quorum
            for n in s.node
            for m in s.node
        )

    @leads_to()
    def who_waits_is_answered(self, s: S) -> Condition:
        """While enough replicas live, all that wait are answered."""
        return self.waits_in_vain(s), not_(self.waits_in_vain(s))


class Mended(Lighthouse, edition=Edition.MENDED):
    """With the remedies of L1 to L4.

    A quorum shares a member with the previous one while a member of that sends heartbeats; the first quorum, also after
    a restart, has all replicas that send heartbeats. shrink_only of a member is ignored if too few would remain, and
    of other replicas always. The lighthouse never uses a number again, and refuses the replicas of other jobs.
    """

    def is_admitted(self, node: Expr) -> Any:
        return self.of_job(node) == 0

    def shrinking(self, s: S) -> Any:
        demanded = any_(self.healthy(s, n) & s.shrinks[n] & self.was(s, n) for n in s.node)
        kept = count(self.healthy(s, n) & self.was(s, n) for n in s.node)
        return demanded & (kept >= self.least) & (kept + kept > count(s.beats))

    def tested(self, s: S, n: Expr) -> Any:
        return self.candidate(s, n)

    def is_met(self, s: S) -> Any:
        shared = any_(self.candidate(s, n) & self.was(s, n) for n in s.node)
        over = ~any_(s.beats[n] & self.was(s, n) for n in s.node)
        everyone = all_(~s.beats[n] | self.healthy(s, n) for n in s.node)
        return s.settled & super().is_met(s) & ite(s.last.absent, everyone, shared | over)

    def forget(self, s: S) -> None:
        s.settled = False

    @environment(fair=True, editions=(Edition.MENDED,))
    def settle(self, s: S) -> None:
        """The lighthouse has waited for a heartbeat timeout: each live replica has sent a heartbeat."""
        s.when(~s.settled, all_(~s.at[n].isin(LIVE) | s.beats[n] for n in s.node))
        s.settled = True

"""torch's older rendezvous, over etcd: one key, `active_version`, that is set up, joinable, frozen and final.

Theory of operation. A node that finds no key writes it (SETUP); the key is an exclusive lock, so that one round is
prepared at a time. The round is JOINABLE: each node takes the next rank. The one that brings it to min waits out the
last call, and freezes it; or the one that brings it to max does at once. A FROZEN round has its participants: each
confirms, and keeps a lease of its own alive; the last one makes it FINAL. A node that comes to a final round counts
itself as waiting, and watches the leases: when one of them is over it deletes the key, and the next round is set up.
Every change is a compare-and-swap of the whole value, so that a read and the write after it are one step here.

Against nodes that die the key has a time to live while it is set up (5 s), joinable with at least min, and frozen (10
s each); the node that is to go on keeps it alive. A joinable round below min, a final and a closed one have none.

Promised under all of the faults below: the nodes of a round agree on its size and have dense ranks, between min and
max; a final round was confirmed by all its participants; a round that was begun becomes final, is deleted or closed;
enough nodes that keep trying complete a round; a rendezvous that is closed stays closed, and all hear of it.

Not promised, and reached by the `sometimes` below: where nobody waits, nobody looks at the leases, so that a group
runs on without a member that died (`a_group_runs_on_without_a_member`). The count of those that wait goes with the
round that is deleted: members that have not polled in between run on beside the next group (`two_groups_run`), or the
newcomer waits alone while they do (`a_newcomer_waits_alone`). A closing finds no key where a round was just deleted,
and is lost (`a_close_is_lost`). A spare of a full group makes all of it start again (`a_full_group_is_to_restart`). A
node whose deadline passes closes the rendezvous of a group that runs (`a_failed_node_closes_a_group`). The dynamic
rendezvous confirms nothing: its round is complete by one write.

Abstractions. The counter of versions is part of the write that sets a round up; a node's version is the active one, or
an older one. A participant that died below min, or came again, keeps its rank as nobody's. The agent polls
num_nodes_waiting, and calls the barrier again when a node waits; all nodes have the same min and max.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Edition, EtcdNode, EtcdRound

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
N, R = EtcdNode, EtcdRound
GONE = (N.LEFT, N.DEAD)
TRYING = (
    N.ENTERING, N.CREATING, N.JOINING, N.LAST_CALL, N.JOINED, N.CONFIRMING, N.CONFIRMED, N.ANNOUNCING, N.WATCHING,
)  # fmt: skip
IN_ROUND = (N.LAST_CALL, N.JOINED, N.CONFIRMING, N.CONFIRMED)  # has a rank of a round that is not final
RENEWING = (N.CONFIRMED, N.RUNNING)  # a thread of the node keeps its lease alive
CITE = "etcd_rendezvous.py: "


class EtcdRendezvous(System):
    """N nodes that call the barrier, run, and call it again when a node waits."""

    title = "Rendezvous over etcd"
    Edition = (Edition.TORCH,)

    node = index(3)
    min_nodes = constant(2)
    max_nodes = constant(3)

    status = choice(EtcdRound)
    joined = integer(0, "max_nodes", doc="participants of the active round, also those that died since")
    waiting = integer(0, "node", doc="num_workers_waiting; as many as there are nodes stands for more, too")

    phase = choice(EtcdNode, per="node")
    rank = integer(0, "max_nodes", per="node")
    world = integer(0, "max_nodes", per="node", doc="the size of the world that the barrier returned; 0: none")
    current = flag(per="node", doc="the version that the node has is the active one")
    confirmed = flag(per="node", doc="the active round lists a lease of the node")
    lease = flag(per="node", doc="... and the lease is there")
    close_lost = flag(doc="a node closed, and there was no key")

    def lifelines(self) -> Lifelines:
        """The key and the leases are etcd's."""
        at, totals = "confirmed lease lease_expires lease_expires_early", {"joined": self.sizes["max_nodes"]}
        return served("etcd", at, here="current close_lost", totals=totals)

    @machine(EtcdRound)
    def etcd_round(self, s: S) -> Any:
        """The status of the key."""
        return s.status

    @machine(EtcdNode, each="node")
    def etcd_node(self, s: S, node: Expr) -> Any:
        """A node."""
        return s.phase[node]

    # ---- helpers

    def is_in(self, s: S, node: Expr, *statuses: EtcdRound) -> Condition:
        """The key still has the node's version, and one of these statuses."""
        return s.current[node] & s.status.isin(statuses)

    def enters(self, s: S, node: Expr) -> None:
        """It begins anew: the lease of the round before is kept alive no more."""
        s.phase[node] = N.ENTERING
        s.rank[node] = 0
        s.world[node] = 0
        s.current[node] = False

    def ends_round(self, s: S, status: Any) -> None:
        """The version is over: no node has the active one."""
        s.status = status
        s.joined = 0
        s.waiting = 0
        for j in s.node:
            s.current[j] = False
            s.confirmed[j] = False
            s.lease[j] = False

    def a_lease_is_over(self, s: S) -> Condition:
        return any_(s.confirmed[j] & ~s.lease[j] for j in s.node)

    # ---- setup

    @transition(
        each="node",
        moves=[arc(R.NONE, R.SETUP), arc(N.ENTERING, N.CREATING)],
        cite=CITE + "try_create_rendezvous; rendezvous-engine 3.2.4: setup",
    )
    def create(self, s: S, node: Expr) -> None:
        """A node writes the key, if there is none."""
        s.when(s.phase[node] == N.ENTERING, self.is_free(s))
        s.status = R.SETUP
        s.phase[node] = N.CREATING

    def is_free(self, s: S) -> Condition:
        return s.status == R.NONE

    @transition(
        each="node",
        moves=[arc(R.SETUP, R.JOINABLE), arc(N.CREATING, N.JOINING)],
        cite=CITE + "try_create_rendezvous; rendezvous-engine 3.2.4: joinable",
    )
    def publish(self, s: S, node: Expr) -> None:
        """The round is ready. The lock has no owner's name: a node that is late may take over another's."""
        s.when(s.phase[node] == N.CREATING, s.status == R.SETUP)
        s.status = R.JOINABLE
        s.phase[node] = N.JOINING
        s.current[node] = True

    # ---- joinable

    @transition(each="node", moves=[arc(N.ENTERING, N.JOINING)], cite=CITE + "init_phase")
    def see_joinable(self, s: S, node: Expr) -> None:
        """A node reads that a round is joinable."""
        s.when(s.phase[node] == N.ENTERING, s.status == R.JOINABLE)
        s.phase[node] = N.JOINING
        s.current[node] = True

    @transition(
        each="node",
        moves=[arc(R.JOINABLE, R.FROZEN), arc(N.JOINING, N.JOINED), arc(N.JOINING, N.LAST_CALL)],
        cite=CITE + "join_rendezvous; rendezvous-engine 3.2.4: joinable",
    )
    def join(self, s: S, node: Expr) -> None:
        """It takes the next rank: the one that makes them min has the last call, and with max the round is frozen."""
        s.when(s.phase[node] == N.JOINING, self.is_in(s, node, R.JOINABLE))
        s.rank[node] = self.next_rank(s)
        s.joined = s.joined + 1
        s.status = ite(s.joined >= self.max_nodes, R.FROZEN, R.JOINABLE)
        s.phase[node] = ite(self.has_last_call(s), N.LAST_CALL, N.JOINED)

    def next_rank(self, s: S) -> Any:
        return s.joined

    def has_last_call(self, s: S) -> Condition:
        return (s.joined == self.min_nodes) & (s.status == R.JOINABLE)

    @transition(
        each="node",
        moves=[arc(R.JOINABLE, R.FROZEN), arc(N.LAST_CALL, N.JOINED)],
        cite=CITE + "handle_join_last_call; rendezvous-engine 3.2.4: frozen",
    )
    def end_last_call(self, s: S, node: Expr) -> None:
        """The last call is over."""
        s.when(s.phase[node] == N.LAST_CALL, self.is_in(s, node, R.JOINABLE))
        s.status = R.FROZEN
        s.phase[node] = N.JOINED

    # ---- frozen

    @transition(each="node", moves=[arc((N.JOINED, N.LAST_CALL), N.CONFIRMING)], cite=CITE + "wait_for_peers")
    def see_frozen(self, s: S, node: Expr) -> None:
        """A participant reads that the round is frozen."""
        s.when(s.phase[node].isin((N.JOINED, N.LAST_CALL)), self.is_in(s, node, R.FROZEN))
        s.phase[node] = N.CONFIRMING

    @transition(
        each="node",
        moves=[arc(R.FROZEN, R.FINAL), arc(N.CONFIRMING, N.CONFIRMED)],
        cite=CITE + "confirm_membership; rendezvous-engine 3.2.4: confirm",
    )
    def confirm(self, s: S, node: Expr) -> None:
        """It makes its lease, and confirms; the last one makes the round final."""
        s.when(s.phase[node] == N.CONFIRMING, self.is_in(s, node, R.FROZEN))
        s.confirmed[node] = True
        s.lease[node] = True
        s.status = ite(self.is_confirmed_by_enough(s), R.FINAL, R.FROZEN)
        s.phase[node] = N.CONFIRMED

    def is_confirmed_by_enough(self, s: S) -> Condition:
        return s.confirmed.count() == s.joined

    # ---- final

    @transition(
        each="node",
        moves=[arc(N.CONFIRMED, N.RUNNING)],
        cite=CITE + "wait_for_final; rendezvous-engine 3.2.4: final",
    )
    def see_final(self, s: S, node: Expr) -> None:
        """The barrier returns: a rank, and the number of participants as the size of the world."""
        s.when(s.phase[node] == N.CONFIRMED, self.is_in(s, node, R.FINAL))
        s.world[node] = s.joined
        s.phase[node] = N.RUNNING

    @transition(each="node", moves=[arc(N.ENTERING, N.ANNOUNCING)], cite=CITE + "init_phase")
    def find_final(self, s: S, node: Expr) -> None:
        """A node reads that there is a final round."""
        s.when(s.phase[node] == N.ENTERING, s.status == R.FINAL)
        s.phase[node] = N.ANNOUNCING
        s.current[node] = True

    @transition(each="node", moves=[arc(N.ANNOUNCING, N.WATCHING)], cite=CITE + "announce_self_waiting")
    def announce(self, s: S, node: Expr) -> None:
        """It counts itself as waiting; nobody ever takes itself out."""
        s.when(s.phase[node] == N.ANNOUNCING, self.is_in(s, node, R.FINAL))
        s.waiting = ite(s.waiting < self.sizes["node"], s.waiting + 1, s.waiting)
        s.phase[node] = N.WATCHING

    @transition(
        each="node",
        moves=[arc(R.FINAL, R.NONE), arc(N.WATCHING, N.ENTERING)],
        cite=CITE + "wait_for_rendezvous_to_free",
    )
    def destroy(self, s: S, node: Expr) -> None:
        """It finds that a lease of the round is over, and deletes the key."""
        s.when(s.phase[node] == N.WATCHING, self.is_in(s, node, R.FINAL), self.a_lease_is_over(s))
        self.ends_round(s, R.NONE)
        self.enters(s, node)

    # ---- too late, and closed

    @transition(
        each="node",
        moves=[
            arc((N.CREATING, N.JOINING, N.LAST_CALL, N.JOINED, N.CONFIRMING), N.ENTERING),
            arc((N.CONFIRMED, N.ANNOUNCING, N.WATCHING), N.ENTERING),
        ],
        cite=CITE + "EtcdRendezvousRetryableFailure, EtcdRendezvousRetryImmediately, EtcdKeyNotFound",
    )
    def go_back(self, s: S, node: Expr) -> None:
        """The round is not what the node waits for: it begins anew."""
        phase = s.phase[node]
        s.when(phase.isin(TRYING), phase != N.ENTERING)
        created = (phase == N.CREATING) & (s.status == R.SETUP)
        joins = (phase == N.JOINING) & self.is_in(s, node, R.JOINABLE)
        waits = phase.isin((N.JOINED, N.LAST_CALL)) & self.is_in(s, node, R.JOINABLE, R.FROZEN)
        confirms = (phase == N.CONFIRMING) & self.is_in(s, node, R.FROZEN)
        returns = (phase == N.CONFIRMED) & self.is_in(s, node, R.FROZEN, R.FINAL)
        hopes = phase.isin((N.ANNOUNCING, N.WATCHING)) & self.is_in(s, node, R.FINAL)
        s.when(~(created | joins | waits | confirms | returns | hopes))
        self.enters(s, node)

    @transition(each="node", moves=[arc(N.ENTERING, N.LEFT)], cite=CITE + "init_phase, RendezvousClosedError")
    def see_closed(self, s: S, node: Expr) -> None:
        """It reads that the rendezvous is closed: the barrier raises."""
        s.when(s.phase[node] == N.ENTERING, s.status == R.CLOSED)
        s.phase[node] = N.LEFT

    @transition(
        each="node",
        moves=[may((R.SETUP, R.JOINABLE, R.FROZEN, R.FINAL), R.CLOSED), arc((N.DONE, N.FAILED), N.LEFT)],
        cite=CITE + "set_closed",
    )
    def close(self, s: S, node: Expr) -> None:
        """It closes the rendezvous: without a key it only logs EtcdKeyNotFound."""
        s.when(s.phase[node].isin((N.DONE, N.FAILED)))
        s.close_lost = s.close_lost | (s.status == R.NONE)
        self.ends_round(s, ite(s.status == R.NONE, R.NONE, R.CLOSED))
        s.phase[node] = N.LEFT

    @transition(each="node", moves=[arc(N.RUNNING, N.ENTERING)], cite=CITE + "num_nodes_waiting; api.py: _invoke_run")
    def restart_workers(self, s: S, node: Expr) -> None:
        """The agent polls, and a node waits: it calls the barrier again."""
        s.when(s.phase[node] == N.RUNNING, s.status == R.FINAL, s.waiting > 0)
        self.enters(s, node)

    # ---- time

    @environment(fair=True, moves=[arc(R.SETUP, R.NONE)], cite=CITE + "CONST_ETCD_SETUP_TTL")
    def setup_expires(self, s: S) -> None:
        """Nobody prepares the round: the key's time is over."""
        s.when(s.status == R.SETUP, ~any_(p == N.CREATING for p in s.phase))
        self.ends_round(s, R.NONE)

    @environment(fair=True, moves=[arc(R.JOINABLE, R.NONE)], cite=CITE + "CONST_ETCD_JOINABLE_EPHEMERAL_TTL")
    def joinable_expires(self, s: S) -> None:
        """The node that has the last call is gone: the key's time is over. Below min it has no such time."""
        s.when(s.status == R.JOINABLE, s.joined >= self.min_nodes)
        s.when(~any_((s.phase[j] == N.LAST_CALL) & s.current[j] for j in s.node))
        self.ends_round(s, R.NONE)

    @environment(fair=True, moves=[arc(R.FROZEN, R.NONE)], cite=CITE + "CONST_ETCD_FROZEN_TTL")
    def frozen_expires(self, s: S) -> None:
        """All that live have confirmed, and some have not: the key's time is over."""
        to_confirm = (N.LAST_CALL, N.JOINED, N.CONFIRMING)
        s.when(s.status == R.FROZEN, ~any_(s.phase[j].isin(to_confirm) & s.current[j] for j in s.node))
        self.ends_round(s, R.NONE)

    @environment(each="node", fair=True, cite=CITE + "CONST_WORKER_KEEPALIVE_TTL")
    def lease_expires(self, s: S, node: Expr) -> None:
        """Nobody keeps the lease of a participant alive, and its time is over."""
        s.when(s.lease[node], ~(s.current[node] & s.phase[node].isin(RENEWING)))
        s.lease[node] = False

    # ---- faults

    @fault("late", moves=[arc((R.SETUP, R.JOINABLE, R.FROZEN), R.NONE)])
    def key_expires_early(self, s: S) -> None:
        """A node stops for longer than the key's time, and goes on."""
        s.when(s.status.isin((R.SETUP, R.FROZEN)) | ((s.status == R.JOINABLE) & (s.joined >= self.min_nodes)))
        self.ends_round(s, R.NONE)

    @fault("late", each="node")
    def lease_expires_early(self, s: S, node: Expr) -> None:
        """A participant stops for longer than its lease, and goes on: a lease that is over is never made again."""
        s.when(s.lease[node])
        s.lease[node] = False

    @fault("crash", each="node", moves=[arc((*TRYING, N.RUNNING, N.DONE, N.FAILED), N.DEAD)])
    def crash(self, s: S, node: Expr) -> None:
        """A process dies, in any phase."""
        s.when(~s.phase[node].isin(GONE))
        self.enters(s, node)
        s.phase[node] = N.DEAD

    @fault("restart", each="node", moves=[arc(N.DEAD, N.ENTERING)])
    def restart(self, s: S, node: Expr) -> None:
        """A node that died is started again."""
        s.when(s.phase[node] == N.DEAD)
        s.phase[node] = N.ENTERING

    @fault("worker_failure", each="node", moves=[arc(N.RUNNING, N.ENTERING)], cite="elastic-node-change 3.3")
    def worker_fails(self, s: S, node: Expr) -> None:
        """A worker fails: the agent calls the barrier again."""
        s.when(s.phase[node] == N.RUNNING)
        self.enters(s, node)

    @environment(
        each="node",
        switch="join_timeout",
        bound=1,
        moves=[arc((N.ENTERING, N.LAST_CALL, N.JOINED, N.CONFIRMED, N.WATCHING), N.FAILED)],
        cite=CITE + "rendezvous_barrier, try_wait_for_state_change",
    )
    def join_deadline_passes(self, s: S, node: Expr) -> None:
        """The deadline of a node that waits passes: RendezvousTimeoutError; its rank stays taken."""
        phase = s.phase[node]
        joins = phase.isin((N.JOINED, N.LAST_CALL)) & self.is_in(s, node, R.JOINABLE)
        returns = (phase == N.CONFIRMED) & self.is_in(s, node, R.FROZEN)
        watches = (phase == N.WATCHING) & self.is_in(s, node, R.FINAL) & ~self.a_lease_is_over(s)
        s.when((phase == N.ENTERING) | joins | returns | watches)
        self.enters(s, node)
        s.phase[node] = N.FAILED

    @environment(each="node", switch="job_end", bound=2, moves=[arc(N.RUNNING, N.DONE)])
    def job_ends(self, s: S, node: Expr) -> None:
        """The workers of a node are done."""
        s.when(s.phase[node] == N.RUNNING)
        self.enters(s, node)
        s.phase[node] = N.DONE

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Each node runs or is gone; or too few try, and wait for their deadline."""
        few = count(s.phase[j].isin(TRYING) for j in s.node) < self.min_nodes
        return all_(s.phase[j].isin((*GONE, N.RUNNING)) | few for j in s.node)

    @sometimes()
    def a_round_is_final(self, s: S) -> Condition:
        """A round is final, and two have returned."""
        return (s.status == R.FINAL) & (count(s.current[j] & (s.phase[j] == N.RUNNING) for j in s.node) >= 2)

    @sometimes(needs="crash")
    def the_dead_are_counted(self, s: S) -> Condition:
        """A round is frozen with a participant that died."""
        live = count(s.current[j] & s.phase[j].isin(IN_ROUND) for j in s.node)
        return (s.status == R.FROZEN) & (s.joined > live)

    @sometimes(needs="job_end")
    def it_is_closed(self, s: S) -> Condition:
        """The rendezvous is closed."""
        return s.status == R.CLOSED

    @always(witness="a_round_is_final", cite="rendezvous-engine 3.2.4: final")
    def agree_on_world(self, s: S) -> Condition:
        """The nodes that returned from one round agree on its size, and have different ranks below it."""
        pairs = (
            implies(
                self.has_returned(s, j) & self.has_returned(s, k),
                (s.world[j] == s.world[k]) & ((j == k) | (s.rank[j] != s.rank[k])),
            )
            for j in s.node
            for k in s.node
        )
        return all_(pairs)

    def has_returned(self, s: S, node: Expr) -> Condition:
        return s.current[node] & (s.phase[node] == N.RUNNING)

    @always(witness="a_round_is_final", cite="rendezvous-engine 3.2.4: final")
    def ranks_are_dense(self, s: S) -> Condition:
        """The rank of each participant is below their number, also before the round is final."""
        return all_(
            implies(s.current[j] & s.phase[j].isin((*IN_ROUND, N.RUNNING)), s.rank[j] < s.joined) for j in s.node
        )

    @always(witness="a_round_is_final")
    def at_most_max(self, s: S) -> Condition:
        """A round never has more than max participants that live."""
        return count(s.current[j] & s.phase[j].isin((*IN_ROUND, N.RUNNING)) for j in s.node) <= self.max_nodes

    @always(witness="a_round_is_final")
    def at_least_min(self, s: S) -> Condition:
        """A round that is frozen or final has at least min participants."""
        return implies(s.status.isin((R.FROZEN, R.FINAL)), s.joined >= self.min_nodes)

    @always(witness="a_round_is_final", cite="rendezvous-engine 3.2.4: confirm")
    def final_means_confirmed(self, s: S) -> Condition:
        """Each participant of a final round has confirmed."""
        return implies(s.status == R.FINAL, s.confirmed.count() == s.joined)

    @step(witness="it_is_closed", needs="job_end")
    def closed_stays_closed(self, before: S, after: S) -> Condition:
        """Closing is for good."""
        return implies(before.status == R.CLOSED, after.status == R.CLOSED)

    # ---- progress

    @leads_to(cite="rendezvous-engine 3.2.4")
    def a_round_ends(self, s: S) -> tuple[Condition, Condition]:
        """A round that is set up or frozen, or joinable with min, becomes final, is deleted or closed."""
        begun = s.status.isin((R.SETUP, R.FROZEN)) | ((s.status == R.JOINABLE) & (s.joined >= self.min_nodes))
        return begun, s.status.isin((R.NONE, R.FINAL, R.CLOSED)) | ((s.status == R.JOINABLE) & (s.joined == 0))

    @leads_to(cite="rendezvous-engine 3.2.4")
    def enough_nodes_complete_a_round(self, s: S) -> tuple[Condition, Condition]:
        """If enough live nodes keep trying, a round becomes final."""
        enough = count(s.phase[j].isin(TRYING) for j in s.node) >= self.min_nodes
        over = s.status.isin((R.FINAL, R.CLOSED)) | ~enough
        return ~over, over

    @leads_to(each="node", cite="elastic-node-change 2.3")
    def the_waiting_are_answered(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """A node that waits beside a final round comes to another."""
        return s.phase[node] == N.WATCHING, s.phase[node] != N.WATCHING

    @leads_to(each="node", needs="job_end")
    def closing_reaches_everyone(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """After the rendezvous is closed no node tries for ever."""
        hopes = (s.status == R.CLOSED) & s.phase[node].isin(TRYING)
        return hopes, ~hopes

    # ---- what is not promised

    def runs_on(self, s: S, node: Expr) -> Condition:
        return (s.phase[node] == N.RUNNING) & ~s.current[node]

    @sometimes(needs="crash")
    def a_group_runs_on_without_a_member(self, s: S) -> Condition:
        """The lease of a member that died is over, and nobody is left that looks at it."""
        left = all_(s.phase[j].isin((*GONE, N.RUNNING)) for j in s.node)
        dead = any_(s.confirmed[j] & ~s.lease[j] & (s.phase[j] == N.DEAD) for j in s.node)
        return left & dead & any_(self.has_returned(s, j) for j in s.node)

    @sometimes(needs="crash")
    def two_groups_run(self, s: S) -> Condition:
        """Nodes of two rounds run at once, and nothing tells the older ones."""
        new = any_(self.has_returned(s, j) for j in s.node)
        return new & any_(self.runs_on(s, j) for j in s.node) & (s.waiting == 0)

    @sometimes(needs="crash")
    def a_newcomer_waits_alone(self, s: S) -> Condition:
        """A node waits for min, and those that could join run on in a round that it has deleted."""
        alone = (s.status == R.JOINABLE) & (s.joined < self.min_nodes) & any_(p == N.JOINED for p in s.phase)
        return (
            alone
            & all_(s.phase[j].isin((*GONE, N.JOINED)) | self.runs_on(s, j) for j in s.node)
            & any_(self.runs_on(s, j) for j in s.node)
        )

    @sometimes(needs="job_end")
    def a_close_is_lost(self, s: S) -> Condition:
        """A node closed, and a round is final after it."""
        return s.close_lost & (s.status == R.FINAL)

    @sometimes()
    def a_full_group_is_to_restart(self, s: S) -> Condition:
        """A group of max nodes is to start again because of a node that it has no room for."""
        return (s.status == R.FINAL) & (s.joined == self.max_nodes) & (s.waiting > 0)

    @sometimes(needs="join_timeout")
    def a_failed_node_closes_a_group(self, s: S) -> Condition:
        """The rendezvous is closed by a node that did not come in, and a group runs."""
        return (s.status == R.CLOSED) & any_(p == N.RUNNING for p in s.phase) & ~any_(p == N.DONE for p in s.phase)

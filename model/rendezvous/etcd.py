"""torch's older rendezvous, over etcd: one key, `active_version`, which is set up, joinable, frozen and final.

Theory of operation. A node that finds no key writes it (SETUP); the key is an exclusive lock, so only one round is
prepared at a time. The round is JOINABLE: each node takes the next rank. The node that brings it to min waits until the
last call is over and freezes it; the node that brings it to max freezes it at once. A FROZEN round has its
participants: each confirms and keeps its own lease alive; the last one makes the round FINAL. A node that finds a final
round counts itself as waiting and watches the leases: when a lease is over, it deletes the key, and the next round is
set up. Every change is a compare-and-swap of the whole value, so a read and the write after it are one step here.

Against nodes that die, the key has a time to live while it is set up (5 s), joinable with at least min, and frozen (10
s each); the node that takes the next step keeps it alive. A joinable round below min, a final and a closed round have
no time to live.

Promised under all of the faults below: the nodes of a round agree on its size and have dense ranks, between min and
max; a final round was confirmed by all its participants; a round that was begun becomes final, is deleted or closed;
enough nodes that keep trying complete a round; a rendezvous that is closed stays closed, and every node notices it.

Not promised, and reached by the `sometimes` below:

- Only nodes that wait watch the leases. Where none waits, a group continues without a member that died
  (`a_group_runs_on_without_a_member`).
- The count of waiting nodes is deleted with the round. Members that have not polled in between continue while the next
  group runs (`two_groups_run`) or while the newcomer waits alone (`a_newcomer_waits_alone`).
- A close that finds no key, because a round was just deleted, is lost (`a_close_is_lost`).
- A spare of a full group makes the whole group restart (`a_full_group_is_to_restart`).
- A node whose deadline passes closes the rendezvous of a running group (`a_failed_node_closes_a_group`).

The dynamic rendezvous confirms nothing: one write completes its round.

Abstractions. The write that sets a round up also increments the version; a node's version is the active one or an
older one. The rank of a participant that died below min, or that joined again, stays taken. The agent polls
num_nodes_waiting and calls the barrier again when a node waits. All nodes have the same min and max.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Edition
from .vocabulary import EtcdNode as Node
from .vocabulary import EtcdRound as Round

S = SymbolicState
GONE = (Node.LEFT, Node.DEAD)
TRYING = (
    Node.ENTERING, Node.CREATING, Node.JOINING, Node.LAST_CALL, Node.JOINED, Node.CONFIRMING, Node.CONFIRMED,
    Node.ANNOUNCING, Node.WATCHING,
)  # fmt: skip
IN_ROUND = (Node.LAST_CALL, Node.JOINED, Node.CONFIRMING, Node.CONFIRMED)  # has a rank in a round that is not final
RENEWING = (Node.CONFIRMED, Node.RUNNING)  # a thread of the node keeps its lease alive
CITE = "etcd_rendezvous.py: "


class EtcdRendezvous(System):
    """N nodes that call the barrier, run, and call it again when a node waits."""

    title = "Rendezvous over etcd"
    Edition = (Edition.TORCH,)

    node = index(3)
    min_nodes = constant(2)
    max_nodes = constant(3)

    status = choice(Round)
    joined = integer(0, "max_nodes", doc="participants of the active round, including those that have died")
    waiting = integer(0, "node", doc="num_workers_waiting; the number of nodes also means more")

    phase = choice(Node, per="node")
    rank = integer(0, "max_nodes", per="node")
    world = integer(0, "max_nodes", per="node", doc="the size of the world that the barrier returned; 0: none")
    current = flag(per="node", doc="the version that the node has is the active one")
    confirmed = flag(per="node", doc="the active round lists a lease of the node")
    lease = flag(per="node", doc="that lease exists")
    close_lost = flag(doc="a node closed the rendezvous while the key did not exist")

    def lifelines(self) -> Lifelines:
        """etcd has the key and the leases."""
        at, totals = "confirmed lease lease_expires lease_expires_early", {"joined": self.sizes["max_nodes"]}
        return served("etcd", at, here="current close_lost", totals=totals)

    etcd_round = machine_of(status, "The status of the key.")
    etcd_node = machine_of(phase, "A node.")

    # ---- helpers

    def is_in(self, s: S, node: Expr, *statuses: Round) -> Condition:
        """The key still has the node's version, and one of these statuses."""
        return s.current[node] & s.status.isin(statuses)

    def enters(self, s: S, node: Expr) -> None:
        """The node restarts the barrier and no longer keeps its lease of the previous round alive."""
        s.phase[node] = Node.ENTERING
        reset(s.rank, s.world, s.current, at=node)

    def ends_round(self, s: S, status: Any) -> None:
        """The version is over: no node has the active version."""
        s.status = status
        s.joined = 0
        s.waiting = 0
        reset(s.current, s.confirmed, s.lease)

    def a_lease_is_over(self, s: S) -> Condition:
        return any_(s.confirmed[j] & ~s.lease[j] for j in s.node)

    # ---- setup

    @transition(
        moves=[arc(Round.NONE, Round.SETUP), arc(Node.ENTERING, Node.CREATING)],
        cite=CITE + "try_create_rendezvous; rendezvous-engine 3.2.4: setup",
    )
    def create(self, s: S, node: Expr) -> None:
        """A node writes the key if it does not exist."""
        move(s.phase, Node.ENTERING, Node.CREATING, self.is_free(s), at=node)
        s.status = Round.SETUP

    def is_free(self, s: S) -> Condition:
        return s.status == Round.NONE

    @transition(
        moves=[arc(Round.SETUP, Round.JOINABLE), arc(Node.CREATING, Node.JOINING)],
        cite=CITE + "try_create_rendezvous; rendezvous-engine 3.2.4: joinable",
    )
    def publish(self, s: S, node: Expr) -> None:
        """The round is joinable; the lock does not name its owner, so a late node may publish another node's round."""
        move(s.phase, Node.CREATING, Node.JOINING, s.status == Round.SETUP, at=node)
        s.status = Round.JOINABLE
        s.current[node] = True

    # ---- joinable

    @transition(moves=[arc(Node.ENTERING, Node.JOINING)], cite=CITE + "init_phase")
    def see_joinable(self, s: S, node: Expr) -> None:
        """A node reads that a round is joinable."""
        move(s.phase, Node.ENTERING, Node.JOINING, s.status == Round.JOINABLE, at=node)
        s.current[node] = True

    @transition(
        moves=[arc(Round.JOINABLE, Round.FROZEN), arc(Node.JOINING, (Node.JOINED, Node.LAST_CALL))],
        cite=CITE + "join_rendezvous; rendezvous-engine 3.2.4: joinable",
    )
    def join(self, s: S, node: Expr) -> None:
        """It takes the next rank: the node that completes min has the last call; the one that completes max freezes."""
        s.when(s.phase[node] == Node.JOINING, self.is_in(s, node, Round.JOINABLE))
        s.rank[node] = self.next_rank(s)
        s.joined = s.joined + 1
        s.status = ite(s.joined >= self.max_nodes, Round.FROZEN, Round.JOINABLE)
        s.phase[node] = ite(self.has_last_call(s), Node.LAST_CALL, Node.JOINED)

    def next_rank(self, s: S) -> Any:
        return s.joined

    def has_last_call(self, s: S) -> Condition:
        return (s.joined == self.min_nodes) & (s.status == Round.JOINABLE)

    @transition(
        moves=[arc(Round.JOINABLE, Round.FROZEN), arc(Node.LAST_CALL, Node.JOINED)],
        cite=CITE + "handle_join_last_call; rendezvous-engine 3.2.4: frozen",
    )
    def end_last_call(self, s: S, node: Expr) -> None:
        """The last call is over."""
        move(s.phase, Node.LAST_CALL, Node.JOINED, self.is_in(s, node, Round.JOINABLE), at=node)
        s.status = Round.FROZEN

    # ---- frozen

    @transition(moves=[arc((Node.JOINED, Node.LAST_CALL), Node.CONFIRMING)], cite=CITE + "wait_for_peers")
    def see_frozen(self, s: S, node: Expr) -> None:
        """A participant reads that the round is frozen."""
        move(s.phase, (Node.JOINED, Node.LAST_CALL), Node.CONFIRMING, self.is_in(s, node, Round.FROZEN), at=node)

    @transition(
        moves=[arc(Round.FROZEN, Round.FINAL), arc(Node.CONFIRMING, Node.CONFIRMED)],
        cite=CITE + "confirm_membership; rendezvous-engine 3.2.4: confirm",
    )
    def confirm(self, s: S, node: Expr) -> None:
        """It creates its lease and confirms; the last participant makes the round final."""
        move(s.phase, Node.CONFIRMING, Node.CONFIRMED, self.is_in(s, node, Round.FROZEN), at=node)
        s.confirmed[node] = True
        s.lease[node] = True
        s.status = ite(self.is_confirmed_by_enough(s), Round.FINAL, Round.FROZEN)

    def is_confirmed_by_enough(self, s: S) -> Condition:
        return s.confirmed.count() == s.joined

    # ---- final

    @transition(moves=[arc(Node.CONFIRMED, Node.RUNNING)], cite=CITE + "wait_for_final; rendezvous-engine 3.2.4: final")
    def see_final(self, s: S, node: Expr) -> None:
        """The barrier returns the node's rank, and the number of participants as the world size."""
        move(s.phase, Node.CONFIRMED, Node.RUNNING, self.is_in(s, node, Round.FINAL), at=node)
        s.world[node] = s.joined

    @transition(moves=[arc(Node.ENTERING, Node.ANNOUNCING)], cite=CITE + "init_phase")
    def find_final(self, s: S, node: Expr) -> None:
        """A node reads that the round is final."""
        move(s.phase, Node.ENTERING, Node.ANNOUNCING, s.status == Round.FINAL, at=node)
        s.current[node] = True

    @transition(moves=[arc(Node.ANNOUNCING, Node.WATCHING)], cite=CITE + "announce_self_waiting")
    def announce(self, s: S, node: Expr) -> None:
        """It counts itself as waiting; no node ever reduces the count."""
        move(s.phase, Node.ANNOUNCING, Node.WATCHING, self.is_in(s, node, Round.FINAL), at=node)
        s.waiting = ite(s.waiting < self.sizes["node"], s.waiting + 1, s.waiting)

    @transition(
        moves=[arc(Round.FINAL, Round.NONE), arc(Node.WATCHING, Node.ENTERING)],
        cite=CITE + "wait_for_rendezvous_to_free",
    )
    def destroy(self, s: S, node: Expr) -> None:
        """It finds that a lease of the round is over and deletes the key."""
        s.when(s.phase[node] == Node.WATCHING, self.is_in(s, node, Round.FINAL), self.a_lease_is_over(s))
        self.ends_round(s, Round.NONE)
        self.enters(s, node)

    # ---- too late, and closed

    @transition(
        moves=[
            arc((Node.CREATING, Node.JOINING, Node.LAST_CALL, Node.JOINED, Node.CONFIRMING), Node.ENTERING),
            arc((Node.CONFIRMED, Node.ANNOUNCING, Node.WATCHING), Node.ENTERING),
        ],
        cite=CITE + "EtcdRendezvousRetryableFailure, EtcdRendezvousRetryImmediately, EtcdKeyNotFound",
    )
    def go_back(self, s: S, node: Expr) -> None:
        """The round has changed and the node's wait cannot end: the node restarts the barrier."""
        phase = s.phase[node]
        s.when(phase.isin(TRYING), phase != Node.ENTERING)
        created = (phase == Node.CREATING) & (s.status == Round.SETUP)
        joins = (phase == Node.JOINING) & self.is_in(s, node, Round.JOINABLE)
        waits = phase.isin((Node.JOINED, Node.LAST_CALL)) & self.is_in(s, node, Round.JOINABLE, Round.FROZEN)
        confirms = (phase == Node.CONFIRMING) & self.is_in(s, node, Round.FROZEN)
        returns = (phase == Node.CONFIRMED) & self.is_in(s, node, Round.FROZEN, Round.FINAL)
        hopes = phase.isin((Node.ANNOUNCING, Node.WATCHING)) & self.is_in(s, node, Round.FINAL)
        s.when(~(created | joins | waits | confirms | returns | hopes))
        self.enters(s, node)

    @transition(moves=[arc(Node.ENTERING, Node.LEFT)], cite=CITE + "init_phase, RendezvousClosedError")
    def see_closed(self, s: S, node: Expr) -> None:
        """It reads that the rendezvous is closed: the barrier raises."""
        move(s.phase, Node.ENTERING, Node.LEFT, s.status == Round.CLOSED, at=node)

    @transition(
        moves=[
            may((Round.SETUP, Round.JOINABLE, Round.FROZEN, Round.FINAL), Round.CLOSED),
            arc((Node.DONE, Node.FAILED), Node.LEFT),
        ],
        cite=CITE + "set_closed",
    )
    def close(self, s: S, node: Expr) -> None:
        """It closes the rendezvous; if the key does not exist, it only logs EtcdKeyNotFound."""
        move(s.phase, (Node.DONE, Node.FAILED), Node.LEFT, at=node)
        s.close_lost = s.close_lost | (s.status == Round.NONE)
        self.ends_round(s, ite(s.status == Round.NONE, Round.NONE, Round.CLOSED))

    @transition(moves=[arc(Node.RUNNING, Node.ENTERING)], cite=CITE + "num_nodes_waiting; api.py: _invoke_run")
    def restart_workers(self, s: S, node: Expr) -> None:
        """The agent polls and finds that a node waits: it calls the barrier again."""
        s.when(s.phase[node] == Node.RUNNING, s.status == Round.FINAL, s.waiting > 0)
        self.enters(s, node)

    # ---- time

    @environment(fair=True, moves=[arc(Round.SETUP, Round.NONE)], cite=CITE + "CONST_ETCD_SETUP_TTL")
    def setup_expires(self, s: S) -> None:
        """No node prepares the round: the key's time to live is over."""
        s.when(s.status == Round.SETUP, ~s.phase.any(Node.CREATING))
        self.ends_round(s, Round.NONE)

    @environment(fair=True, moves=[arc(Round.JOINABLE, Round.NONE)], cite=CITE + "CONST_ETCD_JOINABLE_EPHEMERAL_TTL")
    def joinable_expires(self, s: S) -> None:
        """The node that had the last call has left: the key's time to live, which it has from min on, is over."""
        s.when(s.status == Round.JOINABLE, s.joined >= self.min_nodes)
        s.when(~any_((s.phase[j] == Node.LAST_CALL) & s.current[j] for j in s.node))
        self.ends_round(s, Round.NONE)

    @environment(fair=True, moves=[arc(Round.FROZEN, Round.NONE)], cite=CITE + "CONST_ETCD_FROZEN_TTL")
    def frozen_expires(self, s: S) -> None:
        """All live participants have confirmed, but a dead one has not: the key's time to live is over."""
        to_confirm = (Node.LAST_CALL, Node.JOINED, Node.CONFIRMING)
        s.when(s.status == Round.FROZEN, ~any_(s.phase[j].isin(to_confirm) & s.current[j] for j in s.node))
        self.ends_round(s, Round.NONE)

    @environment(fair=True, cite=CITE + "CONST_WORKER_KEEPALIVE_TTL")
    def lease_expires(self, s: S, node: Expr) -> None:
        """No thread keeps a participant's lease alive, and its time to live is over."""
        move(s.lease, True, False, ~(s.current[node] & s.phase[node].isin(RENEWING)), at=node)

    # ---- faults

    @fault("late", moves=[arc((Round.SETUP, Round.JOINABLE, Round.FROZEN), Round.NONE)])
    def key_expires_early(self, s: S) -> None:
        """A node stops for longer than the key's time to live and then continues."""
        s.when(
            s.status.isin((Round.SETUP, Round.FROZEN)) | ((s.status == Round.JOINABLE) & (s.joined >= self.min_nodes))
        )
        self.ends_round(s, Round.NONE)

    @fault("late")
    def lease_expires_early(self, s: S, node: Expr) -> None:
        """A participant stops for longer than its lease and then continues; an expired lease is never created again."""
        move(s.lease, True, False, at=node)

    @fault("crash", moves=[arc((*TRYING, Node.RUNNING, Node.DONE, Node.FAILED), Node.DEAD)])
    def crash(self, s: S, node: Expr) -> None:
        """A process dies, in any phase."""
        s.when(~s.phase[node].isin(GONE))
        self.enters(s, node)
        s.phase[node] = Node.DEAD

    @fault("restart", moves=[arc(Node.DEAD, Node.ENTERING)])
    def restart(self, s: S, node: Expr) -> None:
        """A node that died is started again."""
        move(s.phase, Node.DEAD, Node.ENTERING, at=node)

    @fault("worker_failure", moves=[arc(Node.RUNNING, Node.ENTERING)], cite="elastic-node-change 3.3")
    def worker_fails(self, s: S, node: Expr) -> None:
        """A worker fails: the agent calls the barrier again."""
        s.when(s.phase[node] == Node.RUNNING)
        self.enters(s, node)

    @environment(
        switch="join_timeout",
        bound=1,
        moves=[arc((Node.ENTERING, Node.LAST_CALL, Node.JOINED, Node.CONFIRMED, Node.WATCHING), Node.FAILED)],
        cite=CITE + "rendezvous_barrier, try_wait_for_state_change",
    )
    def join_deadline_passes(self, s: S, node: Expr) -> None:
        """A waiting node's deadline passes: it raises RendezvousTimeoutError, and its rank stays taken."""
        phase = s.phase[node]
        joins = phase.isin((Node.JOINED, Node.LAST_CALL)) & self.is_in(s, node, Round.JOINABLE)
        returns = (phase == Node.CONFIRMED) & self.is_in(s, node, Round.FROZEN)
        watches = (phase == Node.WATCHING) & self.is_in(s, node, Round.FINAL) & ~self.a_lease_is_over(s)
        s.when((phase == Node.ENTERING) | joins | returns | watches)
        self.enters(s, node)
        s.phase[node] = Node.FAILED

    @environment(switch="job_end", bound=2, moves=[arc(Node.RUNNING, Node.DONE)])
    def job_ends(self, s: S, node: Expr) -> None:
        """The workers of a node are done."""
        s.when(s.phase[node] == Node.RUNNING)
        self.enters(s, node)
        s.phase[node] = Node.DONE

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Each node runs or has ended, or fewer than min try and wait for their deadline."""
        few = count(s.phase[j].isin(TRYING) for j in s.node) < self.min_nodes
        return all_(s.phase[j].isin((*GONE, Node.RUNNING)) | few for j in s.node)

    @sometimes()
    def a_round_is_final(self, s: S) -> Condition:
        """A round is final, and two barriers have returned."""
        return (s.status == Round.FINAL) & (count(s.current[j] & (s.phase[j] == Node.RUNNING) for j in s.node) >= 2)

    @sometimes(needs="crash")
    def the_dead_are_counted(self, s: S) -> Condition:
        """A round is frozen with a participant that died."""
        live = count(s.current[j] & s.phase[j].isin(IN_ROUND) for j in s.node)
        return (s.status == Round.FROZEN) & (s.joined > live)

    @sometimes(needs="job_end")
    def it_is_closed(self, s: S) -> Condition:
        """The rendezvous is closed."""
        return s.status == Round.CLOSED

    @always(witness="a_round_is_final", cite="rendezvous-engine 3.2.4: final")
    def agree_on_world(self, s: S) -> Condition:
        """The nodes whose barrier returned for one round agree on its size and have different ranks."""
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
        return s.current[node] & (s.phase[node] == Node.RUNNING)

    @always(witness="a_round_is_final", cite="rendezvous-engine 3.2.4: final")
    def ranks_are_dense(self, s: S) -> Condition:
        """The rank of each participant is below the number of participants, also before the round is final."""
        return all_(
            implies(s.current[j] & s.phase[j].isin((*IN_ROUND, Node.RUNNING)), s.rank[j] < s.joined) for j in s.node
        )

    @always(witness="a_round_is_final")
    def at_most_max(self, s: S) -> Condition:
        """A round never has more than max live participants."""
        return count(s.current[j] & s.phase[j].isin((*IN_ROUND, Node.RUNNING)) for j in s.node) <= self.max_nodes

    @always(witness="a_round_is_final")
    def at_least_min(self, s: S) -> Condition:
        """A round that is frozen or final has at least min participants."""
        return implies(s.status.isin((Round.FROZEN, Round.FINAL)), s.joined >= self.min_nodes)

    @always(witness="a_round_is_final", cite="rendezvous-engine 3.2.4: confirm")
    def final_means_confirmed(self, s: S) -> Condition:
        """Each participant of a final round has confirmed."""
        return implies(s.status == Round.FINAL, s.confirmed.count() == s.joined)

    @step(witness="it_is_closed", needs="job_end")
    def closed_stays_closed(self, before: S, after: S) -> Condition:
        """A closed rendezvous stays closed."""
        return implies(before.status == Round.CLOSED, after.status == Round.CLOSED)

    # ---- progress

    @leads_to(cite="rendezvous-engine 3.2.4")
    def a_round_ends(self, s: S) -> tuple[Condition, Condition]:
        """A round that is set up, frozen, or joinable with min becomes final or is deleted or closed."""
        begun = s.status.isin((Round.SETUP, Round.FROZEN)) | (
            (s.status == Round.JOINABLE) & (s.joined >= self.min_nodes)
        )
        return begun, s.status.isin((Round.NONE, Round.FINAL, Round.CLOSED)) | (
            (s.status == Round.JOINABLE) & (s.joined == 0)
        )

    @leads_to(cite="rendezvous-engine 3.2.4")
    def enough_nodes_complete_a_round(self, s: S) -> tuple[Condition, Condition]:
        """If enough live nodes keep trying, a round becomes final."""
        enough = count(s.phase[j].isin(TRYING) for j in s.node) >= self.min_nodes
        over = s.status.isin((Round.FINAL, Round.CLOSED)) | ~enough
        return ~over, over

    @leads_to(cite="elastic-node-change 2.3")
    def the_waiting_are_answered(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """A node that waits while a round is final stops waiting for it."""
        return s.phase[node] == Node.WATCHING, s.phase[node] != Node.WATCHING

    @leads_to(needs="job_end")
    def closing_reaches_everyone(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """After the rendezvous is closed, every node stops trying."""
        hopes = (s.status == Round.CLOSED) & s.phase[node].isin(TRYING)
        return hopes, ~hopes

    # ---- what is not promised

    def runs_on(self, s: S, node: Expr) -> Condition:
        return (s.phase[node] == Node.RUNNING) & ~s.current[node]

    @sometimes(needs="crash")
    def a_group_runs_on_without_a_member(self, s: S) -> Condition:
        """The lease of a member that died is over, and no node is left that watches it."""
        left = s.phase.all(*GONE, Node.RUNNING)
        dead = any_(s.confirmed[j] & ~s.lease[j] & (s.phase[j] == Node.DEAD) for j in s.node)
        return left & dead & any_(self.has_returned(s, j) for j in s.node)

    @sometimes(needs="crash")
    def two_groups_run(self, s: S) -> Condition:
        """Nodes of two rounds run at once, and nothing notifies the older nodes."""
        new = any_(self.has_returned(s, j) for j in s.node)
        return new & any_(self.runs_on(s, j) for j in s.node) & (s.waiting == 0)

    @sometimes(needs="crash")
    def a_newcomer_waits_alone(self, s: S) -> Condition:
        """A node waits for min while the nodes that could join continue to run in a deleted round."""
        alone = (s.status == Round.JOINABLE) & (s.joined < self.min_nodes) & s.phase.any(Node.JOINED)
        return (
            alone
            & all_(s.phase[j].isin((*GONE, Node.JOINED)) | self.runs_on(s, j) for j in s.node)
            & any_(self.runs_on(s, j) for j in s.node)
        )

    @sometimes(needs="job_end")
    def a_close_is_lost(self, s: S) -> Condition:
        """A node closed the rendezvous, and a later round is final."""
        return s.close_lost & (s.status == Round.FINAL)

    @sometimes()
    def a_full_group_is_to_restart(self, s: S) -> Condition:
        """A group of max nodes must restart because of a node that it has no room for."""
        return (s.status == Round.FINAL) & (s.joined == self.max_nodes) & (s.waiting > 0)

    @sometimes(needs="join_timeout")
    def a_failed_node_closes_a_group(self, s: S) -> Condition:
        """A node that could not join has closed the rendezvous while a group runs."""
        return (s.status == Round.CLOSED) & s.phase.any(Node.RUNNING) & ~s.phase.any(Node.DONE)

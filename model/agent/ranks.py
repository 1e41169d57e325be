"""The ranks of workers: the agents of a round exchange their numbers of workers over the round's store.

Theory of operation. next_rendezvous gives an agent its rank among the nodes of the round. Each agent writes the role
and the number of its workers under `role_info/RANK`. The first agent reads all of these and adds up the workers before
each node: of all roles, and of the node's role. It writes both sums and both totals under `assigned_ranks/RANK`. Each
agent reads its own entry and numbers its workers from there. In torch 1.10 no agent assigns: each agent reads all
numbers and computes its own sums. The keys of two rounds have different prefixes.

Failures:

- An agent dies before it has written its number, or before it has assigned the ranks.
- A new agent has a different number of workers from the agent that it replaces.
- A member is in two rounds at once.

Abstractions. The rendezvous has at most two rounds: a round begins when every live agent waits for it, and the
rendezvous is closed when an agent has raised. To read or write several keys is one step, because each key is written
once in a round. A node has one or two workers, of one of two roles. A read times out only if no agent will write the
key.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Assignment, Role
from .vocabulary import Ranking as Place

S = SymbolicState
WORKERS_MAX = 2  # workers of a node
LEAST = range(1, WORKERS_MAX + 1)  # numbers are added by counts: for each of these, how many numbers reach it
RANKS_MAX = 7  # three nodes with two workers each need six
EXCHANGING = (Place.MET, Place.TOLD, Place.GATHERED, Place.ASSIGNED)
OVER = (Place.FAILED, Place.DEAD)
ASSIGNING = (Assignment.TORCH, Assignment.TRYSTATE)


class Ranks(System):
    """The agents of a job, from next_rendezvous to the ranks of their workers, in one round and the next."""

    title = "The ranks of workers"
    Edition = Assignment

    node = index(2)
    round = index(2, "the most rounds")
    kind = index(4, "agents with one worker, with two, and the same of another role")

    place = choice(Place, per="node")
    workers = integer(0, WORKERS_MAX, per="node", doc="how many it starts; 0: no agent yet")
    role = choice(Role, per="node")
    number = integer(0, "round", per="node", doc="the round that it is in; 0: none yet")
    begun = integer(0, "round", doc="rounds that have begun")
    closed = flag(doc="an agent has raised: the rendezvous is closed")
    member = flag(per=("round", "node"))

    told = integer(0, WORKERS_MAX, per=("round", "node"), doc="role_info: the number of workers; 0: not written")
    told_role = choice(Role, per=("round", "node"), doc="role_info: the role")
    assigned = flag(per="round", editions=ASSIGNING, doc="assigned_ranks is written, for all members at once")
    base_of = integer(0, RANKS_MAX, per=("round", "node"), editions=ASSIGNING, doc="assigned_ranks: its first rank")
    world_of = integer(0, RANKS_MAX, per=("round", "node"), editions=ASSIGNING, doc="assigned_ranks: all workers")
    role_base_of = integer(0, RANKS_MAX, per=("round", "node"), editions=ASSIGNING, doc="the same, of its role")
    role_world_of = integer(0, RANKS_MAX, per=("round", "node"), editions=ASSIGNING, doc="the same, of its role")

    base = integer(0, RANKS_MAX, per="node", doc="the rank of its first worker")
    world = integer(0, RANKS_MAX, per="node", doc="workers of the round")
    role_base = integer(0, RANKS_MAX, per="node", doc="the rank of its first worker in its role")
    role_world = integer(0, RANKS_MAX, per="node", doc="workers of its role")

    def lifelines(self) -> Lifelines:
        """The store has the members of each round and the values that they exchange."""
        return served("store", "member told told_role assigned base_of world_of role_base_of role_world_of")

    ranking = machine_of(place, "The ranks of a node's workers.")

    # ---- rounds and their members

    def is_in(self, s: S, node: Expr, r: Expr) -> Condition:
        return s.number[node] == ord_(r) + 1

    def at(self, s: S, node: Expr, r: Expr, *places: Place) -> None:
        """The agent is at one of these places, in this round."""
        s.when(s.place[node].isin(places), self.is_in(s, node, r))

    def is_first(self, s: S, r: Expr, node: Expr) -> Condition:
        """Its rank in the round is 0."""
        return s.member[r, node] & ~any_(s.member[r, j] & (ord_(j) < ord_(node)) for j in s.node)

    def all_told(self, s: S, r: Expr) -> Condition:
        return all_(~s.member[r, j] | (s.told[r, j] > 0) for j in s.node)

    def is_left(self, s: S, r: Expr, node: Expr) -> Condition:
        """The member has died, has raised, or has left for the next round."""
        return s.member[r, node] & (s.place[node].isin((Place.WAITING, *OVER)) | ~self.is_in(s, node, r))

    def is_over(self, s: S, r: Expr) -> Condition:
        """The round has lost a member."""
        return any_(self.is_left(s, r, j) for j in s.node)

    def has_next(self, s: S) -> Condition:
        return (s.begun < self.sizes["round"]) & ~s.closed

    # ---- sums

    def before(self, s: S, r: Expr, node: Expr, role: bool) -> Any:
        """The number of workers of the members before this one, of all roles or of its role."""
        return sum(
            count((ord_(j) < ord_(node)) & self.counts(s, r, j, node, role) & (s.told[r, j] >= least) for j in s.node)
            for least in LEAST
        )

    def total(self, s: S, r: Expr, node: Expr, role: bool) -> Any:
        """The number of workers of all members, of all roles or of its role."""
        return sum(count(self.counts(s, r, j, node, role) & (s.told[r, j] >= least) for j in s.node) for least in LEAST)

    def counts(self, s: S, r: Expr, j: Expr, node: Expr, role: bool) -> Condition:
        """`j` is a member and, if `role`, has the same role as `node`."""
        return s.member[r, j] & (s.told_role[r, j] == s.told_role[r, node]) if role else s.member[r, j]

    def rank(self, s: S, node: Expr, base: Any, world: Any, role_base: Any, role_world: Any) -> None:
        """Its workers get their ranks and run."""
        s.base[node], s.world[node] = base, world
        s.role_base[node], s.role_world[node] = role_base, role_world
        s.place[node] = Place.RANKED

    # ---- the rendezvous below

    def come(self, s: S, node: Expr, kind: Expr) -> None:
        """An agent of this kind waits for a round."""
        s.workers[node] = ite((ord_(kind) == 0) | (ord_(kind) == 2), 1, 2)
        s.role[node] = ite(ord_(kind) < 2, Role.TRAINER, Role.READER)
        s.place[node] = Place.WAITING

    @environment(fair=True, moves=[arc(Place.AWAY, Place.WAITING)])
    def start_agent(self, s: S, node: Expr, kind: Expr) -> None:
        """An agent starts with one worker or two."""
        s.when(s.place[node] == Place.AWAY)
        self.come(s, node, kind)

    @transition(moves=[arc(Place.WAITING, Place.MET, of="others")], cite="rendezvous-engine 4.5")
    def begin_round(self, s: S, round: Expr) -> None:
        """Every live agent waits: these agents become the members of the round, in the order of their nodes."""
        s.when(self.has_next(s), s.begun == ord_(round), s.place.any(Place.WAITING))
        s.when(s.place.all(Place.WAITING, *OVER))
        s.begun = s.begun + 1
        for j in s.node:
            s.member[round, j] = s.place[j] == Place.WAITING
            s.number[j] = ite(s.member[round, j], ord_(round) + 1, s.number[j])
            s.place[j] = ite(s.member[round, j], Place.MET, s.place[j])

    @transition(moves=[arc(Place.RANKED, Place.WAITING)], cite="elastic-node-change 2.3.3")
    def restart_workers(self, s: S, node: Expr) -> None:
        """Another agent waits: this agent stops its workers and waits for the next round."""
        move(s.place, Place.RANKED, Place.WAITING, self.has_next(s), s.place.any(Place.WAITING), at=node)

    @transition(moves=[arc(Place.WAITING, Place.FAILED)], cite="rendezvous-engine 3.2.4")
    def error_closed(self, s: S, node: Expr) -> None:
        """The rendezvous is closed: next_rendezvous raises."""
        move(s.place, Place.WAITING, Place.FAILED, s.closed, at=node)

    # ---- the exchange

    @transition(moves=[arc(Place.MET, Place.TOLD)], cite="api.py:_assign_worker_ranks (1)")
    def tell(self, s: S, node: Expr, round: Expr) -> None:
        """An agent writes its role and the number of its workers: role_info/RANK."""
        self.at(s, node, round, Place.MET)
        s.told[round, node] = s.workers[node]
        s.told_role[round, node] = s.role[node]
        s.place[node] = Place.TOLD

    @environment(fair=True, moves=[arc(Place.TOLD, Place.FAILED)], cite="c10d_rendezvous_backend.py: read_timeout")
    def wait_times_out(self, s: S, node: Expr, round: Expr) -> None:
        """The member that would write the awaited key has left: after read_timeout (60 s) the read raises."""
        # A17. The agent ends, even if restarts are left, and closes the rendezvous for the others.
        self.at(s, node, round, Place.TOLD)
        s.when(self.waits_in_vain(s, node, round))
        s.place[node] = Place.FAILED
        s.closed = True

    def waits_in_vain(self, s: S, node: Expr, r: Expr) -> Condition:
        """No member will write the key that the member waits for."""
        raise NotImplementedError

    # ---- faults

    @fault(
        "crash", moves=[
            arc((Place.WAITING, Place.MET, Place.TOLD, Place.RANKED), Place.DEAD),
            arc((Place.GATHERED, Place.ASSIGNED), Place.DEAD, editions=ASSIGNING),
        ],
    )  # fmt: skip
    def crash(self, s: S, node: Expr) -> None:
        """An agent is killed."""
        move(s.place, (Place.WAITING, *EXCHANGING, Place.RANKED), Place.DEAD, at=node)

    @fault("newcomer", moves=[arc(Place.DEAD, Place.WAITING)], cite="elastic-node-change 2.1")
    def start_newcomer(self, s: S, node: Expr, kind: Expr) -> None:
        """A new agent replaces a dead one; it may have a different number of workers."""
        s.when(s.place[node] == Place.DEAD)
        self.come(s, node, kind)

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Each agent's workers run or the agent has ended, or the rounds of this model are used up."""
        return s.place.all(Place.RANKED, Place.WAITING, *OVER) & (
            ~s.place.any(Place.WAITING) | ~(s.begun < self.sizes["round"])
        )

    def together(self, s: S, i: Expr, j: Expr) -> Condition:
        """The workers of both run in one round."""
        return (s.place[i] == Place.RANKED) & (s.place[j] == Place.RANKED) & (s.number[i] == s.number[j])

    def everybody(self, s: S, r: Expr) -> Condition:
        """The workers of all members of the round run."""
        return any_(s.member[r, j] for j in s.node) & all_(
            ~s.member[r, j] | ((s.place[j] == Place.RANKED) & self.is_in(s, j, r)) for j in s.node
        )

    @sometimes()
    def all_have_ranks(self, s: S) -> Condition:
        """All members of a round have ranks, and their numbers of workers differ."""
        return any_(self.everybody(s, r) for r in s.round) & any_(
            self.together(s, i, j) & (s.workers[i] != s.workers[j]) for i in s.node for j in s.node
        )

    @sometimes()
    def two_roles_have_ranks(self, s: S) -> Condition:
        """Workers of two roles run in one round."""
        return any_(self.together(s, i, j) & (s.role[i] != s.role[j]) for i in s.node for j in s.node)

    @sometimes(needs="crash")
    def one_dies_in_the_exchange(self, s: S) -> Condition:
        """A member has died before it wrote its number, and another waits for it."""
        return any_(
            any_(s.member[r, i] & (s.told[r, i] == 0) & (s.place[i] == Place.DEAD) for i in s.node)
            & any_((s.place[j] == Place.TOLD) & self.is_in(s, j, r) for j in s.node)
            for r in s.round
        )

    @sometimes(needs="newcomer")
    def another_number_comes(self, s: S) -> Condition:
        """Workers run in a second round, and a member's number of workers differs from the first round."""
        return any_(
            (s.place[j] == Place.RANKED) & (s.number[j] == 2)
            & any_((ord_(r) == 0) & (s.told[r, j] > 0) & (s.told[r, j] != s.workers[j]) for r in s.round)
            for j in s.node
        )  # fmt: skip

    @always(witness="all_have_ranks")
    def ranks_are_in_the_world(self, s: S) -> Condition:
        """Ranks are below the world size, ranks in a role below its size, and the role's numbers are not larger."""
        return all_(
            implies(
                s.place[i] == Place.RANKED,
                and_(
                    s.base[i] + s.workers[i] <= s.world[i], s.role_base[i] + s.workers[i] <= s.role_world[i],
                    s.role_base[i] <= s.base[i], s.role_world[i] <= s.world[i],
                ),
            )
            for i in s.node
        )  # fmt: skip

    @always(witness="all_have_ranks")
    def ranks_are_distinct(self, s: S) -> Condition:
        """A node's ranks come after the ranks of the nodes before it, also within a role."""
        return all_(
            implies(
                self.together(s, i, j) & (ord_(i) < ord_(j)),
                (s.base[i] + s.workers[i] <= s.base[j])
                & ((s.role[i] != s.role[j]) | (s.role_base[i] + s.workers[i] <= s.role_base[j])),
            )
            for i in s.node
            for j in s.node
        )

    @always(witness="all_have_ranks")
    def members_agree_on_the_world(self, s: S) -> Condition:
        """All members of a round have the same world size, and members of one role the same role size."""
        return all_(
            implies(
                self.together(s, i, j),
                (s.world[i] == s.world[j]) & ((s.role[i] != s.role[j]) | (s.role_world[i] == s.role_world[j])),
            )
            for i in s.node
            for j in s.node
        )

    @always(witness="all_have_ranks")
    def no_rank_is_missing(self, s: S) -> Condition:
        """When the workers of all members run, their numbers equal the world size and the role sizes."""
        return all_(
            implies(self.everybody(s, r), all_(~s.member[r, i] | self.counts_all(s, r, i) for i in s.node))
            for r in s.round
        )

    def counts_all(self, s: S, r: Expr, node: Expr) -> Condition:
        """A member's world and role sizes equal the numbers of workers that run."""
        everybody = sum(count(s.member[r, j] & (s.workers[j] >= least) for j in s.node) for least in LEAST)
        alike = sum(
            count(s.member[r, j] & (s.role[j] == s.role[node]) & (s.workers[j] >= least) for j in s.node)
            for least in LEAST
        )
        return (s.world[node] == everybody) & (s.role_world[node] == alike)

    @always(witness="one_dies_in_the_exchange", needs="crash")
    def a_death_ends_nobody(self, s: S) -> Condition:
        """No agent raises because another has died."""
        return ~s.place.any(Place.FAILED)

    @leads_to()
    def the_exchange_ends(self, s: S, node: Expr) -> Condition:
        """An agent that has a round gets ranks, waits for the next round, or ends."""
        return s.place[node].isin(EXCHANGING), ~s.place[node].isin(EXCHANGING)

    @leads_to()
    def the_waiting_are_answered(self, s: S, node: Expr) -> Condition:
        """An agent that waits while a further round is possible gets a round or ends."""
        return (s.place[node] == Place.WAITING) & self.has_next(s), (s.place[node] != Place.WAITING) | ~self.has_next(s)


# ---- the editions


class Seed(Ranks, edition=Assignment.SEED):
    """torch 1.10: each agent reads all numbers; only a member that dies before it wrote ends the others (A17)."""

    @transition(moves=[arc(Place.TOLD, Place.RANKED)], cite="store.py:synchronize, get_all")
    def gather(self, s: S, node: Expr, round: Expr) -> None:
        """All members have written: each agent reads the numbers and computes its own ranks."""
        self.at(s, node, round, Place.TOLD)
        s.when(self.all_told(s, round))
        self.rank(
            s, node,
            self.before(s, round, node, role=False), self.total(s, round, node, role=False),
            self.before(s, round, node, role=True), self.total(s, round, node, role=True),
        )  # fmt: skip

    def waits_in_vain(self, s: S, node: Expr, r: Expr) -> Condition:
        return any_(self.is_left(s, r, j) & (s.told[r, j] == 0) for j in s.node)


class Torch(Ranks, edition=Assignment.TORCH):
    """torch 2.13: the first agent assigns; a death before that ends the others (A17)."""

    @transition(moves=[arc(Place.TOLD, Place.GATHERED)], cite="api.py:_assign_worker_ranks (2)")
    def gather(self, s: S, node: Expr, round: Expr) -> None:
        """All members have written: the first agent reads the numbers."""
        self.at(s, node, round, Place.TOLD)
        s.when(self.is_first(s, round, node), self.all_told(s, round))
        s.place[node] = Place.GATHERED

    @transition(moves=[arc(Place.GATHERED, Place.ASSIGNED)], cite="api.py:_assign_worker_ranks (5)")
    def assign(self, s: S, node: Expr, round: Expr) -> None:
        """The first agent writes the ranks of all members: assigned_ranks/0, /1, ..."""
        self.at(s, node, round, Place.GATHERED)
        s.assigned[round] = True
        for j in s.node:
            s.base_of[round, j] = ite(s.member[round, j], self.before(s, round, j, role=False), 0)
            s.world_of[round, j] = ite(s.member[round, j], self.total(s, round, j, role=False), 0)
            s.role_base_of[round, j] = ite(s.member[round, j], self.before(s, round, j, role=True), 0)
            s.role_world_of[round, j] = ite(s.member[round, j], self.total(s, round, j, role=True), 0)
        s.place[node] = Place.ASSIGNED

    @transition(moves=[arc((Place.TOLD, Place.ASSIGNED), Place.RANKED)], cite="api.py:_assign_worker_ranks (6)")
    def read(self, s: S, node: Expr, round: Expr) -> None:
        """An agent reads its workers' ranks."""
        self.at(s, node, round, Place.TOLD, Place.ASSIGNED)
        s.when(s.assigned[round], (s.place[node] == Place.ASSIGNED) | ~self.is_first(s, round, node))
        self.rank(
            s, node, s.base_of[round, node], s.world_of[round, node], s.role_base_of[round, node],
            s.role_world_of[round, node],
        )  # fmt: skip

    def waits_in_vain(self, s: S, node: Expr, r: Expr) -> Condition:
        untold = any_(self.is_left(s, r, j) & (s.told[r, j] == 0) for j in s.node)
        unassigned = any_(self.is_first(s, r, j) & self.is_left(s, r, j) for j in s.node)
        return ~s.assigned[r] & (unassigned | (self.is_first(s, r, node) & untold))


class Ours(Torch, edition=Assignment.TRYSTATE):
    """Ours: a wait in the exchange ends when the round has lost a member, and the agent waits for the next round."""

    wait_times_out = None  # type: ignore[assignment]
    error_closed = None  # type: ignore[assignment]

    @transition(moves=[arc(EXCHANGING, Place.WAITING)])
    def leave_exchange(self, s: S, node: Expr, round: Expr) -> None:
        """The round has lost a member: the agent leaves the exchange and waits for the next round."""
        self.at(s, node, round, *EXCHANGING)
        s.when(self.has_next(s), self.is_over(s, round))
        s.place[node] = Place.WAITING

    @transition(moves=[arc(Place.RANKED, Place.WAITING)], cite="elastic-node-change 2.3.3")
    def restart_workers(self, s: S, node: Expr) -> None:
        """The round has lost a member or another agent waits: the agent stops its workers and waits for a round."""
        lost = any_(self.is_in(s, node, r) & self.is_over(s, r) for r in s.round)
        move(s.place, Place.RANKED, Place.WAITING, self.has_next(s), lost | s.place.any(Place.WAITING), at=node)

"""The ranks of workers: agents that have a round tell each other how many workers they have, over the round's store.

Theory of operation. next_rendezvous gives an agent its rank among the nodes of the round. Each agent writes the role
and the number of its workers under `role_info/RANK`. The first agent reads all of these, adds up the workers before
each node, of all roles and of its own, and writes both sums and both totals under `assigned_ranks/RANK`; each agent
reads its own, and counts on from there. In torch 1.10 nothing is assigned: each agent reads all, and adds up for
itself. The keys of two rounds are below two prefixes. Three things go wrong: an agent dies before it has told, or
before it has assigned; an agent comes that has more workers than the one in whose place it is; and a member is in two
rounds at once.

Abstractions. The rendezvous is that of two rounds at most: one begins when every agent that lives waits for it, and
is closed when an agent has raised. To read or write several keys is one step: each is written once in a round. A node
has one or two workers, of one of two roles. The time that a read may take passes only where nobody will write the
key.
"""

from __future__ import annotations

from typing import Any

from ..language import (
    Expr,
    SymbolicState,
    System,
    all_,
    always,
    and_,
    any_,
    arc,
    choice,
    count,
    environment,
    fault,
    flag,
    implies,
    index,
    integer,
    ite,
    leads_to,
    machine,
    ord_,
    sometimes,
    terminal,
    transition,
)
from ..language.lifelines import Lifelines, served
from .vocabulary import Assignment, Ranking, Role

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
R = Ranking
WORKERS_MAX = 2  # of a node
LEAST = range(1, WORKERS_MAX + 1)  # a number is how many of these it reaches: so are numbers of nodes added up
RANKS_MAX = 7  # three nodes with two workers each need six
EXCHANGING = (R.MET, R.TOLD, R.GATHERED, R.ASSIGNED)
OVER = (R.FAILED, R.DEAD)
ASSIGNING = (Assignment.TORCH, Assignment.TRYSTATE)


class Ranks(System):
    """The agents of a job, from next_rendezvous to the ranks of their workers, in one round and the next."""

    title = "The ranks of workers"
    Edition = Assignment

    node = index(2)
    round = index(2, "rounds at most")
    kind = index(4, "agents with one worker, with two, and the same of another role")

    place = choice(Ranking, per="node")
    workers = integer(0, WORKERS_MAX, per="node", doc="how many it starts; 0: no agent yet")
    role = choice(Role, per="node")
    number = integer(0, "round", per="node", doc="the round that it is in; 0: none yet")
    begun = integer(0, "round", doc="rounds that have begun")
    closed = flag(doc="an agent has raised: the rendezvous is closed")
    member = flag(per=("round", "node"))

    told = integer(0, WORKERS_MAX, per=("round", "node"), doc="role_info: the number of workers; 0: not written")
    told_role = choice(Role, per=("round", "node"), doc="role_info: the role")
    assigned = flag(per="round", editions=ASSIGNING, doc="assigned_ranks is written, of all members at once")
    base_of = integer(0, RANKS_MAX, per=("round", "node"), editions=ASSIGNING, doc="assigned_ranks: its first rank")
    world_of = integer(0, RANKS_MAX, per=("round", "node"), editions=ASSIGNING, doc="assigned_ranks: all workers")
    role_base_of = integer(0, RANKS_MAX, per=("round", "node"), editions=ASSIGNING, doc="the same, of its role")
    role_world_of = integer(0, RANKS_MAX, per=("round", "node"), editions=ASSIGNING, doc="the same, of its role")

    base = integer(0, RANKS_MAX, per="node", doc="the rank of its first worker")
    world = integer(0, RANKS_MAX, per="node", doc="workers of the round")
    role_base = integer(0, RANKS_MAX, per="node", doc="the rank of its first worker in its role")
    role_world = integer(0, RANKS_MAX, per="node", doc="workers of its role")

    def lifelines(self) -> Lifelines:
        """The store has the members of each round, and what they tell each other."""
        return served("store", "member told told_role assigned base_of world_of role_base_of role_world_of")

    @machine(Ranking, each="node")
    def ranking(self, s: S, node: Expr) -> Any:
        """The ranks of a node's workers."""
        return s.place[node]

    # ---- rounds and their members

    def is_in(self, s: S, node: Expr, r: Expr) -> Condition:
        return s.number[node] == ord_(r) + 1

    def at(self, s: S, node: Expr, r: Expr, *places: Ranking) -> None:
        """The agent is there, in this round."""
        s.when(s.place[node].isin(places), self.is_in(s, node, r))

    def is_first(self, s: S, r: Expr, node: Expr) -> Condition:
        """Its rank in the round is 0."""
        return s.member[r, node] & ~any_(s.member[r, j] & (ord_(j) < ord_(node)) for j in s.node)

    def all_told(self, s: S, r: Expr) -> Condition:
        return all_(~s.member[r, j] | (s.told[r, j] > 0) for j in s.node)

    def is_left(self, s: S, r: Expr, node: Expr) -> Condition:
        """The member has died, raised, or gone on to the next round."""
        return s.member[r, node] & (s.place[node].isin((R.WAITING, *OVER)) | ~self.is_in(s, node, r))

    def is_over(self, s: S, r: Expr) -> Condition:
        """The round has lost a member."""
        return any_(self.is_left(s, r, j) for j in s.node)

    def has_next(self, s: S) -> Condition:
        return (s.begun < self.sizes["round"]) & ~s.closed

    # ---- sums

    def before(self, s: S, r: Expr, node: Expr, role: bool) -> Any:
        """How many workers the members before this one have told, of all roles or of its own."""
        return sum(
            count((ord_(j) < ord_(node)) & self.counts(s, r, j, node, role) & (s.told[r, j] >= least) for j in s.node)
            for least in LEAST
        )

    def total(self, s: S, r: Expr, node: Expr, role: bool) -> Any:
        """How many workers all members have told, of all roles or of its own."""
        return sum(count(self.counts(s, r, j, node, role) & (s.told[r, j] >= least) for j in s.node) for least in LEAST)

    def counts(self, s: S, r: Expr, j: Expr, node: Expr, role: bool) -> Condition:
        """It is a member, and of the same role if that is asked."""
        return s.member[r, j] & (s.told_role[r, j] == s.told_role[r, node]) if role else s.member[r, j]

    def rank(self, s: S, node: Expr, base: Any, world: Any, role_base: Any, role_world: Any) -> None:
        """Its workers get their ranks, and run."""
        s.base[node], s.world[node] = base, world
        s.role_base[node], s.role_world[node] = role_base, role_world
        s.place[node] = R.RANKED

    # ---- the rendezvous below

    def come(self, s: S, node: Expr, kind: Expr) -> None:
        """An agent of this kind waits for a round."""
        s.workers[node] = ite((ord_(kind) == 0) | (ord_(kind) == 2), 1, 2)
        s.role[node] = ite(ord_(kind) < 2, Role.TRAINER, Role.READER)
        s.place[node] = R.WAITING

    @environment(each=("node", "kind"), fair=True, moves=[arc(R.AWAY, R.WAITING)])
    def start_agent(self, s: S, node: Expr, kind: Expr) -> None:
        """An agent starts, with one worker or two."""
        s.when(s.place[node] == R.AWAY)
        self.come(s, node, kind)

    @transition(each="round", moves=[arc(R.WAITING, R.MET, of="others")], cite="rendezvous-engine 4.5")
    def begin_round(self, s: S, round: Expr) -> None:
        """Every agent that lives waits: they are the members of the round, in the order of their nodes."""
        s.when(self.has_next(s), s.begun == ord_(round), any_(x == R.WAITING for x in s.place))
        s.when(all_(x.isin((R.WAITING, *OVER)) for x in s.place))
        s.begun = s.begun + 1
        for j in s.node:
            s.member[round, j] = s.place[j] == R.WAITING
            s.number[j] = ite(s.member[round, j], ord_(round) + 1, s.number[j])
            s.place[j] = ite(s.member[round, j], R.MET, s.place[j])

    @transition(each="node", moves=[arc(R.RANKED, R.WAITING)], cite="elastic-node-change 2.3.3")
    def restart_workers(self, s: S, node: Expr) -> None:
        """Another agent waits: this one stops its workers, and goes on to the next round."""
        s.when(s.place[node] == R.RANKED, self.has_next(s), any_(x == R.WAITING for x in s.place))
        s.place[node] = R.WAITING

    @transition(each="node", moves=[arc(R.WAITING, R.FAILED)], cite="rendezvous-engine 3.2.4")
    def error_closed(self, s: S, node: Expr) -> None:
        """The rendezvous is closed: next_rendezvous raises."""
        s.when(s.place[node] == R.WAITING, s.closed)
        s.place[node] = R.FAILED

    # ---- the exchange

    @transition(each=("node", "round"), moves=[arc(R.MET, R.TOLD)], cite="api.py:_assign_worker_ranks (1)")
    def tell(self, s: S, node: Expr, round: Expr) -> None:
        """An agent writes its role and the number of its workers: role_info/RANK."""
        self.at(s, node, round, R.MET)
        s.told[round, node] = s.workers[node]
        s.told_role[round, node] = s.role[node]
        s.place[node] = R.TOLD

    @environment(
        each=("node", "round"),
        fair=True,
        moves=[arc(R.TOLD, R.FAILED)],
        cite="c10d_rendezvous_backend.py: read_timeout",
    )
    def wait_times_out(self, s: S, node: Expr, round: Expr) -> None:
        """The member that would write what this one waits for is gone: after read_timeout, 60 s, the read raises."""
        # A17. The agent ends, whatever restarts are left, and closes the rendezvous for the others.
        self.at(s, node, round, R.TOLD)
        s.when(self.waits_in_vain(s, node, round))
        s.place[node] = R.FAILED
        s.closed = True

    def waits_in_vain(self, s: S, node: Expr, r: Expr) -> Condition:
        """Nobody will write what the member waits for."""
        raise NotImplementedError

    # ---- faults

    @fault(
        "crash", each="node",
        moves=[
            arc((R.WAITING, R.MET, R.TOLD, R.RANKED), R.DEAD),
            arc((R.GATHERED, R.ASSIGNED), R.DEAD, editions=ASSIGNING),
        ],
    )  # fmt: skip
    def crash(self, s: S, node: Expr) -> None:
        """An agent is killed."""
        s.when(s.place[node].isin((R.WAITING, *EXCHANGING, R.RANKED)))
        s.place[node] = R.DEAD

    @fault("newcomer", each=("node", "kind"), moves=[arc(R.DEAD, R.WAITING)], cite="elastic-node-change 2.1")
    def start_newcomer(self, s: S, node: Expr, kind: Expr) -> None:
        """An agent comes in the place of one that has died; it may have another number of workers."""
        s.when(s.place[node] == R.DEAD)
        self.come(s, node, kind)

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Workers run, or agents have ended; or the rounds of this model are used up."""
        return all_(x.isin((R.RANKED, R.WAITING, *OVER)) for x in s.place) & (
            all_(x != R.WAITING for x in s.place) | ~(s.begun < self.sizes["round"])
        )

    def together(self, s: S, i: Expr, j: Expr) -> Condition:
        """The workers of both run, in one round."""
        return (s.place[i] == R.RANKED) & (s.place[j] == R.RANKED) & (s.number[i] == s.number[j])

    def everybody(self, s: S, r: Expr) -> Condition:
        """The workers of all members of the round run."""
        return any_(s.member[r, j] for j in s.node) & all_(
            ~s.member[r, j] | ((s.place[j] == R.RANKED) & self.is_in(s, j, r)) for j in s.node
        )

    @sometimes()
    def all_have_ranks(self, s: S) -> Condition:
        """All members of a round have ranks, and their numbers of workers differ."""
        return any_(self.everybody(s, r) for r in s.round) & any_(
            any_(self.together(s, i, j) & (s.workers[i] != s.workers[j]) for j in s.node) for i in s.node
        )

    @sometimes()
    def two_roles_have_ranks(self, s: S) -> Condition:
        """Workers of two roles run in one round."""
        return any_(any_(self.together(s, i, j) & (s.role[i] != s.role[j]) for j in s.node) for i in s.node)

    @sometimes(needs="crash")
    def one_dies_in_the_exchange(self, s: S) -> Condition:
        """A member has died that had not told, and another waits for it."""
        return any_(
            any_(s.member[r, i] & (s.told[r, i] == 0) & (s.place[i] == R.DEAD) for i in s.node)
            & any_((s.place[j] == R.TOLD) & self.is_in(s, j, r) for j in s.node)
            for r in s.round
        )

    @sometimes(needs="newcomer")
    def another_number_comes(self, s: S) -> Condition:
        """Workers run in a second round, and a member has another number of them than was told in the first."""
        return any_(
            (s.place[j] == R.RANKED) & (s.number[j] == 2)
            & any_((ord_(r) == 0) & (s.told[r, j] > 0) & (s.told[r, j] != s.workers[j]) for r in s.round)
            for j in s.node
        )  # fmt: skip

    @always(witness="all_have_ranks")
    def ranks_are_in_the_world(self, s: S) -> Condition:
        """A rank is below the size of the world, that in the role below the size of the role, and this in the world."""
        return all_(
            implies(
                s.place[i] == R.RANKED,
                and_(
                    s.base[i] + s.workers[i] <= s.world[i], s.role_base[i] + s.workers[i] <= s.role_world[i],
                    s.role_base[i] <= s.base[i], s.role_world[i] <= s.world[i],
                ),
            )
            for i in s.node
        )  # fmt: skip

    @always(witness="all_have_ranks")
    def ranks_are_distinct(self, s: S) -> Condition:
        """The ranks of a node follow one another, after those of the nodes before it; within a role as well."""
        return all_(
            all_(
                implies(
                    self.together(s, i, j) & (ord_(i) < ord_(j)),
                    (s.base[i] + s.workers[i] <= s.base[j])
                    & ((s.role[i] != s.role[j]) | (s.role_base[i] + s.workers[i] <= s.role_base[j])),
                )
                for j in s.node
            )
            for i in s.node
        )

    @always(witness="all_have_ranks")
    def members_agree_on_the_world(self, s: S) -> Condition:
        """All members of a round have one size of the world, and those of a role one size of the role."""
        return all_(
            all_(
                implies(
                    self.together(s, i, j),
                    (s.world[i] == s.world[j]) & ((s.role[i] != s.role[j]) | (s.role_world[i] == s.role_world[j])),
                )
                for j in s.node
            )
            for i in s.node
        )

    @always(witness="all_have_ranks")
    def no_rank_is_missing(self, s: S) -> Condition:
        """When the workers of all members run, there are as many as the world and each role has."""
        return all_(
            implies(self.everybody(s, r), all_(~s.member[r, i] | self.counts_all(s, r, i) for i in s.node))
            for r in s.round
        )

    def counts_all(self, s: S, r: Expr, node: Expr) -> Condition:
        """A member's numbers are those of the workers that run."""
        everybody = sum(count(s.member[r, j] & (s.workers[j] >= least) for j in s.node) for least in LEAST)
        alike = sum(
            count(s.member[r, j] & (s.role[j] == s.role[node]) & (s.workers[j] >= least) for j in s.node)
            for least in LEAST
        )
        return (s.world[node] == everybody) & (s.role_world[node] == alike)

    @always(witness="one_dies_in_the_exchange", needs="crash")
    def a_death_ends_nobody(self, s: S) -> Condition:
        """No agent raises because another has died."""
        return all_(x != R.FAILED for x in s.place)

    @leads_to(each="node")
    def the_exchange_ends(self, s: S, node: Expr) -> Condition:
        """An agent that has a round gets ranks, or goes on to the next round, or ends."""
        return s.place[node].isin(EXCHANGING), ~s.place[node].isin(EXCHANGING)

    @leads_to(each="node")
    def the_waiting_are_answered(self, s: S, node: Expr) -> Condition:
        """An agent that waits while there may be a further round gets one, or ends."""
        return (s.place[node] == R.WAITING) & self.has_next(s), (s.place[node] != R.WAITING) | ~self.has_next(s)


# ---- the editions


class Seed(Ranks, edition=Assignment.SEED):
    """torch 1.10: all read all; only the death of a member that has not told ends the others (A17)."""

    @transition(each=("node", "round"), moves=[arc(R.TOLD, R.RANKED)], cite="store.py:synchronize, get_all")
    def gather(self, s: S, node: Expr, round: Expr) -> None:
        """All have told: each agent reads that, and adds up for itself."""
        self.at(s, node, round, R.TOLD)
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

    @transition(each=("node", "round"), moves=[arc(R.TOLD, R.GATHERED)], cite="api.py:_assign_worker_ranks (2)")
    def gather(self, s: S, node: Expr, round: Expr) -> None:
        """All have told: the first agent reads that."""
        self.at(s, node, round, R.TOLD)
        s.when(self.is_first(s, round, node), self.all_told(s, round))
        s.place[node] = R.GATHERED

    @transition(each=("node", "round"), moves=[arc(R.GATHERED, R.ASSIGNED)], cite="api.py:_assign_worker_ranks (5)")
    def assign(self, s: S, node: Expr, round: Expr) -> None:
        """The first agent writes the ranks of all: assigned_ranks/0, /1, ..."""
        self.at(s, node, round, R.GATHERED)
        s.assigned[round] = True
        for j in s.node:
            s.base_of[round, j] = ite(s.member[round, j], self.before(s, round, j, role=False), 0)
            s.world_of[round, j] = ite(s.member[round, j], self.total(s, round, j, role=False), 0)
            s.role_base_of[round, j] = ite(s.member[round, j], self.before(s, round, j, role=True), 0)
            s.role_world_of[round, j] = ite(s.member[round, j], self.total(s, round, j, role=True), 0)
        s.place[node] = R.ASSIGNED

    @transition(
        each=("node", "round"), moves=[arc((R.TOLD, R.ASSIGNED), R.RANKED)], cite="api.py:_assign_worker_ranks (6)"
    )
    def read(self, s: S, node: Expr, round: Expr) -> None:
        """An agent reads the ranks of its own workers."""
        self.at(s, node, round, R.TOLD, R.ASSIGNED)
        s.when(s.assigned[round], (s.place[node] == R.ASSIGNED) | ~self.is_first(s, round, node))
        self.rank(
            s, node, s.base_of[round, node], s.world_of[round, node], s.role_base_of[round, node],
            s.role_world_of[round, node],
        )  # fmt: skip

    def waits_in_vain(self, s: S, node: Expr, r: Expr) -> Condition:
        untold = any_(self.is_left(s, r, j) & (s.told[r, j] == 0) for j in s.node)
        unassigned = any_(self.is_first(s, r, j) & self.is_left(s, r, j) for j in s.node)
        return ~s.assigned[r] & (unassigned | (self.is_first(s, r, node) & untold))


class Ours(Torch, edition=Assignment.TRYSTATE):
    """Ours: a wait of the exchange ends when the round has lost a member, and the agent goes on to the next round."""

    wait_times_out = None  # type: ignore[assignment]
    error_closed = None  # type: ignore[assignment]

    @transition(each=("node", "round"), moves=[arc(EXCHANGING, R.WAITING)])
    def leave_exchange(self, s: S, node: Expr, round: Expr) -> None:
        """The round has lost a member: the agent leaves the exchange, and goes on to the next round."""
        self.at(s, node, round, *EXCHANGING)
        s.when(self.has_next(s), self.is_over(s, round))
        s.place[node] = R.WAITING

    @transition(each="node", moves=[arc(R.RANKED, R.WAITING)], cite="elastic-node-change 2.3.3")
    def restart_workers(self, s: S, node: Expr) -> None:
        """The round has lost a member, or another agent waits: the agent stops its workers, and goes on to the next."""
        lost = any_(self.is_in(s, node, r) & self.is_over(s, r) for r in s.round)
        s.when(s.place[node] == R.RANKED, self.has_next(s), lost | any_(x == R.WAITING for x in s.place))
        s.place[node] = R.WAITING

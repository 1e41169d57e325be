"""The creation of process groups: every process calls new_group for every group, and the members connect over a store.

Theory of operation. A process gives the group a name, which no other process sees, and uses it as the prefix of the
group's keys. Under it each member publishes its address, waits for the addresses of the others, and connects to each of
them. So two members meet only if each of them, on its own, has come to the same name: torch counts the groups that a
process has named, and relies on every process naming the same groups in the same order. Three things break that: a
process that is no member and does not call, two threads of a process that call in an order of their own, and a process
that begins again with its counter at zero while the keys of its first life are still in the store.

A member has a rank in its group, and an address is published under that rank: two groups of one name read each other's
addresses also where no process is in both.

Abstractions. The first group leaves out the last `outsiders` processes, the later ones leave out the first `others`:
groups are nested, overlap, or have no process in common. No timeout: a creation that only its timeout would end (30
minutes in gloo) is a deadlock. A process has two lives at most; the reader of an address of an earlier life fails,
since nobody listens there, or a mesh that is complete. Two processes of one name connect if each has a rank that the
group of the other has too: gloo compares no groups. An address that another one has replaced may still be found, since
it may have been read before.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Creation, Edition

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
C = Creation
ENDED = (C.CREATED, C.OUTSIDE, C.SKIPPED, C.FAILED)
RUNNING = (C.NAMED, C.PUBLISHED, C.BARRIER, C.NUMBERING)
LATER = (C.NAMED, C.PUBLISHED, C.CREATED, C.OUTSIDE, C.SKIPPED, C.FAILED)  # of a call, without torch 1.9's places
IN_STORE = (C.PUBLISHED, C.BARRIER, C.NUMBERING, C.CREATED)  # a member whose address is there
WITH_LIVES = (Edition.TORCH, Edition.TRYSTATE)


class Groups(System):
    """The processes of a world, each of which calls new_group for every group."""

    title = "The creation of groups"
    Edition = Edition

    process = index(3)
    group = index(2, "in the order of the program")
    outsiders = constant(1, "so many of the last processes are no members of the first group")

    others = constant(0, "so many of the first processes are no members of any later group")

    place = choice(Creation, per=("process", "group"))
    named = integer(0, "group", per="process", doc="the counter that the next name comes from")
    number = integer(0, "group", per=("process", "group"), doc="its name, or the count in it; 0: no name yet")
    again = flag(per="process", doc="its second life")
    left = flag(
        per=("process", "group"), doc="an address of its first life is in the store, under the name so numbered"
    )
    mixed = flag(per=("process", "group"), doc="it is connected to a process that has another group in mind")

    def lifelines(self) -> Lifelines:
        """An address that a process has left in the store is there."""
        return served("store", "left", here="mixed")

    @machine(Creation, each="process")
    def creation(self, s: S, process: Expr) -> Any:
        """A process's call for the first group."""
        found: Any = C.IDLE
        for place in Creation:
            found = ite(any_((ord_(g) == 0) & (s.place[process, g] == place) for g in s.group), place, found)
        return found

    # ---- members, names and addresses

    def is_member(self, process: Expr, group: Expr) -> Condition:
        first = ord_(process) < self.sizes["process"] - self.sizes["outsiders"]
        if not self.sizes["others"]:
            return (ord_(group) > 0) | first
        return ite(ord_(group) > 0, ord_(process) >= self.sizes["others"], first)

    def before(self, group: Expr) -> Any:
        """So many of the first processes are no members: a member's rank is so much less than its number."""
        return ite(ord_(group) > 0, self.sizes["others"], 0)

    def size(self, group: Expr) -> Any:
        return self.sizes["process"] - ite(ord_(group) > 0, self.sizes["others"], self.sizes["outsiders"])

    def other_ranks(self, group: Expr, h: Expr) -> Condition:
        """The groups have other members: the first one and a later one, unless all processes are in both."""
        return (ord_(group) == 0) != (ord_(h) == 0) if self.has_two_sets else False

    @property
    def has_two_sets(self) -> bool:
        """Whether the first group has other members than the later ones."""
        return bool(self.sizes["outsiders"] or self.sizes["others"])

    def same_name(self, s: S, p: Expr, g: Expr, q: Expr, h: Expr) -> Condition:
        """Process p has for g the name that q has for h."""
        return (s.number[p, g] != 0) & (s.number[p, g] == s.number[q, h])

    def found(self, s: S, p: Expr, g: Expr, q: Expr, h: Expr) -> Condition:
        """Under the name of g, p finds, in the place of q, an address for h, and both pair with each other."""
        if not self.sizes["others"]:  # each process has the same rank in all groups
            return self.published(s, p, g, q, h) & self.is_member(p, h)
        return any_(
            self.published(s, p, g, r, h)
            & self.is_member(r, h)
            & (ord_(r) + self.before(g) == ord_(q) + self.before(h))  # its rank in h is that of q in g
            & (ord_(p) < self.size(h) + self.before(g))
            for r in s.process
        )

    def published(self, s: S, p: Expr, g: Expr, q: Expr, h: Expr) -> Condition:
        """The address of q for h is in the store, below the name that p has for g."""
        there = s.place[q, h].isin(IN_STORE) & (s.again[p] == s.again[q])
        return there & self.same_name(s, p, g, q, h)

    def peers(self, s: S, p: Expr, g: Expr, holds: Any) -> Condition:
        """It holds for every other member of g."""
        return all_((ord_(q) == ord_(p)) | ~self.is_member(q, g) | holds(s, p, g, q) for q in s.process)

    def finds(self, s: S, p: Expr, g: Expr, q: Expr) -> Condition:
        return any_(self.found(s, p, g, q, h) for h in s.group)

    def finds_its_own(self, s: S, p: Expr, g: Expr, q: Expr) -> Condition:
        """The address that it finds is of the same group."""
        return ~any_((ord_(h) != ord_(g)) & self.found(s, p, g, q, h) for h in s.group)

    def finds_no_other_life(self, s: S, p: Expr, g: Expr, q: Expr) -> Condition:
        """No address under the name is of another life of the peer."""
        kept = any_(s.left[q, k] & (ord_(k) + 1 == s.number[p, g]) for k in s.group)
        older = s.again[p] & ~s.again[q] & any_(
            self.same_name(s, p, g, q, h) & s.place[q, h].isin(IN_STORE) for h in s.group
        )  # fmt: skip
        return ~kept & ~older

    def finds_nobody_gone(self, s: S, p: Expr, g: Expr, q: Expr) -> Condition:
        """The peer has neither begun again since nor failed under the name."""
        failed = any_(self.same_name(s, p, g, q, h) & (s.place[q, h] == C.FAILED) for h in s.group)
        return (s.again[p] | ~s.again[q]) & ~failed

    def is_free(self, s: S, process: Expr, group: Expr) -> Condition:
        """The program of the process has come to this call: all calls before it are over."""
        return all_((ord_(h) >= ord_(group)) | s.place[process, h].isin(ENDED) for h in s.group)

    def enter(self, s: S, process: Expr, group: Expr) -> None:
        """Name the group; an outsider is done."""
        s.number[process, group] = self.next_number(s, process, group)
        s.named[process] = self.next_count(s, process, group)
        s.place[process, group] = ite(self.is_member(process, group), C.NAMED, self.of_outsiders())

    def next_number(self, s: S, process: Expr, group: Expr) -> Any:
        """The counter goes up with every call, of members and outsiders."""
        return s.named[process] + 1

    def next_count(self, s: S, process: Expr, group: Expr) -> Any:
        return s.named[process] + 1

    def of_outsiders(self) -> Creation:
        return C.OUTSIDE

    def of_connected(self) -> Creation:
        return C.CREATED

    def of_named(self, s: S, process: Expr, group: Expr) -> Any:
        return C.PUBLISHED

    # ---- the protocol

    @transition(
        each=("process", "group"),
        moves=[arc(C.IDLE, C.NAMED)],
        cite="ddp-initialisation 3.3.2.1: group_name = str(_group_count)",
    )
    def call(self, s: S, process: Expr, group: Expr) -> None:
        """The process calls new_group, which gives the group its name."""
        s.when(s.place[process, group] == C.IDLE, self.is_free(s, process, group))
        self.enter(s, process, group)

    @transition(
        each=("process", "group"),
        moves=[arc(C.NAMED, C.PUBLISHED)],
        cite="ddp-initialisation 3.3.2.2: connectFullMesh(PrefixStore(...))",
    )
    def publish(self, s: S, process: Expr, group: Expr) -> None:
        """It writes its address under the prefix, over one that it had left there."""
        s.when(s.place[process, group] == C.NAMED)
        s.place[process, group] = self.of_named(s, process, group)
        for k in s.group:
            s.left[process, k] = s.left[process, k] & (ord_(k) + 1 != s.number[process, group])

    @transition(each=("process", "group"), cite="ddp-initialisation 3.3.2.2: connectFullMesh")
    def connect(self, s: S, process: Expr, group: Expr) -> None:
        """It reads the address of every other member, and is connected to all of them."""
        s.when(s.place[process, group] == C.PUBLISHED)
        s.when(self.peers(s, process, group, self.finds_no_other_life), self.peers(s, process, group, self.finds))
        s.place[process, group] = self.of_connected()
        s.mixed[process, group] = ~self.peers(s, process, group, self.finds_its_own)

    @environment(
        each=("process", "group"), fair=True, moves=[may(C.PUBLISHED, C.FAILED)],
        editions=WITH_LIVES, cite="gloo: Connection refused, Connect timeout",
    )  # fmt: skip
    def fail(self, s: S, process: Expr, group: Expr) -> None:
        """A member that it finds, or waits for, is gone: new_group raises, and the program goes on."""
        s.when(s.place[process, group] == C.PUBLISHED)
        living = self.peers(s, process, group, self.finds_no_other_life)
        s.when(~(living & self.peers(s, process, group, self.finds_nobody_gone)))
        s.place[process, group] = C.FAILED

    # ---- faults

    @fault("skip", each=("process", "group"), moves=[arc(C.IDLE, C.SKIPPED)], cite="ddp-initialisation 3.3.2.1: ALL")
    def skip(self, s: S, process: Expr, group: Expr) -> None:
        """A process that is no member does not call."""
        s.when(s.place[process, group] == C.IDLE, ~self.is_member(process, group))
        s.place[process, group] = C.SKIPPED

    @environment(
        each=("process", "group"), switch="threads", editions=WITH_LIVES,
        cite="distributed_c10d.py: _process_group_name reads and adds to a global counter",
    )  # fmt: skip
    def call_ahead(self, s: S, process: Expr, group: Expr) -> None:
        """Another thread of the process calls for a group before the first has called for an earlier one."""
        s.when(s.place[process, group] == C.IDLE, ~self.is_free(s, process, group))
        s.when(any_((ord_(h) < ord_(group)) & (s.place[process, h] == C.IDLE) for h in s.group))
        self.enter(s, process, group)

    def begin(self, s: S, process: Expr) -> None:
        """The counter is zero again; the addresses are still in the store."""
        before = s.fork()
        s.again[process] = True
        s.named[process] = 0
        for g in s.group:
            was = any_(before.place[process, h].isin(IN_STORE) & (before.number[process, h] == ord_(g) + 1)
                       for h in s.group)  # fmt: skip
            s.left[process, g] = was
            s.place[process, g] = C.IDLE
            s.number[process, g] = 0
            s.mixed[process, g] = False

    @environment(
        each="process", editions=WITH_LIVES, switch="again", bound=4, fair=True, moves=[may(ENDED, C.IDLE)],
        cite="distributed_c10d.py:destroy_process_group: _world.group_count = 0",
    )  # fmt: skip
    def begin_again(self, s: S, process: Expr) -> None:
        """When all calls of this life are over, a process destroys its groups and begins again with the same store."""
        s.when(~s.again[process])
        s.when(all_(s.again[q] | all_(s.place[q, g].isin(ENDED) for g in s.group) for q in s.process))
        self.begin(s, process)

    @fault("restart", each="process", editions=WITH_LIVES, moves=[may(LATER, C.IDLE)])
    def restart(self, s: S, process: Expr) -> None:
        """A process dies and is started again; the others go on until they notice."""
        s.when(~s.again[process], any_(s.place[process, g] != C.IDLE for g in s.group))
        self.begin(s, process)

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Every call is over."""
        return all_(all_(s.place[p, g].isin(ENDED) for g in s.group) for p in s.process)

    def together(self, s: S) -> Condition:
        """All processes are in the same life."""
        return all_(s.again[p] for p in s.process) | all_(~s.again[p] for p in s.process)

    def members_are(self, s: S, group: Expr, *places: Creation) -> Condition:
        return all_(~self.is_member(p, group) | s.place[p, group].isin(places) for p in s.process)

    @sometimes()
    def all_are_created(self, s: S) -> Condition:
        """Every member has every group."""
        return all_(self.members_are(s, g, C.CREATED) for g in s.group)

    @sometimes()
    def one_waits_for_another(self, s: S) -> Condition:
        """A member waits for the address of one that has not called yet."""
        return any_(
            any_(s.place[p, g] == C.PUBLISHED for p in s.process)
            & any_(self.is_member(q, g) & (s.place[q, g] == C.IDLE) for q in s.process)
            for g in s.group
        )

    @sometimes(needs="again", editions=WITH_LIVES)
    def all_are_created_again(self, s: S) -> Condition:
        """Every member has every group in its second life."""
        return all_(s.again[p] for p in s.process) & self.all_are_created.body(self, s)

    @sometimes(needs="restart", editions=WITH_LIVES)
    def one_lives_on_beside_a_restart(self, s: S) -> Condition:
        """A member of a group that is created runs while a process of the group is in its second life."""
        return any_(~s.again[p] & any_(s.place[p, g] == C.CREATED for g in s.group) for p in s.process) & any_(
            s.again[q] for q in s.process
        )

    @always(witness="all_are_created")
    def a_communicator_is_of_one_group(self, s: S) -> Condition:
        """Members that are connected have the same group in mind."""
        return all_(all_(~s.mixed[p, g] for g in s.group) for p in s.process)

    @always(witness="all_are_created")
    def names_are_fresh(self, s: S) -> Condition:
        """No process finds an address of another life under the name that it uses."""
        return all_(
            all_((s.place[p, g] != C.PUBLISHED) | self.peers(s, p, g, self.finds_no_other_life) for g in s.group)
            for p in s.process
        )

    @leads_to(each=("process", "group"))
    def creation_ends(self, s: S, process: Expr, group: Expr) -> Condition:
        """Every call of new_group returns or raises."""
        return s.place[process, group].isin(RUNNING), s.place[process, group].isin((*ENDED, C.IDLE))

    @leads_to(each="group")
    def called_means_created(self, s: S, group: Expr) -> Condition:
        """When every member has called for a group, and all are in the same life, each of them gets it."""
        called = all_(~self.is_member(p, group) | (s.place[p, group] != C.IDLE) for p in s.process)
        return called & self.together(s), self.members_are(s, group, C.CREATED) | ~self.together(s)


# ---- the editions


class Seed(Groups, edition=Edition.SEED):
    """torch 1.9: a barrier of the world, which misses a process that does not call (P8), and then a sequence number."""

    sequence = integer(0, "group", per=("process", "group"), doc="the sequence number; 0: none yet")

    call = Groups.call.claiming(*Groups.call.arcs, arc(C.IDLE, C.BARRIER))
    connect = Groups.connect.claiming(arc(C.PUBLISHED, C.BARRIER))

    def of_outsiders(self) -> Creation:
        return C.BARRIER

    def of_connected(self) -> Creation:
        return C.BARRIER

    @transition(
        each=("process", "group"), moves=[arc(C.BARRIER, C.NUMBERING), arc(C.BARRIER, C.OUTSIDE)],
        cite="distributed_c10d.py:new_group: _store_based_barrier; in 2.13 with TORCH_DIST_INIT_BARRIER=1",
    )  # fmt: skip
    def leave_barrier(self, s: S, process: Expr, group: Expr) -> None:
        """As many have come to the barrier of this number as the world has."""
        s.when(s.place[process, group] == C.BARRIER)
        s.when(all_(any_(self.has_come(s, process, group, q, h) for h in s.group) for q in s.process))
        s.place[process, group] = ite(self.is_member(process, group), C.NUMBERING, C.OUTSIDE)

    def has_come(self, s: S, p: Expr, g: Expr, q: Expr, h: Expr) -> Condition:
        return (s.number[p, g] == s.number[q, h]) & s.place[q, h].isin((C.BARRIER, C.NUMBERING, C.CREATED, C.OUTSIDE))

    @transition(
        each=("process", "group"), moves=[arc(C.NUMBERING, C.CREATED)],
        cite="ddp-initialisation 3.3.2.2: store_->set(kSeqNumStoreKey, values)",
    )  # fmt: skip
    def set_sequence_number(self, s: S, process: Expr, group: Expr) -> None:
        """Rank 0 of the group draws a number, and writes it under the prefix."""
        s.when(s.place[process, group] == C.NUMBERING, ord_(process) == 0)
        s.sequence[process, group] = ord_(group) + 1
        s.place[process, group] = C.CREATED

    @transition(
        each=("process", "group"), moves=[arc(C.NUMBERING, C.CREATED)],
        cite="ddp-initialisation 3.3.2.2: store_->wait({kSeqNumStoreKey}), store_->get(kSeqNumStoreKey)",
    )  # fmt: skip
    def read_sequence_number(self, s: S, process: Expr, group: Expr) -> None:
        """Another member waits for the number, and reads it."""
        s.when(s.place[process, group] == C.NUMBERING, ord_(process) > 0)
        s.when(any_(self.drew(s, process, group, h) for h in s.group))
        s.sequence[process, group] = self.read(s, process, group)
        s.place[process, group] = C.CREATED

    def drew(self, s: S, process: Expr, group: Expr, h: Expr) -> Condition:
        """Rank 0 has written the number of h under the name that the process has for its group."""
        return any_(
            (ord_(q) == 0) & (s.sequence[q, h] != 0) & self.same_name(s, process, group, q, h) for q in s.process
        )

    def read(self, s: S, process: Expr, group: Expr) -> Any:
        found: Any = 0
        for number in range(1, self.sizes["group"] + 1):
            there = any_(self.drew(s, process, group, h) & (ord_(h) + 1 == number) for h in s.group)
            found = ite(there, number, found)
        return found

    @always(witness="all_are_created")
    def sequence_numbers_agree(self, s: S) -> Condition:
        """The members of a communicator have one sequence number."""
        return all_(all_(all_(all_(self.agree(s, p, g, q, h) for h in s.group) for q in s.process)
                         for g in s.group) for p in s.process)  # fmt: skip

    def agree(self, s: S, p: Expr, g: Expr, q: Expr, h: Expr) -> Condition:
        both = (s.place[p, g] == C.CREATED) & (s.place[q, h] == C.CREATED) & self.same_name(s, p, g, q, h)
        return implies(both, (s.sequence[p, g] != 0) & (s.sequence[p, g] == s.sequence[q, h]))


class Later(Groups):
    """torch since 2.0: no barrier and no sequence number."""

    call = Groups.call.claiming(*Groups.call.arcs, arc(C.IDLE, C.OUTSIDE))
    connect = Groups.connect.claiming(arc(C.PUBLISHED, C.CREATED))


class Torch(Later, edition=Edition.TORCH):
    """torch 2.13: an outsider returns at once (P1), threads share a counter (P2), names begin anew (P3)."""


class Local(Later, edition=Edition.LOCAL):
    """torch 2.13, use_local_synchronization=True: the name counts the groups of this process (P4).

    Only members have to call. The name is a hash of the ranks and of how many groups the process is a member of.
    """

    def next_number(self, s: S, process: Expr, group: Expr) -> Any:
        return ite(self.is_member(process, group), s.named[process] + 1, 0)

    def next_count(self, s: S, process: Expr, group: Expr) -> Any:
        return s.named[process] + ite(self.is_member(process, group), 1, 0)

    def same_name(self, s: S, p: Expr, g: Expr, q: Expr, h: Expr) -> Condition:
        same = super().same_name(s, p, g, q, h)
        return same & ((ord_(g) == 0) == (ord_(h) == 0)) if self.has_two_sets else same


class Ours(Later, edition=Edition.TRYSTATE):
    """torch 2.13's groups on a store of a trystate URL: keys of an earlier life are below another prefix.

    Within one life names are torch's, so that P1 and P2 stay. A member compares the ranks of its group with those that
    the first member has written below the name, and raises if they are others (no P10).
    """

    publish = Later.publish.claiming(arc(C.NAMED, C.PUBLISHED), may(C.NAMED, C.FAILED))

    def of_named(self, s: S, process: Expr, group: Expr) -> Any:
        taken = any_(any_(self.published(s, process, group, q, h) & self.other_ranks(group, h) for h in s.group)
                     for q in s.process)  # fmt: skip
        return ite(taken, C.FAILED, C.PUBLISHED)

    def same_name(self, s: S, p: Expr, g: Expr, q: Expr, h: Expr) -> Condition:
        return super().same_name(s, p, g, q, h) & (s.again[p] == s.again[q])

    def finds_no_other_life(self, s: S, p: Expr, g: Expr, q: Expr) -> Condition:
        """The prefix is that of one meeting of all processes."""
        return True

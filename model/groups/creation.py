"""The creation of process groups: every process calls new_group for every group, and the members connect over a store.

Theory of operation. A process gives the group a name, which no other process sees, and uses it as the prefix of the
group's keys. Under it each member publishes its address, waits for the addresses of the others, and connects to each of
them. So two members connect only if each has computed the same name: torch counts the groups that a process has named,
and relies on every process naming the same groups in the same order.

Failures:

- A process that is not a member does not call.
- Two threads of a process call in a different order from the other processes.
- A process restarts with its counter at zero while the keys of its first life are still in the store.

A member has a rank in its group, and its address is published under that rank: two groups with the same name read each
other's addresses even if no process is in both.

Abstractions. The first group leaves out the last `outsiders` processes, the later groups leave out the first `others`:
groups are nested, overlap, or have no process in common. There is no timeout: a creation that only its timeout would
end (30 minutes in gloo) is a deadlock. A process has at most two lives. The reader of an address of an earlier life
fails, since no process listens there, or only a mesh that is complete. Two processes with the same name connect if each
has a rank that the other's group has too, because gloo does not compare groups. An address that another one has
replaced may still be found, since it may have been read before.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Creation as Place
from .vocabulary import Edition

S = SymbolicState
ENDED = (Place.CREATED, Place.OUTSIDE, Place.SKIPPED, Place.FAILED)
RUNNING = (Place.NAMED, Place.PUBLISHED, Place.BARRIER, Place.NUMBERING)
LATER = (
    Place.NAMED,
    Place.PUBLISHED,
    Place.CREATED,
    Place.OUTSIDE,
    Place.SKIPPED,
    Place.FAILED,
)  # the places of a call without those that only torch 1.9 has
IN_STORE = (Place.PUBLISHED, Place.BARRIER, Place.NUMBERING, Place.CREATED)  # the member's address is in the store
WITH_LIVES = (Edition.TORCH, Edition.TRYSTATE)


class Groups(System):
    """The processes of a world; each process calls new_group for every group."""

    title = "The creation of groups"
    Edition = Edition

    process = index(3)
    group = index(2, "in the order of the program")
    outsiders = constant(1, "how many of the last processes are not members of the first group")

    others = constant(0, "how many of the first processes are not members of any later group")

    place = choice(Place, per=("process", "group"))
    named = integer(0, "group", per="process", doc="the counter that the next name comes from")
    number = integer(0, "group", per=("process", "group"), doc="the count in the group's name; 0: no name yet")
    again = flag(per="process", doc="the process is in its second life")
    left = flag(
        per=("process", "group"), doc="an address of its first life is in the store, under the name with this number"
    )
    mixed = flag(per=("process", "group"), doc="it is connected to a process that has called for another group")

    def lifelines(self) -> Lifelines:
        """The store has the address that a process has left there."""
        return served("store", "left", here="mixed")

    @machine(Place)
    def creation(self, s: S, process: Expr) -> Any:
        """A process's call for the first group."""
        found: Any = Place.IDLE
        for place in Place:
            found = ite(any_((ord_(g) == 0) & (s.place[process, g] == place) for g in s.group), place, found)
        return found

    # ---- members, names and addresses

    def is_member(self, process: Expr, group: Expr) -> Condition:
        first = ord_(process) < self.sizes["process"] - self.sizes["outsiders"]
        if not self.sizes["others"]:
            return (ord_(group) > 0) | first
        return ite(ord_(group) > 0, ord_(process) >= self.sizes["others"], first)

    def before(self, group: Expr) -> Any:
        """The number of first processes that are not members: a member's rank is its process number minus this."""
        return ite(ord_(group) > 0, self.sizes["others"], 0)

    def size(self, group: Expr) -> Any:
        return self.sizes["process"] - ite(ord_(group) > 0, self.sizes["others"], self.sizes["outsiders"])

    def other_ranks(self, group: Expr, h: Expr) -> Condition:
        """The two groups have different members: one is the first group, and not all processes are in both."""
        return (ord_(group) == 0) != (ord_(h) == 0) if self.has_two_sets else False

    @property
    def has_two_sets(self) -> bool:
        """Whether the first group and the later groups have different members."""
        return bool(self.sizes["outsiders"] or self.sizes["others"])

    def same_name(self, s: S, p: Expr, g: Expr, q: Expr, h: Expr) -> Condition:
        """Process p uses the same name for g as q for h."""
        return (s.number[p, g] != 0) & (s.number[p, g] == s.number[q, h])

    def found(self, s: S, p: Expr, g: Expr, q: Expr, h: Expr) -> Condition:
        """Under the name of g and the rank of q, p finds an address for h, and the two processes connect."""
        if not self.sizes["others"]:  # each process has the same rank in all groups
            return self.published(s, p, g, q, h) & self.is_member(p, h)
        return any_(
            self.published(s, p, g, r, h)
            & self.is_member(r, h)
            & (ord_(r) + self.before(g) == ord_(q) + self.before(h))  # r has in h the rank that q has in g
            & (ord_(p) < self.size(h) + self.before(g))
            for r in s.process
        )

    def published(self, s: S, p: Expr, g: Expr, q: Expr, h: Expr) -> Condition:
        """The address of q for h is in the store under the name that p uses for g."""
        there = s.place[q, h].isin(IN_STORE) & (s.again[p] == s.again[q])
        return there & self.same_name(s, p, g, q, h)

    def peers(self, s: S, p: Expr, g: Expr, holds: Any) -> Condition:
        """`holds` is true for every other member of g."""
        return all_((ord_(q) == ord_(p)) | ~self.is_member(q, g) | holds(s, p, g, q) for q in s.process)

    def finds(self, s: S, p: Expr, g: Expr, q: Expr) -> Condition:
        return any_(self.found(s, p, g, q, h) for h in s.group)

    def finds_its_own(self, s: S, p: Expr, g: Expr, q: Expr) -> Condition:
        """The address that it finds belongs to the same group."""
        return ~any_((ord_(h) != ord_(g)) & self.found(s, p, g, q, h) for h in s.group)

    def finds_no_other_life(self, s: S, p: Expr, g: Expr, q: Expr) -> Condition:
        """No address under the name belongs to another life of the peer."""
        kept = any_(s.left[q, k] & (ord_(k) + 1 == s.number[p, g]) for k in s.group)
        older = s.again[p] & ~s.again[q] & any_(
            self.same_name(s, p, g, q, h) & s.place[q, h].isin(IN_STORE) for h in s.group
        )  # fmt: skip
        return ~kept & ~older

    def finds_nobody_gone(self, s: S, p: Expr, g: Expr, q: Expr) -> Condition:
        """The peer has neither restarted since nor failed under the name."""
        failed = any_(self.same_name(s, p, g, q, h) & (s.place[q, h] == Place.FAILED) for h in s.group)
        return (s.again[p] | ~s.again[q]) & ~failed

    def is_free(self, s: S, process: Expr, group: Expr) -> Condition:
        """The program of the process has reached this call: all earlier calls are over."""
        return all_((ord_(h) >= ord_(group)) | s.place[process, h].isin(ENDED) for h in s.group)

    def enter(self, s: S, process: Expr, group: Expr) -> None:
        """Names the group; for an outsider the call is over."""
        s.number[process, group] = self.next_number(s, process, group)
        s.named[process] = self.next_count(s, process, group)
        s.place[process, group] = ite(self.is_member(process, group), Place.NAMED, self.of_outsiders())

    def next_number(self, s: S, process: Expr, group: Expr) -> Any:
        """Every call increments the counter, a member's and an outsider's."""
        return s.named[process] + 1

    def next_count(self, s: S, process: Expr, group: Expr) -> Any:
        return s.named[process] + 1

    def of_outsiders(self) -> Place:
        return Place.OUTSIDE

    def of_connected(self) -> Place:
        return Place.CREATED

    def of_named(self, s: S, process: Expr, group: Expr) -> Any:
        return Place.PUBLISHED

    # ---- the protocol

    @transition(moves=[arc(Place.IDLE, Place.NAMED)], cite="ddp-initialisation 3.3.2.1: group_name = str(_group_count)")
    def call(self, s: S, process: Expr, group: Expr) -> None:
        """The process calls new_group, which gives the group its name."""
        s.when(s.place[process, group] == Place.IDLE, self.is_free(s, process, group))
        self.enter(s, process, group)

    @transition(
        moves=[arc(Place.NAMED, Place.PUBLISHED)],
        cite="ddp-initialisation 3.3.2.2: connectFullMesh(PrefixStore(...))",
    )
    def publish(self, s: S, process: Expr, group: Expr) -> None:
        """It writes its address under the prefix and overwrites the address of its earlier life."""
        s.when(s.place[process, group] == Place.NAMED)
        s.place[process, group] = self.of_named(s, process, group)
        for k in s.group:
            s.left[process, k] = s.left[process, k] & (ord_(k) + 1 != s.number[process, group])

    @transition(cite="ddp-initialisation 3.3.2.2: connectFullMesh")
    def connect(self, s: S, process: Expr, group: Expr) -> None:
        """It reads the address of every other member and connects to all of them."""
        s.when(s.place[process, group] == Place.PUBLISHED)
        s.when(self.peers(s, process, group, self.finds_no_other_life), self.peers(s, process, group, self.finds))
        s.place[process, group] = self.of_connected()
        s.mixed[process, group] = ~self.peers(s, process, group, self.finds_its_own)

    @environment(
        fair=True, moves=[may(Place.PUBLISHED, Place.FAILED)],
        editions=WITH_LIVES, cite="gloo: Connection refused, Connect timeout",
    )  # fmt: skip
    def fail(self, s: S, process: Expr, group: Expr) -> None:
        """A member that it finds or waits for has restarted or failed: new_group raises, and the program continues."""
        s.when(s.place[process, group] == Place.PUBLISHED)
        living = self.peers(s, process, group, self.finds_no_other_life)
        s.when(~(living & self.peers(s, process, group, self.finds_nobody_gone)))
        s.place[process, group] = Place.FAILED

    # ---- faults

    @fault("skip", moves=[arc(Place.IDLE, Place.SKIPPED)], cite="ddp-initialisation 3.3.2.1: ALL")
    def skip(self, s: S, process: Expr, group: Expr) -> None:
        """A process that is not a member does not call."""
        move(s.place, Place.IDLE, Place.SKIPPED, ~self.is_member(process, group), at=(process, group))

    @environment(
        switch="threads", editions=WITH_LIVES,
        cite="distributed_c10d.py: _process_group_name reads and adds to a global counter",
    )  # fmt: skip
    def call_ahead(self, s: S, process: Expr, group: Expr) -> None:
        """Another thread of the process calls for a group before the first has called for an earlier one."""
        s.when(s.place[process, group] == Place.IDLE, ~self.is_free(s, process, group))
        s.when(any_((ord_(h) < ord_(group)) & (s.place[process, h] == Place.IDLE) for h in s.group))
        self.enter(s, process, group)

    def begin(self, s: S, process: Expr) -> None:
        """The counter is zero again; the addresses are still in the store."""
        before = s.fork()
        s.again[process] = True
        s.named[process] = 0
        for g in s.group:
            was = any_(
                before.place[process, h].isin(IN_STORE) & (before.number[process, h] == ord_(g) + 1) for h in s.group
            )
            s.left[process, g] = was
        reset(s.place, s.number, s.mixed, at=process)

    @environment(
        editions=WITH_LIVES, switch="again", bound=4, fair=True, moves=[may(ENDED, Place.IDLE)],
        cite="distributed_c10d.py:destroy_process_group: _world.group_count = 0",
    )  # fmt: skip
    def begin_again(self, s: S, process: Expr) -> None:
        """When all calls of this life are over, a process destroys its groups and restarts with the same store."""
        s.when(~s.again[process])
        s.when(all_(s.again[q] | all_(s.place[q, g].isin(ENDED) for g in s.group) for q in s.process))
        self.begin(s, process)

    @fault("restart", editions=WITH_LIVES, moves=[may(LATER, Place.IDLE)])
    def restart(self, s: S, process: Expr) -> None:
        """A process dies and is started again; the others continue until they notice."""
        s.when(~s.again[process], any_(s.place[process, g] != Place.IDLE for g in s.group))
        self.begin(s, process)

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Every call is over."""
        return all_(s.place[p, g].isin(ENDED) for p in s.process for g in s.group)

    def together(self, s: S) -> Condition:
        """All processes are in the same life."""
        return all_(s.again) | all_(~s.again[p] for p in s.process)

    def members_are(self, s: S, group: Expr, *places: Place) -> Condition:
        return all_(~self.is_member(p, group) | s.place[p, group].isin(places) for p in s.process)

    @sometimes()
    def all_are_created(self, s: S) -> Condition:
        """Every member has every group."""
        return all_(self.members_are(s, g, Place.CREATED) for g in s.group)

    @sometimes()
    def one_waits_for_another(self, s: S) -> Condition:
        """A member waits for the address of a member that has not called yet."""
        return any_(
            any_(s.place[p, g] == Place.PUBLISHED for p in s.process)
            & any_(self.is_member(q, g) & (s.place[q, g] == Place.IDLE) for q in s.process)
            for g in s.group
        )

    @sometimes(needs="again", editions=WITH_LIVES)
    def all_are_created_again(self, s: S) -> Condition:
        """Every member has every group in its second life."""
        return all_(s.again) & self.all_are_created.body(self, s)

    @sometimes(needs="restart", editions=WITH_LIVES)
    def one_lives_on_beside_a_restart(self, s: S) -> Condition:
        """A member of a group that is created runs while a process of the group is in its second life."""
        return any_(~s.again[p] & any_(s.place[p, g] == Place.CREATED for g in s.group) for p in s.process) & any_(
            s.again
        )

    @always(witness="all_are_created")
    def a_communicator_is_of_one_group(self, s: S) -> Condition:
        """Connected members have called for the same group."""
        return all_(~s.mixed[p, g] for p in s.process for g in s.group)

    @always(witness="all_are_created")
    def names_are_fresh(self, s: S) -> Condition:
        """No process finds an address of another life under the name that it uses."""
        return all_(
            (s.place[p, g] != Place.PUBLISHED) | self.peers(s, p, g, self.finds_no_other_life)
            for p in s.process
            for g in s.group
        )

    @leads_to()
    def creation_ends(self, s: S, process: Expr, group: Expr) -> Condition:
        """Every call of new_group returns or raises."""
        return s.place[process, group].isin(RUNNING), s.place[process, group].isin((*ENDED, Place.IDLE))

    @leads_to()
    def called_means_created(self, s: S, group: Expr) -> Condition:
        """When every member has called for a group and all are in the same life, each member gets the group."""
        called = all_(~self.is_member(p, group) | (s.place[p, group] != Place.IDLE) for p in s.process)
        return called & self.together(s), self.members_are(s, group, Place.CREATED) | ~self.together(s)


# ---- the editions


class Seed(Groups, edition=Edition.SEED):
    """torch 1.9: a barrier of the world, which hangs if a process does not call (P8), and then a sequence number."""

    sequence = integer(0, "group", per=("process", "group"), doc="the sequence number; 0: none yet")

    call = Groups.call.also(arc(Place.IDLE, Place.BARRIER))
    connect = Groups.connect.claiming(arc(Place.PUBLISHED, Place.BARRIER))

    def of_outsiders(self) -> Place:
        return Place.BARRIER

    def of_connected(self) -> Place:
        return Place.BARRIER

    @transition(
        moves=[arc(Place.BARRIER, (Place.NUMBERING, Place.OUTSIDE))],
        cite="distributed_c10d.py:new_group: _store_based_barrier; in 2.13 with TORCH_DIST_INIT_BARRIER=1",
    )  # fmt: skip
    def leave_barrier(self, s: S, process: Expr, group: Expr) -> None:
        """All processes of the world have reached the barrier with this number."""
        s.when(s.place[process, group] == Place.BARRIER)
        s.when(all_(any_(self.has_come(s, process, group, q, h) for h in s.group) for q in s.process))
        s.place[process, group] = ite(self.is_member(process, group), Place.NUMBERING, Place.OUTSIDE)

    def has_come(self, s: S, p: Expr, g: Expr, q: Expr, h: Expr) -> Condition:
        return (s.number[p, g] == s.number[q, h]) & s.place[q, h].isin(
            (Place.BARRIER, Place.NUMBERING, Place.CREATED, Place.OUTSIDE)
        )

    @transition(
        moves=[arc(Place.NUMBERING, Place.CREATED)],
        cite="ddp-initialisation 3.3.2.2: store_->set(kSeqNumStoreKey, values)",
    )  # fmt: skip
    def set_sequence_number(self, s: S, process: Expr, group: Expr) -> None:
        """Rank 0 of the group draws a number and writes it under the prefix."""
        move(s.place, Place.NUMBERING, Place.CREATED, ord_(process) == self.before(group), at=(process, group))
        s.sequence[process, group] = ord_(group) + 1

    @transition(
        moves=[arc(Place.NUMBERING, Place.CREATED)],
        cite="ddp-initialisation 3.3.2.2: store_->wait({kSeqNumStoreKey}), store_->get(kSeqNumStoreKey)",
    )  # fmt: skip
    def read_sequence_number(self, s: S, process: Expr, group: Expr) -> None:
        """Another member waits for the number and reads it."""
        move(s.place, Place.NUMBERING, Place.CREATED, ord_(process) > self.before(group), at=(process, group))
        s.when(any_(self.drew(s, process, group, h) for h in s.group))
        s.sequence[process, group] = self.read(s, process, group)

    def drew(self, s: S, process: Expr, group: Expr, h: Expr) -> Condition:
        """Rank 0 has written the number of h under the name that the process uses for its group."""
        return any_(
            (ord_(q) == self.before(h)) & (s.sequence[q, h] != 0) & self.same_name(s, process, group, q, h)
            for q in s.process
        )

    def read(self, s: S, process: Expr, group: Expr) -> Any:
        found: Any = 0
        for number in range(1, self.sizes["group"] + 1):
            there = any_(self.drew(s, process, group, h) & (ord_(h) + 1 == number) for h in s.group)
            found = ite(there, number, found)
        return found

    @always(witness="all_are_created")
    def sequence_numbers_agree(self, s: S) -> Condition:
        """The members of a communicator have the same sequence number."""
        return all_(self.agree(s, p, g, q, h) for p in s.process for g in s.group for q in s.process for h in s.group)

    def agree(self, s: S, p: Expr, g: Expr, q: Expr, h: Expr) -> Condition:
        both = (s.place[p, g] == Place.CREATED) & (s.place[q, h] == Place.CREATED) & self.same_name(s, p, g, q, h)
        return implies(both, (s.sequence[p, g] != 0) & (s.sequence[p, g] == s.sequence[q, h]))


class Later(Groups):
    """torch since 2.0: no barrier and no sequence number."""

    call = Groups.call.also(arc(Place.IDLE, Place.OUTSIDE))
    connect = Groups.connect.claiming(arc(Place.PUBLISHED, Place.CREATED))


class Torch(Later, edition=Edition.TORCH):
    """torch 2.13: an outsider returns at once (P1), threads share a counter (P2), names are reused (P3)."""


class Local(Later, edition=Edition.LOCAL):
    """torch 2.13, use_local_synchronization=True: the name counts the groups of this process (P4).

    Only members have to call. The name is a hash of the ranks and of the number of groups that the process is in.
    """

    def next_number(self, s: S, process: Expr, group: Expr) -> Any:
        return ite(self.is_member(process, group), s.named[process] + 1, 0)

    def next_count(self, s: S, process: Expr, group: Expr) -> Any:
        return s.named[process] + ite(self.is_member(process, group), 1, 0)

    def same_name(self, s: S, p: Expr, g: Expr, q: Expr, h: Expr) -> Condition:
        same = super().same_name(s, p, g, q, h)
        return same & ((ord_(g) == 0) == (ord_(h) == 0)) if self.has_two_sets else same


class Ours(Later, edition=Edition.TRYSTATE):
    """torch 2.13's groups on a store of a trystate URL: keys of an earlier life have another prefix.

    Within one life names are torch's, so P1 and P2 remain. A member compares the ranks of its group with the ranks that
    the first member has written under the name, and raises if they differ (no P10).
    """

    publish = Later.publish.claiming(arc(Place.NAMED, Place.PUBLISHED), may(Place.NAMED, Place.FAILED))

    def of_named(self, s: S, process: Expr, group: Expr) -> Any:
        taken = any_(
            self.published(s, process, group, q, h) & self.other_ranks(group, h) for q in s.process for h in s.group
        )
        return ite(taken, Place.FAILED, Place.PUBLISHED)

    def same_name(self, s: S, p: Expr, g: Expr, q: Expr, h: Expr) -> Condition:
        return super().same_name(s, p, g, q, h) & (s.again[p] == s.again[q])

    def finds_no_other_life(self, s: S, p: Expr, g: Expr, q: Expr) -> Condition:
        """Each meeting of all processes has its own prefix."""
        return True

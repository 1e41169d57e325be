"""torchcomms' reconfigure: the members of a communicator, old and new ones, form a new communicator without a restart.

Theory of operation. Each process shows a handle: the rank and the uuid of its communicator, and the address of a store.
The caller collects the handles, and calls `reconfigure(uuid, handles, timeout)` on each process, with a new uuid. With
NCCL, a process decides by the handles and by its own communicator. The largest set of handles with one uuid is the
*quorum*.

- A member of the quorum stays: the quorum shrinks its communicator, and its first member writes an id into the store.
- Any other process gives up its communicator, and waits for that id to join.
- Without a quorum, and if the quorum is one process or all of them, all make a new communicator: rank 0 writes the id.
  The place of a handle among the handles is its rank; a handle that occurs twice takes its rank from a counter instead.

Only the waits at the store have the timeout. NCCL's own functions wait until all ranks have come.

Abstractions. The end of NCCL's functions is one step, for all members. A process whose communicator has an error does
not differ from one whose communicator works. A process that dies is replaced between two calls. The caller gives all
members the same handles. With `unordered=1` they are a set, over which the last process iterates in reverse. Those that
join get the next ranks in the order of their numbers, not of their coming.
Source: github.com/meta-pytorch/torchcomms; nothing here was compared with its code by running it.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Comms, Part

S = SymbolicState
WORKING = (Part.FRESH, Part.STAYS, Part.JOINS)
OVER = (Part.AWAY, Part.READY, Part.FAILED, Part.DEAD)


class Reconfigure(System):
    """The processes of a communicator, and the calls of reconfigure, one after the other."""

    title = "The reconfigure of torchcomms"
    Edition = Comms

    process = index(3)
    configuration = index(3, "a call of reconfigure, which has its number as its uuid")
    unordered = constant(0, "1: the handles are a set, and not a list")

    number = integer(0, "configuration", doc="the uuid of the newest call; 0: none")
    at = choice(Part, per="process", initial=Part.AWAY)
    member = flag(per="process", doc="its handle is one of the handles of the call")
    has = flag(per="process", doc="has a communicator")
    uuid = integer(0, "configuration", per="process", doc="the uuid in its own handle; 0: -1, of no communicator")
    shown = integer(0, "configuration", per="process", doc="the uuid of its handle in the call")
    rank = integer(0, "process", per="process", doc="its rank in the communicator")

    def lifelines(self) -> Lifelines:
        """Each process has its fields; the handles of a call are the caller's."""
        return Lifelines("caller", here=("number", "member", "shown"))

    part = machine_of(at, "A process.")

    # ---- what a process reads from the handles

    def size(self, s: S, uuid: Any) -> Any:
        return count(s.member[q] & (s.shown[q] == uuid) for q in s.process)

    def members(self, s: S) -> Any:
        return count(s.member[q] for q in s.process)

    def alike(self, s: S, process: Expr) -> Any:
        """The number of handles equal to its own. All processes that never had a communicator have equal handles."""
        return count(s.member[q] & (s.shown[q] == s.shown[process]) & (s.rank[q] == s.rank[process]) for q in s.process)

    def is_twice(self, s: S, process: Expr) -> Condition:
        return self.alike(s, process) > 1

    def quorum(self, s: S) -> Any:
        """The uuid of most handles, if they differ; 0: no handle is of a communicator."""
        found: Any = 0
        for k in range(1, self.sizes["configuration"] + 1):
            differ = ~any_(s.member[q] & (s.shown[q] == k) & self.is_twice(s, q) for q in s.process)
            found = ite(differ & (self.size(s, k) > ite(found == 0, 0, self.size(s, found))), k, found)
        return found

    def stays(self, s: S, process: Expr) -> Condition:
        """It has the communicator of the quorum."""
        return s.has[process] & (s.uuid[process] == self.quorum(s))

    def is_fresh(self, s: S, process: Expr) -> Condition:
        """It takes part in a new communicator: no quorum, a quorum of one, or the one that it is in has all members."""
        size = self.size(s, self.quorum(s))
        return (self.quorum(s) == 0) | (size == 1) | self.stays(s, process) & (size == self.members(s))

    def place(self, s: S, process: Expr) -> Any:
        """Its place among the handles of the call."""
        forward = count(s.member[q] & (ord_(q) < ord_(process)) for q in s.process)
        is_last = (self.unordered == 1) & (ord_(process) == self.sizes["process"] - 1)
        return ite(is_last, self.members(s) - 1 - forward, forward)

    def new_rank(self, s: S, process: Expr) -> Any:
        """Its rank in a new communicator: its place, or the counter if its handle occurs twice."""
        before = count(s.member[q] & self.is_twice(s, q) & (ord_(q) < ord_(process)) for q in s.process)
        return ite(self.is_twice(s, process), before, self.place(s, process))

    def grown_rank(self, s: S, process: Expr) -> Any:
        """Its rank if members stay: those that stay keep their order, and those that join follow."""
        kept = self.quorum(s)
        stays = s.shown[process] == kept
        before = count(
            s.member[q]
            & ((s.shown[q] == kept) == stays)
            & ite(stays, s.rank[q] < s.rank[process], ord_(q) < ord_(process))
            for q in s.process
        )
        return before + ite(stays, 0, self.size(s, kept))

    # ---- whether a call can end

    def all_make_a_new_one(self, s: S) -> Condition:
        """All members have given up their communicators, and no two have the same rank."""
        return (
            all_(~s.member[q] | (s.at[q] == Part.FRESH) for q in s.process)
            & self.ranks_differ.body(self, s)
            & not_(self.is_one_handle(s))
        )

    def all_join_the_quorum(self, s: S) -> Condition:
        """Each handle of the quorum is of a process that stays, and all others join."""
        return all_(
            ~s.member[q] | (s.at[q] == ite(s.shown[q] == self.quorum(s), Part.STAYS, Part.JOINS)) for q in s.process
        )

    def is_one_handle(self, s: S) -> Condition:
        """The handles are a set, and all are equal."""
        equal = any_(s.member[q] & self.is_twice(s, q) & (self.alike(s, q) == self.members(s)) for q in s.process)
        return (self.unordered == 1) & equal

    def waits_in_vain(self, s: S, process: Expr) -> Condition:
        """It waits at the store for an id that no process will write."""
        stays = all_(~s.member[q] | (s.shown[q] != self.quorum(s)) | (s.at[q] == Part.STAYS) for q in s.process)
        joins = (s.at[process] == Part.JOINS) & ~stays
        first = any_(s.member[q] & (s.at[q] == Part.FRESH) & (self.new_rank(s, q) == 0) for q in s.process)
        return joins | (s.at[process] == Part.FRESH) & ~first

    # ---- the calls

    @environment(
        moves=[arc((Part.AWAY, Part.READY, Part.FAILED), Part.CALLED, of="others")], cite="TorchComm.hpp:reconfigure"
    )
    def call(self, s: S) -> None:
        """Every call is over: the caller collects the handles of all living processes, and they call reconfigure."""
        s.when(s.at.all(*OVER), ~s.at.all(Part.DEAD), s.number < self.sizes["configuration"])
        s.number = s.number + 1
        for q in s.process:
            s.member[q] = s.at[q] != Part.DEAD
            s.shown[q] = self.handle(s, q)
            s.at[q] = ite(s.at[q] == Part.DEAD, Part.DEAD, Part.CALLED)

    def handle(self, s: S, process: Expr) -> Any:
        return s.uuid[process]

    @transition(moves=[arc(Part.CALLED, WORKING)], cite="TorchCommNCCLReconfigure.cpp:findQuorum")
    def decide(self, s: S, process: Expr) -> None:
        """It looks for the quorum, and aborts its communicator unless it stays."""
        stays = ite(self.stays(s, process), Part.STAYS, Part.JOINS)
        plan = ite(self.is_fresh(s, process), Part.FRESH, stays)
        s.has[process] = plan == Part.STAYS
        move(s.at, Part.CALLED, plan, at=process)

    @transition(
        moves=[arc(WORKING, Part.READY, of="others")],
        cite="TorchCommNCCLReconfigure.cpp: commInitRankConfig, commShrink, commGrow",
    )
    def connect(self, s: S) -> None:
        """All members have come: they are connected, and each call returns."""
        fresh, grown = self.all_make_a_new_one(s), self.all_join_the_quorum(s)
        s.when(s.number > 0, any_(s.at[q].isin(WORKING) for q in s.process), fresh | grown)
        before = s.fork()
        for q in s.process:
            came = before.member[q]
            s.at[q], s.has[q] = ite(came, Part.READY, before.at[q]), before.has[q] | came
            s.uuid[q] = ite(came, before.number, before.uuid[q])
            s.rank[q] = ite(came, ite(fresh, self.new_rank(before, q), self.grown_rank(before, q)), before.rank[q])

    @transition(moves=[may(Part.FRESH, Part.READY)], cite="TorchCommNCCLReconfigure.cpp: new_size")
    def connect_alone(self, s: S, process: Expr) -> None:
        """The set of handles has one element: the new communicator has one process."""
        move(s.at, Part.FRESH, Part.READY, self.is_one_handle(s), at=process)
        s.has[process], s.uuid[process], s.rank[process] = True, s.number, 0

    @environment(fair=True, moves=[may(WORKING, Part.FAILED)], cite="TorchCommNCCLReconfigure.cpp: store->wait")
    def time_out(self, s: S, process: Expr) -> None:
        """The id does not come: the wait at the store raises. The uuid of the process remains."""
        s.when(~s.at.any(Part.CALLED), self.waits_in_vain(s, process), not_(self.is_one_handle(s)))
        move(s.at, WORKING, Part.FAILED, at=process)

    # ---- faults

    @fault("die", bound=2, moves=[arc((Part.AWAY, Part.CALLED, *WORKING, Part.READY, Part.FAILED), Part.DEAD)])
    def die(self, s: S, process: Expr) -> None:
        """A process is killed."""
        s.when(s.at[process] != Part.DEAD)
        s.at[process], s.has[process] = Part.DEAD, False

    @environment(switch="replace", bound=2, moves=[arc(Part.DEAD, Part.AWAY)])
    def replace(self, s: S, process: Expr) -> None:
        """A new process takes the place of a dead one, between two calls."""
        move(s.at, Part.DEAD, Part.AWAY, s.at.all(*OVER), at=process)
        s.uuid[process], s.rank[process] = 0, 0

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Every call is over."""
        return s.at.all(*OVER)

    def is_of_call(self, s: S, process: Expr) -> Condition:
        return (s.at[process] == Part.READY) & (s.uuid[process] == s.number)

    @sometimes()
    def all_are_connected(self, s: S) -> Condition:
        """Every process is in the communicator of the second call."""
        return (s.number == 2) & all_(self.is_of_call(s, p) for p in s.process)

    @sometimes(needs="replace")
    def one_joins(self, s: S) -> Condition:
        """A process joins others that stay."""
        return s.at.any(Part.STAYS) & s.at.any(Part.JOINS)

    @leads_to()
    def calls_end(self, s: S, process: Expr) -> Condition:
        """Every call of a living process ends: with a communicator, or with an error."""
        return s.at[process].isin((Part.CALLED, *WORKING)), s.at[process].isin(OVER)

    @always(witness="all_are_connected")
    def one_communicator(self, s: S) -> Condition:
        """The processes of a call get one communicator, in which each has another rank."""
        return all_(
            (ord_(p) >= ord_(q)) | ~self.is_of_call(s, p) | ~self.is_of_call(s, q) | (s.rank[p] != s.rank[q])
            for p in s.process for q in s.process
        )  # fmt: skip

    @always(witness="all_are_connected")
    def ranks_differ(self, s: S) -> Condition:
        """No two processes that make a new communicator take the same rank."""
        return all_(
            (ord_(p) >= ord_(q)) | (s.at[p] != Part.FRESH) | (s.at[q] != Part.FRESH)
            | (self.new_rank(s, p) != self.new_rank(s, q))
            for p in s.process for q in s.process
        )  # fmt: skip

    @always(witness="all_are_connected")
    def places_are_ranks(self, s: S) -> Condition:
        """With a list of handles, the rank of a process is the place of its handle."""
        return (self.unordered == 1) | all_(~self.is_of_call(s, p) | (s.rank[p] == self.place(s, p)) for p in s.process)

    @always(witness="all_are_connected")
    def the_quorum_stays(self, s: S) -> Condition:
        """A living process whose handle is one of the quorum does not wait to join it."""
        return all_((s.at[p] != Part.JOINS) | (s.shown[p] != self.quorum(s)) for p in s.process)


# ---- the editions


class TorchComms(Reconfigure, edition=Comms.TORCHCOMMS):
    """The backend nccl of torchcomms, as of 21 August 2026."""


class Mended(Reconfigure, edition=Comms.MENDED):
    """The remedies: what a process does follows from the handles alone, and each wait has the timeout."""

    connect_alone = None  # type: ignore[assignment]

    def handle(self, s: S, process: Expr) -> Any:
        """The uuid of a communicator that the process still has."""
        return ite(s.has[process], s.uuid[process], 0)

    def is_one_handle(self, s: S) -> Condition:
        """Handles of two processes differ."""
        return False

    def place(self, s: S, process: Expr) -> Any:
        """A set is sorted first."""
        return count(s.member[q] & (ord_(q) < ord_(process)) for q in s.process)

    new_rank = grown_rank = place

    def waits_in_vain(self, s: S, process: Expr) -> Condition:
        """A member has died: NCCL's functions do not block, and are aborted at the timeout."""
        return ~(self.all_make_a_new_one(s) | self.all_join_the_quorum(s))

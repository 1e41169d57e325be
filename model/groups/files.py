"""file://: a job meets in a file, into which each process appends its address, and reads those of the others.

Theory of operation. FileStore has no server. The file is a log; a writer appends a record under an exclusive lock, and
a reader takes in what has come since. Four things go wrong: a writer dies or runs out of disk within a record, a
process is stopped while it has the lock, and a job that crashed leaves its file to the next one. torch counts in the
file how many have it open, and the last one to close it deletes it; ours notes who they are, and sees that they died.

Abstractions. One key for each process. The kernel takes a lock from a process that dies. Only the record of an address
is written in two steps; opening and closing count in one. A process whose operation raises ends without closing. The
second job begins when no process of the first runs. A stopped process goes on only if somebody kills it.
"""

from __future__ import annotations

import enum
from typing import Any

from ..language import *
from .vocabulary import Edition, User

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
U = User
OVER = (U.LEFT, U.FAILED, U.DEAD)
BUSY = (U.OPEN, U.WRITING, U.WROTE, U.READ, U.STUCK)
COUNTED = 8  # more than two jobs of three open


class Address(enum.Enum):
    """The record of a process."""

    NONE = "none"
    OLD = "of the job before"
    NEW = "of this job"


class Files(System):
    """The processes of a job, and of the one after it, that meet in the same file."""

    title = "A store in a file"
    Edition = (Edition.TORCH, Edition.TRYSTATE)

    process = index(2)

    phase = choice(User, per="process")
    address = choice(Address, per="process", doc="its record in the file")
    torn = flag(doc="the file ends with part of a record")
    there = flag(doc="the file exists")
    opened = integer(0, COUNTED, doc="the count in the file: opened and not closed")
    closed = integer(0, COUNTED, doc="the count in the file: how often it was closed")
    locked = flag(per="process", doc="has the lock")
    stopped = flag(per="process", doc="does not go on")
    stale = flag(per="process", doc="has read an address of the job before")
    second = flag(doc="the second job runs")

    def lifelines(self) -> Lifelines:
        """The records are in the file, which the next job finds."""
        return served("file", "address", here="stale")

    @machine(User, each="process")
    def user(self, s: S, process: Expr) -> Any:
        """A process of the job."""
        return s.phase[process]

    # ---- helpers

    def is_free(self, s: S) -> Condition:
        return ~any_(x for x in s.locked)

    def acts(self, s: S, process: Expr, *phases: User) -> None:
        s.when(~s.stopped[process], s.phase[process].isin(phases))

    def empty(self, s: S, when: Any) -> None:
        """The file is deleted, or begun anew."""
        for j in s.process:
            s.address[j] = ite(when, Address.NONE, s.address[j])
        s.torn = and_(s.torn, not_(when))
        s.opened = ite(when, 0, s.opened)
        s.closed = ite(when, 0, s.closed)

    def may_read(self, s: S) -> Condition:
        """A reader waits for a writer."""
        return self.is_free(s)

    def may_not_read(self, s: S) -> Condition:
        """A reader meets half a record, and reads on for the rest of it."""
        return s.torn

    def left_over(self, s: S) -> Condition:
        """A process that opens the file sees that nobody of its users lives."""
        return False

    def mend(self, s: S) -> None:
        """The part of a record that a writer finds at the end."""

    def mend_first(self, s: S) -> None:
        """That which a process finds that opens the file."""

    # ---- the protocol

    @transition(
        each="process",
        moves=[arc(U.AWAY, U.OPEN)],
        cite="ddp-initialisation 3.2.1; FileStore.cpp:FileStore, which adds 1 to refcount/",
    )
    def open(self, s: S, process: Expr) -> None:
        """It opens the file, reads it, and is counted."""
        self.acts(s, process, U.AWAY)
        s.when(self.is_free(s))
        self.empty(s, self.left_over(s))
        self.mend_first(s)
        stuck = self.may_not_read(s)
        s.phase[process] = ite(stuck, U.STUCK, U.OPEN)
        s.locked[process] = stuck
        s.there = True
        s.opened = ite(stuck, s.opened, s.opened + 1)

    @transition(each="process", moves=[arc(U.OPEN, U.WRITING)], cite="ddp-initialisation 2.1; FileStore.cpp:set")
    def lock(self, s: S, process: Expr) -> None:
        """It takes the exclusive lock, and begins to append its record."""
        self.acts(s, process, U.OPEN)
        s.when(self.is_free(s))
        self.mend(s)
        s.locked[process] = True
        s.phase[process] = U.WRITING

    @transition(each="process", moves=[arc(U.WRITING, U.WROTE)], cite="FileStore.cpp:set")
    def write(self, s: S, process: Expr) -> None:
        """The record is whole, unless it follows part of another, as whose rest it is read."""
        self.acts(s, process, U.WRITING)
        s.locked[process] = False
        s.address[process] = ite(s.torn, s.address[process], Address.NEW)
        s.phase[process] = U.WROTE

    @transition(
        each="process",
        moves=[arc(U.WROTE, U.READ)],
        cite="FileStore.cpp:get; File::read",
    )
    def read(self, s: S, process: Expr) -> None:
        """It reads the records of all others, as soon as they are there."""
        self.acts(s, process, U.WROTE)
        stuck = self.may_not_read(s)
        s.when(self.may_read(s), or_(stuck, all_(x != Address.NONE for x in s.address)))
        s.phase[process] = ite(stuck, U.STUCK, U.READ)
        s.locked[process] = stuck
        s.stale[process] = and_(not_(stuck), any_(x == Address.OLD for x in s.address))

    @transition(each="process", moves=[arc(U.READ, U.LEFT)], cite="FileStore.cpp:~FileStore")
    def close(self, s: S, process: Expr) -> None:
        """It closes the file; the last one deletes it."""
        self.acts(s, process, U.READ)
        s.when(self.is_free(s))
        stuck = self.may_not_read(s)
        s.phase[process] = ite(stuck, U.STUCK, U.LEFT)
        s.locked[process] = stuck
        s.opened = ite(stuck, s.opened, s.opened - 1)
        s.closed = ite(stuck, s.closed, s.closed + 1)
        last = and_(not_(stuck), self.is_last(s))
        s.there = not_(last)
        self.empty(s, last)

    def is_last(self, s: S) -> Condition:
        """Nobody has it open, and as many as the world has have closed it."""
        return (s.opened == 0) & (s.closed >= self.sizes["process"])

    @environment(each="process", fair=True, moves=[may((U.WROTE,), U.FAILED)])
    def time_out(self, s: S, process: Expr) -> None:
        """An address does not come, since its process is gone: get raises."""
        self.acts(s, process, U.WROTE)
        missing = any_((s.address[q] == Address.NONE) & s.phase[q].isin(OVER) for q in s.process)
        s.when(self.may_read(s), not_(self.may_not_read(s)), missing)
        s.phase[process] = U.FAILED

    # ---- the job after it, and faults

    @environment(fair=True, switch="another_job", moves=[may(OVER, U.AWAY, of="others")])
    def next_job(self, s: S) -> None:
        """When no process of a job runs, another job begins with the same URL."""
        s.when(~s.second, all_(x.isin(OVER) for x in s.phase))
        s.second = True
        for j in s.process:
            s.phase[j] = U.AWAY
            s.address[j] = ite(s.address[j] == Address.NEW, Address.OLD, s.address[j])
            s.stopped[j] = False

    @fault("die", each="process", moves=[arc((U.OPEN, U.WRITING, U.WROTE, U.READ), U.DEAD)])
    def die(self, s: S, process: Expr) -> None:
        """A process is killed: the kernel frees the lock, and part of its record may stay."""
        s.when(s.phase[process].isin(BUSY))
        s.torn = s.torn | (s.phase[process] == U.WRITING)
        s.locked[process] = False
        s.phase[process] = U.DEAD

    @fault("full", each="process", moves=[arc(U.WRITING, U.FAILED)], cite="FileStore.cpp: File too large")
    def disk_full(self, s: S, process: Expr) -> None:
        """The disk is full in the middle of a record: set raises."""
        self.acts(s, process, U.WRITING)
        s.torn = self.after_full(s)
        s.locked[process] = False
        s.phase[process] = U.FAILED

    def after_full(self, s: S) -> Condition:
        """The part that was written stays."""
        return True

    @fault("stop", each="process")
    def stop(self, s: S, process: Expr) -> None:
        """A process is stopped while it has the lock (SIGSTOP, a debugger, a suspended VM)."""
        s.when(s.phase[process] == U.WRITING)
        s.stopped[process] = True

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Every process that goes on is done, and so is every job."""
        return all_(s.phase[j].isin(OVER) | s.stopped[j] for j in s.process)

    @sometimes()
    def all_meet(self, s: S) -> Condition:
        """Every process has read the addresses of all."""
        return all_(x == U.READ for x in s.phase)

    @sometimes(needs="another_job")
    def all_meet_again(self, s: S) -> Condition:
        """So does the second job."""
        return s.second & all_(x == U.READ for x in s.phase)

    @sometimes(needs="die")
    def a_record_is_torn(self, s: S) -> Condition:
        """A process waits or works although the file ends with part of a record."""
        return s.torn & any_(x == U.OPEN for x in s.phase)

    @sometimes(needs="stop")
    def the_lock_is_kept(self, s: S) -> Condition:
        """A process that is stopped has the lock, and another has opened the file."""
        return any_(s.stopped[j] & s.locked[j] for j in s.process) & any_(x == U.OPEN for x in s.phase)

    @always(witness="all_meet")
    def one_writes_at_a_time(self, s: S) -> Condition:
        """At most one process is within a record."""
        return count(x == U.WRITING for x in s.phase) <= 1

    @always(witness="all_meet")
    def addresses_are_of_this_job(self, s: S) -> Condition:
        """No process reads an address of the job before."""
        return all_(~x for x in s.stale)

    @always(witness="all_meet")
    def the_last_one_deletes(self, s: S) -> Condition:
        """When all processes of a job have closed the file, it is gone."""
        return ~all_(x == U.LEFT for x in s.phase) | ~s.there

    @always(witness="all_meet")
    def half_a_record_stops_nobody(self, s: S) -> Condition:
        """No process reads half a record for ever."""
        return all_(x != U.STUCK for x in s.phase)

    @leads_to(each="process")
    def operations_end(self, s: S, process: Expr) -> Condition:
        """Every process that is not stopped comes to its end, as long as no operation waits without a limit."""
        return s.phase[process].isin((U.AWAY, *BUSY)) & ~s.stopped[process], (
            s.phase[process].isin(OVER) | s.stopped[process]
        )


# ---- the editions


class Torch(Files, edition=Edition.TORCH):
    """torch 2.13: half a record is read for ever (P6), the lock is waited for without a limit (P7), files stay (P5)."""

    open = Files.open.claiming(*Files.open.arcs, arc(U.AWAY, U.STUCK))
    read = Files.read.claiming(*Files.read.arcs, arc(U.WROTE, U.STUCK))
    close = Files.close.claiming(*Files.close.arcs, arc(U.READ, U.STUCK))
    die = Files.die.claiming(*Files.die.arcs, arc(U.STUCK, U.DEAD))


class Ours(Files, edition=Edition.TRYSTATE):
    """Ours: readers take whole records, the next writer cuts the rest away, locks have a limit, users are known."""

    def may_read(self, s: S) -> Condition:
        """A reader takes no lock."""
        return True

    def may_not_read(self, s: S) -> Condition:
        """It takes whole records only."""
        return False

    def left_over(self, s: S) -> Condition:
        """None of the users that the file names lives: they are taken for those of a job before, also of this one."""
        return s.there & (s.opened > 0) & all_(x.isin((U.AWAY, *OVER)) for x in s.phase)

    def mend(self, s: S) -> None:
        """It is cut away."""
        s.torn = False

    def mend_first(self, s: S) -> None:
        """It is cut away: to be counted is to append."""
        self.mend(s)

    def after_full(self, s: S) -> Condition:
        """The part that was written is cut away again."""
        return False

    def is_last(self, s: S) -> Condition:
        """As many as the world has have closed it or died, and nobody lives who uses it."""
        return all_(x.isin(OVER) for x in s.phase)

    @environment(each="process", fair=True, moves=[may((U.AWAY, U.OPEN, U.READ), U.FAILED)])
    def lock_times_out(self, s: S, process: Expr) -> None:
        """A process that is stopped keeps the lock: the operation raises."""
        self.acts(s, process, U.AWAY, U.OPEN, U.READ)
        s.when(any_(s.stopped[j] & s.locked[j] for j in s.process))
        s.phase[process] = U.FAILED

    @environment(each="process", fair=True, moves=[may(U.WROTE, U.FAILED)])
    def no_address_comes(self, s: S, process: Expr) -> None:
        """The process whose address is missing is stopped: get raises."""
        self.acts(s, process, U.WROTE)
        s.when(any_((s.address[q] == Address.NONE) & s.stopped[q] for q in s.process))
        s.phase[process] = U.FAILED

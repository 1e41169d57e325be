"""file://: the processes of a job append their addresses to a file and read the others' addresses from it.

Theory of operation. FileStore has no server. The file is a log: a writer appends a record under an exclusive lock, and
a reader reads the records that were appended since. torch counts in the file how many processes have it open, and the
last process that closes it deletes it. MENDED records the processes themselves and can see that they have died.

Failures:

- A writer dies in the middle of a record.
- A writer runs out of disk in the middle of a record.
- A process is stopped while it has the lock.
- A job that crashed leaves its file to the next job.

Abstractions. Each process has one key. The kernel releases the lock of a process that dies. Only the record of an
address is written in two steps; opening and closing update the count in one step. A process whose operation raises ends
without closing. The second job begins when no process of the first runs. A stopped process stays stopped until it is
killed.
"""

from __future__ import annotations

import enum
from typing import Any

from ..language import *
from .vocabulary import Filing, User

S = SymbolicState
OVER = (User.LEFT, User.FAILED, User.DEAD)
BUSY = (User.OPEN, User.WRITING, User.WROTE, User.READ, User.STUCK)
COUNTED = 8  # more than two jobs of three processes can count


class Address(enum.Enum):
    """The record of a process."""

    NONE = "not written"
    OLD = "of the previous job"
    NEW = "of this job"


class Files(System):
    """The processes of a job, and of the next job, that use the same file."""

    title = "A store in a file"
    Edition = Filing

    process = index(2)

    phase = choice(User, per="process")
    address = choice(Address, per="process", doc="its record in the file")
    torn = flag(doc="the file ends with part of a record")
    there = flag(doc="the file exists")
    opened = integer(0, COUNTED, doc="the count in the file: how often it was opened and not closed")
    closed = integer(0, COUNTED, doc="the count in the file: how often it was closed")
    locked = flag(per="process", doc="has the lock")
    stopped = flag(per="process", doc="is stopped")
    stale = flag(per="process", doc="has read an address of the previous job")
    second = flag(doc="the second job runs")

    def lifelines(self) -> Lifelines:
        """The records are in the file, where the next job finds them."""
        return served("file", "address", here="stale")

    user = machine_of(phase, "A process of the job.")

    # ---- helpers

    def is_free(self, s: S) -> Condition:
        return ~any_(s.locked)

    def acts(self, s: S, process: Expr, *phases: User) -> None:
        s.when(~s.stopped[process], s.phase[process].isin(phases))

    def empty(self, s: S, when: Any) -> None:
        """The file is deleted or emptied."""
        reset(s.address, when=when)
        s.torn = and_(s.torn, not_(when))
        s.opened = ite(when, 0, s.opened)
        s.closed = ite(when, 0, s.closed)

    def may_read(self, s: S) -> Condition:
        """A reader can read only while no process has the lock."""
        return self.is_free(s)

    def may_not_read(self, s: S) -> Condition:
        """A reader finds half a record and keeps reading for the rest of it."""
        return s.torn

    def left_over(self, s: S) -> Condition:
        """A process that opens the file sees that none of its users lives."""
        return False

    def mend(self, s: S) -> None:
        """A writer finds part of a record at the end of the file."""

    def mend_first(self, s: S) -> None:
        """A process that opens the file finds part of a record at its end."""

    # ---- the protocol

    @transition(
        moves=[arc(User.AWAY, User.OPEN)],
        cite="ddp-initialisation 3.2.1; FileStore.cpp:FileStore, which adds 1 to refcount/",
    )
    def open(self, s: S, process: Expr) -> None:
        """It opens the file, reads it, and is counted as a user."""
        self.acts(s, process, User.AWAY)
        s.when(self.is_free(s))
        self.empty(s, self.left_over(s))
        self.mend_first(s)
        stuck = self.may_not_read(s)
        s.phase[process] = ite(stuck, User.STUCK, User.OPEN)
        s.locked[process] = stuck
        s.there = True
        s.opened = ite(stuck, s.opened, s.opened + 1)

    @transition(moves=[arc(User.OPEN, User.WRITING)], cite="ddp-initialisation 2.1; FileStore.cpp:set")
    def lock(self, s: S, process: Expr) -> None:
        """It takes the exclusive lock and begins to append its record."""
        self.acts(s, process, User.OPEN)
        s.when(self.is_free(s))
        self.mend(s)
        s.locked[process] = True
        s.phase[process] = User.WRITING

    @transition(moves=[arc(User.WRITING, User.WROTE)], cite="FileStore.cpp:set")
    def write(self, s: S, process: Expr) -> None:
        """The record is complete, unless it follows part of another record and is read as the rest of that record."""
        self.acts(s, process, User.WRITING)
        s.locked[process] = False
        s.address[process] = ite(s.torn, s.address[process], Address.NEW)
        s.phase[process] = User.WROTE

    @transition(moves=[arc(User.WROTE, User.READ)], cite="FileStore.cpp:get; File::read")
    def read(self, s: S, process: Expr) -> None:
        """It reads the records of all other processes as soon as they are in the file."""
        self.acts(s, process, User.WROTE)
        stuck = self.may_not_read(s)
        s.when(self.may_read(s), or_(stuck, ~s.address.any(Address.NONE)))
        s.phase[process] = ite(stuck, User.STUCK, User.READ)
        s.locked[process] = stuck
        s.stale[process] = and_(not_(stuck), s.address.any(Address.OLD))

    @transition(moves=[arc(User.READ, User.LEFT)], cite="FileStore.cpp:~FileStore")
    def close(self, s: S, process: Expr) -> None:
        """It closes the file; the last process deletes the file."""
        self.acts(s, process, User.READ)
        s.when(self.is_free(s))
        stuck = self.may_not_read(s)
        s.phase[process] = ite(stuck, User.STUCK, User.LEFT)
        s.locked[process] = stuck
        s.opened = ite(stuck, s.opened, s.opened - 1)
        s.closed = ite(stuck, s.closed, s.closed + 1)
        last = and_(not_(stuck), self.is_last(s))
        s.there = not_(last)
        self.empty(s, last)

    def is_last(self, s: S) -> Condition:
        """No process has the file open, and it was closed as many times as the world has processes."""
        return (s.opened == 0) & (s.closed >= self.sizes["process"])

    @environment(fair=True, moves=[may((User.WROTE,), User.FAILED)])
    def time_out(self, s: S, process: Expr) -> None:
        """The process of a missing address has ended: get raises."""
        self.acts(s, process, User.WROTE)
        missing = any_((s.address[q] == Address.NONE) & s.phase[q].isin(OVER) for q in s.process)
        s.when(self.may_read(s), not_(self.may_not_read(s)), missing)
        s.phase[process] = User.FAILED

    # ---- the next job, and faults

    @environment(fair=True, switch="another_job", moves=[may(OVER, User.AWAY, of="others")])
    def next_job(self, s: S) -> None:
        """When no process of a job runs, another job begins with the same URL."""
        s.when(~s.second, s.phase.all(*OVER))
        s.second = True
        reset(s.phase, s.stopped)
        for j in s.process:
            s.address[j] = ite(s.address[j] == Address.NEW, Address.OLD, s.address[j])

    @fault("die", moves=[arc((User.OPEN, User.WRITING, User.WROTE, User.READ), User.DEAD)])
    def die(self, s: S, process: Expr) -> None:
        """A process is killed: the kernel releases its lock, and part of its record may remain."""
        s.when(s.phase[process].isin(BUSY))
        s.torn = s.torn | (s.phase[process] == User.WRITING)
        s.locked[process] = False
        s.phase[process] = User.DEAD

    @fault("full", moves=[arc(User.WRITING, User.FAILED)], cite="FileStore.cpp: File too large")
    def disk_full(self, s: S, process: Expr) -> None:
        """The disk becomes full in the middle of a record: set raises."""
        self.acts(s, process, User.WRITING)
        s.torn = self.after_full(s)
        s.locked[process] = False
        s.phase[process] = User.FAILED

    def after_full(self, s: S) -> Condition:
        """The part that was written remains."""
        return True

    @fault("stop")
    def stop(self, s: S, process: Expr) -> None:
        """A process is stopped while it has the lock (SIGSTOP, a debugger, a suspended VM)."""
        s.when(s.phase[process] == User.WRITING)
        s.stopped[process] = True

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Every process that is not stopped is done."""
        return all_(s.phase[j].isin(OVER) | s.stopped[j] for j in s.process)

    @sometimes()
    def all_meet(self, s: S) -> Condition:
        """Every process has read all addresses."""
        return s.phase.all(User.READ)

    @sometimes(needs="another_job")
    def all_meet_again(self, s: S) -> Condition:
        """Every process of the second job has read all addresses."""
        return s.second & s.phase.all(User.READ)

    @sometimes(needs="die")
    def a_record_is_torn(self, s: S) -> Condition:
        """A process has the file open although it ends with part of a record."""
        return s.torn & s.phase.any(User.OPEN)

    @sometimes(needs="stop")
    def the_lock_is_kept(self, s: S) -> Condition:
        """A stopped process has the lock while another has opened the file."""
        return any_(s.stopped[j] & s.locked[j] for j in s.process) & s.phase.any(User.OPEN)

    @always(witness="all_meet")
    def one_writes_at_a_time(self, s: S) -> Condition:
        """At most one process writes a record at a time."""
        return count(x == User.WRITING for x in s.phase) <= 1

    @always(witness="all_meet")
    def addresses_are_of_this_job(self, s: S) -> Condition:
        """No process reads an address of the previous job."""
        return all_(~x for x in s.stale)

    @always(witness="all_meet")
    def the_last_one_deletes(self, s: S) -> Condition:
        """When all processes of a job have closed the file, it is deleted."""
        return ~s.phase.all(User.LEFT) | ~s.there

    @always(witness="all_meet")
    def half_a_record_stops_nobody(self, s: S) -> Condition:
        """No process reads half a record for ever."""
        return ~s.phase.any(User.STUCK)

    @leads_to()
    def operations_end(self, s: S, process: Expr) -> Condition:
        """Every process that is not stopped ends."""
        return s.phase[process].isin((User.AWAY, *BUSY)) & ~s.stopped[process], (
            s.phase[process].isin(OVER) | s.stopped[process]
        )


# ---- the editions


class Torch(Files, edition=Filing.TORCH):
    """torch 2.13: half a record is read for ever (P6), the wait for the lock has no limit (P7), files remain (P5)."""

    open = Files.open.also(arc(User.AWAY, User.STUCK))
    read = Files.read.also(arc(User.WROTE, User.STUCK))
    close = Files.close.also(arc(User.READ, User.STUCK))
    die = Files.die.also(arc(User.STUCK, User.DEAD))


class Mended(Files, edition=Filing.MENDED):
    """Readers read complete records, writers truncate the rest, locks have a limit, users are recorded."""

    def may_read(self, s: S) -> Condition:
        """A reader takes no lock."""
        return True

    def may_not_read(self, s: S) -> Condition:
        """A reader reads complete records only."""
        return False

    def left_over(self, s: S) -> Condition:
        """None of the recorded users lives: they are taken for an earlier job's users, even if this job's died."""
        return s.there & (s.opened > 0) & s.phase.all(User.AWAY, *OVER)

    def mend(self, s: S) -> None:
        """A writer truncates the file after the last complete record."""
        s.torn = False

    def mend_first(self, s: S) -> None:
        """A process that opens the file truncates it too, because it appends a record to be counted."""
        self.mend(s)

    def after_full(self, s: S) -> Condition:
        """The writer truncates the part that was written."""
        return False

    def is_last(self, s: S) -> Condition:
        """Every process has closed the file or has ended, and no live process uses it."""
        return s.phase.all(*OVER)

    @environment(fair=True, moves=[may((User.AWAY, User.OPEN, User.READ), User.FAILED)])
    def lock_times_out(self, s: S, process: Expr) -> None:
        """A stopped process keeps the lock: the operation raises."""
        self.acts(s, process, User.AWAY, User.OPEN, User.READ)
        s.when(any_(s.stopped[j] & s.locked[j] for j in s.process))
        s.phase[process] = User.FAILED

    @environment(fair=True, moves=[may(User.WROTE, User.FAILED)])
    def no_address_comes(self, s: S, process: Expr) -> None:
        """The process whose address is missing is stopped: get raises."""
        self.acts(s, process, User.WROTE)
        s.when(any_((s.address[q] == Address.NONE) & s.stopped[q] for q in s.process))
        s.phase[process] = User.FAILED

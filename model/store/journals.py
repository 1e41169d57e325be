"""A server that keeps its store in a journal, may end at any step, and is started again.

Changes are numbered in the order in which they are made; the contents are modelled as the number of changes that they
have. The journal has `written` changes, and `synced` of them are durable. A crash leaves any number between the two,
perhaps followed by a part of the next record (torn). `told` is the highest change that any reply, to a writer or to a
reader, has shown.

A snapshot drops the history: a thread writes a second file with the changes up to one moment (`frozen`), while further
changes go into the journal. Then these are added to the new file, which is synced and takes the journal's name. A crash
before the directory is synced leaves either file. No edition of torch keeps a store.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Edition, Keeping, Snapshot

S = SymbolicState
UP = (Keeping.READY, Keeping.SYNCING, Keeping.ADDING, Keeping.PLACED)


class Journals(System):
    """One journal, its server, and the crashes between them."""

    title = "The journal of a server"
    Edition = (Edition.TRYSTATE,)

    change = index(3, "the changes that are made")
    server = choice(Keeping)
    snapshot = choice(Snapshot)
    made = integer(0, "change", doc="changes in the contents")
    written = integer(0, "change", doc="changes with a record in the journal")
    synced = integer(0, "change", doc="changes that a crash cannot remove from the journal")
    batch = integer(0, "change", doc="changes that are durable when the current batch is durable")
    frozen = integer(0, "change", doc="changes in the snapshot")
    told = integer(0, "change", doc="the most changes that a reply has shown")
    whole = integer(0, "change", doc="complete records after the last crash")
    begun = integer(0, "change", doc="changes that the last start restored")
    torn = flag(doc="the journal ends with a part of a record")
    dropped = flag(doc="a snapshot has replaced the journal")

    def lifelines(self) -> Lifelines:
        """The server has all fields."""
        return Lifelines("server")

    keeping = machine_of(server, "The server and its batches.")
    compaction = machine_of(snapshot, "The snapshot file next to the journal.")

    # ---- helpers

    def may_be_told(self, s: S) -> Any:
        """The number of changes that a reply may show."""
        return s.synced

    def found(self, s: S) -> Any:
        """The number of changes that a start finds."""
        return s.whole

    def added(self, s: S) -> Any:
        """The number of changes in the new file when it takes the journal's name."""
        return s.batch

    def crashes(self, s: S, left: Any, torn: Any) -> None:
        """The server ends and leaves `left` complete records in the journal."""
        s.whole = left
        s.torn = torn
        s.server = Keeping.DOWN
        s.snapshot = Snapshot.NONE

    # ---- requests

    @transition()
    def make(self, s: S) -> None:
        """A request changes the contents in memory."""
        s.when(s.server.isin(UP), s.made < self.sizes["change"])
        s.made = s.made + 1

    @transition()
    def tell(self, s: S) -> None:
        """The server sends replies to writers and to readers."""
        s.when(s.server.isin(UP), s.told < self.may_be_told(s))
        s.told = self.may_be_told(s)

    # ---- batches

    @transition(moves=[arc(Keeping.READY, Keeping.SYNCING)])
    def begin_batch(self, s: S) -> None:
        """All changes are written to the journal, and a thread syncs it."""
        s.when(s.server == Keeping.READY, s.made > s.written, s.snapshot != Snapshot.WHOLE)
        s.batch = s.made
        s.written = s.made
        s.server = Keeping.SYNCING

    @transition(moves=[arc(Keeping.SYNCING, Keeping.READY)])
    def end_batch(self, s: S) -> None:
        """The sync is done."""
        s.when(s.server == Keeping.SYNCING)
        s.synced = s.batch
        s.server = Keeping.READY

    # ---- compaction

    @transition(moves=[arc(Snapshot.NONE, Snapshot.WRITING)])
    def freeze(self, s: S) -> None:
        """A thread begins to write a snapshot of the present contents, including changes that are not durable yet."""
        s.when(s.server.isin((Keeping.READY, Keeping.SYNCING)), s.snapshot == Snapshot.NONE, s.made > s.frozen)
        s.frozen = s.made
        s.snapshot = Snapshot.WRITING

    @transition(moves=[arc(Snapshot.WRITING, Snapshot.WHOLE)])
    def finish_snapshot(self, s: S) -> None:
        """The snapshot is written and synced."""
        s.when(s.snapshot == Snapshot.WRITING)
        s.snapshot = Snapshot.WHOLE

    @transition(moves=[arc(Keeping.READY, Keeping.ADDING)])
    def add_the_rest(self, s: S) -> None:
        """The changes since the snapshot are written into the new file, not into the journal."""
        s.when(s.server == Keeping.READY, s.snapshot == Snapshot.WHOLE)
        s.batch = s.made
        s.server = Keeping.ADDING

    @transition(moves=[arc(Keeping.ADDING, Keeping.PLACED)])
    def place(self, s: S) -> None:
        """The new file is synced and takes the journal's name."""
        s.when(s.server == Keeping.ADDING)
        s.server = Keeping.PLACED

    @transition(moves=[arc(Keeping.PLACED, Keeping.READY), arc(Snapshot.WHOLE, Snapshot.NONE)])
    def sync_directory(self, s: S) -> None:
        """The directory is synced, and the name is durable."""
        s.when(s.server == Keeping.PLACED)
        s.written = self.added(s)
        s.synced = self.added(s)
        s.snapshot = Snapshot.NONE
        s.dropped = True
        s.server = Keeping.READY

    # ---- the end, and the start

    @fault("crash", moves=[arc(UP, Keeping.DOWN), may((Snapshot.WRITING, Snapshot.WHOLE), Snapshot.NONE)])
    def lose_what_was_not_synced(self, s: S) -> None:
        """The machine crashes: its disk loses all that was not synced, except perhaps a part of a record."""
        s.when(s.server.isin(UP))
        self.crashes(s, s.synced, s.written > s.synced)

    @fault("crash", moves=[arc(Keeping.SYNCING, Keeping.DOWN), may((Snapshot.WRITING, Snapshot.WHOLE), Snapshot.NONE)])
    def keep_some(self, s: S, change: Expr) -> None:
        """The server ends: the records up to one that was not synced are complete."""
        left = ord_(change) + 1
        s.when(s.server == Keeping.SYNCING, s.synced < left, left <= s.written)
        self.crashes(s, left, s.written > left)

    @fault("crash", moves=[arc(Keeping.PLACED, Keeping.DOWN), arc(Snapshot.WHOLE, Snapshot.NONE)])
    def find_the_new_file(self, s: S) -> None:
        """The server ends before the directory is synced, and the new file is in place."""
        s.when(s.server == Keeping.PLACED)
        self.crashes(s, self.added(s), False)

    @transition(moves=[arc(Keeping.DOWN, Keeping.READY)])
    def start(self, s: S) -> None:
        """The server is started again: it truncates a torn record and restores the changes of the other records."""
        s.when(s.server == Keeping.DOWN)
        found = self.found(s)
        s.begun = found
        s.made = found
        s.written = found
        s.synced = found
        s.batch = found
        s.frozen = 0
        s.torn = False
        s.server = Keeping.READY

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Any:
        """All changes are made, and replies have shown them."""
        return (s.server == Keeping.READY) & (s.told == self.sizes["change"]) & (s.made == s.told)

    @sometimes(needs="crash")
    def a_change_is_lost(self, s: S) -> Any:
        """A crash loses a change."""
        return (s.server == Keeping.DOWN) & (s.whole < s.made)

    @sometimes(needs="crash")
    def a_start_follows_a_compaction(self, s: S) -> Any:
        """The file that a start reads began as a snapshot."""
        return s.dropped & (s.begun > 0)

    @sometimes(needs="crash")
    def a_record_is_torn(self, s: S) -> Any:
        """A crash leaves a part of a record."""
        return s.torn

    @always(witness="a_change_is_lost", needs="crash")
    def nothing_told_is_lost(self, s: S) -> Any:
        """A change that a reply has shown is never lost in a crash."""
        return implies(s.server.isin(UP), s.made >= s.told)

    @always(witness="a_record_is_torn", needs="crash")
    def a_torn_record_is_no_change(self, s: S) -> Any:
        """A start finds the complete records and no other change."""
        return implies(s.server.isin(UP), s.begun == s.whole)

    @leads_to()
    def changes_are_told(self, s: S) -> Any:
        """Replies eventually show every change, unless the server ends."""
        return s.server.isin(UP) & (s.made > s.told), (s.made == s.told) | (s.server == Keeping.DOWN)


class Ours(Journals, edition=Edition.TRYSTATE):
    """Ours: a reply shows only synced changes."""

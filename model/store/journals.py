"""A server that keeps its store in a journal, ends at any step, and is started again.

Changes are numbered in the order in which they are made; all that matters of the contents is how many of them they
have. A file in place has `written` of them, of which `synced` are durable. A crash leaves any number between the two,
and behind them perhaps a part of the next record: it is torn. `told` is the most that any reply has told of, to a
writer or to a reader.

The history is dropped by a snapshot: a thread writes a file beside the journal, with the changes up to one moment
(`frozen`), while further ones go into the journal. Then those are added to it, it is synced, and takes the journal's
name. A crash before the directory is synced leaves either file there. No edition of torch keeps a store.
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
    made = integer(0, "change", doc="changes that the contents have")
    written = integer(0, "change", doc="changes whose records are in the journal")
    synced = integer(0, "change", doc="changes that a crash cannot take from the journal")
    batch = integer(0, "change", doc="changes that are durable when the batch under way is")
    frozen = integer(0, "change", doc="changes that the snapshot has")
    told = integer(0, "change", doc="the most changes that a reply has told of")
    whole = integer(0, "change", doc="whole records that the last crash has left")
    begun = integer(0, "change", doc="changes that the last start has found")
    torn = flag(doc="the journal ends with a part of a record")
    dropped = flag(doc="a snapshot has taken the journal's place")

    def lifelines(self) -> Lifelines:
        """All is the server's."""
        return Lifelines("server")

    @machine(Keeping)
    def keeping(self, s: S) -> Any:
        """The server and its batches."""
        return s.server

    @machine(Snapshot)
    def compaction(self, s: S) -> Any:
        """The file beside the journal."""
        return s.snapshot

    # ---- helpers

    def may_be_told(self, s: S) -> Any:
        """So many changes may a reply tell of."""
        return s.synced

    def found(self, s: S) -> Any:
        """So many changes does a start find."""
        return s.whole

    def added(self, s: S) -> Any:
        """So many changes does the new file have when it takes the journal's name."""
        return s.batch

    def crashes(self, s: S, left: Any, torn: Any) -> None:
        """The server ends, and the journal has so many whole records."""
        s.whole = left
        s.torn = torn
        s.server = Keeping.DOWN
        s.snapshot = Snapshot.NONE

    # ---- requests

    @transition()
    def make(self, s: S) -> None:
        """A request changes the contents, in memory."""
        s.when(s.server.isin(UP), s.made < self.sizes["change"])
        s.made = s.made + 1

    @transition()
    def tell(self, s: S) -> None:
        """Replies leave, to writers and to readers."""
        s.when(s.server.isin(UP), s.told < self.may_be_told(s))
        s.told = self.may_be_told(s)

    # ---- batches

    @transition(moves=[arc(Keeping.READY, Keeping.SYNCING)])
    def begin_batch(self, s: S) -> None:
        """All that was changed is written, and a thread syncs it."""
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
        """A thread begins to write a snapshot of this moment; what is not durable yet is in it too."""
        s.when(s.server.isin((Keeping.READY, Keeping.SYNCING)), s.snapshot == Snapshot.NONE, s.made > s.frozen)
        s.frozen = s.made
        s.snapshot = Snapshot.WRITING

    @transition(moves=[arc(Snapshot.WRITING, Snapshot.WHOLE)])
    def finish_snapshot(self, s: S) -> None:
        """The snapshot is written, and synced."""
        s.when(s.snapshot == Snapshot.WRITING)
        s.snapshot = Snapshot.WHOLE

    @transition(moves=[arc(Keeping.READY, Keeping.ADDING)])
    def add_the_rest(self, s: S) -> None:
        """The changes since the snapshot are written into the new file, and not into the journal."""
        s.when(s.server == Keeping.READY, s.snapshot == Snapshot.WHOLE)
        s.batch = s.made
        s.server = Keeping.ADDING

    @transition(moves=[arc(Keeping.ADDING, Keeping.PLACED)])
    def place(self, s: S) -> None:
        """The new file is synced, and takes the journal's name."""
        s.when(s.server == Keeping.ADDING)
        s.server = Keeping.PLACED

    @transition(moves=[arc(Keeping.PLACED, Keeping.READY), arc(Snapshot.WHOLE, Snapshot.NONE)])
    def sync_directory(self, s: S) -> None:
        """The name is durable."""
        s.when(s.server == Keeping.PLACED)
        s.written = self.added(s)
        s.synced = self.added(s)
        s.snapshot = Snapshot.NONE
        s.dropped = True
        s.server = Keeping.READY

    # ---- the end, and the start

    @fault("crash", moves=[arc(UP, Keeping.DOWN), may((Snapshot.WRITING, Snapshot.WHOLE), Snapshot.NONE)])
    def lose_what_was_not_synced(self, s: S) -> None:
        """The machine ends: its disk forgets all that was not synced, but a part of a record."""
        s.when(s.server.isin(UP))
        self.crashes(s, s.synced, s.written > s.synced)

    @fault(
        "crash",
        each="change",
        moves=[arc(Keeping.SYNCING, Keeping.DOWN), may((Snapshot.WRITING, Snapshot.WHOLE), Snapshot.NONE)],
    )
    def keep_some(self, s: S, change: Expr) -> None:
        """The server ends: the records up to one that was not synced are whole."""
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
        """The server is started again: it cuts off a torn record, and holds what the others say."""
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
        """All changes are made and told of, and the journal has no history."""
        return (s.server == Keeping.READY) & (s.told == self.sizes["change"]) & (s.made == s.told)

    @sometimes(needs="crash")
    def a_change_is_lost(self, s: S) -> Any:
        """A crash takes a change of which nobody was told."""
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
        """A change that a reply has told of is there after every crash."""
        return implies(s.server.isin(UP), s.made >= s.told)

    @always(witness="a_record_is_torn", needs="crash")
    def a_torn_record_is_no_change(self, s: S) -> Any:
        """A start finds whole records, and no other change."""
        return implies(s.server.isin(UP), s.begun == s.whole)

    @leads_to()
    def changes_are_told(self, s: S) -> Any:
        """A change is told of in the end, unless the server ends."""
        return s.server.isin(UP) & (s.made > s.told), (s.made == s.told) | (s.server == Keeping.DOWN)


class Ours(Journals, edition=Edition.TRYSTATE):
    """Ours: nothing is told of that is not synced."""

"""The driver of a server that keeps its store: no reply leaves that depends on a change that a crash could undo.

Theory of operation. The service handles requests as usual, and its contents record each change (`contents`). When a
reply is ready while `contents.dirty`, its connection joins `waiting`. A *batch* starts with the next turn of the loop.
It takes all records that exist then. A thread writes and syncs it. Meanwhile the loop continues with the requests of
all clients; their records go into the next batch. So one sync serves all requests that came meanwhile. After the sync
the bytes that each connection had ready at the start of the batch may leave (`covered`, then `free`). If nothing
changed meanwhile, all bytes may leave.

The replies of a connection leave in the order of its queue, because bytes are taken from its front. Reads also wait
while another client's change is not durable, even if the read did not see that change.

With `sync_seconds` the loop writes a batch, and its replies leave at once. The batch then survives the end of the
server, but not a crash of the machine. A thread syncs the file every `sync_seconds`.

Failures:

- The disk is full: changes are refused before they are made (`more`), and reads continue.
- Writing or syncing fails: it is unknown which part of the last batch is durable. All connections are closed, as in a
  restart. The contents return to the part that is known to be durable, and from then on only reads are served.
- That part cannot be read either: the server ends.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..contents.contents import Refused
from ..errors import FileRefused
from ..server.driver import Connection, Driver
from ..server.service import Service
from ..server.unread import BULK_BYTES, PIECE_BYTES
from .directory import Directory
from .journal import SINCE_BYTES_MAX, File

END_POLL_SECONDS = 0.001
COMPACT_PAUSE_SECONDS = 10.0  # each attempt writes until the disk is full, for other programs too


class KeptConnection(Connection):
    """A peer whose replies wait until the changes before them are durable."""

    __slots__ = ("covered", "free")
    driver: KeepingDriver

    def __init__(self, driver: Driver, session: Any, sock: socket.socket) -> None:
        super().__init__(driver, session, sock)
        self.covered = 0  # bytes of its queue that may leave when the current batch is durable
        self.free = 0  # bytes that may leave now

    def data_received(self, data: bytes) -> None:
        driver, service, session = self.driver, self.service, self.session
        service.take(session, data)
        outgoing = session.outgoing
        if driver.contents.dirty:
            if outgoing:
                driver.waiting[self] = None
            driver.sync_soon()
        elif len(outgoing) == 1 and not (session.counted or session.pending or self.held):
            self.transmit(outgoing.pop())
        elif outgoing:
            self.send()
        if driver.pending:
            driver.flush()
        if driver.alarm.at is not driver.timer_at:
            driver.set_timer()

    def send(self) -> int:
        driver, session, size = self.driver, self.session, 0
        if not driver.contents.dirty:
            self.covered = self.free = 0  # else a later reply would leave before the change that it depends on
            return super().send()
        if self.held or session.abort:
            return super().send()
        if self.free:
            piece = session.take_outgoing(min(self.free, PIECE_BYTES))
            size = len(piece)
            self.free -= size
            self.covered -= size
            self.transmit(piece)
        if session.outgoing or session.queued:
            if not self.free:
                driver.waiting[self] = None
                driver.sync_soon()
            elif not self.held:
                self.service.pend(session)
        elif session.closing:
            self.leave()
        return size


class KeepingDriver(Driver):
    """A driver of a store in a directory."""

    CONNECTION = KeptConnection

    def __init__(self, *arguments: Any, directory: Directory, sync_seconds: float | None = None) -> None:
        """`arguments`: of `Driver`. `sync_seconds`: the time between two syncs; None syncs before each reply."""
        self.journal, self.contents = directory.journal, directory.contents
        super().__init__(*arguments)
        self.sync_seconds = sync_seconds
        self.contents.more = self.more
        self.failed = self.ended = False  # True: nothing is written any more
        self.waiting: dict[KeptConnection, None] = {}  # connections with replies that may not leave
        self.covered: dict[KeptConnection, None] = {}  # connections whose replies wait for the current batch
        self.batch: asyncio.Future[bool] | None = None
        self.batch_turn: asyncio.Handle | None = None
        self.sync_timer: asyncio.TimerHandle | None = None
        self.compacting = False
        self.compact_again = 0.0  # the time before which a full disk is not a reason to try
        self.compacting_from = 0  # the end of the journal at the start of the compaction
        self.snapshot: File | None = None  # complete; it replaces the journal with the next batch
        self.syncs = ThreadPoolExecutor(1, "trystate journal")
        self.snapshots = ThreadPoolExecutor(1, "trystate snapshot")

    def make_service(self, **arguments: Any) -> Service:
        return super().make_service(contents=self.contents, identity=self.journal.identity, **arguments)

    # Room on the disk.

    def more(self, size: int) -> None:
        """Reserve `size` bytes for further records. Raises `Refused`."""
        contents, journal = self.contents, self.journal
        contents.may_change()
        # A snapshot that is being written, or waits for its batch, has taken its room already.
        beside = 0 if self.compacting or self.snapshot is not None else journal.snapshot_bytes(contents)
        try:
            contents.free += journal.reserve(size - contents.free, beside)
        except Refused:
            # A snapshot without the history makes room. If it had no room itself, deletes may have made some since.
            if journal.has_history(contents) and self.loop.time() >= self.compact_again:
                self.loop.call_soon(self.compact)
            raise

    # Batches.

    def sync_soon(self) -> None:
        """Start a batch with the next turn of the loop, unless one is running."""
        if self.batch_turn is None and self.batch is None:
            self.batch_turn = self.loop.call_soon(self.begin_batch)

    def begin_batch(self) -> None:
        self.batch_turn = None
        contents, since = self.contents, None
        if self.failed or self.ended or not (contents.pending or self.snapshot):
            return
        if self.snapshot is not None:
            since = self._prepared(self.snapshot)
        records, appended = b"".join(contents.pending), contents.appended
        contents.pending.clear()
        for connection in self.waiting:
            session = connection.session
            connection.covered = session.size()
            if connection.covered >= BULK_BYTES:
                self.service.unsent(session, session.unsent)  # the waiting bytes count as unread, in memory
        self.covered, self.waiting = self.waiting, {}
        if self.sync_seconds is None or since is not None:
            self.batch = self.loop.run_in_executor(self.syncs, self.journal.commit, records, since)
            self.batch.add_done_callback(lambda batch: self.end_batch(batch, appended))
            return
        try:
            self.journal.write(records)
        except OSError as error:
            return self.fail(error)
        self.durable(appended)
        if self.sync_timer is None:
            self.sync_timer = self.loop.call_later(self.sync_seconds, self.sync)

    def end_batch(self, batch: asyncio.Future[bool], appended: int) -> None:
        self.batch = None
        error = batch.exception()
        if error is not None:
            return self.fail(error)
        if not batch.result():
            self.log(f"journal {self.journal.path}: not compacted: its disk is full or failed; make room there")
        self.durable(appended)

    def durable(self, appended: int) -> None:
        """Record that `appended` records count as durable, and send the replies that waited for them."""
        contents = self.contents
        contents.durable = appended
        contents.free = self.journal.free(contents)
        told = self.covered
        if not contents.dirty:
            told, self.waiting = {**told, **self.waiting}, {}
        self.covered = {}
        for connection in told:
            connection.free = connection.covered if contents.dirty else 0
            self.service.pend(connection.session)
        self.settle()
        if contents.pending:
            self.sync_soon()
        elif self.journal.is_long(contents):
            self.compact()

    def sync(self) -> None:
        """Sync the batches whose replies have left already."""
        self.sync_timer = None
        if not self.failed:
            done = self.loop.run_in_executor(self.syncs, self.journal.sync)
            done.add_done_callback(lambda done: self.fail(error) if (error := done.exception()) else None)

    # Compaction.

    def compact(self) -> None:
        """Start to write a snapshot in a thread."""
        if self.compacting or self.snapshot is not None or self.failed:
            return
        self.compacting, self.compacting_from = True, self.journal.file.end
        writing = self.loop.run_in_executor(self.snapshots, self.journal.snapshot, self.contents.freeze())
        writing.add_done_callback(self.compacted)

    def compacted(self, writing: asyncio.Future[File]) -> None:
        self.compacting = False
        error, journal = writing.exception(), self.journal
        late = journal.file.end - self.compacting_from > SINCE_BYTES_MAX
        if error is None and not late and not (self.failed or self.ended):
            self.snapshot = writing.result()
            return self.sync_soon()
        self.contents.since = None
        if self.ended:
            return None  # the next start of a server removes the file
        if error is None:
            journal.give_up(writing.result())
        journal.compact_at = 2 * journal.file.end
        self.compact_again = self.loop.time() + COMPACT_PAUSE_SECONDS
        why = f"more than {SINCE_BYTES_MAX} bytes were written meanwhile" if error is None else str(error)
        self.log(f"journal {journal.path}: not compacted at {journal.file.end} bytes: {why}; trying again later")
        return None

    def _prepared(self, snapshot: File) -> bytes | None:
        """The records that the snapshot lacks; None if it cannot replace the journal."""
        self.snapshot, records = None, self.contents.since or []
        since, self.contents.since = b"".join(records), None
        try:
            self.journal.prepare(snapshot, len(since), self.contents)
        except OSError as error:
            self.journal.give_up(snapshot)
            self.log(f"journal {self.journal.path}: not compacted: {error.strerror}; make room on its disk")
            return None
        return since

    # Failure and end.

    def fail(self, error: BaseException) -> None:
        """Return to the durable contents, as after a restart, and refuse changes: writing has failed."""
        if self.failed:
            return
        self.failed, contents = True, self.contents
        why = f"the journal {self.journal.path} cannot be written ({error})"
        self.log(f"{why}; connections are closed, and only reads are served: repair the disk and restart the server")
        for session in list(self.service.sessions):
            self.service.close(session, f"{why}; its last requests may not have happened", abort=True)
        self.waiting, self.covered = {}, {}
        contents.broken = f"{why}; nothing was changed: repair the disk and restart the server"
        try:
            self.journal.reload(contents)
            self.service.rooms.begin_again()
        except (OSError, FileRefused, Refused) as reason:
            self.log(f"{reason}; the server exits")
            self.give_up()
        contents.free = -1
        self.settle()

    async def close(self) -> None:
        self.journal.ending = True
        await super().close()
        if self.sync_timer is not None:
            self.sync_timer.cancel()
        while self.batch is not None or self.batch_turn is not None:
            await asyncio.sleep(END_POLL_SECONDS)
        self.ended = True
        if not self.failed:
            try:
                records = b"".join(self.contents.pending)
                await self.loop.run_in_executor(self.syncs, self.journal.close, records)
            except OSError as error:
                self.failed = True
                self.log(f"the journal {self.journal.path} cannot be closed: {error}")
        self.syncs.shutdown()
        self.snapshots.shutdown()

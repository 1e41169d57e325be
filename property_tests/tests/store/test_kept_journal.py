"""A journal loses no acknowledged record: the server may end at any byte or call, and its disk may lose writes.

The system of journals: its size, that a mistake violates each property, and that a real journal takes its steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from trystate.impl.store.contents.contents import Refused
from trystate.impl.store.durable import journal as journals
from trystate.impl.store.durable import records
from trystate.impl.store.durable.contents import MARK_BYTES, KeptContents
from trystate.impl.store.durable.journal import MAGIC, Journal, recovered
from trystate.impl.store.errors import FileRefused
from trystate.impl.store.limits import Limits
from trystate.model.language import ite
from trystate.model.store.journals import Journals, Ours
from trystate.model.store.vocabulary import Edition
from trystate.property_tests.adapters.our_store.disks import Crash, ForgetfulDisk, JournalsSubject
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.harness.stateful import state_machine
from trystate.property_tests.support.mutants import replaced, survivors, wrapped
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.pinned import Asked, model_tests
from trystate.property_tests.support.systems.changed import changed

State = tuple[dict[bytes, bytes], dict[bytes, list[bytes]]]
Step = tuple[Any, ...]
KEY, OTHER, QUEUE = b"/key", b"/other", b"/queue"


@pytest.fixture(autouse=True)
def little_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "PIECE_BYTES", 256)
    monkeypatch.setattr(journals, "READ_BYTES", 64)


def kept(contents: KeptContents) -> State:
    """The contents that a restart must find."""
    queues = dict.fromkeys((*contents.queues, *contents.out))
    return dict(contents.values), {key: contents._elements(key) for key in queues}


class Server:
    """A driver of a journal that does one step at a time."""

    def __init__(self, disk: ForgetfulDisk, limits: Limits | None = None) -> None:
        self.disk, self.lines = disk, list[str]()
        self.contents = KeptContents(limits or Limits())
        self.journal: Journal = recovered(disk, "/data", self.contents, self.lines.append)
        self.contents.more = self.more
        self.states = [kept(self.contents)]  # index: the number of records
        self.told = 0  # records acknowledged to a client
        self.out: list[tuple[bytes, int, bytes]] = []
        self.snapshot: Any = None

    def more(self, size: int) -> None:
        self.contents.may_change()
        self.contents.free += self.journal.reserve(size - self.contents.free)

    def do(self, step: Step) -> None:
        name, *arguments = step
        contents = self.contents
        match name:
            case "commit":
                return self.commit()
            case "snapshot":
                if self.snapshot is None:
                    self.snapshot = self.journal.snapshot(contents.freeze())
                return None
            case "reserve":
                if contents.length(QUEUE):
                    self.out.append((QUEUE, *contents.reserve(QUEUE)))
            case "put_back" | "fetched":
                if self.out:
                    key, serial, element = self.out.pop(arguments[0] % len(self.out))
                    if name == "fetched":
                        contents.fetched(key, serial, element)
                    else:
                        contents.put_back(key, serial, element)
            case _:
                getattr(contents, name)(*arguments)
        while len(self.states) <= contents.appended:
            self.states.append(kept(contents))
        return None

    def commit(self) -> None:
        contents, since = self.contents, None
        if self.snapshot is not None:
            since = b"".join(contents.since or [])
            contents.since = None
            self.journal.prepare(self.snapshot, len(since), contents)
            self.snapshot = None
        data, appended = b"".join(contents.pending), contents.appended
        contents.pending.clear()
        self.journal.commit(data, since)
        contents.durable = self.told = appended
        contents.free = self.journal.free(contents)
        assert self.journal.file.end <= self.journal.file.reserved, "no more was written than is reserved"

    def found_by(self, disk: ForgetfulDisk) -> Server:
        """Start the next server on the disk, and check that it has all records that this one acknowledged."""
        after = Server(disk)
        assert after.states[0] in self.states[self.told :], (after.states[0], self.states[self.told :])
        assert after.journal.identity == self.journal.identity
        return after


SCRIPT: Sequence[Step] = [
    ("set", KEY, b"value"), ("push", QUEUE, b"a"), ("commit",),
    ("add", OTHER, 41), ("add", OTHER, 1), ("push", QUEUE, b"b"), ("reserve",), ("append", KEY, b" and more"),
    ("commit",), ("pop", QUEUE), ("commit",), ("set", KEY, b"x" * 40), ("snapshot",),
    ("compare_set", KEY, b"x" * 40, b"y" * 40),
    ("push", QUEUE, b"c"), ("commit",), ("multi_set", [KEY, b"1", b"/third", b"2"]), ("fetched", 0), ("commit",),
    ("take", b"/third"), ("push", QUEUE, b"d"), ("commit",), ("commit",), ("set", KEY, b"untold"),
]  # fmt: skip


def crashed(script: Sequence[Step], disk: ForgetfulDisk, calls: int = -1, bytes_: int = -1) -> Server:
    """A server after a script, or after a crash in it (after `calls` calls of the disk or `bytes_` written bytes)."""
    server = Server(disk)
    disk.calls_left, disk.bytes_left = calls, bytes_
    try:
        for step in script:
            server.do(step)
    except Crash:
        pass
    return server


def chosen(name: str, seed: int) -> Callable[[], bool]:
    chance = random.Random(seed)
    return {"none": lambda: False, "all": lambda: True, "some": lambda: chance.random() < 0.6}[name]


def test_a_server_that_ends_at_any_disk_call_loses_nothing_acknowledged() -> None:
    """The server ends before each call of its disk, and the next server before each call of its start."""
    whole = ForgetfulDisk()
    crashed(SCRIPT, whole)
    for survival in ("none", "all", "some"):
        for calls in range(whole.calls):
            disk = ForgetfulDisk()
            server = crashed(SCRIPT, disk, calls)
            found = disk.after_crash(chosen(survival, calls))
            for second in range(12):
                once = found.after_crash(lambda: True)
                once.calls_left = second
                try:
                    server.found_by(once)
                except Crash:
                    server.found_by(once.after_crash(chosen(survival, second)))
            server.found_by(found)


def test_a_server_that_is_killed_at_any_byte_loses_nothing_acknowledged() -> None:
    whole = ForgetfulDisk()
    crashed(SCRIPT, whole)
    cut = 0
    for count in range(whole.bytes_written):
        disk = ForgetfulDisk()
        server = crashed(SCRIPT, disk, bytes_=count)
        cut += bool(server.found_by(disk.after_crash(lambda: True)).lines)
    assert cut > whole.bytes_written / 2, "a record that was cut off is said to be"


@given(st.data())
def test_bytes_of_a_journal_that_follow_it_a_second_time_are_no_changes(data: st.DataObject) -> None:
    """As after a misdirected write, or in two parts of a backup: whole records and parts of records."""
    disk = ForgetfulDisk()
    server = crashed(SCRIPT[: data.draw(st.integers(3, len(SCRIPT)), "steps")], disk)
    seen, end = disk.entries["journal"].seen, server.journal.file.end
    number = server.journal.file.number
    places, at = [], len(MAGIC)
    for record in records.scan(bytes(seen[at:end]), lambda at: number(len(MAGIC) + at) if at else 0).records:
        places.append(at)
        at += record.size
    begin = data.draw(st.one_of(st.sampled_from(places), st.integers(0, end - 1)), "begin")
    twice = bytes(seen[begin : data.draw(st.one_of(st.just(end), st.integers(begin + 1, end)), "end")])
    once = Server(disk.after_crash(lambda: True))
    found = disk.after_crash(lambda: True)
    found.entries["journal"].seen[end : end + len(twice)] = twice
    after = Server(found)
    assert after.states == once.states
    assert bool(after.lines) == bool(twice.strip(b"\0"))
    assert all("that do not read were cut off" in line for line in after.lines)


def what_was_cut_off_stays_away() -> None:
    """A batch is torn. The next batch overwrites it, and ends where an intact record of it begins."""
    disk = ForgetfulDisk()
    server = Server(disk)
    begin = server.journal.file.end
    for key, value in ((KEY, b"v" * (MARK_BYTES + 5)), (OTHER, b"never told of")):
        server.do(("set", key, value))
    server.journal.write(b"".join(server.contents.pending))
    disk.entries["journal"].seen[begin] ^= 1
    after = Server(disk)
    assert after.states == [({}, {})] and after.lines
    after.do(("set", KEY, b"v" * 5))
    after.do(("commit",))
    assert after.found_by(disk).states[0] == ({KEY: b"v" * 5}, {})


def test_a_change_that_was_cut_off_does_not_come_back() -> None:
    not_cut = replaced(ForgetfulDisk, "cut", lambda self, fd, size: None)
    assert survivors({"not cut": not_cut}, what_was_cut_off_stays_away) == []


def test_a_changed_durable_byte_is_damage_and_the_file_is_not_touched() -> None:
    disk = ForgetfulDisk()
    server = crashed(SCRIPT, disk)
    server.journal.close()
    data = bytes(disk.entries["journal"].seen)
    told = server.journal.file.end - MARK_BYTES  # the last mark itself may be torn
    for at in range(len(data)):
        found = disk.after_crash(lambda: True)
        inode = found.entries["journal"]
        inode.seen[at] ^= 0x40
        if at >= told:
            server.found_by(found)
            continue
        before = bytes(inode.seen)
        with pytest.raises(FileRefused, match=r"/data/journal( is damaged at byte \d+ of \d+|.* version|.* not the)"):
            Server(found)
        assert found.entries["journal"].seen == before


def test_a_full_disk_refuses_changes_and_still_serves_pops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "PIECE_BYTES", 4096)
    disk = ForgetfulDisk()
    server = Server(disk)
    for number in range(3):
        server.do(("push", QUEUE, b"element %d" % number))
    server.do(("reserve",))
    disk.room = 0
    with pytest.raises(Refused, match=r"/data/journal cannot grow .No space left on device.; nothing was changed"):
        for number in range(100):
            server.do(("set", KEY, b"%100d" % number))
    assert server.contents.values[KEY] == b"%100d" % (number - 1)
    for name, *arguments in [("pop", QUEUE), ("fetched", 0), ("pop", QUEUE)]:
        server.do((name, *arguments))
        server.do(("commit",))
    after = server.found_by(disk.after_crash(lambda: False))
    assert after.states[0] == ({KEY: b"%100d" % (number - 1)}, {})


@pytest.mark.parametrize("call", ["create", "write", "sync", "reserve", "replace"])
def test_a_compaction_that_fails_leaves_the_journal(call: str) -> None:
    disk = ForgetfulDisk()
    server = crashed(SCRIPT[:9], disk)
    disk.fails = call if call != "replace" else None
    with pytest.raises(OSError, match="Input/output"):
        server.do(("snapshot",))
        try:
            server.journal.prepare(server.snapshot, 0, server.contents)
        except OSError:
            server.journal.give_up(server.snapshot)
            raise
        disk.fails = call
        assert not server.journal._switched(b"")
        raise OSError("Input/output: it was given up")
    disk.fails = None
    assert "journal.compact" not in disk.entries
    server.snapshot = server.contents.since = None
    server.do(("set", KEY, b"after"))
    server.do(("commit",))
    assert server.found_by(disk.after_crash(lambda: False)).states[0][0][KEY] == b"after"


# ---- the model

TRYSTATE = Edition.TRYSTATE
ASKED = (
    Asked(Journals, TRYSTATE, "change=2", 135),
    Asked(Journals, TRYSTATE, "change=2", 549, "", ("crash",)),
    Asked(Journals, TRYSTATE, "change=5", 16522, "", ("crash",)),
)


# fmt: off
MUTANTS = (
    ("nothing_told_is_lost", changed(Ours, "AnswersBeforeTheSync", may_be_told=lambda self, s: s.written), "change=2",
        ("crash",)),
    ("a_torn_record_is_no_change", changed(Ours, "TakesTornRecords", found=lambda self, s: ite(s.torn, s.whole + 1,
        s.whole)), "change=2", ("crash",)),
    ("changes_are_told", changed(Ours, "NeverSyncs", end_batch="unfair"), "change=2", ()),
    ("deadlock_freedom", changed(Ours, "LosesTheThread", end_batch=None), "change=2", ()),
)
# fmt: on
TestModel = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 1000])


def agree() -> None:
    """Replay every edge of a small system."""
    system = Journals(edition=TRYSTATE, faults=("crash",), change=2)
    replayed = replay_every_edge(system, JournalsSubject(system))
    assert not replayed.disagreements, "\n".join(replayed.disagreements)
    assert replayed.edges == 1106


def test_every_edge_is_taken_on_a_real_journal_and_not_on_a_wrong_one() -> None:
    wrong = wrapped(Journal, "_switched", lambda right: lambda self, since: right(self, b""))
    assert survivors({"the new file lacks what came meanwhile": wrong}, agree) == []


def test_a_journal_and_a_larger_model_agree_on_random_runs() -> None:
    system = Journals(edition=TRYSTATE, faults=("crash",), change=6)
    machine = state_machine(system, lambda: JournalsSubject(system), refusals=False)
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(20), stateful_step_count=40))


def test_bytes_whose_sync_has_failed_are_in_no_later_server() -> None:
    """The kernel keeps such bytes, as if they were written, and writes them never."""
    disk = UnsyncedDisk()
    server = Server(disk)
    server.do(("set", KEY, b"a"))
    server.do(("commit",))
    disk.lost = True
    server.do(("set", OTHER, b"b"))
    with pytest.raises(OSError, match="EIO"):
        server.do(("commit",))
    disk.lost = False
    server.journal.reload(server.contents)
    after = Server(disk)
    assert after.states[-1] == ({KEY: b"a"}, {})
    after.do(("set", OTHER, b"c"))
    after.do(("commit",))
    assert Server(disk.after_crash(lambda: False)).states[-1] == ({KEY: b"a", OTHER: b"c"}, {})


class UnsyncedDisk(ForgetfulDisk):
    """A disk whose failed sync leaves the bytes in the cache, clean."""

    lost = False

    def sync(self, fd: int) -> None:
        if self.lost:
            self.open_files[fd].unsynced.clear()
            raise OSError(5, "EIO")
        super().sync(fd)

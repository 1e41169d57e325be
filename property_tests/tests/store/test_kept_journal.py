"""A journal loses nothing that was told of, at whatever byte or call the server ends, and whatever its disk forgets."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trystate.impl.store.contents.contents import Refused
from trystate.impl.store.durable import journal as journals
from trystate.impl.store.durable.contents import MARK_BYTES, Frozen, KeptContents
from trystate.impl.store.durable.journal import MAGIC, Journal, recovered
from trystate.impl.store.errors import FileRefused
from trystate.impl.store.file import records
from trystate.impl.store.limits import Limits
from trystate.property_tests.adapters.our_store.disks import Crash, ForgetfulDisk
from trystate.property_tests.support.mutants import Mutant, replaced, survivors

State = tuple[dict[bytes, bytes], dict[bytes, list[bytes]]]
Step = tuple[Any, ...]
KEY, OTHER, QUEUE = b"/key", b"/other", b"/queue"


@pytest.fixture(autouse=True)
def little_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "PIECE_BYTES", 256)
    monkeypatch.setattr(journals, "READ_BYTES", 64)


def kept(contents: KeptContents) -> State:
    """The contents that a restart has to find."""
    queues = dict.fromkeys((*contents.queues, *contents.out))
    return dict(contents.values), {key: contents._elements(key) for key in queues}


class Server:
    """A driver of a journal, one step at a time."""

    def __init__(self, disk: ForgetfulDisk, limits: Limits | None = None) -> None:
        self.disk, self.lines = disk, list[str]()
        self.contents = KeptContents(limits or Limits())
        self.journal: Journal = recovered(disk, "/data", self.contents, self.lines.append)
        self.contents.more = self.more
        self.states = [kept(self.contents)]  # by the number of records
        self.told = 0  # records that a client was told of
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
                        contents.fetched(key, serial)
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
        """The server that is started next, which knows all that this one told of."""
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
    """A server that has done a script, or crashed in it after so many calls of the disk, or written bytes."""
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


def crash_at_every_call(survives: Sequence[str] = ("none", "all", "some"), again: bool = True) -> None:
    """The server ends before each call of its disk; the next one before each call of its start."""
    whole = ForgetfulDisk()
    crashed(SCRIPT, whole)
    for survival in survives:
        for calls in range(whole.calls):
            disk = ForgetfulDisk()
            server = crashed(SCRIPT, disk, calls)
            found = disk.after_crash(chosen(survival, calls))
            for second in range(12 if again else 0):
                once = found.after_crash(lambda: True)
                once.calls_left = second
                try:
                    server.found_by(once)
                except Crash:
                    server.found_by(once.after_crash(chosen(survival, second)))
            server.found_by(found)


def test_a_server_that_ends_before_any_call_of_its_disk_has_lost_nothing_that_it_told_of() -> None:
    crash_at_every_call()


def test_a_server_that_is_killed_at_any_byte_has_lost_nothing_that_it_told_of() -> None:
    whole = ForgetfulDisk()
    crashed(SCRIPT, whole)
    cut = 0
    for count in range(whole.bytes_written):
        disk = ForgetfulDisk()
        server = crashed(SCRIPT, disk, bytes_=count)
        cut += bool(server.found_by(disk.after_crash(lambda: True)).lines)
    assert cut > whole.bytes_written / 2, "a record that was cut off is said to be"


def test_a_first_start_can_end_at_any_call() -> None:
    for calls in range(12):
        for survival in ("none", "all", "some"):
            disk = ForgetfulDisk()
            disk.calls_left = calls
            with contextlib.suppress(Crash):
                Server(disk)
            assert Server(disk.after_crash(chosen(survival, calls))).states == [({}, {})]


class Forgetful(Frozen):
    """A snapshot without one of the values."""

    def records(self) -> Any:
        yield from [record for record in super().records() if OTHER not in record]


def _answers_first(self: Journal, data: bytes, since: bytes | None) -> bool:
    """Commits without a sync."""
    self.write(data)
    return True


def _takes_torn_records(data: bytes, number: Callable[[int], int] = records.unplaced) -> records.Scan:
    """Reads a record that is not whole as if it were, cut."""
    found = records.scan(data, number)
    rest = data[found.used :]
    if len(rest) > 60:
        return records.Scan([*found.records, records.Record(records.Kind.SET, 0, (KEY, rest[60:]))], len(data), False)
    return found


def _loses_what_came_meanwhile(self: Journal, since: bytes) -> bool:
    return SWITCHED(self, b"")


def _renames_before_it_is_durable(self: Journal, since: bytes) -> bool:
    assert self.next is not None
    self.disk.replace(self.path, self.path + ".compact")
    self.next.end = self.next.synced
    data = self.next.batch(since)
    self.disk.write(self.next.fd, data, self.next.end)
    self.next.end += len(data)
    self.file, self.next = self.next, None
    return True


SWITCHED, POPPED, FREEZE = Journal._switched, KeptContents._popped, KeptContents.freeze
MUTANTS: dict[str, Mutant] = {
    "answered before it is synced": replaced(Journal, "commit", _answers_first),
    "a torn record is taken": replaced(journals, "scan", _takes_torn_records),
    "compaction loses what came meanwhile": replaced(Journal, "_switched", _loses_what_came_meanwhile),
    "compaction loses a value": replaced(KeptContents, "freeze", lambda self: _frozen_less(self)),
    "the snapshot takes the place before it is durable": replaced(Journal, "_switched", _renames_before_it_is_durable),
    "the directory is not synced": replaced(ForgetfulDisk, "sync_directory", lambda self, directory: None),
    "a pop says no place": replaced(KeptContents, "_popped", lambda self, key, place: POPPED(self, key, 0)),
}


def _frozen_less(contents: KeptContents) -> Frozen:
    frozen = FREEZE(contents)
    return Forgetful(frozen.values, frozen.queues)


def test_a_journal_that_would_lose_something_is_found() -> None:
    assert survivors(MUTANTS, lambda: crash_at_every_call(again=False)) == []


@given(st.data())
def test_bytes_of_a_journal_that_follow_it_a_second_time_are_no_changes(data: st.DataObject) -> None:
    """A disk that misdirects a write, or a backup that was joined: whole records and parts of them."""
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


def test_a_journal_of_version_1_is_read_and_becomes_one_of_version_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checksums have no places; they come with the first snapshot."""
    disk = ForgetfulDisk()
    with monkeypatch.context() as older:
        older.setattr(journals, "MAGIC", MAGIC[:-2] + b"\x01\n")
        older.setattr(journals, "numbers", lambda nonce, version=1: records.unplaced)
        server = crashed(SCRIPT, disk)
        server.do(("commit",))
        version_1 = server.journal.file.end
    after = server.found_by(disk.after_crash(lambda: True))
    for key, version in ((b"/old", 1), (b"/new", 2)):
        after.do(("set", key, b"x"))
        after.do(("commit",))
        assert after.disk.entries["journal"].seen[len(MAGIC) - 2] == version
        after = after.found_by(after.disk.after_crash(lambda: False))
        after.do(("snapshot",))
        after.do(("commit",))
    assert version_1 and after.states[0][0].keys() >= {b"/old", b"/new"}


def what_was_cut_off_stays_away() -> None:
    """A batch is torn at its beginning; the next ones end where a whole record of it stood."""
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


def test_what_was_cut_off_does_not_come_back() -> None:
    not_cut: dict[str, Mutant] = {"not cut": replaced(ForgetfulDisk, "cut", lambda self, fd, size: None)}
    assert survivors(not_cut, what_was_cut_off_stays_away) == []


keys = st.sampled_from([KEY, OTHER, b"/third"])
values = st.binary(max_size=40)
numbers = st.integers(0, 3)
steps = st.one_of(
    st.tuples(st.just("set"), keys, values),
    st.tuples(st.just("add"), st.just(b"/count"), st.integers(-5, 5)),
    st.tuples(st.just("append"), keys, values),
    st.tuples(st.just("compare_set"), keys, st.just(b""), values),
    st.tuples(st.just("take"), keys),
    st.tuples(
        st.just("multi_set"), st.lists(st.tuples(keys, values), max_size=3).map(lambda p: [x for y in p for x in y])
    ),
    st.tuples(st.just("push"), st.just(QUEUE), values),
    st.tuples(st.just("pop"), st.just(QUEUE)),
    st.tuples(st.just("reserve")),
    st.tuples(st.just("put_back"), numbers),
    st.tuples(st.just("fetched"), numbers),
    st.tuples(st.just("commit")),
    st.tuples(st.just("commit")),
    st.tuples(st.just("snapshot")),
)


@given(st.lists(st.tuples(st.lists(steps, max_size=30), st.integers(-1, 25)), min_size=1, max_size=4), st.randoms())
def test_servers_that_crash_one_after_the_other_lose_nothing_on_a_disk_that_forgets(
    lives: list[tuple[list[Step], int]], chance: random.Random
) -> None:
    disk = ForgetfulDisk()
    server = Server(disk)
    for script, calls in lives:
        disk.calls_left = calls
        try:
            for step in script:
                server.do(step)
            server.journal.close(b"".join(server.contents.pending))
            server.told = server.contents.appended
        except Crash:
            pass
        disk = disk.after_crash(lambda: chance.random() < 0.7)
        server = server.found_by(disk)


def test_a_byte_that_changed_in_what_was_durable_is_damage_and_the_file_is_left_as_it_is() -> None:
    disk = ForgetfulDisk()
    server = crashed(SCRIPT, disk)
    server.journal.close()
    data = bytes(disk.entries["journal"].seen)
    told = server.journal.file.end - MARK_BYTES  # the last mark itself may be what is torn
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


def test_a_directory_of_another_version_is_refused() -> None:
    disk = ForgetfulDisk()
    Server(disk)
    disk.entries["journal"].seen[len(MAGIC) - 2] = 3
    with pytest.raises(FileRefused, match="version 3 of its format, and this trystate writes version 2; it was left"):
        Server(disk)


def test_a_full_disk_refuses_changes_before_they_are_made_and_lets_pops_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_compaction_drops_the_history() -> None:
    disk = ForgetfulDisk()
    server = Server(disk)
    for number in range(300):
        server.do(("set", KEY, b"%50d" % number))
        server.do(("commit",))
    before = server.journal.file.end
    server.do(("snapshot",))
    server.do(("commit",))
    assert server.journal.file.end < before / 50
    assert server.found_by(disk.after_crash(lambda: False)).states[0] == ({KEY: b"%50d" % 299}, {})

"""The rooms of a store's server: requests, notices, their keys, limits, the journal, the record, and the client."""

from __future__ import annotations

import os
import select
import shutil
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from trystate.impl.rendezvous import encoding
from trystate.impl.rendezvous.encoding import TEXT_LENGTH_MAX, decode, encode_settings
from trystate.impl.rendezvous.errors import RendezvousStateError
from trystate.impl.rendezvous.rooms import messages
from trystate.impl.rendezvous.rooms.messages import ANYWAY, BEAT, CLOSE, JOIN, LEAVE, LOOK, Intent, digest
from trystate.impl.rendezvous.state import Node, Participant, Settings
from trystate.impl.store.client.rooms import Message, RoomConnection
from trystate.impl.store.contents import rooms as contents
from trystate.impl.store.contents.contents import Contents, Refused
from trystate.impl.store.durable import journal as journals
from trystate.impl.store.errors import ConnectionLost, StoreError
from trystate.impl.store.limits import Limits
from trystate.impl.store.record.passage import Passage
from trystate.impl.store.server.fast_path import EXTENDED
from trystate.impl.store.server.recording import RecordingService
from trystate.impl.store.wire import ROOMS, U32, VERSION, blob
from trystate.model.store.vocabulary import Extension, Status
from trystate.monitor import record
from trystate.monitor.rendezvous.follower import Follower
from trystate.monitor.rendezvous.shared_state import Protocol
from trystate.property_tests.adapters.our_store.wire import append, compare_set, delete, put
from trystate.property_tests.adapters.stores.kept import Serving
from trystate.property_tests.support.recorded import parsed
from trystate.property_tests.support.stores.client.common import until
from trystate.property_tests.support.stores.recorded import recorder
from trystate.property_tests.support.stores.rooms import OK, VALIDATE, Room, extended, get, push, set_
from trystate.store import TCPStore, TCPStoreServer

KEY = contents.key_of(b"job")
NOTICE, REFUSED, TOO_LARGE = (bytes((status,)) for status in (Status.NOTICE, Status.REFUSED, Status.TOO_LARGE))


def join(token: str, connection: int = 1, join: int = 1, most: int = 2) -> bytes:
    """A request to join a rendezvous of 2 to `most` nodes, whose last call takes 5 s."""
    settings = encode_settings(Settings(2, most, last_call_timeout=5.0))
    me = Participant(Node(token, 1, 0, token), token, 1)
    return Intent(JOIN, token, connection, join, me=me, digest=digest(settings), settings=settings).encode()


def ask(request: bytes, run: bytes = b"job") -> bytes:
    return extended(Extension.ROOM, blob(run), blob(request))


LOOKS, LEAVES, BEATS = (Intent(kind, "a", 1, 1).encode() for kind in (LOOK, LEAVE, BEAT))


def test_a_round_is_answered_and_its_members_get_a_notice() -> None:
    room = Room()
    one, two = room.peer(), room.peer()
    assert one(ask(LOOKS)) == OK + blob(b"") and room.service.contents.values == {}
    assert one(ask(join("a", most=3)))[:1] == two(ask(join("b", most=3)))[:1] == OK
    room.pass_time(4.9)
    assert one() == two() == b""
    room.pass_time(0.1)
    assert one()[:12] == two()[:12] == NOTICE + blob(b"job") and room.service.alarm.at is None
    assert one(ask(b"no request"))[:1] == REFUSED and not one.closed
    newer = room.peer()
    assert newer(ask(join("a", 2, most=3)))[:1] == OK and (one.closed, two.closed) == (True, False)
    assert room.log == ["peer0: closed: its node has a newer connection to the room b'job'"]
    two.leave()
    newer.leave()
    assert room.service.rooms.peers == {}


def test_no_client_changes_the_key_of_a_room() -> None:
    room = Room()
    peer, won = room.peer(), compare_set(KEY, contents.FORMAT, b"x")
    peer(ask(join("a")))
    for change in (*put(KEY, 0, 1), *append(KEY, b"x"), *won, *delete(KEY), push(KEY, b"x")):
        each = room.peer()
        refused = REFUSED if change[0] in EXTENDED else b""
        assert (each(change)[:1], each.closed) == (refused, not refused), change
    for harmless in (get(KEY), *compare_set(KEY, b"x", b"y"), *compare_set(KEY, contents.FORMAT, contents.FORMAT)):
        assert peer(harmless).endswith(contents.FORMAT)
    assert room.service.contents.values == {KEY: contents.FORMAT} and room.service.contents.queues == {}
    with pytest.raises(RendezvousStateError, match=r"its format is 'trystate-room-1', not .*; run one version"):
        decode(contents.FORMAT)  # an older release does this


@pytest.mark.parametrize(
    ("limits", "before", "why"),
    [
        (Limits(), set_(KEY, b"{}"), b"in the value b'/trystate/job/state'; run one release"),
        (Limits(rooms=1), ask(join("a"), b"other"), b"there are rooms=1 already"),
        (Limits(key_bytes=16), b"", b"exceeds key_bytes=16"),
        (Limits(keys_total=1), set_(b"/k", b""), b"the store is full"),
    ],
)
def test_a_room_that_may_not_begin_is_refused(limits: Limits, before: bytes, why: bytes) -> None:
    room = Room(limits)
    peer = room.peer()
    peer(before)
    values = {**room.service.contents.values}
    answer = peer(ask(join("b")))
    assert answer[:1] in (REFUSED, TOO_LARGE) and why in answer and not peer.closed
    assert room.service.contents.values == values and b"job" not in room.service.contents.rooms


def test_the_record_of_a_room_is_explained_as_one_of_its_key() -> None:
    sink, made = recorder()
    room, follower = Room(kind=partial(RecordingService, made)), Follower(Protocol.OURS)
    one, two = room.peer(), room.peer()
    for peer, request in ((one, join("a")), (two, join("b")), (one, LEAVES), (two, b"no request")):
        peer(ask(request))
    lines = sink.take()[2:]
    told = ["room", "write", "room", *["write", "notice", "notice", "room"] * 2]
    assert [line["op"] for line in lines] == told and lines[-1]["error"] == "REFUSED"
    for number, line in enumerate(lines):
        found = parsed({"t": float(number), **line}, number)
        assert isinstance(found, record.Line)
        follower.feed(found)
    assert (follower.problems, follower.version) == ([], 3)


def test_a_finished_room_gives_way_to_a_new_one() -> None:
    sink, made = recorder()
    room = Room(Limits(rooms=1), kind=partial(RecordingService, made))
    one, two, late, operator = (room.peer() for _ in range(4))
    close = Intent(CLOSE, "operator", flags=ANYWAY, by=Node("operator", 1, 0, "operator")).encode()
    full = b"there are rooms=1 already, and none is finished"

    one(ask(join("a")))
    one.leave()
    room.pass_time(20.0)
    assert full in two(ask(join("b"), b"second")), "it is not closed"
    operator(ask(close))
    assert two(ask(join("b"), b"second"))[:1] == OK
    assert set(room.service.contents.rooms) == {b"second"} and KEY not in room.service.contents.values
    assert [line["op"] for line in sink.take()[-3:]] == ["room", "delete", "write"]
    assert room.log[-1].startswith("room b'job': forgotten, because there are rooms=1")

    operator(ask(close, b"second"))
    room.pass_time(20.0)
    assert full in late(ask(join("c"))), "a node has a connection"
    two(ask(Intent(BEAT, "b", 1, 1).encode(), b"second"))
    two.leave()
    room.pass_time(14.9)
    assert full in late(ask(join("c"))), "a node may come back"
    room.pass_time(0.1)
    assert late(ask(join("c")))[:1] == OK and KEY in room.service.contents.values


def test_a_full_disk_refuses_no_heartbeat_and_expels_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room()
    one, two = room.peer(), room.peer()
    one(ask(join("a")))
    two(ask(join("b")))
    one()
    job = room.service.contents.rooms[b"job"]
    state = job.state
    assert state is not None and state.complete
    beat = Intent(BEAT, "a", 1, 1, known=messages.mark(state.life, state.revision)).encode()
    with monkeypatch.context() as full:
        full.setattr(Contents, "may_change", Mock(side_effect=Refused(Status.TOO_LARGE, "no space")))
        for _ in range(4):
            room.pass_time(5.0)
            assert one(ask(beat)) == OK + blob(bytes((messages.SAME,)))
            assert one(ask(Intent(messages.WHY, "a", 1, 1).encode()))[:1] == OK
        assert one(ask(LEAVES))[:1] == TOO_LARGE and job.state == state
    one(ask(beat))
    assert job.state is not None and job.state.find("b") is None


def test_a_proxy_hides_the_rooms_of_a_server() -> None:
    hello = extended(Extension.HELLO, U32.pack(VERSION))
    answer = Room().peer()(hello)
    for cut in range(len(answer)):
        passage, passed = Passage(recorder()[1], ""), b""
        for request in passage.sent(VALIDATE + hello):
            passage.forwarded(request)
        for piece in (answer[:cut], answer[cut:]):
            passed += passage.passed(piece)
            passage.answered(piece)
        assert passed == answer[:1] + bytes((answer[1] - ROOMS,)) + answer[2:]


# ---- on disk, and over TCP


def heard(connection: RoomConnection, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        select.select([connection], [], [], 20.0)
        found += connection.receive()
    return found


@pytest.mark.parametrize("compacted", [False, True])
def test_a_killed_server_has_its_rooms_again(tmp_path: Path, compacted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "COMPACT_BYTES_MIN", 1_000 if compacted else 1 << 20)
    by = Node("a" * TEXT_LENGTH_MAX, 1, 0, "operator")
    with Serving(tmp_path / "data") as server, server.store() as store:
        settings = encode_settings(Settings(1, 2))
        store.ask_room("over", Intent(CLOSE, "operator", flags=ANYWAY, by=by, settings=settings).encode())
        for number in range(50):
            store.ask_room("job", join("a", join=number + 1))
            store.ask_room("job", LEAVES)
        state, over = (store.ask_room(run_id, LOOKS) for run_id in ("job", "over"))
        assert (decode(state).version, getattr(decode(over).closed, "by", "")) == (100, by.address)
        until(lambda: server.directory.journal.generation > 0 or not compacted)
        shutil.copytree(tmp_path / "data", tmp_path / "killed")
    monkeypatch.setattr(encoding, "READ_BYTES_MAX", len(state) - 1)
    with Serving(tmp_path / "killed") as server, server.store() as store:
        assert [store.ask_room(run_id, LOOKS) for run_id in ("job", "over")] == [state, over]
        with pytest.raises(StoreError, match="belongs to a rendezvous that this server applies itself"):
            store.set("trystate/job/state", "x")


def test_a_forgotten_room_is_not_there_after_a_start(tmp_path: Path) -> None:
    with Serving(tmp_path) as server, server.store() as store:
        for run_id in ("job", "other"):
            store.ask_room(run_id, join("a"))
        contents.forget(server.directory.contents, b"job")
        store.set("later", "x")
    with Serving(tmp_path) as server, server.store() as store:
        assert set(server.directory.contents.rooms) == {b"other"}
        assert (store.ask_room("job", LOOKS), store.check(["trystate/job/state"])) == (b"", False)
        store.ask_room("job", join("b"))
    with Serving(tmp_path) as server, server.store() as store:
        assert [p.node.token for p in decode(store.ask_room("job", LOOKS)).listed()] == ["b"]


def test_a_connection_to_a_room_gets_each_message_or_its_end() -> None:
    with TCPStoreServer(secret=b"known") as server, TCPStore("127.0.0.1", server.port, secret=b"known") as store:
        one = RoomConnection.open(store, "job", 20.0)
        assert store.rooms and one.receive() == []
        one.send(join("a"))
        one.send(b"no request")
        assert [each.status for each in heard(one, 2)] == [Status.OK, Status.REFUSED]
        with pytest.raises(StoreError, match=r"ask_room\('job'\): a request has 10 bytes"):
            store.ask_room("job", b"no request")
        if not (pid := os.fork()):
            with pytest.raises(ConnectionLost, match="ends with a fork"):
                one.receive()
            os._exit(one.fileno() + 1)
        assert os.waitpid(pid, 0)[1] == 0
        one.send(BEATS)
        assert len(heard(one, 1)) == 1
        server.close()
        for call in (partial(heard, one, 1), partial(one.send, b"")):
            with pytest.raises(ConnectionLost, match=r"room\('job'\): the server hung up"):
                call()

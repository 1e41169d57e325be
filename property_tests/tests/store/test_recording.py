"""The records of a server and of a proxy, line by line. Recording changes no answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trystate.impl.store.contents.contents import Contents
from trystate.impl.store.limits import Limits
from trystate.impl.store.record.format import KEYS_MAX, VALUE_BYTES_MAX, Keys, is_state
from trystate.impl.store.record.passage import ClientRequest, Passage
from trystate.impl.store.server.recording import RecordingService
from trystate.impl.store.wire import U32, blob, counted
from trystate.model.store.vocabulary import Extension, Query
from trystate.property_tests.support.stores.besieged import VALIDATE, Siege, Step, mutated, requests, sieges
from trystate.property_tests.support.stores.recorded import Line, Replayed, judged, recorder
from trystate.property_tests.support.stores.rooms import *

STATE, NEWS = b"/torch.rendezvous.job", b"/torch.rendezvous.job.0/MASTER_ADDR"
SLOT = b"/ft_rendezvous_barrier:job:slot_1"


class Recorded:
    """A room whose service is recorded, and two peers."""

    def __init__(self, keys: Keys = Keys.RENDEZVOUS, values: bool = False, limits: Limits | None = None) -> None:
        self.sink, made = recorder(keys, values)
        self.room = Room(limits, kind=partial(RecordingService, made))
        self.one, self.two = self.room.peer(), self.room.peer()
        self.sink.take()


def at(c: int, op: str, **fields: Any) -> Line:
    return {"c": c, "op": op, **fields}


STATE_, NEWS_, SLOT_ = STATE.decode(), NEWS.decode(), SLOT.decode()
KEYS = {"key": NEWS_, "keys": [NEWS_, "/elsewhere"]}
# The recorded keys, the limits, the bytes of peers 1 and 2, and the lines (for the last script, the last line).
SCRIPTS: dict[str, tuple[Keys, Limits | None, list[tuple[int, bytes]], list[Line]]] = {
    "each write, lost write and read of a state has its version and its writer": (Keys.RENDEZVOUS, None,
        [(1, compare(STATE, b"", b"")), (1, compare(STATE, b"", b"first")), (2, compare(STATE, b"", b"mine")),
         (2, wait(STATE)), (2, get(STATE)), (1, delete(STATE)), (1, get(STATE)), (1, set_(STATE, b"\xff\x00"))],
        [at(1, "write", key=STATE_, v=1, size=0, value="", **{"from": 0}),
         at(1, "write", key=STATE_, v=2, size=5, value="first", **{"from": 1}),
         at(2, "refused", key=STATE_, v=2, size=4, value="mine"), at(2, "read", key=STATE_, v=2),
         at(1, "delete", key=STATE_, found=True), at(1, "read", key=STATE_, v=0),
         at(1, "write", key=STATE_, v=3, size=2, value="\xff\x00", how="set", **{"from": 0})]),
    "a state that is stored again by a compare_set is told": (Keys.RENDEZVOUS, None,
        [(1, set_(STATE, b"1")), (2, watch(STATE)), (1, compare(STATE, b"1", b"1"))],
        [at(1, "write"), at(2, "watch"), at(1, "read", how="compare_set"), at(2, "told")]),
    "a blocked wait, its cause and its end stand in their order": (Keys.RENDEZVOUS, None,
        [(2, wait(NEWS, b"/elsewhere")), (1, set_(NEWS, b"host")), (1, set_(b"/elsewhere", b"")),
         (2, plain(Query.MULTI_GET, counted([NEWS, b"/elsewhere"])))],
        [at(2, "wait", missing=[NEWS_, "/elsewhere"], **KEYS), at(1, "set", key=NEWS_, size=4, v=1),
         at(2, "go", **KEYS), at(2, "multi_get", keys=[NEWS_], vs=[1])]),
    "keys of NVRx's barrier are recorded with their values": (Keys.RENDEZVOUS, None,
        [(1, set_(SLOT, b"1") + multi_set(SLOT, b"2", b"/a", b"3") + compare(SLOT, b"2", b"4") + get(SLOT))],
        [at(1, "set", key=SLOT_, size=1, value="1", v=1),
         at(1, "multi_set", keys=[SLOT_], sizes=[1], values=["2"], vs=[2]),
         at(1, "compare_set", key=SLOT_, size=1, value="4", expected="2", won=True, v=3),
         at(1, "get", key=SLOT_, v=3)]),
    "keys of others are not recorded": (Keys.RENDEZVOUS, None,
        [(1, set_(b"/a", b"torch.rendezvous. is in its value") + get(b"/a") + push(b"/q", b"") + pop(b"/q"))], []),
    "a refused request says why and counts no version": (Keys.ALL, None,
        [(1, extended(Extension.SET, blob(b"/k"), blob(b"text")) + extended(Extension.ADD, blob(b"/k"), i64(1))),
         (2, wait(b"/never") + plain(Query.PING, U32.pack(0))),  # a request while another is blocked
         (1, extended(Extension.SET, blob(b"/k"), blob(b"more")))],
        [at(1, "set", v=1), at(1, "add", key="/k", error="NOT_A_NUMBER"), at(2, "wait"), at(2, "stop"), at(2, "close"),
         at(1, "set", v=2)]),
    "a write for which the store has no room counts no version": (Keys.RENDEZVOUS, Limits(bytes_total=200),
        [(1, extended(Extension.SET, blob(STATE), blob(value))) for value in (b"\0" * 8, b"x" * 300, b"last")],
        [at(1, "write", v=1), at(1, "set", error="TOO_LARGE"), at(1, "write", v=2)]),
    "watches, barriers and queues are recorded": (Keys.ALL, None,
        [(2, watch(b"/k")), (1, set_(b"/k", b"")), (1, barrier(b"/b", 2)), (2, barrier(b"/b", 2)),
         (1, push(b"/q", b"element") + wait(b"/q") + pop(b"/q"))],
        [at(2, "watch"), at(1, "set"), at(2, "told"), at(1, "barrier"), at(1, "wait"), at(2, "barrier"), at(2, "wait"),
         at(1, "go"), at(2, "go"), at(1, "queue_push"), at(1, "reserve"), at(1, "queue_pop")]),
    "a reserved element is taken or put back": (Keys.ALL, None,
        [(1, push(b"/q", b"element") + wait(b"/q") + CANCEL + wait(b"/q") + pop(b"/q")),
         (1, plain(Query.CHECK, counted([b"/q"])))],
        [at(1, op) for op in ("queue_push", "reserve", "put_back", "reserve", "queue_pop", "check")]),
    "a get that takes a promised value reads its version": (Keys.RENDEZVOUS, None,
        [(1, set_(STATE, b"1") + set_(STATE, b"2")), (2, wait(STATE)), (1, set_(STATE, b"3") + delete(STATE)),
         (2, get(STATE))], [at(2, "read", key=STATE_, v=2, kept=True)]),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_recorded_line_for_line(name: str) -> None:
    keys, limits, sent_, wanted = SCRIPTS[name]
    here = Recorded(keys, limits=limits)
    for who, data in sent_:
        (here.one if who == 1 else here.two)(data)
    found = here.sink.take()
    assert len(found) == len(wanted) or wanted[-1].get("kept"), found
    pairs = zip(found[len(found) - len(wanted) :], wanted, strict=True)
    assert [(line, want) for line, want in pairs if not line.items() >= want.items()] == []


def test_a_wait_that_ends_without_its_key_says_why() -> None:
    ends: list[tuple[Callable[[Recorded], object], str]] = [
        (lambda here: here.two(CANCEL), "cancelled"),
        (lambda here: here.two.leave(), "closed"),
        (lambda here: here.room.pass_time(2.0), "timeout"),
    ]
    for end, why in ends:
        here = Recorded()
        here.two(xget(1000, NEWS) if why == "timeout" else wait(NEWS))
        end(here)
        lines = [(line["op"], line.get("why")) for line in here.sink.take()]
        assert lines[:2] == [("wait", None), ("stop", why)] and lines[2:] == [("close", None)] * (why == "closed")


def test_a_value_is_recorded_only_if_that_was_asked_for() -> None:
    for values in (False, True):
        here = Recorded(Keys.ALL, values)
        here.one(set_(b"/k", b"secret?") + multi_set(b"/l", b"secret?", b"/m", b""))
        here.one(push(b"/q", b"secret?") + pop(b"/q"))
        lines = here.sink.take()
        assert [line["op"] for line in lines] == ["set", "multi_set", "queue_push", "queue_pop"]
        assert ("secret?" in str(lines)) is values


def test_lists_and_values_that_are_too_large_for_a_line_are_cut_and_said() -> None:
    here = Recorded()
    here.two(wait(*(NEWS + b"%d" % n for n in range(150))))
    here.one(set_(STATE, bytes(VALUE_BYTES_MAX + 1)))
    waits, write = here.sink.take()
    assert (len(waits["keys"]), len(waits["missing"]), waits["more"]) == (KEYS_MAX, KEYS_MAX, 150 - KEYS_MAX)
    assert write["size"] == VALUE_BYTES_MAX + 1 and "value" not in write


def test_the_states_of_a_store_that_was_kept_are_the_first_lines() -> None:
    contents = Contents(Limits())
    contents.set(STATE, b"kept")
    contents.set(b"/other", b"kept")
    sink, made = recorder(Keys.RENDEZVOUS)
    room = Room(kind=partial(RecordingService, made, contents=contents))
    room.peer()(compare(STATE, b"kept", b"new"))
    assert [(line["op"], line.get("v"), line.get("value"), line.get("again")) for line in sink.take()] == [
        ("write", 1, "kept", True), ("open", None, None, None), ("write", 2, "new", None),
    ]  # fmt: skip


# ---- recording changes no answer, and the record agrees with the store

LONG = {
    b"/%c" % letter: name
    for letter, name in zip(b"abcd", (STATE, NEWS, b"trystate/j/state", b"trystate/j/x"), strict=True)
}


@given(sieges)
def test_with_a_record_of_all_keys_every_answer_is_the_same(siege: list[Step]) -> None:
    sink, made = recorder(Keys.ALL)
    plain_one, recorded, replayed = Siege(), Siege(kind=partial(RecordingService, made)), Replayed()
    service = recorded.service
    assert isinstance(service, RecordingService)
    for step in siege:
        plain_one.take(step)
        recorded.take(step)
        mine = [bytes(recorded.replies.get(each, b"gone")) for each in recorded.strangers]
        assert mine == [bytes(plain_one.replies.get(each, b"gone")) for each in plain_one.strangers]
        assert recorded.log == plain_one.log
        for line in sink.take():
            replayed.take(line)
        values = service.contents.values
        assert replayed.values == values
        assert all(replayed.versions[key] == made.version(key) for key in values)
        assert replayed.open == set(service.numbers.values())
        assert replayed.blocked == {service.numbers[each] for each in service.sessions if each.blocked is not None}
    recorded.end()
    for line in sink.take():
        replayed.take(line)
    assert not replayed.open and not replayed.blocked and not made._waits and not made._open
    assert not service.numbers and not service.promised
    assert judged() == []


# ---- a proxy on a connection changes no byte, and its record equals the server's own record


class Through:
    """Clients of a recorded service, each through a passage. The service and the passages make a record each."""

    def __init__(self) -> None:
        self.served, mine = recorder(Keys.RENDEZVOUS)
        self.passed, passing = recorder(Keys.RENDEZVOUS, by="store proxy")
        self.room = Room(limits=Limits(), kind=partial(RecordingService, mine))
        self.peers = [self.room.peer(validated=False) for _ in range(2)]
        self.passages = [Passage(passing, "peer") for _ in range(2)]
        self.recorder = passing
        for who in range(2):
            self(who, VALIDATE)
        self.lines()

    def __call__(self, who: int, *pieces: bytes) -> list[ClientRequest]:
        """Send pieces from a client, and pass all answers through the passages; returns the requests."""
        mine, asked = self.passages[who], list[ClientRequest]()
        before = bytes(mine._raw)
        for piece in pieces:
            for request in mine.sent(piece):
                asked.append(request)
                mine.forwarded(request)
                answers = [self.peers[who](request.data)]
                for other, peer in enumerate(self.peers):
                    back = answers[0] if other == who else peer()
                    self.passages[other].answered(back)
        for other, peer in enumerate(self.peers):
            self.passages[other].answered(peer())
        self.recorder.flush()
        assert b"".join(request.data for request in asked) + bytes(mine._raw) == before + b"".join(pieces)
        return asked

    def lines(self) -> tuple[list[Line], list[Line]]:
        """The new lines of the server's record and of the proxy's."""
        return self.served.take(), self.passed.take()


PASSED = [
    (0, compare(STATE, b"", b"")), (0, compare(STATE, b"", b"first")), (1, compare(STATE, b"", b"lost")),
    (1, wait(STATE)), (1, get(STATE)), (0, set_(NEWS, b"host")), (1, plain(Query.CHECK, counted([NEWS]))),
    (1, compare(STATE, b"first", b"second")), (0, compare(STATE, b"\0absent", b"\0absent")),
    (0, plain(Query.ADD, blob(NEWS + b"n"), i64(3))), (1, delete(STATE)), (0, compare(STATE, b"\0absent", b"\0absent")),
    (0, compare(STATE, b"expected", b"desired")), (0, set_(STATE, b"third")), (1, get(STATE)),
    (1, extended(Extension.GET, i64(0), counted([STATE, NEWS]))), (1, extended(Extension.SET, blob(STATE), blob(b"x"))),
    (0, extended(Extension.TAKE, blob(STATE))), (0, watch(NEWS)), (1, set_(NEWS, b"new")),
    (0, extended(Extension.ADD, blob(NEWS), i64(1))),
]  # fmt: skip


@pytest.mark.parametrize("cut", [0, 1, 5])
def test_the_proxys_record_is_the_servers(cut: int) -> None:
    here = Through()
    for who, data in PASSED:
        here(who, data[:cut], data[cut:]) if cut else here(who, data)
    served, passed = here.lines()
    for told in (False, True):  # an event and the answer to its cause pass on different connections
        found = [[line for line in lines if (line["op"] == "told") is told] for lines in (passed, served)]
        assert found[0] == found[1] != []


def test_a_value_that_came_past_the_proxy_is_said_to_be_unseen() -> None:
    here = Through()
    past = here.room.peer()
    past(set_(STATE, b"past"))
    here(0, get(STATE))
    past(set_(STATE, b"again"))
    here(0, compare(STATE, b"again", b"mine"))
    past(set_(STATE, b"more"))
    here(0, compare(STATE, b"mine", b"lost"))
    past(delete(STATE))
    here(0, compare(STATE, b"\0", b"\0"))
    assert [(line["c"], line["op"], line.get("v"), line.get("unseen", False)) for line in here.lines()[1]] == [
        (0, "write", 1, True), (1, "read", 1, False),
        (0, "write", 2, True), (1, "write", 3, False),
        (0, "write", 4, True), (1, "refused", 4, False),
        (0, "delete", None, True), (1, "read", 0, False),
    ]  # fmt: skip


def test_wrong_sums_in_a_proxys_record_in_memory_are_found() -> None:
    _, made = recorder(Keys.ALL, by="store proxy")
    c = made.opened("peer")
    for _ in range(2):
        made.say(c, "add", key="n", amount=1, result=5)
    made.flush()
    assert [found.split(":")[0] for found in judged()] == ["linearizability"]


@pytest.mark.parametrize(
    ("sent", "back", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"", "request: its first request is not VALIDATE"),
        (b"\x00\x01\x02\x03\x04", b"", "request: it validates with 0x4030201"),
        (VALIDATE + b"\x00\x01\x02\x03\x04", b"", "request: it validates with 0x4030201"),
        (VALIDATE + b"\xee", b"", "request: no such request: 238"),
        (VALIDATE + b"\x01" + b"\xff" * 8, b"", "request: SET: a key of 18446744073709551615 bytes"),
        (VALIDATE, b"HTTP", "answer: it belongs to no request"),
        (VALIDATE + get(STATE), b"\xff" * 8, "answer: it announced a value of"),
        (VALIDATE + wait(STATE), b"\x07", "answer: 7 to a wait that was not cancelled"),
        (
            VALIDATE + wait(STATE) + set_(STATE, b"v"),
            b"",
            "request: set after a request that waits: servers differ here",
        ),
    ],
)
def test_bytes_that_cannot_be_followed_are_passed_on_and_said(sent: bytes, back: bytes, why: str) -> None:
    sink, made = recorder(Keys.RENDEZVOUS, by="store proxy")
    mine = Passage(made, "peer")
    passed = b""
    for request in mine.sent(sent):
        mine.forwarded(request)
        passed += request.data
    mine.answered(back)
    assert passed == sent and not mine.followed
    assert [request.data for request in mine.sent(b"more")] == [b"more"]
    mine.answered(b"more")
    made.flush()
    line = sink.take()[-1]
    assert line["op"] == "unfollowed" and line["why"].startswith(why)


turns = st.lists(st.tuples(st.integers(0, 1), requests() | requests() | mutated()), min_size=1, max_size=25)


@given(turns)
def test_whatever_passes_states_are_followed_as_the_server_has_them(turns: list[tuple[int, bytes]]) -> None:
    """No byte is changed, and no passage raises. At each read and write the record has the server's state."""
    here, replayed = Through(), Replayed()
    for c in (1, 2):
        replayed.take({"c": c, "op": "open"})
    for who, data in turns:
        for short, long in LONG.items():
            data = data.replace(blob(short), blob(long))
        if here.peers[who].closed or not here.passages[who].followed:
            continue
        here(who, data)
        values: dict[bytes, Any] = here.room.service.contents.values
        lines = [line for line in here.lines()[1] if is_state(str(line.get("key", "")).encode("latin-1"))]
        lines = [line for line in lines if line["op"] in ("write", "read", "refused", "delete")]
        for line in lines:
            replayed.take(line)
        for line in lines[-1:]:
            key = line["key"].encode("latin-1")
            assert replayed.values.get(key) == values.get(key)

"""A proxy's look at a connection, without sockets: it changes no byte, and tells what the server's own record tells."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trystate.impl.store.limits import Limits
from trystate.impl.store.record import passage
from trystate.impl.store.record.format import Keys, is_state
from trystate.impl.store.record.passage import Heard, Passage, Request
from trystate.impl.store.record.recorder import Recorder
from trystate.impl.store.server.recording import RecordingService
from trystate.impl.store.wire import blob, counted
from trystate.model.store.vocabulary import Extension, Query
from trystate.property_tests.support.mutants import Mutant, replaced, survivors
from trystate.property_tests.support.stores.besieged import VALIDATE
from trystate.property_tests.support.stores.recorded import Line, Replayed, judged, recorder
from trystate.property_tests.support.stores.rooms import (
    CANCEL,
    Room,
    delete,
    extended,
    get,
    i64,
    plain,
    set_,
    wait,
    watch,
)
from trystate.property_tests.tests.store.test_fuzz import mutated, requests

STATE, NEWS = b"/torch.rendezvous.job", b"/torch.rendezvous.job.0/MASTER_ADDR"


def compare(key: bytes, expected: bytes, desired: bytes) -> bytes:
    return plain(Query.COMPARE_SET, blob(key), blob(expected), blob(desired))


class Through:
    """Clients of a recorded service, each through a passage; two records of the same."""

    def __init__(self, keys: Keys = Keys.RENDEZVOUS, clients: int = 2) -> None:
        self.served, mine = recorder(keys)
        self.passed, passing = recorder(keys, by="store proxy")
        self.room = Room(limits=Limits(), kind=partial(RecordingService, mine))
        self.peers = [self.room.peer(validated=False) for _ in range(clients)]
        self.passages = [Passage(passing, "peer") for _ in range(clients)]
        self.recorder = passing
        for who in range(clients):
            self(who, VALIDATE)
        self.lines()

    def __call__(self, who: int, *pieces: bytes) -> list[Request]:
        """A client sends pieces; all that the server answers to anybody is seen. The requests that are blocked."""
        mine, asked = self.passages[who], list[Request]()
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
        """The lines since, of the server and of the proxy."""
        return self.served.take(), self.passed.take()


SCRIPT = [
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
    for who, data in SCRIPT:
        here(who, data[:cut], data[cut:]) if cut else here(who, data)
    served, passed = here.lines()
    for told in (False, True):  # an event passes on another connection than the answer of its cause
        found = [[line for line in lines if (line["op"] == "told") is told] for lines in (passed, served)]
        assert found[0] == found[1] != []


def test_a_wait_counts_as_blocked_only_when_it_is_not_answered_for_a_while() -> None:
    here = Through()
    (asked,) = here(1, wait(NEWS))
    assert here.lines()[1] == []
    here.passages[1].impatient(asked)
    here(0, set_(NEWS, b""))
    (quick,) = here(1, wait(NEWS))
    here.passages[1].impatient(quick)  # it is answered
    assert [(line["c"], line["op"]) for line in here.lines()[1]] == [(2, "wait"), (1, "set"), (2, "go")]


def test_a_wait_that_is_cancelled_or_whose_client_goes_is_stopped() -> None:
    here = Through()
    for end in (lambda: here(1, CANCEL), lambda: here.passages[1].closed()):
        (asked,) = here(1, wait(NEWS))
        here.passages[1].impatient(asked)
        end()
        here.recorder.flush()
    ends = [(line["op"], line.get("why")) for line in here.lines()[1]]
    assert ends == [("wait", None), ("stop", "cancelled"), ("wait", None), ("stop", "closed"), ("close", None)]


def test_a_cancellation_that_comes_too_late_is_understood() -> None:
    here = Through()
    here(0, set_(NEWS, b""))
    here(1, wait(NEWS) + CANCEL)
    here(1, get(NEWS))
    assert here.passages[1].followed and here.lines()[1][-1]["op"] == "get"


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


@pytest.mark.parametrize(
    ("sent", "back", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"", "request: its first request is not VALIDATE"),
        (b"\x00\x01\x02\x03\x04", b"", "request: it validates with 0x4030201"),
        (VALIDATE + b"\xee", b"", "request: no such request: 238"),
        (VALIDATE + b"\x01" + b"\xff" * 8, b"", "request: SET: a key of 18446744073709551615 bytes"),
        (VALIDATE, b"HTTP", "answer: it was asked nothing"),
        (VALIDATE + get(STATE), b"\xff" * 8, "answer: it announced a value of"),
        (VALIDATE + wait(STATE), b"\x07", "answer: 7 to a wait that was not cancelled"),
        (VALIDATE + wait(STATE) + set_(STATE, b"v"), b"", "request: set behind one that waits: servers differ in it"),
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


RENAMED = {b"/a": STATE, b"/b": NEWS, b"/c": b"trystate/j/state", b"/d": b"trystate/j/x"}
turns = st.lists(st.tuples(st.integers(0, 1), requests() | requests() | mutated()), min_size=1, max_size=25)


@given(turns)
def test_whatever_passes_states_are_followed_as_the_server_has_them(turns: list[tuple[int, bytes]]) -> None:
    """No byte is changed, nothing raises; what the record says of a state at each read and write is what is there."""
    here, replayed = Through(), Replayed()
    for c in (1, 2):
        replayed.take({"c": c, "op": "open"})
    for who, data in turns:
        for short, long in RENAMED.items():
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


# ---- that it can find something


def _nothing(*_: Any) -> None:
    """A step that is left out."""


def _scripted() -> None:
    """The tests above of scripts, until one fails."""
    test_the_proxys_record_is_the_servers(0)
    test_a_wait_counts_as_blocked_only_when_it_is_not_answered_for_a_while()
    test_a_wait_that_is_cancelled_or_whose_client_goes_is_stopped()
    test_a_cancellation_that_comes_too_late_is_understood()
    test_a_value_that_came_past_the_proxy_is_said_to_be_unseen()


MISTAKES: dict[str, Mutant] = {
    "values are not compared with those seen": replaced(Heard, "_found", _nothing),
    "a value that came past is not said": replaced(Heard, "_unseen", _nothing),
    "a look is taken for a write": replaced(Heard, "_looks", _nothing),
    "a wait is never said": replaced(Passage, "impatient", _nothing),
    "a set is recorded by its answer": replaced(passage, "SILENT", frozenset()),
    "a cancelled wait has two answers": replaced(passage, "WAITING", frozenset()),
    "events are answers": replaced(passage, "EXTENDED", frozenset()),
    "writes are not counted": replaced(Recorder, "written", _nothing),
    "who goes on is not said": replaced(Recorder, "goes", _nothing),
}


def test_each_mistake_of_a_passage_is_noticed_by_a_script() -> None:
    assert survivors(MISTAKES, _scripted) == []
    assert judged(), "the records of some have answers that no store gives"

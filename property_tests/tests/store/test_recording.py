"""A server's record, line for line; nobody is answered otherwise because of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings

from trystate.impl.store.contents.contents import Contents, Refused
from trystate.impl.store.limits import Limits
from trystate.impl.store.record.format import KEYS_MAX, VALUE_BYTES_MAX, Keys, is_state
from trystate.impl.store.record.recorder import Recorder
from trystate.impl.store.server import recording
from trystate.impl.store.server.blocking import Blocking
from trystate.impl.store.server.fast_path import FAST_PATHS
from trystate.impl.store.server.promises import Promises
from trystate.impl.store.server.recording import (
    RecordedBlocking,
    RecordedPromises,
    RecordedWatches,
    RecordingService,
    Request,
)
from trystate.impl.store.server.service import Service
from trystate.impl.store.server.watches import Watches
from trystate.impl.store.wire import MAGIC, U32, blob, counted
from trystate.model.store.vocabulary import Extension, Query
from trystate.property_tests.support.mutants import Mutant, replaced, survives, survivors
from trystate.property_tests.support.stores.besieged import Siege, Step, sent
from trystate.property_tests.support.stores.recorded import Line, Lines, Replayed, judged, recorder
from trystate.property_tests.support.stores.rooms import (
    CANCEL,
    STOP,
    Room,
    barrier,
    delete,
    extended,
    get,
    i64,
    multi_set,
    plain,
    pop,
    push,
    set_,
    wait,
    watch,
    xget,
)
from trystate.property_tests.tests.store.test_fuzz import QUICK, sieges

STATE, NEWS = b"/torch.rendezvous.job", b"/torch.rendezvous.job.0/MASTER_ADDR"
OURS = b"trystate/job/state"


def compare(key: bytes, expected: bytes, desired: bytes) -> bytes:
    return plain(Query.COMPARE_SET, blob(key), blob(expected), blob(desired))


class Recorded:
    """A room whose service is recorded, and two peers."""

    def __init__(
        self,
        keys: Keys = Keys.RENDEZVOUS,
        values: bool = False,
        bytes_max: int = 1 << 30,
        limits: Limits | None = None,
    ) -> None:
        self.sink, made = recorder(keys, values, bytes_max)
        self.room = Room(limits, kind=partial(RecordingService, made))
        self.one, self.two = self.room.peer(), self.room.peer()
        self.sink.take()

    def lines(self) -> list[Line]:
        return self.sink.take()


def test_each_write_lost_write_and_read_of_a_state_has_its_version_and_its_writer() -> None:
    here = Recorded()
    here.one(compare(STATE, b"", b""))
    here.one(compare(STATE, b"", b"first"))
    here.two(compare(STATE, b"", b"mine"))
    here.two(wait(STATE))
    here.two(get(STATE))
    here.one(delete(STATE))
    here.one(get(STATE))
    here.one(set_(STATE, b"\xff\x00"))
    key = STATE.decode()
    assert here.lines() == [
        {"c": 1, "op": "write", "key": key, "v": 1, "from": 0, "size": 0, "value": ""},
        {"c": 1, "op": "write", "key": key, "v": 2, "from": 1, "size": 5, "value": "first"},
        {"c": 2, "op": "refused", "key": key, "v": 2, "size": 4, "value": "mine"},
        {"c": 2, "op": "read", "key": key, "v": 2},
        {"c": 1, "op": "delete", "key": key, "found": True},
        {"c": 1, "op": "read", "key": key, "v": 0},
        {"c": 1, "op": "write", "key": key, "v": 3, "from": 0, "size": 2, "value": "\xff\x00", "how": "set"},
    ]


def test_a_compare_set_that_wants_what_it_expects_is_a_read() -> None:
    here = Recorded()
    absent = b"\x00absent"
    here.one(compare(OURS, absent, absent) + compare(OURS, b"", b"1") + compare(OURS, absent, absent))
    assert [(line["op"], line["v"]) for line in here.lines()] == [("read", 0), ("write", 1), ("read", 1)]


def test_a_state_that_is_stored_again_by_a_compare_set_is_told() -> None:
    here = Recorded()
    here.one(set_(STATE, b"1"))
    here.two(watch(STATE))
    here.one(compare(STATE, b"1", b"1"))
    read, told = here.lines()[-2:]
    assert (read["op"], read["how"], told["op"]) == ("read", "compare_set", "told")


def test_a_blocked_wait_its_cause_and_its_end_stand_in_their_order() -> None:
    here = Recorded()
    here.two(wait(NEWS, b"/elsewhere"))
    here.one(set_(NEWS, b"host"))
    here.one(set_(b"/elsewhere", b""))
    here.two(plain(Query.MULTI_GET, counted([NEWS, b"/elsewhere"])))
    key = NEWS.decode()
    assert here.lines() == [
        {"c": 2, "op": "wait", "key": key, "keys": [key, "/elsewhere"], "missing": [key, "/elsewhere"]},
        {"c": 1, "op": "set", "key": key, "size": 4, "v": 1},
        {"c": 2, "op": "go", "key": key, "keys": [key, "/elsewhere"]},
        {"c": 2, "op": "multi_get", "keys": [key], "vs": [1]},
    ]


def test_a_get_of_ours_that_is_woken_reads_what_woke_it() -> None:
    here = Recorded()
    here.two(xget(-1, NEWS))
    here.one(set_(NEWS, b"host"))
    assert [(line["c"], line["op"], line.get("v")) for line in here.lines()] == [
        (2, "wait", None), (1, "set", 1), (2, "go", None), (2, "get", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (lambda here: here.two(CANCEL), "cancelled"),
        (lambda here: here.two.leave(), "closed"),
        (lambda here: here.room.pass_time(2.0), "timeout"),
    ],
)
def test_a_wait_that_ends_without_its_key_says_why(end: Any, why: str) -> None:
    here = Recorded()
    here.two(xget(1000, NEWS) if why == "timeout" else wait(NEWS))
    end(here)
    lines = [(line["op"], line.get("why")) for line in here.lines()]
    assert lines[:2] == [("wait", None), ("stop", why)] and lines[2:] == [("close", None)] * (why == "closed")


def test_keys_of_others_are_not_recorded_nor_is_a_handshake() -> None:
    sink, made = recorder(Keys.RENDEZVOUS)
    room = Room(secret=b"the secret", kind=partial(RecordingService, made))
    peer = room.peer(validated=False)
    peer(plain(Query.VALIDATE, U32.pack(MAGIC)) + plain(Query.CHECK, counted([b"trystate/extensions/1"])))
    peer(
        extended(Extension.HELLO, U32.pack(1)) + extended(Extension.PROVE, blob(b"n" * 32), blob(b"torch.rendezvous."))
    )
    assert [line["op"] for line in sink.take()] == ["open", "close"]
    here = Recorded()
    here.one(set_(b"/a", b"torch.rendezvous. is in its value") + get(b"/a") + push(b"/q", b"") + pop(b"/q"))
    assert here.lines() == []


def test_a_value_is_recorded_only_if_that_was_asked_for() -> None:
    for values in (False, True):
        here = Recorded(Keys.ALL, values)
        here.one(
            set_(b"/k", b"secret?") + multi_set(b"/l", b"secret?", b"/m", b"") + push(b"/q", b"secret?") + pop(b"/q")
        )
        lines = here.lines()
        assert [line["op"] for line in lines] == ["set", "multi_set", "queue_push", "queue_pop"]
        assert ("secret?" in str(lines)) is values


def test_a_refused_request_says_why_and_counts_no_version() -> None:
    here = Recorded(Keys.ALL)
    here.one(extended(Extension.SET, blob(b"/k"), blob(b"text")) + extended(Extension.ADD, blob(b"/k"), i64(1)))
    here.two(wait(b"/never") + plain(Query.PING, U32.pack(0)))  # a request while another is blocked
    here.one(extended(Extension.SET, blob(b"/k"), blob(b"more")))
    lines = here.lines()
    assert lines[1] == {"c": 1, "op": "add", "key": "/k", "error": "NOT_A_NUMBER"}
    assert [line["op"] for line in lines[2:5]] == ["wait", "stop", "close"]
    assert lines[5]["v"] == 2


def test_a_write_for_which_the_store_has_no_room_counts_no_version() -> None:
    here = Recorded(limits=Limits(bytes_total=200))
    here.one(extended(Extension.SET, blob(STATE), b"\0" * 8))
    here.one(extended(Extension.SET, blob(STATE), blob(b"x" * 300)))
    here.one(extended(Extension.SET, blob(STATE), blob(b"last")))
    assert [(line["op"], line.get("v"), line.get("error")) for line in here.lines()] == [
        ("write", 1, None), ("set", None, "TOO_LARGE"), ("write", 2, None),
    ]  # fmt: skip


def test_a_get_that_takes_a_promised_value_reads_its_version() -> None:
    here = Recorded()
    here.one(set_(STATE, b"1") + set_(STATE, b"2"))
    here.two(wait(STATE))
    here.one(set_(STATE, b"3") + delete(STATE))
    assert here.two(get(STATE)) == blob(b"2")
    assert here.lines()[-1] == {"c": 2, "op": "read", "key": STATE.decode(), "v": 2, "kept": True}


def test_a_value_kept_for_a_wait_that_was_woken_has_the_version_that_woke_it() -> None:
    here = Recorded()
    here.two(wait(NEWS))
    here.one(set_(NEWS, b"host") + delete(NEWS))
    assert here.two(get(NEWS)) == STOP + blob(b"host")
    assert here.lines()[-1] == {"c": 2, "op": "get", "key": NEWS.decode(), "v": 1, "kept": True}


def test_watches_barriers_and_queues_are_recorded() -> None:
    here = Recorded(Keys.ALL)
    here.two(watch(b"/k"))
    here.one(set_(b"/k", b""))
    here.one(barrier(b"/b", 2))
    here.two(barrier(b"/b", 2))
    here.one(push(b"/q", b"element") + wait(b"/q") + pop(b"/q"))
    assert [(line["c"], line["op"]) for line in here.lines()] == [
        (2, "watch"), (1, "set"), (2, "told"), (1, "barrier"), (1, "wait"), (2, "barrier"), (2, "wait"), (1, "go"),
        (2, "go"), (1, "queue_push"), (1, "reserve"), (1, "queue_pop"),
    ]  # fmt: skip


def test_a_queue_whose_reserved_element_was_taken_is_not_expected_to_be_there() -> None:
    here = Recorded(Keys.ALL)
    here.one(push(b"/q", b"element") + wait(b"/q") + pop(b"/q"))
    here.one(plain(Query.CHECK, counted([b"/q"])))
    assert [line["op"] for line in here.lines()] == ["queue_push", "reserve", "queue_pop", "check"]


def test_lists_and_values_that_are_too_large_for_a_line_are_cut_and_said() -> None:
    here = Recorded()
    here.two(wait(*(NEWS + b"%d" % n for n in range(150))))
    here.one(set_(STATE, bytes(VALUE_BYTES_MAX + 1)))
    waits, write = here.lines()
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


def test_a_file_that_is_full_is_followed_by_one_that_repeats_what_is_needed() -> None:
    here = Recorded(bytes_max=250)
    here.two(wait(NEWS))
    here.one(set_(STATE, b"1") + set_(STATE, b"2" * 200))
    lines = here.lines()
    begin = next(at for at, line in enumerate(lines) if line["op"] == "header")
    assert [line["op"] for line in lines[:begin]] == ["wait", "write", "write"]
    assert [line["op"] for line in lines[begin:]] == ["header", "open", "open", "write", "wait"]
    assert all(line["again"] for line in lines[begin + 1 :])
    assert (lines[begin + 3]["v"], lines[begin + 3]["value"]) == (2, "2" * 200)


def test_lost_lines_are_counted_and_what_is_needed_is_repeated() -> None:
    here = Recorded()
    here.one(set_(STATE, b"1"))
    here.lines()
    here.sink.lost = 3
    here.one(set_(STATE, b"2"))
    lines = here.lines()
    assert lines[0] == {"c": 0, "op": "lost", "lines": 4}  # with the last one, which the repetition has
    assert [(line["op"], line.get("v")) for line in lines[1:]] == [("open", None), ("open", None), ("write", 2)]


@pytest.mark.parametrize(
    ("key", "state"),
    [
        (b"torch.rendezvous.job", True),
        (b"/torch.rendezvous.team/job", True),
        (b"/torch.rendezvous.v1.2", True),
        (b"/some/prefix/torch.rendezvous.job", True),
        (b"torch.rendezvous.job.0/MASTER_ADDR", False),
        (b"torch.rendezvous.job.0/torchelastic/role_info/1", False),
        (b"trystate/job/state", True),
        (b"/trystate/job/state", True),
        (b"/trystate/job/news/12", False),
        (b"/trystate/rpc/0/state", False),
        (b"/default_pg/0//cpu//0/1", False),
    ],
)
def test_a_state_is_known_by_its_key(key: bytes, state: bool) -> None:
    assert is_state(key) is state


# ---- no answer is another, and the record says what the store holds

LONG = {
    b"/%c" % letter: name
    for letter, name in zip(b"abcd", (STATE, NEWS, b"trystate/j/state", b"trystate/j/x"), strict=True)
}


def _renamed(siege: list[Step]) -> list[Step]:
    """The same about keys of a rendezvous, some of them: those of the pools have two bytes."""
    steps = []
    for step in siege:
        data = step.data
        for short, long in LONG.items():
            data = data.replace(blob(short), blob(long))
        steps += sent(step.stranger, data, step.kind)
    return steps


def _compared(siege: list[Step], keys: Keys, secret: bytes | None = None) -> None:
    sink, made = recorder(keys)
    plain_one, recorded, replayed = Siege(secret), Siege(secret, kind=partial(RecordingService, made)), Replayed()
    for step in siege:
        plain_one.take(step)
        recorded.take(step)
        mine = [bytes(recorded.replies.get(each, b"gone")) for each in recorded.strangers]
        assert mine == [bytes(plain_one.replies.get(each, b"gone")) for each in plain_one.strangers]
        assert recorded.log == plain_one.log
        _agrees(recorded, sink, replayed, keys)
    recorded.end()
    for line in sink.take():
        replayed.take(line)
    assert not replayed.open and not replayed.blocked and not made._waits and not made._open
    assert not recorded.service.numbers and not recorded.service.promised  # type: ignore[attr-defined]


def _agrees(room: Siege, sink: Lines, replayed: Replayed, keys: Keys) -> None:
    service = room.service
    assert isinstance(service, RecordingService)
    for line in sink.take():
        replayed.take(line)
    wants, contents = service.recorder.wants, service.contents
    values = {key: value for key, value in contents.values.items() if wants(key)}
    assert {key: value for key, value in replayed.values.items() if wants(key)} == values
    assert all(replayed.versions[key] == service.recorder.version(key) for key in values)
    assert replayed.queues == {key: [*queue] for key, queue in contents.queues.items() if wants(key)}
    assert replayed.open == set(service.numbers.values())
    if keys is Keys.ALL:
        blocked = {service.numbers[each] for each in service.sessions if each.blocked is not None}
        assert set(replayed.blocked) == blocked


def _compared_all(siege: list[Step]) -> None:
    _compared(siege, Keys.ALL)


@given(sieges)
def test_with_a_record_of_all_keys_every_answer_is_the_same(siege: list[Step]) -> None:
    _compared(siege, Keys.ALL)


@given(sieges)
def test_with_a_record_of_rendezvous_every_answer_is_the_same(siege: list[Step]) -> None:
    _compared(_renamed(siege), Keys.RENDEZVOUS)


# ---- that it can find something


def _scripted() -> None:
    """The tests above of scripts, until one fails."""
    test_each_write_lost_write_and_read_of_a_state_has_its_version_and_its_writer()
    test_a_compare_set_that_wants_what_it_expects_is_a_read()
    test_a_blocked_wait_its_cause_and_its_end_stand_in_their_order()
    test_a_get_of_ours_that_is_woken_reads_what_woke_it()
    test_keys_of_others_are_not_recorded_nor_is_a_handshake()
    test_a_refused_request_says_why_and_counts_no_version()
    test_a_write_for_which_the_store_has_no_room_counts_no_version()
    test_a_get_that_takes_a_promised_value_reads_its_version()
    test_a_value_kept_for_a_wait_that_was_woken_has_the_version_that_woke_it()
    test_watches_barriers_and_queues_are_recorded()
    test_lost_lines_are_counted_and_what_is_needed_is_repeated()
    test_a_file_that_is_full_is_followed_by_one_that_repeats_what_is_needed()


def _nothing(*_: Any) -> None:
    """A step that is left out."""


def _refusals_count(request: Request, said: int, refusal: Refused) -> None:
    request.say(error=refusal.status.name)
    request.done()


SCRIPTED: dict[str, Mutant] = {
    "versions are not counted": replaced(Recorder, "written", _nothing),
    "a deleted key keeps its version": replaced(Recorder, "deleted", _nothing),
    "whoever is woken is not said": replaced(RecordedBlocking, "unblock", Blocking.unblock),
    "who waits is not said": replaced(RecordedBlocking, "_block", Blocking._block),
    "a write is said behind what it causes": replaced(Request, "before", _nothing),
    "the usual requests are not looked at": replaced(recording, "BY_FRAME", FAST_PATHS),
    "our states are not recorded": replaced(recording, "OURS", b"\xff" * 9),
    "a request that arrives in pieces is not recorded": replaced(RecordingService, "_do", Service._do),
    "what was refused counts": replaced(Request, "refused", _refusals_count),
    "an event is not said": replaced(RecordedWatches, "tell", Watches.tell),
    "a reservation is not said": replaced(RecordedPromises, "reserve", Promises.reserve),
    "a promise has no versions": replaced(Request, "promised", _nothing),
    "nothing is repeated": replaced(Recorder, "_again", lambda self: []),
}
BESIEGED: dict[str, Mutant] = {
    "a returned element is not said": replaced(RecordedPromises, "give_up", Promises.give_up),
    "a wait that ends with its session is not said": replaced(Recorder, "stops", _nothing),
}


def test_each_mistake_of_the_recording_is_noticed_by_a_script() -> None:
    assert survivors(SCRIPTED, _scripted) == []
    assert judged(), "the records of some have answers that no store gives"


@pytest.mark.parametrize("name", BESIEGED)
def test_each_rarer_mistake_of_the_recording_is_noticed_in_a_siege(name: str) -> None:
    hunt = settings(QUICK, max_examples=150)(given(sieges)(_compared_all))
    assert not survives(BESIEGED[name], hunt)
    judged()

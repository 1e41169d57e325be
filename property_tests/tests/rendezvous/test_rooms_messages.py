"""Messages of rooms: what is written is read, and any other bytes are refused with a sentence and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trystate.impl.rendezvous.changes import Table
from trystate.impl.rendezvous.encoding import NUMBER_MAX, TEXT_LENGTH_MAX, encode_settings
from trystate.impl.rendezvous.rooms import messages
from trystate.impl.rendezvous.rooms.messages import (
    BODIES,
    CHANGES,
    CLOSE,
    DRAIN,
    JOIN,
    OPERATORS,
    Intent,
    IntentError,
    Summary,
    read_intent,
    read_record,
    read_summary,
)  # fmt: skip
from trystate.impl.rendezvous.rooms.room import Room
from trystate.impl.rendezvous.state import RANK_KEY_LENGTH_MAX, REASON_LENGTH_MAX, Closed, Node, Participant
from trystate.property_tests.adapters.our_rendezvous.parts import participant, settings
from trystate.property_tests.adapters.rooms.nodes import begun, sent

TEXTS = st.text(max_size=12) | st.sampled_from(["", "\ud800", "\0", "x" * TEXT_LENGTH_MAX, "é" * TEXT_LENGTH_MAX])
NUMBERS = st.integers(0, 9) | st.sampled_from([NUMBER_MAX - 1, NUMBER_MAX])
TOKENS = st.text("abc0-_", min_size=1, max_size=messages.TOKEN_BYTES)
NODES = st.builds(Node, TEXTS, NUMBERS, NUMBERS, TOKENS)
KEYS = TEXTS.map(lambda text: text[:RANK_KEY_LENGTH_MAX])
REASONS = TEXTS.map(lambda text: text[:REASON_LENGTH_MAX])
ROUNDS = st.none() | st.tuples(TEXTS.filter(bool), NUMBERS)
VALUES: dict[messages.Codec, Any] = {
    messages.TEXT: TEXTS, messages.KEY: KEYS, messages.REASON: REASONS, messages.NUMBER: NUMBERS, messages.NODE: NODES,
    messages.FLAG: st.booleans(), messages.BLOB: st.binary(max_size=20), messages.TOKENS: st.lists(TEXTS, max_size=3),
    messages.DIGEST: st.binary(min_size=16, max_size=16), messages.ROUND: ROUNDS,
    messages.LISTING: st.builds(Participant, NODES, TEXTS, st.integers(0, 65535), st.just(0), KEYS),
    messages.ENDED: st.lists(st.tuples(TEXTS, NUMBERS, NUMBERS), max_size=3),
}  # fmt: skip


@st.composite
def intents(draw: st.DrawFn) -> Intent:
    kind = draw(st.sampled_from(sorted(BODIES)))
    u32 = st.integers(0, 2**32 - 1)
    connection = draw(u32 if kind in OPERATORS else u32.filter(bool))
    intent = Intent(
        kind, draw(TOKENS), connection, draw(u32), draw(st.integers(0, 255)), draw(st.integers(0, 2**64 - 1))
    )
    for name, codec in BODIES[kind]:
        setattr(intent, name, draw(VALUES[codec]))
    if intent.me is not None:
        intent.me = replace(intent.me, node=replace(intent.me.node, token=intent.token))
    return intent


@given(intents())
def test_a_request_is_read_as_it_was_written(intent: Intent) -> None:
    assert read_intent(intent.encode()) == intent


@given(st.data(), st.sampled_from(sorted(CHANGES)), NUMBERS)
def test_a_record_is_read_as_it_was_written(data: st.DataObject, name: str, version: int) -> None:
    arguments = [data.draw(VALUES[codec]) for codec in CHANGES[name]]
    assert read_record(messages.record(name, version, arguments)) == (name, version, arguments)


def test_an_answer_is_read_as_it_was_written() -> None:
    room = begun(3, 3)
    state = room.state
    assert state is not None and state.complete
    table = Table.of(
        replace(state, closed=Closed("a", "b", "failed"), spent=2, cause="it left", revision=9, version=12)
    )
    body = messages.body(table, b"12345678")
    got = read_summary(messages.answer(table.membership("token-1"), 1, body, flags=5, verdict=2, why="over"))
    assert (got.life, got.round, got.rank, got.participants, got.master) == ("life-1", 0, 1, 3, ("host0", 29500))
    assert (got.applied, got.drained, got.is_done, got.verdict, got.why) == (True, False, True, 2, "over")
    assert (got.closed, got.spent, got.cause, got.members) == (table.closed, 2, "it left", b"12345678")
    assert (got.version, got.revision, got.seats, got.complete, got.calling) == (12, 9, 0, True, False)
    assert got.mark == messages.mark("life-1", 9) and isinstance(got, Summary)


def refused(read: Callable[[Any], object], data: object) -> bool:
    """Whether the bytes are refused. Any other exception is raised."""
    try:
        read(data)
    except IntentError as why:
        assert len(str(why)) > 20
        return True
    return False


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (read_intent, read_summary, read_record):
        refused(read, data)
        refused(read, b"\1" + data)


@given(intents(), st.data())
def test_a_damaged_request_is_applied_as_another_or_changes_nothing(intent: Intent, data: st.DataObject) -> None:
    raw = bytearray(intent.encode())
    if data.draw(st.booleans()):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
        assert refused(read_intent, bytes(raw))
    records: list[bytes] = []
    room = begun(2, 3, record=records.append)
    before, count = room.state, len(records)
    if refused(lambda whole: room.request("peer", whole, 1.0), bytes(raw)):
        assert room.state == before and len(records) == count and not (room.notices or room.drop)


@given(st.data())
def test_a_damaged_record_is_refused_or_read(data: st.DataObject) -> None:
    records: list[bytes] = []
    begun(2, 3, record=records.append).snapshot()
    k = data.draw(st.integers(0, len(records) - 1))
    damaged = bytearray(records[k])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    records[k] = bytes(damaged)
    refused(lambda all: [*map(Room(lambda: "life").replay, all)], records)


# fmt: off
MISTAKES: dict[str, Callable[[bytes], bytes]] = {
    "fewer than its head": lambda raw: raw[:10],
    "no request of kind 99": lambda raw: b"\x63" + raw[1:],
    "a token is": lambda raw: raw[:1] + bytes(16) + raw[17:],
    "no number of its connection": lambda raw: raw[:17] + bytes(4) + raw[21:],
    "and its fields": lambda raw: raw + b"x",
    "sends the listing of the node 'token-0'": lambda raw: raw.replace(b"token-0", b"token-9", 1),
    "do not have its digest": lambda raw: raw.replace(b'"train.py"', b'"other.py"'),
}
# fmt: on


@pytest.mark.parametrize(("why", "change"), MISTAKES.items(), ids=MISTAKES)
def test_a_refusal_names_the_mistake(why: str, change: Callable[[bytes], bytes]) -> None:
    room = Room(lambda: "life")
    with pytest.raises(IntentError, match=why):
        room.request("peer", change(sent(0, JOIN, settings(2, 3), "train.py")), 0.0)
    assert room.state is None


def test_texts_numbers_and_settings_have_limits() -> None:
    me = participant(0)
    for wrong in (replace(me, host="x" * (TEXT_LENGTH_MAX + 1)), replace(me, rank_key="x" * (RANK_KEY_LENGTH_MAX + 1))):
        assert refused(messages.LISTING.write, wrong)
    huge = replace(me, node=replace(me.node, pid=NUMBER_MAX + 1))
    assert refused(lambda data: messages.LISTING.read(messages.Reader(data, 0)), messages.LISTING.write(huge))
    node, blob = me.node, encode_settings(settings(2, 3)).replace(b"2,3,", b"3,2,")
    close = Intent(CLOSE, "token-0", flags=messages.ANYWAY, by=node, settings=blob).encode()
    with pytest.raises(IntentError, match="settings has nodes 3:2"):
        Room(lambda: "life").request("peer", close, 0.0)
    drain = Intent(DRAIN, "token-0", by=node, whom="nobody").encode()
    assert Room(lambda: "life").request("peer", drain, 0.0) == bytes((messages.NO_STATE,))


def test_records_of_another_release_or_with_a_gap_are_refused() -> None:
    records: list[bytes] = []
    begun(2, 3, record=records.append)
    for wrong, why in (([b"\1" + records[0][1:]], "release that wrote it"), (records[1:], "follows the version None"),
                       (records[:1] + records[2:], "records between them are lost")):  # fmt: skip
        room = Room(lambda: "life")
        with pytest.raises(IntentError, match=why):
            for one in wrong:
                room.replay(one)

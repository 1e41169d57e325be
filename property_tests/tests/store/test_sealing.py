"""Records that are bound to a secret: whatever a relay does to them, the receiver gets a beginning of what was sent.

The mutants lack the number in the MAC, the direction in the key, or the comparison.
"""

from __future__ import annotations

import hmac
from itertools import repeat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trystate.impl.host import sealing
from trystate.impl.host.sealing import RECORD_BYTES_MAX, Altered, Bound, bound

SECRET, SERVER, CLIENT = b"0123456789abcdef", b"s" * 32, b"c" * 32
MESSAGES = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5)


def pair() -> tuple[Bound, Bound]:
    return bound(SECRET, SERVER, CLIENT, server=True), bound(SECRET, SERVER, CLIENT, server=False)


def delivered(receiver: Bound, pieces: list[bytes]) -> bytes:
    """The bytes that the receiver returns before it refuses a piece."""
    found = b""
    try:
        for piece in pieces:
            found += receiver.opened(piece)
    except Altered:
        pass
    return found


@st.composite
def attacks(draw: st.DrawFn) -> tuple[list[bytes], list[bytes]]:
    """The messages of a client, and its records as a relay delivers them."""
    messages = draw(MESSAGES)
    server, client = pair()
    records = [client.sealed(message) for message in messages]
    own = [server.sealed(b"own" + message) for message in messages]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(records) - 1))
        match draw(st.sampled_from(["drop", "repeat", "swap", "flip", "cut", "reflect"])):
            case "drop" if len(records) > 1:
                del records[at]
            case "repeat":
                records.insert(at, records[at])
            case "swap":
                records[at], records[0] = records[0], records[at]
            case "reflect":
                records[at] = own[at % len(own)]
            case how:
                place = draw(st.integers(0, len(records[at]) - 1))
                record = bytearray(records[at])
                record[place] ^= 1 << draw(st.integers(0, 7))
                records[at] = records[at][:place] if how == "cut" and place else bytes(record)
    return messages, records


@given(attacks())
def test_the_receiver_gets_a_beginning_of_what_was_sent(attack: tuple[list[bytes], list[bytes]]) -> None:
    messages, records = attack
    server, _ = pair()
    assert b"".join(messages).startswith(delivered(server, records))


@given(MESSAGES, st.data())
def test_records_may_arrive_in_any_pieces(messages: list[bytes], data: st.DataObject) -> None:
    server, client = pair()
    stream, pieces = b"".join(map(client.sealed, messages)), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        pieces.append(stream[:size])
        stream = stream[size:]
    assert delivered(server, pieces) == b"".join(messages)


def test_a_large_message_is_several_records() -> None:
    server, client = pair()
    message = bytes(2 * RECORD_BYTES_MAX + 1)
    records = client.sealed(memoryview(message))
    assert len(records) == len(message) + 3 * Bound.HEAD_BYTES
    assert server.opened(records) == message


def test_an_empty_message_is_no_record() -> None:
    """A list of no values is empty in torch's protocol."""
    assert pair()[0].sealed(b"") == b""


@pytest.mark.parametrize("size", [0, RECORD_BYTES_MAX + 1, 0xFFFFFFFF])
def test_an_impossible_size_is_refused_before_the_body_is_read(size: int) -> None:
    with pytest.raises(Altered, match=f"a record of {size} bytes"):
        pair()[0].opened(size.to_bytes(4, "little") + bytes(16))


def test_a_record_of_another_connection_is_refused() -> None:
    _, client = pair()
    for other in (bound(SECRET, bytes(32), CLIENT, server=True), bound(SECRET, SERVER, CLIENT, b"+", server=True),
                  bound(b"another secret..", SERVER, CLIENT, server=True)):  # fmt: skip
        with pytest.raises(Altered):
            other.opened(client.sealed(b"message"))


def test_a_record_that_is_returned_to_its_sender_is_refused() -> None:
    assert delivered(pair()[0], [pair()[0].sealed(b"own")]) == b""


def test_a_record_that_is_repeated_is_refused() -> None:
    server, client = pair()
    assert delivered(server, [client.sealed(b"message")] * 2) == b"message"


def without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "count", lambda: repeat(0))


def with_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = hmac.digest
    monkeypatch.setattr(hmac, "digest", lambda key, text, how: digest(key, text.replace(b"server", b"client"), how))


def without_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: True)


@pytest.mark.parametrize(
    ("mutant", "noticing"),
    [
        (without_numbers, test_a_record_that_is_repeated_is_refused),
        (with_one_key, test_a_record_that_is_returned_to_its_sender_is_refused),
        (without_comparison, test_the_receiver_gets_a_beginning_of_what_was_sent),
    ],
)
def test_a_mutant_is_noticed(mutant: Any, noticing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        noticing()

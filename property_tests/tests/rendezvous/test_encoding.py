"""The state as bytes: a written state is read unchanged; other bytes are refused quickly, with one kind of error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trystate.impl.rendezvous.command import Command
from trystate.impl.rendezvous.encoding import (
    FIELDS,
    NUMBER_MAX,
    READ_BYTES_MAX,
    STATE_BYTES_MAX,
    TEXT_LENGTH_MAX,
    decode,
    encode,
)
from trystate.impl.rendezvous.errors import RendezvousStateError
from trystate.impl.rendezvous.state import LISTS, RANK_KEY_LENGTH_MAX, Closed, Node, Participant, Settings, State
from trystate.property_tests.adapters.our_rendezvous.parts import participant, settings

TEXTS = st.text(max_size=12) | st.sampled_from(["", "\ud800", "\udcff", '"\\', "\x00", "x" * TEXT_LENGTH_MAX])
NUMBERS = st.integers(0, 9) | st.sampled_from([NUMBER_MAX - 1, NUMBER_MAX])
SECONDS = st.sampled_from([0.0, 0.1, 1, 30, 1e-9, 1e9])
KEYS = TEXTS.filter(lambda text: len(text) <= RANK_KEY_LENGTH_MAX)
LISTED = st.builds(Node, TEXTS, NUMBERS, NUMBERS, st.integers().map(str))
PARTICIPANTS = st.builds(Participant, LISTED, TEXTS, st.integers(0, 65535), NUMBERS, KEYS)


@st.composite
def states(draw: st.DrawFn) -> State:
    """A state that a store could hold."""
    nodes = draw(st.lists(PARTICIPANTS, max_size=8, unique_by=lambda p: p.node.token))
    lists: dict[str, list[Participant]] = {name: [] for name in LISTS}
    complete = draw(st.booleans()) and bool(nodes)
    for k, node in enumerate(nodes):
        allowed = [name for name in LISTS if not (complete and name == "expected")]
        lists["participants" if complete and k == 0 else draw(st.sampled_from(allowed))].append(node)
    size = len(lists["participants"])
    low = draw(st.integers(1, max(size, 1) if complete else 9))
    high = max(low, size + len(lists["expected"])) + draw(st.integers(0, 3))
    agreed = Settings(
        low, high, draw(SECONDS), draw(SECONDS), draw(SECONDS.filter(bool)), draw(st.integers(2, 9)),
        draw(st.integers(-1, 3)), draw(SECONDS), draw(st.builds(Command, TEXTS, TEXTS, NUMBERS)),
    )  # fmt: skip
    return State(
        draw(TEXTS), agreed, draw(NUMBERS), draw(TEXTS), draw(NUMBERS), complete, draw(NUMBERS), draw(NUMBERS),
        done=tuple(draw(st.lists(TEXTS, max_size=3))), spent=draw(NUMBERS), cause=draw(TEXTS),
        closed=draw(st.none() | st.builds(Closed, TEXTS, TEXTS, st.sampled_from(["", "succeeded", "failed"]))),
        draining=tuple(p.node.token for n in LISTS if n != "participants" for p in lists[n] if draw(st.booleans())),
        **{name: tuple(some) for name, some in lists.items()},
    )  # fmt: skip


RUN = Command("train.py", "5e0f1a2b: --lr *3c", 2)


def sample() -> State:
    return State(
        "life", settings(2, 4, max_restarts=3, command=RUN), 7, "token-0", 1, True, 2, 3,
        (participant(0, 1), participant(1)), (),
        (participant(2, 5),), (participant(3),), ("token-0",), 1, "a member left",
        Closed("node0_100_0", "the job is over", "failed"),
    )  # fmt: skip


def refused(data: bytes) -> bool:
    """Whether the bytes are refused. If not, the state survives a round trip. Any other exception is raised."""
    try:
        state = decode(data)
    except RendezvousStateError:
        return True
    assert decode(encode(state)) == state
    return False


# ---- what was written is read


@given(states())
def test_a_state_comes_back_as_it_was(state: State) -> None:
    data = encode(state)
    assert decode(data) == state
    assert encode(decode(data)) == data
    assert data.isascii()


def test_the_same_state_is_the_same_bytes_with_integers_or_floats() -> None:
    whole, floats = (replace(sample(), settings=settings(2, 4, last_call_timeout=s)) for s in (30, 30.0))
    assert whole == floats
    assert encode(whole) == encode(floats) == encode(decode(encode(whole)))


def test_the_format_is_this_one() -> None:
    assert encode(State("life", Settings(1, 2), participants=(participant(0, 9),))) == (
        b'{"format":"trystate-rendezvous-4","life":"life","version":0,"writer":"","round":0,"complete":false,"call":0,'
        b'"news":0,"settings":[1,2,30.0,0.0,5.0,3,-1,0.0,["","",0]],"done":[],"spent":0,"cause":"","closed":null,"participants":'
        b'[["node0",100,0,"token-0","host0",29500,9,""]],"expected":[],"waiting":[],"spares":[],"draining":[]}'
    )


WRONG: tuple[dict[str, Any], ...] = (
    {"version": -1}, {"round": NUMBER_MAX + 1}, {"life": "x" * (TEXT_LENGTH_MAX + 1)}, {"complete": 1}, {"done": (7,)},
    {"settings": settings(3, 2)}, {"closed": Closed("", None)}, {"draining": ("token-0",)},  # type: ignore[arg-type]
    {"waiting": (participant(0),)}, {"waiting": (replace(participant(5), port=65536),)},
)  # fmt: skip


@pytest.mark.parametrize("fields", WRONG, ids=lambda fields: next(iter(fields)))
def test_nothing_is_written_that_would_be_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RendezvousStateError, match="the state of the rendezvous cannot be written"):
        encode(replace(sample(), **fields))


# ---- refusals

JUNK: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, -1, 0.0, 1.0, 1.5, -0.5, 65535, 65536, NUMBER_MAX, NUMBER_MAX + 1, 10**400,
    float("nan"), float("inf"), -float("inf"), "x", "1",
    *("x" * length for limit in (RANK_KEY_LENGTH_MAX, TEXT_LENGTH_MAX) for length in (limit, limit + 1)),
    [], {}, [[]], [None], {"a": 1}, ["x"],
)  # fmt: skip
KINDS: dict[str, Callable[[Any], bool]] = {
    "text": lambda v: isinstance(v, str) and len(v) <= TEXT_LENGTH_MAX,
    "key": lambda v: isinstance(v, str) and len(v) <= RANK_KEY_LENGTH_MAX,
    "number": lambda v: type(v) is int and 0 <= v <= NUMBER_MAX,
    "port": lambda v: type(v) is int and 0 <= v <= 65535,
    "flag": lambda v: type(v) is bool,
    "texts": lambda v: v in ([], ["x"]),
    "listings": lambda v: v == [],
    "closed": lambda v: v is None,
    "low": lambda v: type(v) is int and 1 <= v <= 2,  # there are 2 participants, and the round is complete
    "high": lambda v: type(v) is int and 2 <= v <= NUMBER_MAX,
    "seconds": lambda v: type(v) in (int, float) and 0 <= v <= NUMBER_MAX,
    "interval": lambda v: type(v) in (int, float) and 0 < v <= NUMBER_MAX,
    "attempts": lambda v: type(v) is int and 2 <= v <= NUMBER_MAX,
    "restarts": lambda v: type(v) is int and -1 <= v <= NUMBER_MAX,
    "never": lambda v: False,
}
LISTING = ("text", "number", "number", "text", "text", "port", "number", "key")
PLACES: dict[tuple[str | int, ...], str] = {
    ("format",): "never", ("life",): "text", ("version",): "number", ("writer",): "text", ("round",): "number",
    ("complete",): "flag", ("call",): "number", ("news",): "number", ("settings",): "never", ("done",): "texts",
    ("done", 0): "text", ("spent",): "number", ("cause",): "text", ("closed",): "closed", ("participants",): "never",
    ("expected",): "listings", ("waiting",): "listings", ("spares",): "listings", ("draining",): "listings",
    **{("settings", k): kind for k, kind in enumerate(
        ("low", "high", "seconds", "seconds", "interval", "attempts", "restarts", "seconds", "never"))},
    **{("settings", 8, k): kind for k, kind in enumerate(("text", "text", "number"))},
    **{("closed", k): "text" for k in range(3)},
    **{(name, 0): "never" for name in ("participants", "waiting", "spares")},
    **{(name, 0, k): kind for name in ("participants", "waiting", "spares") for k, kind in enumerate(LISTING)},
}  # fmt: skip


def changed(place: tuple[str | int, ...], value: Any) -> bytes:
    """The sample with another value at one place."""
    fields = json.loads(encode(sample()))
    inner = fields
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return json.dumps(fields).encode()


def test_every_place_takes_what_belongs_there_and_nothing_else() -> None:
    assert {place[0] for place in PLACES} == set(FIELDS)
    decode(encode(sample()))  # its listings are cached now, and 1 and true must still differ
    for (at, kind), value in product(PLACES.items(), JUNK):
        assert refused(changed(at, value)) is not KINDS[kind](value), (at, value)


A, B, C = (["n", 1, 0, name, "h", 1, 0, ""] for name in "abc")
RUNS = ["", "", 0]
RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("a node is listed twice", {"participants": [A, B], "waiting": [B]}),
    ("more participants than max_nodes=2", {"participants": [A, B, C], "settings": [1, 2, 0, 0, 1, 2, 0, 0, RUNS]}),
    ("more participants than max_nodes=2", {
        "complete": False, "participants": [A, B], "expected": [C], "waiting": [],
        "settings": [1, 2, 0, 0, 1, 2, 0, 0, RUNS],
    }),
    ("has an expected node", {"expected": [C]}),
    ("fewer participants than min_nodes", {"participants": [A]}),
    ("participants has an entry that is not a list of eight texts and numbers", {"participants": [A, B[:7]]}),
    ("settings has 8 parts, not 9", {"settings": [1, 2, 0, 0, 1, 2, 0, RUNS]}),
    ("command has 2 parts, not 3", {"settings": [1, 2, 0, 0, 1, 2, 0, 0, RUNS[:2]]}),
    ("settings has nodes 3:2", {"settings": [3, 2, 0, 0, 1, 2, 0, 0, RUNS]}),
    ("closed has 2 parts, not 3", {"closed": ["", ""]}),
    ("draining has a node twice", {"draining": ["token-2", "token-2"]}),
    ("a participant", {"draining": ["token-0"]}),
    ("or one that is not listed", {"draining": ["token-2", "token-9"]}),
    ("port is 65536", {"participants": [A, [*B[:5], 65536, 0, ""]]}),
    ("has the fields", {"more": 1}),
)  # fmt: skip


@pytest.mark.parametrize(("why", "fields"), RULES, ids=[why for why, _ in RULES])
def test_a_state_that_breaks_a_rule_is_refused_by_name(why: str, fields: dict[str, Any]) -> None:
    with pytest.raises(RendezvousStateError, match=r"is not a state of a rendezvous: .*It was not touched") as refusal:
        decode(json.dumps({**json.loads(encode(sample())), **fields}).encode())
    assert why in str(refusal.value)


OLD = (
    b'{"format":"trystate-rendezvous-1","life":"life","version":0,"writer":"","round":0,"complete":false,"call":0,'
    b'"news":0,"settings":[1,2,30.0,0.0,5.0,3,-1],"done":[],"spent":0,"closed":null,"participants":'
    b'[["node0",100,0,"token-0","host0",29500,9]],"expected":[],"waiting":[],"spares":[]}'
)


def test_a_state_of_an_earlier_version_is_refused_by_its_name() -> None:
    """The earlier version also refuses a state of this version: it compares the name first."""
    said = (
        "its format is 'trystate-rendezvous-1', not 'trystate-rendezvous-4'; run one version of trystate on all nodes"
    )
    with pytest.raises(RendezvousStateError, match=said):
        decode(OLD)
    assert refused(OLD.replace(b"rendezvous-1", b"rendezvous-4"))


def test_a_state_of_the_last_version_is_read_from_a_record_alone() -> None:
    last = encode(sample()).replace(b"rendezvous-4", b"rendezvous-3")
    assert decode(last, recorded=True) == sample()
    assert refused(last)
    with pytest.raises(RendezvousStateError, match="its format is 'trystate-rendezvous-1'"):
        decode(OLD, recorded=True)


def test_a_truncated_state_is_refused_at_every_byte() -> None:
    data = encode(sample())
    assert not refused(data)
    assert all(refused(data[:k]) for k in range(len(data)))


@given(st.integers(0, 10**6), st.binary(min_size=0, max_size=3), st.integers(0, 3))
def test_a_damaged_state_is_refused_or_is_another_state(at: int, patch: bytes, cut: int) -> None:
    data = encode(sample())
    at %= len(data)
    refused(data[:at] + patch + data[at + cut :])


@pytest.mark.parametrize("place", [("format",), ("life",), ("done",), ("participants", 0, 3), ("settings", 2)])
def test_deep_nesting_is_refused_at_every_depth(place: tuple[str | int, ...]) -> None:
    before, after = changed(place, "HERE").split(b'"HERE"')
    for depth in (*range(2, 1100, 7), *range(900, 1010), 100_000, 500_000):
        for begin, end in ((b"[", b"]"), (b'{"a":', b"0}")):
            assert refused((before + begin * depth + end * depth + after)[:STATE_BYTES_MAX]), (place, depth)
    assert refused(b"[" * STATE_BYTES_MAX)


def test_the_limit_of_size_is_exact() -> None:
    data = encode(sample())
    assert not refused(data + b" " * (READ_BYTES_MAX - len(data)))
    with pytest.raises(RendezvousStateError, match=rf"it has {READ_BYTES_MAX + 1} bytes, and the limit"):
        decode(data + b" " * (READ_BYTES_MAX + 1 - len(data)))
    filled = replace(sample(), done=("x" * 1000,) * 1043)
    left = STATE_BYTES_MAX - len(encode(filled)) - 6
    full = replace(filled, done=(*filled.done, "x" * (left // 2), "x" * (left - left // 2)))
    assert len(encode(full)) == STATE_BYTES_MAX
    assert decode(encode(full)) == full
    with pytest.raises(RendezvousStateError, match=rf"of 4 nodes takes {STATE_BYTES_MAX + 1} bytes.*--local-addr"):
        encode(replace(full, life="life1"))

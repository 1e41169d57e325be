"""Any bytes, cut anywhere, from several strangers: the service of a store stays right, bounded and served in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from trystate.impl.store.contents import contents as contents
from trystate.impl.store.contents.waiting import Waiting
from trystate.impl.store.limits import Limits
from trystate.impl.store.operations import BODIES, Field
from trystate.impl.store.server.fast_path import FAST_PATHS, FastPath
from trystate.impl.store.server.half_sent import HalfSent
from trystate.impl.store.server.parsing import Frame
from trystate.impl.store.server.service import Service
from trystate.impl.store.server.session import Session
from trystate.model.store.vocabulary import Connection, Extension, Query
from trystate.property_tests.support.mutants import Mutant, survives
from trystate.property_tests.support.nightly import NIGHTLY, by_night
from trystate.property_tests.support.stores.besieged import (
    LEAVE,
    PASS,
    POOLS,
    SEND,
    STALL,
    STRANGERS,
    VALIDATE,
    Siege,
    Step,
    besiege,
    encode,
    seeds,
    sent,
    whole,
)

ATHERIS = pytest.mark.skipif(find_spec("atheris") is None, reason="needs atheris")
QUICK = settings(
    derandomize=True, database=None, deadline=None, max_examples=400, phases=[Phase.generate],
    report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
)  # fmt: skip

MEETING = (Query.WAIT, Query.SET, Query.DELETE_KEY, Query.QUEUE_PUSH, Query.QUEUE_POP)  # they act on each other
strangers = st.integers(0, STRANGERS - 1)
KINDS = st.sampled_from(sorted(BODIES))


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request of any kind, with what is allowed in it and what is not."""
    return whole(draw(KINDS), lambda pool: draw(st.sampled_from(pool)))


@st.composite
def encounters(draw: st.DrawFn) -> list[Step]:
    """A few strangers about the same two keys."""
    turns = draw(st.lists(st.tuples(strangers, st.sampled_from(MEETING) | KINDS), min_size=2, max_size=6))
    return [
        step for who, kind in turns for step in sent(who, whole(kind, lambda pool: draw(st.sampled_from(pool[:2]))))
    ]


@st.composite
def floods(draw: st.DrawFn) -> bytes:
    """Requests of one kind for one key after another."""
    kind = draw(st.sampled_from([Extension.WATCH, Extension.SET, Extension.QUEUE_PUSH]))
    pools = [{**POOLS, Field.KEY: [key]} for key in POOLS[Field.KEY][8:-3]]
    return b"".join(whole(kind, lambda pool: pool[0], each) for each in pools)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """One or two requests of which some bytes are others, or missing."""
    data = bytearray(draw(requests()) + draw(st.just(b"") | requests()))
    for _ in range(draw(st.integers(0, 2))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from([0, 1, 2, 8, 48, 127, 255]))
    begin = draw(st.just(0) | st.integers(0, len(data)))
    return bytes(data[begin : draw(st.just(len(data)) | st.integers(begin, len(data)))])


halves = st.integers(600, 1600).map(lambda size: whole(Query.MULTI_SET, lambda pool: pool[-1])[:size])


@st.composite
def deeds(draw: st.DrawFn) -> list[Step]:
    """One act of a stranger."""
    if draw(st.integers(0, 2)) == 0:
        return draw(encounters())
    who = draw(strangers)
    kind = draw(st.sampled_from([SEND] * 8 + [LEAVE, PASS, STALL]))
    if kind == PASS:
        return [Step(kind, who, bytes(draw(st.sampled_from([1, 70, 250]))))]
    if kind == LEAVE:
        return [Step(kind, who, draw(st.sampled_from([VALIDATE, b""])))]
    if kind == STALL:  # it reads nothing, and asks
        return sent(who, draw(requests()) * draw(st.integers(1, 9)), STALL)
    return sent(who, draw(requests() | requests() | mutated() | floods() | halves | st.binary(max_size=40)))


sieges = st.lists(deeds(), min_size=8, max_size=60).map(lambda each: [step for deed in each for step in deed])


@given(st.binary(max_size=600))
def test_no_bytes_at_all_bring_it_down_or_out_of_step(siege: bytes) -> None:
    besiege(siege)


def _besiege(siege: list[Step]) -> None:
    besiege(encode(siege))


@given(sieges)
def test_requests_whole_wrong_and_cut_off_bring_it_down_neither(siege: list[Step]) -> None:
    _besiege(siege)


@given(sieges)
def test_behind_a_secret_strangers_change_nothing(siege: list[Step]) -> None:
    room = besiege(encode(siege), secret=b"unknown to them")
    assert (room.service.contents.values, room.service.contents.queues) == ({}, {})


@pytest.mark.parametrize("siege", seeds()[:: 1 if NIGHTLY else 9])
def test_a_siege_that_a_fuzzer_begins_with_does_no_harm(siege: bytes) -> None:
    besiege(siege)


# ---- pieces

Turn = tuple[int, bytes]  # a stranger, and a whole request


def _state(room: Siege) -> tuple[object, ...]:
    held = room.service.contents
    replies = [bytes(room.replies.get(each, b"gone")) for each in room.strangers]
    return replies, held.values, {key: list(queue) for key, queue in held.queues.items()}, room.log


def _whole_conversation(turns: list[Turn]) -> tuple[object, ...]:
    room = Siege(limits=Limits())
    for who, request in turns:
        room.feed(room.strangers[who], request)
    return _state(room)


def _conversation_in_pieces(turns: list[Turn], data: st.DataObject) -> tuple[object, ...]:
    """The last byte of each request comes in its turn; the others at any time after that peer's turn before."""
    room = Siege(limits=Limits())  # a request over a limit is refused as soon as that is known, not in its turn
    unsent = [request for _, request in turns]
    for now, (who, _) in enumerate(turns):
        for other, session in enumerate(room.strangers):
            due = next((k for k in range(now, len(turns)) if turns[k][0] == other), None)
            promised = session.promise is not None  # which the first byte of another request would end
            if due is None or promised or session.state is not Connection.READY:
                continue
            early = data.draw(st.integers(0, len(unsent[due]) - 1))
            for byte in range(early) if data.draw(st.booleans()) else [slice(0, early)]:
                piece = unsent[due][byte : byte + 1] if isinstance(byte, int) else unsent[due][byte]
                room.feed(session, piece)
            unsent[due] = unsent[due][early:]
        room.feed(room.strangers[who], unsent[now])
        room.audit()
    return _state(room)


conversations = st.lists(st.tuples(strangers, requests()), max_size=12)


def _same_in_pieces(turns: list[Turn], data: st.DataObject) -> None:
    assert _conversation_in_pieces(turns, data) == _whole_conversation(turns)


@given(conversations, st.data())
def test_what_others_have_half_sent_changes_no_reply(turns: list[Turn], data: st.DataObject) -> None:
    _same_in_pieces(turns, data)


# ---- that it can find something


def _half_forgotten(patch: pytest.MonkeyPatch) -> None:
    def forgetful(self: HalfSent, session: Session) -> None:
        session.frame = None
        session.buffer.clear()

    patch.setattr(HalfSent, "end", forgetful)


def _no_limit_for_short_requests(patch: pytest.MonkeyPatch) -> None:
    for query, strict in [*FAST_PATHS.items()]:

        def lenient(service: Service, *request: Any, strict: FastPath = strict) -> int:
            service.limits, limits = Limits(), service.limits
            try:
                return strict(service, *request)
            finally:
                service.limits = limits

        patch.setitem(FAST_PATHS, query, lenient)


def _any_text_is_a_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(contents, "number", lambda key, text: int(text))


def _deleted_keys_still_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Waiting, "vanished", lambda self, key: None)


def _waits_of_the_dead_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Waiting, "withdraw", lambda self, wait: None)


def _a_byte_is_read_twice(patch: pytest.MonkeyPatch) -> None:
    advance = Frame.advance

    def stuttering(self: Frame, data: Any, position: int, end: int) -> int:
        reached = advance(self, data, position, end)
        return reached - 1 if self.complete and reached - position > 40 else reached

    patch.setattr(Frame, "advance", stuttering)


FOUND_BY_SIEGES: list[Mutant] = [
    _half_forgotten, _no_limit_for_short_requests, _any_text_is_a_number, _deleted_keys_still_count,
    _waits_of_the_dead_stay,
]  # fmt: skip
FOUND_IN_PIECES: list[Mutant] = [_half_forgotten, _a_byte_is_read_twice]


def _hunt(claim: Callable[..., object], *strategies: Any, examples: int = 400) -> None:
    bind: Any = given(*strategies)
    settings(QUICK, max_examples=examples)(bind(claim))()


@pytest.mark.parametrize("mutant", FOUND_BY_SIEGES, ids=lambda mutant: mutant.__name__[1:])
def test_a_siege_finds_a_mutant(mutant: Mutant) -> None:
    assert not survives(mutant, partial(_hunt, _besiege, sieges))


@pytest.mark.parametrize("mutant", FOUND_IN_PIECES, ids=lambda mutant: mutant.__name__[1:])
def test_requests_in_pieces_find_a_mutant(mutant: Mutant) -> None:
    assert not survives(mutant, partial(_hunt, _same_in_pieces, conversations, st.data()))


def test_the_sieges_reach_every_limit_that_a_stranger_can_break() -> None:
    reached: set[str] = set()

    def note(siege: list[Step]) -> None:
        room = Siege()
        for step in siege:
            room.take(step)
        told = "\n".join(room.log) + "".join(reply.decode("latin-1") for reply in room.replies.values())
        reached.update(name for name in known if name in told)
        assert known - reached, "all are reached"

    untold = {"connections", "kept_bytes_total", "reservation_seconds"}
    known = {field.name for field in fields(Limits)} - untold
    with pytest.raises(AssertionError, match="all are reached"):
        _hunt(note, sieges, examples=3_000)


# ---- guided by coverage


def _fuzzer(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"{before}\nfrom trystate.property_tests.support.stores.fuzzing import main\nmain({[*arguments]!r})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900, check=False)


@ATHERIS
def test_a_fuzzer_guided_by_coverage_finds_nothing(tmp_path: Path) -> None:
    done = _fuzzer("--seconds", str(by_night("seconds of the fuzzer", 5)), "--corpus", str(tmp_path))
    assert done.returncode == 0, done.stderr[-4000:]
    grown = re.search(r"new_units_added: +(\d+)", done.stderr)
    assert grown is not None and int(grown[1]) > 0, "it is not guided by anything"


PLANT = """
import atheris
hand_over = atheris.Setup
def setup(arguments, test):
    from trystate.impl.store.contents import contents
    contents.number = lambda key, text: int(text)
    hand_over(arguments, test)
atheris.Setup = setup
"""


@ATHERIS
def test_a_fuzzer_guided_by_coverage_finds_a_mutant(tmp_path: Path) -> None:
    found = _fuzzer("--seconds", "60", "--corpus", str(tmp_path), before=PLANT)
    assert found.returncode != 0
    assert "internal error" in found.stderr + found.stdout
    siege = re.search(r"Test unit written to (\S+)", found.stderr)
    assert siege is not None
    os.remove(siege[1])


def test_requests_of_all_kinds_are_sown() -> None:
    assert {siege[2] for siege in seeds()} == {*Query, *Extension}  # behind a step's head and its size

"""Strategies for sieges of a store's server: requests that are whole, wrong, or cut off."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from trystate.impl.store.operations import BODIES, Field
from trystate.model.store.vocabulary import Extension, Query

from .besieged import (
    LEAVE,
    PASS,
    POOLS,
    SEND,
    STALL,
    STRANGERS,
    VALIDATE,
    Step,
    sent,
    whole,
)

QUICK = settings(
    derandomize=True, database=None, deadline=None, max_examples=400, phases=[Phase.generate],
    report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
)  # fmt: skip

MEETING = (Query.WAIT, Query.SET, Query.DELETE_KEY, Query.QUEUE_PUSH, Query.QUEUE_POP)  # affect each other

strangers = st.integers(0, STRANGERS - 1)

KINDS = st.sampled_from(sorted(BODIES))


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request of any kind, with allowed and forbidden fields."""
    return whole(draw(KINDS), lambda pool: draw(st.sampled_from(pool)))


@st.composite
def encounters(draw: st.DrawFn) -> list[Step]:
    """Requests of a few strangers, about the same two keys."""
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
    """One or two requests with some bytes changed or missing."""
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
    if kind == STALL:  # the stranger sends requests and reads nothing
        return sent(who, draw(requests()) * draw(st.integers(1, 9)), STALL)
    return sent(who, draw(requests() | requests() | mutated() | floods() | halves | st.binary(max_size=40)))


sieges = st.lists(deeds(), min_size=8, max_size=60).map(lambda each: [step for deed in each for step in deed])

"""Any bytes from several strangers, cut anywhere: the service of a store remains right, bounded and in step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trystate.impl.store.contents import contents as contents
from trystate.impl.store.contents.waiting import Waiting
from trystate.impl.store.limits import Limits
from trystate.impl.store.server.fast_path import FAST_PATHS, FastPath
from trystate.impl.store.server.half_sent import HalfSent
from trystate.impl.store.server.service import Service
from trystate.property_tests.support.mutants import Mutant, replaced, rewritten, survives
from trystate.property_tests.support.stores.besieged import (
    QUICK,
    Step,
    besiege,
    encode,
    sieges,
)


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


# ---- mutants


def _no_limit_for_short_requests(patch: pytest.MonkeyPatch) -> None:
    for query, strict in [*FAST_PATHS.items()]:

        def lenient(service: Service, *request: Any, strict: FastPath = strict) -> int:
            service.limits, limits = Limits(), service.limits
            try:
                return strict(service, *request)
            finally:
                service.limits = limits

        patch.setitem(FAST_PATHS, query, lenient)


MUTANTS: dict[str, Mutant] = {
    "the bytes of half a request count for ever": rewritten(HalfSent.end, "self.bytes -= session.half_bytes", "pass"),
    "a short request has no limit": _no_limit_for_short_requests,
    "any text is a number": replaced(contents, "number", lambda key, text: int(text)),
    "a deleted key still counts": replaced(Waiting, "vanished", lambda self, key: None),
    "a wait of a connection that is gone stays": replaced(Waiting, "withdraw", lambda self, wait: None),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_siege_finds_a_mutant(name: str) -> None:
    assert not survives(MUTANTS[name], settings(QUICK)(given(sieges)(_besiege)))

"""The tokens of a client at barriers: only the next call after a call that raised has the same token."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from trystate.impl.store.client.barrier_tokens import LEFT_MAX, BarrierTokens
from trystate.impl.store.client.client import Client
from trystate.impl.store.wire import TOKEN_BYTES
from trystate.property_tests.support.stores.client.common import HOST


def left(tokens: BarrierTokens, name: bytes) -> bytes:
    """The token of a call that raises."""
    with pytest.raises(KeyboardInterrupt), tokens.held(name) as token:
        raise KeyboardInterrupt
    return token


def held(tokens: BarrierTokens, name: bytes) -> bytes:
    """The token of a call that returns."""
    with tokens.held(name) as token:
        return token


def test_a_call_that_returned_leaves_its_token_to_nobody() -> None:
    tokens = BarrierTokens()
    found = {held(tokens, b"a") for _ in range(100)}
    assert (len(found), set(map(len, found))) == (100, {TOKEN_BYTES})


def test_the_next_call_after_one_that_raised_has_its_token() -> None:
    tokens = BarrierTokens()
    first = left(tokens, b"a")
    assert held(tokens, b"b") != first
    assert left(tokens, b"a") == first
    assert held(tokens, b"a") == first
    assert held(tokens, b"a") != first


def test_calls_at_one_time_have_tokens_of_their_own() -> None:
    tokens = BarrierTokens()
    with pytest.raises(KeyboardInterrupt), tokens.held(b"a") as one, tokens.held(b"a") as other:
        raise KeyboardInterrupt
    with ExitStack() as calls:
        found = [calls.enter_context(tokens.held(b"a")) for _ in range(3)]
    assert len(set(found)) == 3
    assert set(found) >= {one, other}


def test_tokens_that_are_never_taken_again_do_not_pile_up() -> None:
    tokens = BarrierTokens()
    first = left(tokens, b"first")
    for number in range(LEFT_MAX):
        left(tokens, b"%d" % number)
    assert len(tokens._left) == LEFT_MAX
    assert held(tokens, b"first") != first


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_none_of_its_parents_tokens() -> None:
    client = Client(HOST, 1, None)
    token = left(client.barrier_tokens, b"a")
    pid = os.fork()
    if not pid:
        os._exit(held(client.barrier_tokens, b"a") == token)
    assert os.waitpid(pid, 0)[1] == 0
    assert held(client.barrier_tokens, b"a") == token

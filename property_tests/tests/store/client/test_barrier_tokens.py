"""The tokens of a client at barriers: only the next call after a call that raised has the same token."""

from __future__ import annotations

import os

import pytest

from trystate.impl.store.client.barrier_tokens import BarrierTokens
from trystate.impl.store.client.client import Client
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_none_of_its_parents_tokens() -> None:
    client = Client(HOST, 1, None)
    token = left(client.barrier_tokens, b"a")
    pid = os.fork()
    if not pid:
        os._exit(held(client.barrier_tokens, b"a") == token)
    assert os.waitpid(pid, 0)[1] == 0
    assert held(client.barrier_tokens, b"a") == token

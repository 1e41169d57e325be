"""Workers and stores of the tests of RPC."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trystate.impl.rpc.invocations import Invocations
from trystate.property_tests.support.rpc.worlds import world
from trystate.store import HashStore


@pytest.fixture(scope="module")
def three() -> Iterator[list[Invocations]]:
    with world(3) as calls:
        yield calls


@pytest.fixture
def store() -> Iterator[HashStore]:
    with HashStore() as store:
        yield store

"""No record that a test of the store writes has a wrong answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from trystate.impl.store.hash import HashStore
from trystate.property_tests.support.stores import recorded


@pytest.fixture(autouse=True)
def no_record_accuses_the_store() -> Iterator[None]:
    """A test of planted mistakes takes their wrong answers itself."""
    yield
    assert recorded.judged() == []


@pytest.fixture
def below() -> Iterator[HashStore]:
    """A store in memory, below other stores."""
    with HashStore(timedelta(seconds=30)) as made:
        yield made

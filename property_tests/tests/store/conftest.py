"""Every record that a test of the store writes is explained without a wrong answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trystate.property_tests.support.stores import recorded


@pytest.fixture(autouse=True)
def no_record_accuses_the_store() -> Iterator[None]:
    """A test of planted mistakes asks for what is wrong itself, and leaves nothing here."""
    yield
    assert recorded.judged() == []

"""The engine of the page, for the tests that use it.

Without node, or what `npm ci` in page/ installs, they are skipped; with TRYSTATE_BROWSER=required, as in the gate, that
is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trystate.property_tests.support.page import bundled, needed


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The bundled engine. It draws nothing: Graphviz need not lay out a hundred charts."""
    if missing := needed():
        assert os.environ.get("TRYSTATE_BROWSER") != "required", missing
        pytest.skip(missing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trystate.page.export.chart", lambda machine: None)
        yield bundled(tmp_path_factory.mktemp("engine") / "engine.mjs")

"""The marks of tests of known defects.

Rule: one test checks a claim on our class and on torch's class, which is expected to fail. If torch's class passes, the
test fails: either the test cannot distinguish the classes, or torch has been repaired.
"""

from __future__ import annotations

from typing import Any

import pytest


def defective(what: object, why: str, *also: type[BaseException]) -> Any:
    """A parameter for which the claim is false. `why`: the actual behaviour. `also`: other exceptions of the test."""
    mark = pytest.mark.xfail(strict=True, raises=(AssertionError, *also), reason=why)
    return pytest.param(what, marks=mark, id=name(what))


def sound(what: object) -> Any:
    return pytest.param(what, id=name(what))


def name(what: object) -> str:
    return what.__name__ if isinstance(what, type) else str(what)

"""Hypothesis profiles, chosen by HYPOTHESIS_PROFILE (`ci`, the default, is the same on every run), and patience."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
import trystate.model
from hypothesis import HealthCheck, settings

CHECKOUT = Path(__file__).resolve().parents[2]
TESTED = Path(str(trystate.model.__file__)).resolve().parents[1]
if TESTED != CHECKOUT:
    raise pytest.UsageError(
        f"these tests are of {CHECKOUT}, but `import trystate` finds {TESTED}: pip install -e '{CHECKOUT}[test]'"
    )

# torch's clients and servers look up the names of their peers; a name server that does not answer costs 5 s and more
# each time. The C library reads this once, when the first name is looked up.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
# What torch's C++ warns of names both ends of a socket, and looks the names up: a call that ends at its timeout would
# end a second or two after it. Only what is printed is looked up.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

SLOW = [HealthCheck.too_slow]  # building and exploring a system takes longer than drawing it

settings.register_profile("dev", deadline=None, max_examples=25, suppress_health_check=SLOW)
settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    print_blob=True,
    suppress_health_check=SLOW,
)
settings.register_profile("nightly", deadline=None, max_examples=2_000, print_blob=True, suppress_health_check=SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_finish() -> None:
    """What has been imported by now stays: no collection is to go through it again and again."""
    gc.collect()
    gc.freeze()

"""The nightly profile (HYPOTHESIS_PROFILE=nightly): the same claims on far more runs, within six hours on two cores.

Rule: a loop over seeds ends by its time there, since the count that takes a night on one machine takes two on another.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
SECONDS_MAX = 900.0  # of one test's loop over seeds


def seeds(count: int, nightly: int, seconds: float = SECONDS_MAX) -> Iterator[int]:
    """The first `count` seeds; nightly the first `nightly`, or those above `count` that begin within `seconds`."""
    end = time.monotonic() + seconds
    for seed in range(nightly if NIGHTLY else count):
        if seed >= count and time.monotonic() > end:
            return
        yield seed

"""The conformance suite of a store. Derive a class that makes your store, and let pytest collect the class:

    class TestMyStore(StoreConformance):
        def make_store(self):
            return MyStore()

Rule: a test states what every store must do. A different behaviour of a known store is one of the `deviations`.
"""

from __future__ import annotations

from .sequences import SequenceConformance
from .waking import BarrierConformance, CrowdConformance, TimeoutConformance, WakingConformance, WatchConformance


class StoreConformance(
    SequenceConformance, WakingConformance, TimeoutConformance, BarrierConformance, CrowdConformance, WatchConformance
):
    """All tests of the suite; `Suite` has the hooks."""

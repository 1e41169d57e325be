"""The conformance suite of a store. Derive from it, say how to make your store, and let pytest collect that:

    class TestMyStore(StoreConformance):
        def make_store(self):
            return MyStore()

Rule: a test here says what every store must do; what a known store does instead is one of the `deviations`.
"""

from __future__ import annotations

from .barriers import BarrierConformance
from .crowds import CrowdConformance
from .sequences import SequenceConformance
from .waking import TimeoutConformance, WakingConformance
from .watching import WatchConformance


class StoreConformance(
    SequenceConformance, WakingConformance, TimeoutConformance, BarrierConformance, CrowdConformance, WatchConformance
):
    """Everything that the suite knows to ask of a store; `Suite` has the hooks."""

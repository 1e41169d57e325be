"""Test your own implementation: against a system, or as a store.

`state_machine` and `replay_every_edge` drive a `Subject` in step with a system, and `follow` follows the events of a
program on a system (`docs/conformance.md`).
`StoreConformance` is a pytest suite for any `torch.distributed.Store` (`docs/store-conformance.md`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trystate.model.checker.explicit.graph import Explored
    from trystate.property_tests.harness.paths import Replayed, replay_every_edge
    from trystate.property_tests.harness.stateful import state_machine
    from trystate.property_tests.harness.stores.conformance import StoreConformance
    from trystate.property_tests.harness.stores.deviations import *
    from trystate.property_tests.harness.stores.handles import Call
    from trystate.property_tests.harness.subjects import Disagreement, Refused, Subject
    from trystate.property_tests.replays.schedules import SCHEDULES

    from .following import Following, follow
else:
    from .lazy import lazily

    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "OURS_ON_LEGACY", "OURS_ON_LIBUV", "SCHEDULES", "TORCHS_ON_OURS", "TORCH_FILE", "TORCH_HASH", "TORCH_LEGACY",
    "TORCH_LIBUV", "Call", "Deviation", "Disagreement", "Explored", "Following", "Refused", "Replayed",
    "StoreConformance", "Subject", "follow", "replay_every_edge", "state_machine", "torch_prefix",
]  # fmt: skip

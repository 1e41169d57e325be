"""The conformance suite for any store: `class TestMine(StoreConformance): def make_store(self): ...`.

Rule: importing this loads no pytest: `trystate verify` compares stores where there is none.
"""

from typing import TYPE_CHECKING, Any

from .deviations import (
    OURS_ON_LEGACY,
    OURS_ON_LIBUV,
    TORCH_FILE,
    TORCH_HASH,
    TORCH_LEGACY,
    TORCH_LIBUV,
    TORCHS_ON_OURS,
    Deviation,
    torch_prefix,
)

if TYPE_CHECKING:
    from .conformance import StoreConformance

__all__ = [
    "OURS_ON_LEGACY", "OURS_ON_LIBUV", "TORCHS_ON_OURS", "TORCH_FILE", "TORCH_HASH", "TORCH_LEGACY", "TORCH_LIBUV",
    "Deviation", "StoreConformance", "torch_prefix",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "StoreConformance":
        from .conformance import StoreConformance

        return StoreConformance
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}: it has {', '.join(__all__)}")

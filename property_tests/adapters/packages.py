"""The packages besides torch that are compared and whose findings are replayed: how each is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trystate.model.checker.expectations import Finding

from .nvrx import shipped as nvrx
from .torchft import shipped as torchft


@dataclass(frozen=True, slots=True)
class Package:
    """A package: its file, why it is not here, and why it does not have a finding (empty if it has it)."""

    file: Callable[[], Path | None]
    problem: Callable[[], str | None]
    absence: Callable[[Finding], str] = lambda finding: ""


PACKAGES: Mapping[str, Package] = {
    "NVRx": Package(nvrx.barrier_file, nvrx.problem, nvrx.absence),
    "torchft": Package(torchft.extension_file, torchft.missing),
}

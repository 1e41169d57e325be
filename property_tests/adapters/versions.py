"""The installed torch next to the releases in the model, and the other packages that are compared.

Rule: nothing here imports torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from trystate.impl import torch_release
from trystate.model import releases
from trystate.model.checker.expectations import Finding

from .nvrx import shipped as nvrx
from .torchft import shipped as torchft

REMEDY = "pip install 'trystate[torch]'"


def torch_problem() -> str | None:
    """Why nothing can be compared with torch, and the remedy; None if it can."""
    try:
        installed = version("torch")
    except PackageNotFoundError:
        return f"torch is not installed: {REMEDY}"
    if torch_release.is_too_old(installed):
        return torch_release.outside_range(installed)
    if find_spec("greenlet") is None:
        return f"greenlet is not installed: {REMEDY}"
    return None


def compared_as() -> str:
    """The installed torch, by its version; if the model's releases are older, with the release it is taken for."""
    installed = version("torch")
    newer = releases.is_newer(installed)
    return f"torch {installed}" + f" (taken for {releases.NEWEST.name}, the newest that the model knows)" * newer


def findings_line(findings: Collection[Finding]) -> str:
    """How many of torch's findings the installed torch has, and which it lacks."""
    findings = [finding for finding in findings if finding.of == "torch"]
    lacking = [finding.number for finding in findings if not releases.has(version("torch"), finding)]
    but = f": all but {' '.join(lacking)}" if lacking else ""
    return f"{compared_as()} has {len(findings) - len(lacking)} of the {len(findings)} findings{but}"


def prepare_for_torch() -> None:
    """Variables that torch and glibc read once, before torch is imported; the user's own values stay."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")  # torch's clients look up the names of their peers


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

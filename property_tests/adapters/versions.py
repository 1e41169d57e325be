"""Whether the installed torch is one that can be compared with the model. Rule: nothing here imports torch."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from trystate.impl import torch_release

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


def prepare_for_torch() -> None:
    """Variables that torch and glibc read once, before torch is imported; the user's own values stay."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")  # torch's clients look up the names of their peers

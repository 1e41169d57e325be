"""Whether the installed torch is the one that the model describes. Rule: nothing here imports torch."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

TORCH_SERIES = "2.13."
REMEDY = "pip install 'trystate[torch]'"


def torch_problem() -> str | None:
    """Why nothing can be compared with torch, and the remedy; None if it can."""
    try:
        installed = version("torch")
    except PackageNotFoundError:
        return f"torch is not installed: {REMEDY}"
    if not installed.startswith(TORCH_SERIES):
        return f"torch {installed} is installed, the model describes {TORCH_SERIES}*: {REMEDY}"
    if find_spec("greenlet") is None:
        return f"greenlet is not installed: {REMEDY}"
    return None


def prepare_for_torch() -> None:
    """Variables that torch and glibc read once, before torch is imported; the user's own values stay."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")  # torch's clients look up the names of their peers

"""Whether the installed torch is the one that the model describes. Rule: finding out imports no torch."""

from __future__ import annotations

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

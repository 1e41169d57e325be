"""Collections of garbage that look through few objects.

A full collection of a process that has torch, the models and their graphs takes a second or two.
"""

from __future__ import annotations

import gc


def set_aside() -> None:
    """Later collections look through newer objects alone. Older objects are never collected any more."""
    gc.collect(1)
    gc.freeze()

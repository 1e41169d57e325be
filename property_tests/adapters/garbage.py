"""Collections of garbage that look through few objects.

A full collection of a process that has torch, the models and their graphs takes a second or two.
"""

from __future__ import annotations

import gc


def set_aside() -> None:
    """Later collections look through newer objects alone. Older objects are never collected any more.

    The first time, the imported modules are too many to look through. Later times, garbage of all generations is
    collected: a process that runs the pieces of a campaign would otherwise keep the garbage of each piece.
    """
    gc.collect(2 if gc.get_freeze_count() else 1)
    gc.freeze()

"""Collections of garbage that look through few objects.

A full collection of a process that has torch, the models and their graphs takes a second or two.
"""

from __future__ import annotations

import gc


def set_aside() -> None:
    """Have the collections from here on look through newer objects alone.

    Of the older ones those that are garbage already, and not among the newest, stay for good.
    """
    gc.collect(1)
    gc.freeze()

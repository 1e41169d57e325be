"""Where a search keeps states that have no room in memory: here nowhere.

`trystate/spill.py` has the storage that keeps them in files, and goes on with a search that was stopped.
"""

from __future__ import annotations

from ...errors import LimitReached


class StorageFailed(LimitReached):
    """States cannot be kept, or are not as they were kept: the search stops, and its last checkpoint stays."""

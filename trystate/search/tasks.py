"""Tasks that are done elsewhere: in another process, or on another machine."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any

Task = Callable[[], Any]


def done(task: Task) -> tuple[Any, Exception | None]:
    """The result of a task, or what it raised, with the traceback as a note; both can be pickled."""
    try:
        return task(), None
    except Exception as error:
        error.add_note(f"in a process of its own:\n{traceback.format_exc()}")
        return None, _sendable(error)


def _sendable(error: Exception) -> Exception:
    """The exception, or one that says the same, if it does not survive being pickled."""
    try:
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    except Exception:
        pass
    return RuntimeError("\n".join((repr(error), *error.__notes__)))

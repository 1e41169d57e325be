"""`.grad` of a parameter, while hooks or an optimizer need a context's gradient there.

Rule: each parameter has one borrower at a time; others wait for that parameter only, and for a limited time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from .errors import AutogradError

BORROW_SECONDS = 60.0  # the longest wait for the borrower before

_changed = threading.Condition()
_held: dict[int, tuple[int, int]] = {}  # parameter -> its thread and borrowings (a hook may run its own pass)


@contextmanager
def borrowed(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Give this thread `.grad` of these parameters alone, and restore it afterwards.

    Raises:
        AutogradError: another thread has had one of them for a minute.
    """
    me, keys = threading.get_ident(), {id(parameter) for parameter in parameters}
    with _changed:
        if not _changed.wait_for(lambda: all(_held.get(key, (me, 0))[0] == me for key in keys), BORROW_SECONDS):
            raise AutogradError(
                f"a hook or an optimizer's step has had .grad of a parameter for {BORROW_SECONDS:g} s: it must not wait"
            )
        for key in keys:
            _held[key] = me, _held.get(key, (me, 0))[1] + 1
    before = [parameter.grad for parameter in parameters]
    try:
        yield
    finally:
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient
        with _changed:
            for key in keys:
                _held[key] = me, _held[key][1] - 1
                if not _held[key][1]:
                    del _held[key]
            _changed.notify_all()

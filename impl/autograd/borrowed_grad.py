"""`.grad` of a parameter, while hooks or an optimizer are to find a context's gradient there.

Rule: one borrower at a time for each parameter; others wait for that parameter alone, and for a limited time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from .errors import AutogradError

BORROW_SECONDS = 60.0  # to wait for the borrower before

_changed = threading.Condition()
_held: dict[int, tuple[int, int]] = {}  # by parameter: which thread, how often (a hook may run a pass of its own)


@contextmanager
def borrowed(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Have `.grad` of these to oneself; afterwards it is what it was.

    Raises:
        AutogradError: another has had one of them for a minute.
    """
    me, keys = threading.get_ident(), {id(parameter) for parameter in parameters}
    with _changed:
        if not _changed.wait_for(lambda: all(_held.get(key, (me, 0))[0] == me for key in keys), BORROW_SECONDS):
            raise AutogradError(
                f"a hook or an optimizer's step has had .grad of a parameter for {BORROW_SECONDS:g} s: let it not wait"
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

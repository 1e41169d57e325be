"""Mutants that torch's tests must notice, planted in the modules that they run on."""

from __future__ import annotations

import contextlib
from typing import Any


def doubled(autograd: Any) -> None:
    """Gradients are twice what they are."""
    right = autograd.get_gradients
    autograd.get_gradients = lambda context_id: {t: grad * 2 for t, grad in right(context_id).items()}


def kept(autograd: Any) -> None:
    """A context is not left."""

    class Kept(autograd.context):  # type: ignore[misc]
        def __exit__(self, *_: object) -> None:
            pass

    autograd.context = Kept


def silent(autograd: Any) -> None:
    """A pass that fails says nothing."""
    right = autograd.backward

    def backward(*arguments: Any, **options: Any) -> None:
        with contextlib.suppress(RuntimeError):
            right(*arguments, **options)

    autograd.backward = backward

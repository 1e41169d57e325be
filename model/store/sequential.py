"""The specification for checking histories of a store: its reference, which does one operation at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..checker.linearizability import Specification
from .reference import Contents, Operation, Result, apply
from .vocabulary import Edition


def specification(
    initial: Contents | None = None, edition: Edition = Edition.TRYSTATE
) -> Specification[Contents, Operation, Result]:
    """Returns the store as a sequential object; a timeout is correct only where the operation would block."""

    def step(contents: Contents, operation: Operation) -> Iterable[tuple[Contents, Result]]:
        after, outcome = apply(contents, operation, edition)
        return [(after, outcome.result)]

    return Specification(initial or Contents(), step, keys)


def keys(operation: Operation) -> Iterable[str] | None:
    """Returns the keys that an operation names, or None for an operation that reads all keys."""
    named: Any = operation
    return (named.key,) if hasattr(named, "key") else getattr(named, "keys", None)

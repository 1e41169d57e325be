"""The specification that histories of a store are judged by: its reference, one operation after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..checker.linearizability import Specification
from .reference import Contents, Operation, Result, apply
from .vocabulary import Edition


def specification(
    initial: Contents | None = None, edition: Edition = Edition.TRYSTATE
) -> Specification[Contents, Operation, Result]:
    """The store as a sequential object; an operation that would block times out, so a timeout is right only where it
    would."""

    def step(contents: Contents, operation: Operation) -> Iterable[tuple[Contents, Result]]:
        after, outcome = apply(contents, operation, edition)
        return [(after, outcome.result)]

    return Specification(initial or Contents(), step, keys)


def keys(operation: Operation) -> Iterable[str] | None:
    """The keys that an operation names; None for one that looks at all."""
    named: Any = operation
    return (named.key,) if hasattr(named, "key") else getattr(named, "keys", None)

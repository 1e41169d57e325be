"""Events of running passes, for tests, monitors and pictures. Without an observer they cost nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened in a context, at this worker.

    | `kind` | when | `detail` |
    | --- | --- | --- |
    | `state` | a worker's part of a pass changes | `state`: of `vocabulary.Part` |
    | `counted` | dependencies are counted | `counts`: of each node, before anything has run |
    | `ran` | nodes have run | `nodes`, in an order in which they may have |
    | `told` | a message leaves | `to`, `message`, `answers`: whether it goes with an answer |
    | `heard` | a message arrives, by itself or with an answer | `peer`, `message` |
    | `answered` | an answer arrives | `peer`, `message`: what it answers, `outcome`: bytes, or an exception |
    """

    kind: str
    worker: int
    context: int
    number: int | None  # of the pass; None for CLEAN, which is of a context
    time: float  # s, of this machine's monotonic clock
    detail: dict[str, Any] = field(default_factory=dict)


Observer = Callable[[Event], None]

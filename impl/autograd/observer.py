"""Events of running passes, for tests, monitors and pictures. Without an observer they cost nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """An event in a context, at this worker.

    | `kind` | when | `detail` |
    | --- | --- | --- |
    | `state` | a local pass changes its state | `state`: a `vocabulary.Part` |
    | `counted` | dependencies are counted | `counts` by node, before anything has run |
    | `ran` | nodes have run | `nodes`, in an order in which they may have run |
    | `told` | a message leaves | `to`, `message`, `answers`: whether an answer carries it |
    | `heard` | a message arrives, by itself or with an answer | `peer`, `message` |
    | `answered` | an answer arrives | `peer`, `message`: the request, `outcome`: bytes, or an exception |
    """

    kind: str
    worker: int
    context: int
    number: int | None  # the id of the pass; None for CLEAN, which concerns a context
    time: float  # seconds of this machine's monotonic clock
    detail: dict[str, Any] = field(default_factory=dict)


Observer = Callable[[Event], None]

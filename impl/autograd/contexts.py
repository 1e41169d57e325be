"""What a context keeps: the two ends of each message, the gradients, the part of a pass that runs here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .dependencies import Edge, Node

if TYPE_CHECKING:
    from .local_pass import LocalPass


@dataclass(eq=False, slots=True)
class Send:
    """Stands where tensors left: `edges` lead to what made them, one for each that requires a gradient.

    `peer` is who got them, and will ship their gradients. `what` names the call, for people.
    """

    message: int
    peer: int
    edges: tuple[Edge, ...]
    what: str

    @property
    def next_functions(self) -> tuple[Edge, ...]:
        """As torch's nodes call them."""
        return self.edges


@dataclass(eq=False, slots=True)
class Recv:
    """Stands where tensors arrived: the leaf of what is made of them; its gradients go to `peer`."""

    message: int
    peer: int
    node: Node


@dataclass(frozen=True, slots=True)
class Asker:
    """Who waits for the answer to a request, and how to give it, once."""

    peer: int
    answer: Callable[[bytes, Sequence[Any | None]], None]  # its bytes, and the gradients that it carries


@dataclass(eq=False, slots=True)
class Context:
    """One forward pass and its backward passes, on one worker. Source: seed "distributed autograd contexts", 4.1."""

    number: int
    sends: dict[int, Send] = field(default_factory=dict)
    recvs: dict[int, Recv] = field(default_factory=dict)
    by_node: dict[Node, Recv] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)  # workers that have heard of it from here
    gradients: dict[Any, Any] = field(default_factory=dict)  # tensor to gradient
    ended: dict[int, int] = field(default_factory=dict)  # by root: its last pass that is over here
    local_pass: LocalPass | None = None  # of a pass: the last one that came by, which may be over
    released: bool = False
    spoiled: bool = False  # nobody can say whether the gradients of a pass count

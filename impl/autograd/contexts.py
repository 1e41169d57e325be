"""One worker's share of a context: its ends of messages, the gradients, and the latest local pass.

Theory of operation. These are records. container.py makes and changes them under the lock of the driver; local_pass.py
changes the records of its pass. A context is open until `released` is set; then its tables are emptied, and a pass that
still runs in it has failed. A message has one end here: a `Send` where its tensors left, made by the thread that sends
the message, or a `Recv` where they arrived, made by the thread that reads it. Both are removed when a pass that does
not retain the graph has succeeded (`Container.merge`).

`local_pass` is the latest pass, running or over. Its gradients are its own until it is known to have succeeded; then
`merge` makes them the context's.

Failures:

- *A message of an older pass comes late.* It is refused, since `ended` has the number of that pass.
- *No worker is left that can report how the last pass ended.* The context is `spoiled`: its gradients are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .dependencies import Edge, Node

if TYPE_CHECKING:
    from .local_pass import LocalPass


@dataclass(eq=False, slots=True)
class Send:
    """A node of the graph where the tensors of a message left for worker `peer`, which will send their gradients.

    `edges` lead to the nodes that made the tensors, one for each tensor that requires a gradient. `what` names the
    call. torch: SendRpcBackward.
    """

    message: int
    peer: int
    edges: tuple[Edge, ...]
    what: str

    @property
    def next_functions(self) -> tuple[Edge, ...]:
        """The edges, under the name of torch's nodes."""
        return self.edges


@dataclass(eq=False, slots=True)
class Recv:
    """A leaf of the graph where the tensors of a message arrived; its gradients go to worker `peer`.

    torch: RecvRpcBackward.
    """

    message: int
    peer: int
    node: Node


@dataclass(eq=False, slots=True)
class Context:
    """One forward pass and its backward passes, on one worker. Source: seed "distributed autograd contexts", 4.1."""

    number: int
    sends: dict[int, Send] = field(default_factory=dict)
    recvs: dict[int, Recv] = field(default_factory=dict)
    by_node: dict[Node, Recv] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)  # workers that this worker has called in this context
    through: set[int] = field(default_factory=set)  # workers whose calls have brought this context here
    gradients: dict[Any, Any] = field(default_factory=dict)  # tensor to gradient
    ended: dict[int, int] = field(default_factory=dict)  # the latest pass of each root worker that is over here
    local_pass: LocalPass | None = None  # the latest one, running or over
    released: bool = False
    spoiled: bool = False  # whether the last pass succeeded is unknown

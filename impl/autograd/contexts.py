"""One worker's share of a context: its ends of messages, the gradients, and the latest local pass.

Theory of operation. These are records; container.py makes and changes them under the lock of the driver, and
local_pass.py those of its pass. A context is open until `released` is set; then its tables are emptied, and a pass that
still runs in it has failed. A message has one end here: a `Send` where its tensors left, made by the thread that sends
the message, or a `Recv` where they arrived, made by the thread that reads it. Both are removed when a pass that does
not retain the graph has succeeded (`Container.merge`).

`local_pass` is the latest pass, running or over. Its gradients are its own until it is known to have succeeded; then
`merge` makes them the context's. Two things can go wrong: a message of an older pass comes late (`ended` says that the
pass is over, and it is refused), and no worker is left that knows how the last pass ended (`spoiled`: the gradients of
this context are refused for good).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .dependencies import Edge, Node

if TYPE_CHECKING:
    from .local_pass import LocalPass


@dataclass(eq=False, slots=True)
class Send:
    """Stands in the graph where the tensors of a message left for worker `peer`, which will send their gradients.

    `edges` lead to the nodes that made the tensors, one for each tensor that requires a gradient. `what` names the
    call. torch: SendRpcBackward.
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
    """Stands in the graph where the tensors of a message arrived: a leaf, whose gradients go to worker `peer`.

    torch: RecvRpcBackward.
    """

    message: int
    peer: int
    node: Node


@dataclass(frozen=True, slots=True)
class Asker:
    """The worker whose request is to be answered once, and the function that does it."""

    peer: int
    answer: Callable[[bytes, Sequence[Any | None]], None]  # takes its bytes, and the gradients of a piggybacked message


@dataclass(eq=False, slots=True)
class Context:
    """One forward pass and its backward passes, on one worker. Source: seed "distributed autograd contexts", 4.1."""

    number: int
    sends: dict[int, Send] = field(default_factory=dict)
    recvs: dict[int, Recv] = field(default_factory=dict)
    by_node: dict[Node, Recv] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)  # workers that got a call with this context from here
    through: set[int] = field(default_factory=set)  # workers whose calls have brought this context here
    gradients: dict[Any, Any] = field(default_factory=dict)  # tensor to gradient
    ended: dict[int, int] = field(
        default_factory=dict
    )  # by root worker: the number of its latest pass that is over here
    local_pass: LocalPass | None = None  # the most recent one, possibly over
    released: bool = False
    spoiled: bool = False  # no worker knows whether the last pass has succeeded

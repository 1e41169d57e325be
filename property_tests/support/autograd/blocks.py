"""A second way to run a distributed backward pass, which has nothing in common with the runtime's but torch.

All workers are in this process. Each makes one call of torch's engine for a pass, on a thread of its own, from its
roots and a token for each of its sends; the backward of a send *blocks* until its recv has put the gradients into the
box that they share. So there are no counts, messages or states; every hook is the engine's. It needs every send to get
a gradient, and an order: a thread must have run whatever else is ready before it blocks, and block for the latest send
first, whose gradients depend on no earlier one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .outcomes import Outcome
from .programs import Program
from .running import Tensors, of_plain

WAIT_SECONDS = 30.0  # for a gradient, on a busy machine
ABOVE = 1 << 40  # sequence numbers of what is to run before any send


class Box:
    """The gradients of one message."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._gradients: Sequence[Tensor | None] | None = None

    def put(self, gradients: Sequence[Tensor | None]) -> None:
        with self._changed:
            assert self._gradients is None, "gradients came twice"
            self._gradients = gradients
            self._changed.notify()

    def take(self) -> Sequence[Tensor | None]:
        with self._changed:
            if not self._changed.wait_for(lambda: self._gradients is not None, WAIT_SECONDS):
                raise TimeoutError("no gradient came")
            taken, self._gradients = self._gradients, None
        assert taken is not None
        return taken


class Leaves(Function):
    """Tensors leave; what is returned is the token to begin the send's backward with."""

    @staticmethod
    def forward(ctx: Any, box: Box, *tensors: Tensor) -> Tensor:
        ctx.box = box
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return None, *ctx.box.take()


class Arrives(Function):
    """Tensors arrive: copies, which require a gradient because `link` does."""

    @staticmethod
    def forward(ctx: Any, box: Box, link: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.box = box
        ctx.set_materialize_grads(False)
        return tuple(tensor.clone() for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        ctx.box.put([None if gradient is None else gradient.clone() for gradient in gradients])  # as a network does
        return (None,) * (2 + len(gradients))


class Blocks(Tensors):
    """The workers of one program."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._tokens: list[list[Tensor]] = [[] for _ in range(program.workers)]

    def sent(self, here: int, there: int, values: Sequence[Tensor]) -> list[Tensor]:
        once = {id(tensor): tensor for tensor in values}
        needing = [tensor for tensor in once.values() if tensor.requires_grad]
        copies = {key: tensor.detach().clone() for key, tensor in once.items()}
        if needing:
            box, link = Box(), torch.empty(0, requires_grad=True)
            leaves: Any = Leaves.apply
            arrives: Any = Arrives.apply
            self._tokens[here].append(leaves(box, *needing))
            arrived = arrives(box, link, *(tensor.detach() for tensor in needing))
            copies |= {id(tensor): copy for tensor, copy in zip(needing, arrived, strict=True)}
        return [copies[id(tensor)] for tensor in values]

    def backward(self, roots: Sequence[Tensor], retain: bool) -> None:
        """One pass, on a thread for each worker."""
        errors: list[BaseException] = []

        def run(starts: list[Tensor]) -> None:
            try:
                torch.autograd.backward(starts, retain_graph=retain)
            except BaseException as error:  # given to the caller
                errors.append(error)

        threads = []
        for worker, tokens in enumerate(self._tokens):
            starts = [*(roots if worker == 0 else ()), *tokens]
            if starts:
                order(starts, tokens)
                threads.append(threading.Thread(target=run, args=(starts,), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive(), "a worker waits"
        if errors:
            raise errors[0]
        if not retain:
            self._tokens = [[] for _ in self._tokens]


def order(starts: Sequence[Tensor], tokens: Sequence[Tensor]) -> None:
    """Let the engine run everything that is ready before it runs a send, and the latest send first."""
    sends: list[Any] = [token.grad_fn for token in tokens]
    seen, stack = set[Any](sends), [start.grad_fn for start in starts]
    while stack:
        node: Any = stack.pop()
        if node not in seen and node.next_functions:
            node._set_sequence_nr(node._sequence_nr() | ABOVE)
        if node.next_functions:
            stack += [
                following for following, _ in node.next_functions if following not in seen and following is not None
            ]
        seen.add(node)
    for number, send in enumerate(sends):
        send._set_sequence_nr(number)


def run_in_blocks(program: Program) -> Outcome:
    """A program whose calls are all used."""
    world = Blocks(program)
    roots: list[Tensor] = []
    for each, retain in program.run(world):
        world.backward(each, retain)
        roots += (value.detach() for value in each)
    return of_plain(world, roots)

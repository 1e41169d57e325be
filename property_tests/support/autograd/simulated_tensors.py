"""Programs of real tensors under a schedule: torch's nodes, run by the runtime, all workers in this process."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import torch
from torch import Tensor
from trystate.impl.autograd import torch_graph
from trystate.impl.autograd.local_pass import Begin
from trystate.impl.autograd.runner import Engine
from trystate.model.autograd.vocabulary import Mode

from ...adapters.our_autograd.simulated import Workers
from .outcomes import Outcome
from .programs import Program
from .running import Tensors


class Recorded(Tensors):
    """Steps whose calls the containers record."""

    def __init__(self, program: Program, workers: Workers) -> None:
        super().__init__(program)
        self._workers = workers

    def sent(self, here: int, there: int, values: Sequence[Tensor]) -> list[Tensor]:
        once = {id(tensor): tensor for tensor in values}
        copies = {key: tensor.detach().clone() for key, tensor in once.items()}
        needing = [key for key, tensor in once.items() if tensor.requires_grad]
        number, containers = self._workers.context, self._workers.containers
        source, target = (containers[worker].heard(number) for worker in (here, there))
        assert source is not None and target is not None
        edges = [torch_graph.edge_of(once[key]) for key in needing]
        message = containers[here].sent(source, there, edges, "call")
        if needing:
            node = torch_graph.attach_recv(number, here, [copies[key] for key in needing])
            containers[there].received(target, here, message, node)
        return [copies[id(tensor)] for tensor in values]


class TensorWorkers(Workers):
    """Workers that run a program of real tensors, all in this process: its nodes are torch's, run by the runtime."""

    def __init__(self, program: Program, chance: Random) -> None:
        super().__init__(program.workers, chance)
        self.machine = Recorded(program, self)
        self._program = program

    def engine(self, me: int) -> Engine:
        return torch_graph.TorchGraph(self.context, self.containers[me].get(self.context).by_node)

    def run(self, mode: Mode) -> Outcome:
        """The whole program."""
        roots: list[Tensor] = []
        for each, retain in self._program.run(self.machine):
            begin = Begin([torch_graph.edge_of(root) for root in each], [torch.ones_like(root) for root in each])
            local_pass = self.begin(begin, mode, retain)
            self.until_quiet()
            if local_pass.error is not None:
                raise local_pass.error
            roots += (value.detach() for value in each)
        found = {}
        for (worker, name), parameter in self.machine.parameters.items():
            container = self.containers[worker]
            if self.context in container.contexts:
                mine = container.merge(container.get(self.context))
                if parameter in mine:
                    found[worker, name] = mine[parameter]
        return Outcome.of(found, roots, self.machine.seen)

"""The runtime under a schedule beside the model: outcomes and gradients of one program."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import product
from random import Random

from trystate.impl.autograd import messages
from trystate.impl.autograd.container import Container
from trystate.impl.autograd.errors import UnusedSendError
from trystate.model.autograd.backward import Backward
from trystate.model.autograd.backward.fields import Outcome
from trystate.model.autograd.vocabulary import Mode

from ...adapters.our_autograd.simulated import Faults, Letter
from .graphs import Graph
from .modelled import Model, Told, Upset
from .simulated_counts import World

Make = Callable[..., Container]
TIMES = 5  # as many schedules of the runtime as of the model, which takes longer


class Upsettable(World):
    """Workers of whole numbers where something goes wrong at a chosen place."""

    def __init__(self, graph: Graph, chance: Random, upset: Upset, make: Make = Container) -> None:
        super().__init__(graph, chance, Faults(twice=upset.twice), make)
        self._raising, self._losing, self._dying = upset.raises, upset.loses, upset.dies

    def _raises(self, node: int) -> bool:
        due = node == self._raising
        if due:
            self._raising = None
        return due

    def _deliver(self, letter: Letter) -> None:
        if letter.answer is None and letter.kind in (messages.BACKWARD, messages.MARK):
            if letter.to == self._dying:
                self._dying = None
                self.kill(letter.to)
                return
            if letter.kind == messages.BACKWARD and self._is_lost(messages.Backward.unpack(letter.body).message):
                self._losing = None
                self.lose(letter)
                return
        super()._deliver(letter)

    def _is_lost(self, message: int) -> bool:
        return self._losing is not None and message == self.messages[self._losing]

    @property
    def is_spared(self) -> bool:
        """Whether the message that is to be lost has not come by itself so far."""
        return self._losing is not None

    def call(self, number: int, mode: Mode) -> Outcome:
        """backward(), and what it came to when all is quiet."""
        local_pass = self.backward(number, mode)
        self.until_quiet()
        if local_pass.error is None:
            return Outcome.RETURNED
        return Outcome.UNUSED if isinstance(local_pass.error, UnusedSendError) else Outcome.RAISED


class Case:
    """Calls of backward() over one graph where a chosen thing goes wrong, on the model and on the runtime.

    Of the graph each message carries one value: see `totalled`.
    """

    def __init__(
        self, graph: Graph, mode: Mode, upset: Upset, seed: int, runs: int = 2, calls: int = 2,
        system: type[Backward] = Backward,
    ) -> None:  # fmt: skip
        self.graph, self.mode, self.upset, self.calls = graph, mode, upset, calls
        self._schedules = [f"{seed} {k}" for k in range(runs)]
        self._system = system

    @cached_property
    def expected(self) -> list[Told]:
        """The model's outcomes, along several schedules."""
        model = Model(self.graph, self.mode, self.upset, self.calls, self._system)
        return [model.run(Random(schedule)) for schedule in self._schedules]

    def found(self, schedule: str, make: Make = Container) -> tuple[Told, int]:
        """The runtime's outcome along one schedule, and how many calls came before the trouble."""
        world = Upsettable(self.graph, Random(schedule), self.upset, make)
        world.forward(self.graph.sizes[0])
        outcomes, calm = list[Outcome](), 0
        for _ in range(self.calls):
            outcomes.append(world.call(0, self.mode))
            calm += world.is_spared
        return Told(tuple(outcomes), world.gradients()), calm

    def differences(self, make: Make = Container) -> list[str]:
        """How the model, the runtime along several times as many schedules and the numbers of paths differ.

        A gradient that is to be lost may go with an answer, on either side, and is lost in a later call or never: only
        schedules where it is lost in the same call are compared.
        """
        wrong = []
        paths = {key: count for key, count in self.graph.paths(0).items() if count}
        for (schedule, expected), k in product(zip(self._schedules, self.expected, strict=True), range(TIMES)):
            found, calm = self.found(f"{schedule} {k}", make)
            if self.upset.loses is not None and calm != (*expected.outcomes, Outcome.RAISED).index(Outcome.RAISED):
                continue
            times = expected.outcomes.count(Outcome.RETURNED)
            counted = Told(expected.outcomes, {key: times * count for key, count in paths.items() if times})
            if not expected == found == counted:
                text = f"model {expected}, runtime {found}, paths {counted.gradients}"
                wrong.append(f"{self.mode.name}, {self.upset}, schedule {schedule!r}: {text}")
        return wrong

"""Steps of the model `Optimizers`, performed by the runtime's `DistributedOptimizer` and its local optimizers.

The optimizers, their errors and `.grad` are the runtime's, on torch's SGD. This module replaces RPC, and
the lock of each owner with a lock that stops where the runtime's lock would wait. Each call of `step` and each owner's
part runs in a greenlet. Optimizer k has gradients of 10 ** k, so the value of a parameter shows how often
each optimizer was applied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partialmethod
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from trystate.impl.autograd import optimizer as runtime
from trystate.impl.rpc.errors import PeerLost, RpcTimeout
from trystate.model.autograd.optimizer import Optimizers
from trystate.model.autograd.vocabulary import OwnerStep, StepState
from trystate.model.language.sorts import ordinal

from ...harness.subjects import Disagreement, Refused
from ..steps import Replacing
from ..torch_rendezvous import simulation as sim
from .letters import Steps

STOPS = {"lock": OwnerStep.WAITING, "inside": OwnerStep.INSIDE, "applied": OwnerStep.APPLIED}
BASE = 10


class Future:
    """The result of a call. Its caller waits for it."""

    def __init__(self) -> None:
        self.over = False
        self.value: Any = None
        self.error: BaseException | None = None

    def set(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the result or the error, unless one was set before."""
        if not self.over:
            self.over, self.value, self.error = True, value, error

    def wait(self) -> Any:
        while not self.over:
            sim.stop("wait")
        if self.error is not None:
            raise self.error
        return self.value


def reference(value: Any, home: Owner) -> Any:
    """A stand-in for an RRef."""
    return SimpleNamespace(owner=lambda: SimpleNamespace(id=home.number), local_value=lambda: value)


@dataclass(eq=False)
class Owner:
    """A worker that owns a parameter."""

    number: int
    parameter: torch.Tensor = field(default_factory=lambda: torch.zeros(1, requires_grad=True))
    taken: bool = False
    gives_up: bool = False
    fails: bool = False
    dead: bool = False

    def counts(self, optimizer: int) -> int:
        """The number of times that the gradient of an optimizer was applied."""
        return int(-self.parameter.item()) // int(BASE**optimizer) % BASE


@dataclass(eq=False)
class Part:
    """An owner's part of a step."""

    owner: Owner
    future: Future
    call: Callable[[], Any]
    operation: sim.Operation | None = None

    @property
    def place(self) -> OwnerStep:
        return OwnerStep.SENT if self.operation is None else STOPS[self.operation.at]


class Stepping:
    """One distributed optimizer, and the step that it makes."""

    def __init__(self, number: int, optimizer: runtime.DistributedOptimizer) -> None:
        self.number, self.optimizer = number, optimizer
        self.begun = 0
        self.parts: dict[int, Part] = {}  # owner -> its part
        self.futures: list[Future] = []
        self.before: list[int] = []  # each owner's number of applications before the step
        self.missing: int | None = None
        self.operation: sim.Operation | None = None

    @property
    def stage(self) -> StepState:
        if self.operation is None:
            return StepState.IDLE
        if not self.operation.over:
            return StepState.STEPPING
        return StepState.RAISED if self.operation.error is not None else StepState.RETURNED


class OptimizerSteps(Replacing, Steps):
    """Subject for the model `Optimizers` (edition TRYSTATE). It replaces RPC."""

    TRIED = ("enter", "return_", "raise_")

    def __init__(self, model: Optimizers) -> None:
        self.model = model
        self.here: Owner | None = None  # the owner whose part runs
        self._stepping: Stepping | None = None  # the step that begins
        self.steps: list[Stepping] = []

    def replace(self, stack: ExitStack) -> None:
        agent = SimpleNamespace(options=SimpleNamespace(modules=()))
        stack.enter_context(
            mock.patch.multiple(
                runtime, rpc_async=self._call, RRef=self._refer, current_agent=lambda: agent,
                get_gradients=self._gradients, _steps=self, check_open=lambda context_id: None,
            )
        )  # fmt: skip
        self.reset()

    def abandon(self) -> None:
        for step in self.steps:
            for operation in (step.operation, *(part.operation for part in step.parts.values())):
                if operation is not None:
                    operation.abandon()

    def reset(self) -> None:
        self.abandon()
        self.owners = [Owner(k) for k in range(self.model.sizes["owner"])]
        self.steps = [Stepping(k, self._make()) for k in range(self.model.sizes["optimizer"])]

    def _make(self) -> runtime.DistributedOptimizer:
        params = [reference(owner.parameter, owner) for owner in self.owners]
        return runtime.DistributedOptimizer(torch.optim.SGD, params, lr=1.0)

    # ---- in place of RPC and of the lock

    def _call(self, to: Any, function: Any, args: tuple[Any, ...]) -> Future:
        owner = self.owners[to if isinstance(to, int) else to.id]
        future = Future()
        part = Part(owner, future, lambda: function(*args))
        if self._stepping is None:  # an optimizer is made
            self.here = owner
            future.set(part.call())
        else:
            self._stepping.parts[owner.number] = part
            self._stepping.futures.append(future)
        return future

    def _refer(self, local: Any) -> Any:
        assert self.here is not None
        owner = self.here
        local._optimizer.register_step_pre_hook(lambda *_: self._inside(owner))
        local._optimizer.register_step_post_hook(lambda *_: sim.stop("applied"))
        return reference(local, owner)

    def _inside(self, owner: Owner) -> None:
        sim.stop("inside")
        if owner.fails:
            raise RuntimeError("this optimizer fails")

    def _gradients(self, context: int) -> dict[torch.Tensor, torch.Tensor]:
        assert self.here is not None
        step, owner = self.steps[context], self.here
        return {} if step.missing == owner.number else {owner.parameter: torch.full((1,), float(BASE**step.number))}

    def acquire(self, timeout: float) -> bool:
        """Acquire the lock of the owner whose part runs. It never waits: the model decides which part continues."""
        assert self.here is not None
        owner = self.here
        sim.stop("lock")
        while owner.taken:
            if owner.gives_up:
                return False
            sim.stop("lock")
        owner.taken = True
        return True

    def release(self) -> None:
        assert self.here is not None
        self.here.taken = False

    # ---- steps

    def _begin(self, optimizer: int, missing: int | None = None) -> None:
        step = self.steps[optimizer]
        step.parts, step.futures, step.missing = {}, [], missing
        step.begun += 1
        step.before = [owner.counts(optimizer) for owner in self.owners]
        step.operation = sim.Operation(lambda: step.optimizer.step(optimizer))
        self._stepping = step
        step.operation.resume()
        self._stepping = None
        if len(step.parts) != len(self.owners):
            raise Disagreement("an owner does not receive the step")

    _begin_without = _begin

    def _ends(self, optimizer: int, stage: StepState) -> None:
        step = self.steps[optimizer]
        if step.operation is None or step.operation.over:
            raise Refused("no step is under way")
        failed = any(future.error is not None for future in step.futures)
        if all(future.over for future in step.futures) and failed is not (stage is StepState.RAISED):
            raise Refused("it ends with another step of the model")
        step.operation.resume()
        if not step.operation.over:
            raise Refused("an owner has not answered")
        if step.stage is not stage:
            raise Disagreement(f"the step is {step.stage.name}: {step.operation.error}")

    _return_ = partialmethod(_ends, stage=StepState.RETURNED)
    _raise_ = partialmethod(_ends, stage=StepState.RAISED)

    def _resumes(self, part: Part) -> None:
        """Run an owner's part until it stops or ends."""
        assert part.operation is not None
        self.here = part.owner
        part.operation.resume()
        self.here = None

    def _arrive(self, optimizer: int, owner: int) -> None:
        part = self.steps[optimizer].parts[owner]
        part.operation = sim.Operation(part.call)
        self._resumes(part)

    def _enter(self, optimizer: int, owner: int) -> None:
        part = self.steps[optimizer].parts.get(owner)
        if part is None or part.place is not OwnerStep.WAITING or part.owner.dead:
            raise Refused("nothing waits")
        self._resumes(part)
        after: OwnerStep = self.steps[optimizer].parts[owner].place
        if after is not OwnerStep.INSIDE:
            raise Refused("another step is inside")

    def _apply(self, optimizer: int, owner: int) -> None:
        self._resumes(self.steps[optimizer].parts[owner])

    def _answer(self, optimizer: int, owner: int, *, gives_up: bool = False, fails: bool = False) -> None:
        """The part ends, and answers."""
        part = self.steps[optimizer].parts[owner]
        part.owner.gives_up, part.owner.fails = gives_up, fails
        self._resumes(part)
        part.owner.gives_up = part.owner.fails = False
        assert part.operation is not None
        if not part.operation.over:
            raise Disagreement(f"the part is not over: {part.place.name}")
        del self.steps[optimizer].parts[owner]
        part.future.set(error=part.operation.error)

    _fail = partialmethod(_answer, fails=True)
    _give_up = partialmethod(_answer, gives_up=True)

    def _call_times_out(self, optimizer: int, owner: int) -> None:
        self.steps[optimizer].parts[owner].future.set(error=RpcTimeout("the owner is late"))

    def _crash(self, owner: int) -> None:
        self.owners[owner].dead = True

    def _notice(self, optimizer: int, owner: int) -> None:
        part = self.steps[optimizer].parts.pop(owner)
        if part.operation is not None:
            part.operation.abandon()
        part.future.set(error=PeerLost("killed"))

    # ---- the observed cells

    def observe(self) -> Mapping[str, int]:
        out: dict[str, int] = {}
        for owner in self.owners:
            grad = owner.parameter.grad
            of = 0 if grad is None or owner.dead else 1 + [BASE**k for k in range(len(self.steps))].index(int(grad))
            out[f"grad[{owner.number}]"] = of
            out[f"dead[{owner.number}]"] = int(owner.dead)
        for k, step in enumerate(self.steps):
            out[f"begun[{k}]"], out[f"stage[{k}]"] = step.begun, ordinal(step.stage)
            for owner in self.owners:
                w = owner.number
                part = step.parts.get(w)
                out[f"place[{k}][{w}]"] = ordinal(part.place if part is not None else OwnerStep.NONE)
                if step.futures:
                    future = step.futures[w]
                    out[f"done[{k}][{w}]"] = int(future.over and future.error is None)
                    out[f"failed[{k}][{w}]"] = int(future.error is not None)
                    out[f"applied[{k}][{w}]"] = owner.counts(k) - step.before[w]
        return out

"""Steps of the models `Tombstones` and `Ids`, performed by the runtime's containers, and counters of ids.

Rule: what is on its way is kept here; what the creator says and the peer remembers is the runtime's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trystate.impl.autograd.container import Container
from trystate.impl.autograd.contexts import Asker
from trystate.impl.autograd.effects import Answer, Request
from trystate.impl.autograd.errors import ContextError, IdsExhaustedError
from trystate.impl.autograd.ids import COUNTER_BITS, LAST_COUNT, Ids
from trystate.model.autograd.ids import Ids as IdsModel
from trystate.model.autograd.tombstones import Tombstones

from ...harness.subjects import Disagreement, Refused

NUMBERED = (0, 1, 32_768, 65_535)  # workers whose ids a signed number of 16 or 64 bits would get wrong, and others
Build = Callable[..., Any]  # a container, or what else is to be replaced by a broken one


def container(me: int, workers: int) -> Container:
    return Container(me, workers)


class TombstoneSteps:
    """Subject for the model `Tombstones` (edition TRYSTATE)."""

    CREATOR, PEER = 1, 0

    def __init__(self, model: Tombstones, build: Build = container) -> None:
        self.model, self._build = model, build
        self.reset()

    def reset(self) -> None:
        self.creator, self.peer = self._build(self.CREATOR, 2), self._build(self.PEER, 2)
        self.numbers: list[int] = []  # of the contexts
        self.told: set[int] = set()
        self.requests: set[int] = set()
        self.clean: dict[int, Request] = {}

    def can_refuse(self, step: str) -> bool:
        return step in ("ask", "leave")

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        getattr(self, f"_{step}")(*indices)

    def _begin(self) -> None:
        self.numbers.append(self.creator.create().number)

    def _number(self, context: int) -> int:
        if context >= len(self.numbers):
            raise Refused("it has not begun")
        return self.numbers[context]

    def _ask(self, context: int) -> None:
        try:
            found = self.creator.get(self._number(context))
        except ContextError as error:
            raise Refused(str(error)) from None
        if self.PEER in found.known:
            raise Refused("left out of the model: it is taken there again")
        self.creator.sent(found, self.PEER, [], "arguments")
        self.requests.add(context)

    def _leave(self, context: int) -> None:
        try:
            effects = self.creator.release(self._number(context))
        except ContextError as error:
            raise Refused(str(error)) from None
        for request in effects:
            if not isinstance(request, Request) or request.message.context != self.numbers[context]:
                raise Disagreement(f"the creator does something else than to tell of it: {request}")
            self.told.add(context)
            self.clean[context] = request

    def _take_request(self, context: int) -> None:
        self.requests.remove(context)
        self.peer.heard(self.numbers[context], self.CREATOR)

    def _take_clean_up(self, context: int) -> None:
        request, answers = self.clean.pop(context), list[bytes]()
        effects = self.peer.clean(request.message, Asker(self.CREATOR, lambda body, _: answers.append(body)))
        for effect in effects:
            if isinstance(effect, Answer):
                effect.asker.answer(effect.body, effect.gradients)
        if len(effects) != 1 or len(answers) != 1 or request.done(*answers):
            raise Disagreement(f"the peer does something else than to answer: {effects}")

    def observe(self) -> Mapping[str, int]:
        size = self.model.sizes["context"]
        numbers = [self.CREATOR << COUNTER_BITS | k for k in range(size)]
        over = [number in self.peer.dead for number in numbers]
        mark = (*over, False).index(False)
        out = {"opened": len(self.numbers), "mark": mark}
        for k, number in enumerate(numbers):
            context, request = self.creator.contexts.get(number), self.clean.get(k)
            out[f"left[{k}]"] = int(k < len(self.numbers) and context is None)
            if context is not None:
                out[f"known[{k}]"] = int(self.PEER in context.known)
            out[f"told[{k}]"] = int(k in self.told)
            out[f"request[{k}]"] = int(k in self.requests)
            out[f"clean[{k}]"] = int(request is not None)
            out[f"carried[{k}]"] = request.message.low - numbers[0] if request is not None else 0
            out[f"has[{k}]"] = int(number in self.peer.contexts)
            out[f"buried[{k}]"] = int(over[k] and k > mark)
        return out


class IdSteps:
    """Subject for the model `Ids` (edition TRYSTATE): counters that are as near to their end as the model's."""

    def __init__(self, model: IdsModel, build: Build = Ids) -> None:
        self.model, self._build = model, build
        self.reset()

    def reset(self) -> None:
        self.workers = NUMBERED[: self.model.sizes["worker"]]
        self.begin = LAST_COUNT + 1 - int(self.model.numbers)
        self.ids = [self._build(worker, self.begin) for worker in self.workers]
        self.taken: set[int] = set()
        self.refused: set[int] = set()

    def can_refuse(self, step: str) -> bool:
        return step == "give"

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        getattr(self, f"_{step}")(*indices)

    def _give(self, worker: int) -> None:
        try:
            self.taken.add(self.ids[worker].take())
        except IdsExhaustedError as error:
            raise Refused(str(error)) from None

    def _refuse(self, worker: int) -> None:
        try:
            number = self.ids[worker].take()
        except IdsExhaustedError:
            self.refused.add(worker)
        else:
            raise Disagreement(f"an id more than there are: {number:#x}")

    def observe(self) -> Mapping[str, int]:
        out = {}
        for k, worker in enumerate(self.workers):
            out[f"given[{k}]"] = sum(1 for number in self.taken if number >> COUNTER_BITS == worker)
            out[f"refused[{k}]"] = int(k in self.refused)
        return out

"""Steps of the models `Tombstones` and `Ids`, performed by the runtime's containers, and counters of ids.

Rule: what is on its way is kept here; what the creator says and the peer remembers is the runtime's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trystate.impl.autograd.container import Container
from trystate.impl.autograd.contexts import Asker
from trystate.impl.autograd.effects import Answer, Effect, Request
from trystate.impl.autograd.errors import ContextError, IdsExhaustedError
from trystate.impl.autograd.ids import COUNTER_BITS, LAST_COUNT, Ids
from trystate.impl.autograd.messages import CLEAN, KEPT
from trystate.model.autograd.ids import Ids as IdsModel
from trystate.model.autograd.tombstones import Tombstones

from ...harness.subjects import Disagreement, Refused

NUMBERED = (0, 1, 32_768, 65_535)  # workers whose ids a signed number of 16 or 64 bits would get wrong, and others
Build = Callable[..., Any]  # a container, or what else is to be replaced by a broken one


def container(me: int, workers: int, *options: int) -> Container:
    return Container(me, workers, *options)


class TombstoneSteps:
    """Subject for the model `Tombstones` (edition TRYSTATE)."""

    CREATOR = 1

    def __init__(self, model: Tombstones, build: Build = container) -> None:
        self.model, self._build = model, build
        self.reset()

    def reset(self) -> None:
        workers = self.model.sizes["peer"] + 1
        self.ranks = [k for k in range(workers) if k != self.CREATOR]  # of the peers
        self.creator, *self.peers = (self._build(k, workers, 1) for k in (self.CREATOR, *self.ranks))
        self.numbers: list[int] = []  # of the contexts
        self.requests: set[tuple[int, int]] = set()  # by peer and context, as all that is on its way
        self.clean: dict[tuple[int, int], list[Request]] = {}
        self.passed: dict[tuple[int, int], Request] = {}
        self.kept: dict[tuple[int, int], Request] = {}

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

    def _before(self, peer: int) -> Container:
        """The worker that calls this peer."""
        before: Container = self.peers[peer - 1] if peer else self.creator
        return before

    def _ask(self, peer: int, context: int) -> None:
        before, to = self._before(peer), self.ranks[peer]
        try:
            found = before.get(self._number(context))
        except ContextError as error:
            raise Refused(str(error)) from None
        if to in found.known:
            raise Refused("left out of the model: it is taken there again")
        before.sent(found, to, [], "arguments")
        self.requests.add((peer, context))

    def _leave(self, context: int) -> None:
        try:
            effects = self.creator.release(self._number(context))
        except ContextError as error:
            raise Refused(str(error)) from None
        self._do(self.creator, effects)

    def _do(self, worker: Container, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                effect.asker.answer(effect.body, effect.gradients)
            elif isinstance(effect, Request):
                self._send(worker, effect)

    def _send(self, worker: Container, request: Request) -> None:
        context = self.numbers.index(request.message.context)
        if worker is self.creator:
            self.clean.setdefault((self.ranks.index(request.to), context), []).append(request)
        elif request.kind == KEPT and request.to == self.CREATOR:
            self.kept[self.peers.index(worker), context] = request
        elif request.kind == CLEAN and worker is self._before(self.ranks.index(request.to)):
            self.passed[self.ranks.index(request.to), context] = request
        else:
            raise Disagreement(f"worker {worker.me} does something else: {request}")

    def _take_request(self, peer: int, context: int) -> None:
        self.requests.remove((peer, context))
        self.peers[peer].heard(self.numbers[context], self._before(peer).me)

    def _take_clean_up(self, peer: int, context: int) -> None:
        for request in self.clean.pop((peer, context)):
            self._take(self.peers[peer].clean, self.creator, self.peers[peer], request)

    def _take_passed_on(self, peer: int, context: int) -> None:
        request = self.passed.pop((peer, context))
        self._take(self.peers[peer].clean, self._before(peer), self.peers[peer], request)

    def _take_kept(self, peer: int, context: int) -> None:
        self._take(self.creator.kept, self.peers[peer], self.creator, self.kept.pop((peer, context)))

    def _take(self, take: Callable[..., Any], sender: Container, receiver: Container, request: Request) -> None:
        """A worker takes a message; its answer is taken as soon as it is given."""

        def answer(body: bytes, _: object) -> None:
            self._do(sender, request.done(body))

        self._do(receiver, take(request.message, Asker(sender.me, answer)))

    def observe(self) -> Mapping[str, int]:
        size, base = self.model.sizes["context"], self.CREATOR << COUNTER_BITS
        numbers = [base + k for k in range(size)]
        out = {"opened": len(self.numbers)}
        for k, number in enumerate(numbers):
            out[f"left[{k}]"] = int(k < len(self.numbers) and number not in self.creator.contexts)
        for p, peer in enumerate(self.peers):
            over = [number in peer.dead for number in numbers]
            out[f"mark[{p}]"] = mark = (*over, False).index(False)
            out[f"told[{p}]"] = self.creator._last_told.get(peer.me, base - 1) - base + 1
            for k, number in enumerate(numbers):
                context, clean = self._before(p).contexts.get(number), self.clean.get((p, k))
                if context is not None:
                    out[f"known[{p}][{k}]"] = int(peer.me in context.known)
                out[f"request[{p}][{k}]"] = int((p, k) in self.requests)
                out[f"passed[{p}][{k}]"] = int((p, k) in self.passed)
                out[f"kept[{p}][{k}]"] = int((p, k) in self.kept)
                out[f"clean[{p}][{k}]"] = int(clean is not None)
                out[f"carried[{p}][{k}]"] = clean[-1].message.low - base if clean is not None else 0
                out[f"has[{p}][{k}]"] = int(number in peer.contexts)
                out[f"buried[{p}][{k}]"] = int(over[k] and k > mark)
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

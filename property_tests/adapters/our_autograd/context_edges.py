"""Steps of the models `Contexts`, `Tombstones` and `Ids`, performed by the runtime's containers and counters of ids.

Rule: this module keeps the messages under way, the dead workers and the losses that each worker has noticed. A worker's
own state is the runtime's, and each cell is compared. A worker may answer a CLEAN long before its step in the model:
this module keeps the answer until then.

A pass of the model ships once to each worker that the root has called. So in a model with a pass, the tensors of calls
need no gradient. Instead one tensor of each worker, made when the pass begins, needs one. The root of a failed pass
sends CANCEL, which the model does not have: here a CANCEL arrives as soon as the gradient is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from trystate.impl.autograd.container import Container
from trystate.impl.autograd.contexts import Context
from trystate.impl.autograd.driver import Driver
from trystate.impl.autograd.effects import Asker, Effect, Request
from trystate.impl.autograd.errors import ContextError, IdsExhaustedError, PassError
from trystate.impl.autograd.ids import COUNTER_BITS, LAST_COUNT, Ids
from trystate.impl.autograd.local_pass import Begin, LocalPass
from trystate.impl.autograd.messages import BACKWARD, CANCEL, CLEAN, KEPT, NO_MESSAGE, Forward, unpack_outcome
from trystate.model.autograd.contexts.fields import CREATOR
from trystate.model.autograd.vocabulary import CallState, CleanUp, Mode, Shipped
from trystate.model.language.sorts import ordinal

from ...harness.subjects import Disagreement, Refused
from .letters import DEADLINE, Steps, take

EDGES = [("what made a tensor", 0)]
LEFT_OPEN = 1 << 47  # a context that the model does not have


@dataclass(eq=False, slots=True)
class CleanUpMessage:
    """A CLEAN, until its sender has the answer."""

    request: Request
    state: CleanUp = CleanUp.SENT
    answer: bytes | None = None

    def take(self, answer: bytes, _: object = ()) -> None:
        if self.answer is not None and self.state is not CleanUp.AGAIN:
            raise Disagreement("a CLEAN is answered twice")
        self.answer = answer


@dataclass(eq=False, slots=True)
class Serving:
    """The call that a worker serves or is going to serve."""

    caller: int
    message: int
    state: CallState = CallState.REQUESTED
    waited_for: bool = True


@dataclass(eq=False, slots=True)
class Gradient:
    """A BACKWARD of the root, until the root has received its answer."""

    request: Request
    state: Shipped = Shipped.SENT
    answer: bytes | BaseException = b""

    def take(self, answer: bytes, _: object = ()) -> None:
        if self.state not in (Shipped.SENT, Shipped.RUNNING):
            raise Disagreement("a gradient is answered twice")
        self.answer = answer
        self.state = Shipped.FAILED if isinstance(unpack_outcome(answer), PassError) else Shipped.DONE

    def fail(self, error: BaseException) -> None:
        self.answer, self.state = error, Shipped.FAILED


class Thread:
    """The thread that serves the calls of one worker. The driver has its current context."""

    def __init__(self, container: Container) -> None:
        worker = range(2)  # any names
        agent: Any = SimpleNamespace(me=container.me, name="", workers=worker, handle=lambda *_: None)
        self._driver = Driver(agent)
        self._driver.container = container
        self._scope: AbstractContextManager[None] | None = None

    @property
    def is_inside(self) -> bool:
        return self._driver.current.number is not None

    def begin(self, caller: int, context: int) -> None:
        self._scope = self._driver.incoming(caller, Forward(context, NO_MESSAGE, ()).pack(), [])
        self._scope.__enter__()

    def end(self) -> None:
        """End a function that has entered its own context and has not left it."""
        assert self._scope is not None
        self._driver.current.number = LEFT_OPEN
        self._scope.__exit__(None, None, None)


class ContextSteps(Steps):
    """Subject for the model `Contexts` (edition TRYSTATE)."""

    TRIED = ("answer_clean_up", "end_part", "end_pass")

    def reset(self) -> None:
        size = self.model.sizes["worker"]
        self.workers = [Container(k, size) for k in range(size)]
        self.number = -1
        self.calls: dict[int, Serving] = {}  # the worker that serves a call -> the call
        self.threads = [Thread(container) for container in self.workers]
        self.letters: dict[tuple[int, int], CleanUpMessage] = {}
        self.dead: set[int] = set()
        self.noticed: set[tuple[int, int]] = set()
        self.root: LocalPass | None = None
        self.returned = False
        self.over: set[LocalPass] = set()
        self.parts: dict[int, LocalPass] = {}
        self.gradients: dict[int, Gradient] = {}
        self.cancels: dict[int, Request] = {}

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        super().perform(step, indices)
        for to in [to for to in self.cancels if to not in self.gradients]:
            self._cancel(self.cancels.pop(to))

    def _do(self, worker: int, effects: Iterable[Effect]) -> None:
        """Perform effects. The thread of a part that is over ends at once."""
        super()._do(worker, effects)
        part = self.parts.get(worker)
        if part is not None and part.running and part.is_over:
            self._do(worker, part.next()[1])

    def _send(self, worker: int, request: Request) -> None:
        way = (worker, request.to)
        if request.message.context != self.number:
            raise Disagreement(f"worker {worker} sends {request.to} a message of another context")
        if request.kind in (BACKWARD, CANCEL):
            sent: dict[int, Any] = self.gradients if request.kind == BACKWARD else self.cancels
            if worker != CREATOR or request.to in sent:
                raise Disagreement(f"worker {worker} ships or cancels again, or is not the root")
            sent[request.to] = Gradient(request) if request.kind == BACKWARD else request
        elif way in self.letters:
            raise Disagreement(f"worker {worker} sends {request.to} a second CLEAN")
        else:
            self.letters[way] = CleanUpMessage(request)

    def _is_over(self, worker: int) -> bool:
        return self.number in self.workers[worker].dead or (worker, CREATOR) in self.noticed

    @property
    def _edges(self) -> list[tuple[Any, int]]:
        """The edges of the tensors of a call."""
        return [] if self.model.passes else EDGES

    # ---- the context, and calls

    def _enter(self, worker: int) -> None:
        self.number = self.workers[worker].create().number

    def _ask(self, worker: int, to: int) -> None:
        container = self.workers[worker]
        message = container.sent(container.get(self.number), to, self._edges, "arguments")
        self.calls[to] = Serving(worker, message)

    def _take_request(self, worker: int) -> None:
        call = self.calls[worker]
        self.threads[worker].begin(call.caller, self.number)
        context = self.workers[worker].contexts.get(self.number)
        if context is not None:
            self._receives(worker, context, call.caller, call.message)
        call.state = CallState.RUNNING

    def _answer(self, worker: int) -> None:
        call, container = self.calls[worker], self.workers[worker]
        context = container.contexts.get(self.number) if self.threads[worker].is_inside else None
        if context is not None:
            call.message = container.sent(context, call.caller, self._edges, "result", call=False)
        self.threads[worker].end()
        call.state = CallState.ANSWERED

    def _take_answer(self, worker: int) -> None:
        call = self.calls.pop(worker)
        context = self.workers[call.caller].contexts.get(self.number)
        if call.waited_for and context is not None:
            self._receives(call.caller, context, worker, call.message)

    def _receives(self, worker: int, context: Context, peer: int, message: int) -> None:
        if message != NO_MESSAGE:
            self.workers[worker].received(context, peer, message, ("recv", message))

    def _time_out(self, worker: int) -> None:
        self.calls[worker].waited_for = False

    # ---- the release

    def _leave(self, worker: int) -> None:
        self._do(worker, self.workers[worker].release(self.number))

    def _take_clean_up(self, worker: int, to: int) -> None:
        letter = self.letters[worker, to]
        last = letter.state is CleanUp.AGAIN or not self._is_over(to)
        self._told(worker, to)
        if last or letter.answer is None:
            letter.state = CleanUp.PASSING_ON
        else:
            self._hand(worker, to)

    def _duplicate(self, worker: int, to: int) -> None:
        self._told(worker, to)
        self.letters[worker, to].state = CleanUp.AGAIN

    def _told(self, worker: int, to: int) -> None:
        letter = self.letters[worker, to]
        self._do(to, self.workers[to].clean(letter.request.message, Asker(worker, letter.take)))

    def _answer_clean_up(self, worker: int, to: int) -> None:
        letter = self.letters.get((worker, to))
        if letter is None or letter.state is not CleanUp.PASSING_ON or to in self.dead:
            raise Refused("no live worker has to answer")
        if letter.answer is None:
            raise Refused(f"worker {to} has not answered")
        self._hand(worker, to)

    def _hand(self, worker: int, to: int) -> None:
        """The answer reaches the sender of the request."""
        letter = self.letters.pop((worker, to))
        if worker not in self.dead and letter.answer is not None:
            self._do(worker, letter.request.done(letter.answer))

    def _lose(self, worker: int, to: int) -> None:
        self.letters[worker, to].state = CleanUp.LOST

    def _repeat(self, worker: int, to: int) -> None:
        self.letters[worker, to].state = CleanUp.SENT

    # ---- the pass

    def _runs(self) -> bool:
        """Is the creator in backward()? A release ends backward() with an error."""
        if self.root is None or self.returned:
            return False
        return not (self.root.is_over and self.root.context.released)

    def _begin_pass(self) -> None:
        container = self.workers[CREATOR]
        context = container.get(self.number)
        edges = [(self._fetch(context, j), 0) for j in sorted(context.known)]
        self.root, effects = container.begin(context, Begin(edges, [1] * len(edges)), Mode.FAST, True, DEADLINE)
        self.parts[CREATOR] = self.root
        self._do(CREATOR, effects)
        self._do(CREATOR, self.root.next()[1])
        for node, _ in edges:
            self._do(CREATOR, self.root.ship(context.by_node[node], [1]))
        self._do(CREATOR, self.root.next()[1])
        for j, gradient in self.gradients.items():
            if (CREATOR, j) in self.noticed:
                gradient.fail(ConnectionError("killed"))

    def _fetch(self, context: Context, worker: int) -> tuple[str, int]:
        """A tensor of a worker arrives at the root; returns its node in the root's graph."""
        container = self.workers[worker]
        there = container.contexts.get(self.number)
        if worker in self.dead:
            message = -1 - worker  # it arrived before the worker died
        elif there is None:
            raise Disagreement(f"worker {worker} does not have the context, which is not left")
        else:
            message = container.sent(there, CREATOR, EDGES, "tensor", call=False)
        self._receives(CREATOR, context, worker, message)
        return "recv", message

    def _take_gradient(self, worker: int) -> None:
        gradient, container = self.gradients[worker], self.workers[worker]
        gradient.state = Shipped.RUNNING
        asker = Asker(CREATOR, gradient.take)
        request = gradient.request
        effects = take(container, BACKWARD, request.message.pack(), request.gradients, asker)
        context = container.contexts.get(self.number)
        if context is not None and context.local_pass is not None:
            self.parts[worker] = context.local_pass
        self._do(worker, effects)

    def _part(self, worker: int) -> LocalPass:
        part = self.parts.get(worker)
        if worker in self.dead or worker == CREATOR or part is None or not part.running:
            raise Refused("no thread runs its part")
        return part

    def _end_part(self, worker: int) -> None:
        part = self._part(worker)
        while True:
            item, effects = part.next()
            self._do(worker, effects)
            if item is None:
                return

    def _fail_part(self, worker: int) -> None:
        self._do(worker, self._part(worker).fail(PassError("a node", (worker,))))

    def _hear_answer(self, worker: int) -> None:
        gradient = self.gradients.pop(worker)
        self._do(CREATOR, gradient.request.done(gradient.answer))

    def _end_pass(self) -> None:
        if self.root is None or CREATOR in self.dead or not self._runs():
            raise Refused("no pass runs")
        if self.root not in self.over:
            raise Refused("backward() has not returned")
        self.returned = True

    def _cancel(self, request: Request) -> None:
        """CANCEL arrives, and is answered."""
        if CREATOR in self.dead:
            return
        if request.to in self.dead:
            self._do(CREATOR, request.done(ConnectionError("killed")))
            return
        answers: list[bytes] = []
        asker = Asker(CREATOR, lambda body, _: answers.append(body))
        self._do(request.to, take(self.workers[request.to], CANCEL, request.message.pack(), (), asker))
        (answer,) = answers
        self._do(CREATOR, request.done(answer))

    # ---- workers that are lost

    def _crash(self, worker: int) -> None:
        self.dead.add(worker)
        for (sender, to), letter in [*self.letters.items()]:
            if sender == worker and letter.state in (CleanUp.LOST, CleanUp.PASSING_ON):
                del self.letters[sender, to]

    _creator_crashes = _crash

    def _notice(self, worker: int, lost: int) -> None:
        self._fails(lost, worker)
        call = self.calls.get(worker)
        if call is not None and call.state is CallState.REQUESTED:
            self._fails(worker, lost)
        self.letters.pop((lost, worker), None)
        letter = self.letters.pop((worker, lost), None)
        self.noticed.add((worker, lost))
        if worker == CREATOR and lost in self.gradients:
            self.gradients[lost].fail(ConnectionError("killed"))
        if letter is not None:
            self._do(worker, letter.request.done(ConnectionError("killed")))
        self._do(worker, self.workers[worker].lost(lost, "killed"))

    def _fails(self, serving: int, caller: int) -> None:
        """The call of one worker at another is over, if there is one."""
        call = self.calls.get(serving)
        if call is not None and call.waited_for and call.caller == caller:
            del self.calls[serving]

    # ---- the observed cells

    def observe(self) -> Mapping[str, int]:
        out = {}
        for k, worker in enumerate(self.workers):
            context = worker.contexts.get(self.number)
            for j in range(len(self.workers)):
                letter = self.letters.get((k, j))
                out[f"clean[{k}][{j}]"] = ordinal(letter.state if letter is not None else CleanUp.NONE)
            gradient = self.gradients.get(k)
            out[f"shipped[{k}]"] = ordinal(gradient.state if gradient is not None else Shipped.NONE)
            if k not in self.dead:
                out[f"has[{k}]"] = int(context is not None)
                out[f"over[{k}]"] = int(self._is_over(k))
                out[f"inside[{k}]"] = int(self.threads[k].is_inside)
                for j in range(len(self.workers)):
                    out[f"known[{k}][{j}]"] = int(context is not None and j in context.known)
        if CREATOR not in self.dead:
            out["running"] = int(self._runs())
        return out


# ---- tombstones and ids

NUMBERED = (0, 1, 32_768, 65_535)  # with signed numbers of 16 or 64 bits, the ids of the last two would be wrong


class TombstoneSteps(Steps):
    """Subject for the model `Tombstones` (edition TRYSTATE)."""

    TRIED = ("ask", "leave")

    CREATOR = 1

    def reset(self) -> None:
        workers = self.model.sizes["peer"] + 1
        self.ranks = [k for k in range(workers) if k != self.CREATOR]  # the ranks of the peers
        self.creator, *self.peers = (Container(k, workers, 1) for k in (self.CREATOR, *self.ranks))
        self.numbers: list[int] = []  # the numbers of the contexts
        self.requests: set[tuple[int, int]] = set()  # (peer, context), like all messages under way
        self.clean: dict[tuple[int, int], list[Request]] = {}
        self.passed: dict[tuple[int, int], Request] = {}
        self.kept: dict[tuple[int, int], Request] = {}

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
            raise Refused("not in the model: the peer gets it again")
        before.sent(found, to, [], "arguments")
        self.requests.add((peer, context))

    def _leave(self, context: int) -> None:
        try:
            effects = self.creator.release(self._number(context))
        except ContextError as error:
            raise Refused(str(error)) from None
        self._do(self.creator, effects)

    def _send(self, worker: Container, request: Request) -> None:
        context = self.numbers.index(request.message.context)
        if worker is self.creator:
            self.clean.setdefault((self.ranks.index(request.to), context), []).append(request)
        elif request.kind == KEPT and request.to == self.CREATOR:
            self.kept[self.peers.index(worker), context] = request
        elif request.kind == CLEAN and worker is self._before(self.ranks.index(request.to)):
            self.passed[self.ranks.index(request.to), context] = request
        else:
            raise Disagreement(f"worker {worker.me} sends {request}")

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
        """A worker receives a message. Its answer arrives at once."""

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


class IdSteps(Steps):
    """Subject for the model `Ids` (edition TRYSTATE). Its counters are as near to their limits as the model's."""

    TRIED = ("give",)

    def reset(self) -> None:
        self.workers = NUMBERED[: self.model.sizes["worker"]]
        self.begin = LAST_COUNT + 1 - int(self.model.numbers)
        self.ids = [Ids(worker, self.begin) for worker in self.workers]
        self.taken: set[int] = set()
        self.refused: set[int] = set()

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
            raise Disagreement(f"an id after the last one: {number:#x}")

    def observe(self) -> Mapping[str, int]:
        out = {}
        for k, worker in enumerate(self.workers):
            out[f"given[{k}]"] = sum(1 for number in self.taken if number >> COUNTER_BITS == worker)
            out[f"refused[{k}]"] = int(k in self.refused)
        return out

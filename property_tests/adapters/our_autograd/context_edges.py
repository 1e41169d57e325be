"""Steps of the model `Contexts`, performed by the runtime's containers; and the systems that are replayed with it.

Rule: messages on their way, dead workers and what each has noticed are kept here; a worker's own state is the
runtime's, and is compared cell by cell. A worker that is told that a context is over may have answered long before the
model says so: the answer is kept until then.

A pass of the model ships once to each worker that the root has called. So where the model has a pass, the tensors of
its calls need no gradient, and one tensor of each worker does that is there when the pass begins. The root of a pass
that has failed cancels it; the model has no CANCEL, which here reaches a worker as soon as its gradient is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from trystate.impl.autograd.container import Container
from trystate.impl.autograd.contexts import Asker, Context
from trystate.impl.autograd.driver import Driver
from trystate.impl.autograd.effects import Answer, Effect, Over, Request
from trystate.impl.autograd.errors import ContextError, PassError, PassRunningError
from trystate.impl.autograd.local_pass import Begin, LocalPass
from trystate.impl.autograd.messages import BACKWARD, CANCEL, NO_MESSAGE, Forward, unpack_outcome
from trystate.model.autograd.contexts import Contexts
from trystate.model.autograd.contexts.fields import CREATOR
from trystate.model.autograd.ids import Ids as IdsModel
from trystate.model.autograd.tombstones import Tombstones
from trystate.model.autograd.vocabulary import CallState, CleanUp, Edition, Mode, Shipped
from trystate.model.language import System
from trystate.model.language.sorts import ordinal

from ...harness.subjects import Disagreement, Refused, Subject
from .simulated import DEADLINE, take
from .tombstone_edges import Build, IdSteps, TombstoneSteps, container

C, L = CleanUp, CallState
EDGES = [("what made a tensor", 0)]
LEFT_OPEN = 1 << 47  # a context that is none of the model's


@dataclass(eq=False, slots=True)
class Letter:
    """A CLEAN, until whoever has sent it has the answer."""

    request: Request
    state: CleanUp = C.SENT
    answer: bytes | None = None

    def take(self, answer: bytes, _: object = ()) -> None:
        if self.answer is not None and self.state is not C.AGAIN:
            raise Disagreement("a CLEAN is answered twice")
        self.answer = answer


@dataclass(eq=False, slots=True)
class Serving:
    """The call that a worker serves, or is to serve."""

    caller: int
    message: int
    state: CallState = L.REQUESTED
    waited_for: bool = True


@dataclass(eq=False, slots=True)
class Gradient:
    """A BACKWARD of the root, until the root has heard its answer."""

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
    """The thread of the pool that serves the calls of one worker: the driver says which context it is in."""

    def __init__(self, container: Container) -> None:
        worker = range(2)  # the names of workers do not matter
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
        """The function has entered a context of its own, and leaves it open."""
        assert self._scope is not None
        self._driver.current.number = LEFT_OPEN
        self._scope.__exit__(None, None, None)


class ContextSteps:
    """Subject for the model `Contexts` (edition TRYSTATE)."""

    def __init__(self, model: Contexts, build: Build = container) -> None:
        self.model, self._build = model, build
        self.reset()

    def reset(self) -> None:
        size = self.model.sizes["worker"]
        self.workers = [self._build(k, size) for k in range(size)]
        self.number = -1
        self.open = False
        self.asked = 0
        self.calls: dict[int, Serving] = {}  # by who serves it
        self.threads = [Thread(container) for container in self.workers]
        self.letters: dict[tuple[int, int], Letter] = {}
        self.dead: set[int] = set()
        self.noticed: set[tuple[int, int]] = set()
        self.root: LocalPass | None = None
        self.returned = False
        self.over: set[LocalPass] = set()
        self.parts: dict[int, LocalPass] = {}
        self.gradients: dict[int, Gradient] = {}
        self.cancels: dict[int, Request] = {}

    def can_refuse(self, step: str) -> bool:
        return step in ("ask", "leave", "answer_clean_up", "begin_pass", "end_part", "end_pass")

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        getattr(self, f"_{step}")(*indices)
        for to in [to for to in self.cancels if to not in self.gradients]:
            self._cancel(self.cancels.pop(to))

    def _do(self, worker: int, effects: Iterable[Effect]) -> None:
        """Perform effects; the thread of a part that is over notices at once."""
        for effect in effects:
            if isinstance(effect, Answer):
                effect.asker.answer(effect.body, effect.gradients)
            elif isinstance(effect, Request):
                self._send(worker, effect)
            elif isinstance(effect, Over):
                self.over.add(effect.local_pass)
        part = self.parts.get(worker)
        if part is not None and part.running and part.is_over:
            self._do(worker, part.next()[1])

    def _send(self, worker: int, request: Request) -> None:
        way = (worker, request.to)
        if request.message.context != self.number:
            raise Disagreement(f"worker {worker} tells {request.to} of another context")
        if request.kind in (BACKWARD, CANCEL):
            sent: dict[int, Any] = self.gradients if request.kind == BACKWARD else self.cancels
            if worker != CREATOR or request.to in sent:
                raise Disagreement(f"worker {worker} ships or cancels again, or is not the root")
            sent[request.to] = Gradient(request) if request.kind == BACKWARD else request
        elif way in self.letters:
            raise Disagreement(f"worker {worker} tells {request.to} again")
        else:
            self.letters[way] = Letter(request)

    def _is_over(self, worker: int) -> bool:
        return self.number in self.workers[worker].dead or (worker, CREATOR) in self.noticed

    @property
    def _edges(self) -> list[tuple[Any, int]]:
        """Of the tensors of a call."""
        return [] if self.model.passes else EDGES

    def _waits(self, worker: int) -> bool:
        return any(call.waited_for and call.caller == worker for call in self.calls.values())

    # ---- the context, and calls

    def _enter(self, worker: int) -> None:
        self.number = self.workers[worker].create().number
        self.open = True

    def _ask(self, worker: int, to: int) -> None:
        if worker == to or to in self.calls or self.asked == int(self.model.calls):
            raise Refused("the model makes no such call")
        if worker in self.dead or (worker, to) in self.noticed:
            raise Refused("one of the two is lost")
        context = self.workers[worker].contexts.get(self.number)
        if context is None or not (self.threads[worker].is_inside or (worker == CREATOR and self.open)):
            raise Refused("the call is made outside of the context")
        self.calls[to] = Serving(worker, self.workers[worker].sent(context, to, self._edges, "arguments"))
        self.asked += 1

    def _take_request(self, worker: int) -> None:
        call = self.calls[worker]
        self.threads[worker].begin(call.caller, self.number)
        context = self.workers[worker].contexts.get(self.number)
        if context is not None:
            self._receives(worker, context, call.caller, call.message)
        call.state = L.RUNNING

    def _answer(self, worker: int) -> None:
        call, container = self.calls[worker], self.workers[worker]
        context = container.contexts.get(self.number) if self.threads[worker].is_inside else None
        if context is not None:
            call.message = container.sent(context, call.caller, self._edges, "result", call=False)
        self.threads[worker].end()
        call.state = L.ANSWERED

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
        if worker != CREATOR or worker in self.dead:
            raise Refused("only its creator leaves it")
        if not self.model.outlives and self._waits(worker):
            raise Refused("its creator waits for a call")
        if not self.model.outlives and self._runs():
            raise Refused("its creator is in backward()")
        try:
            effects = self.workers[worker].release(self.number)
        except ContextError as error:
            raise Refused(str(error)) from None
        self.open = False
        self._do(worker, effects)

    def _take_clean_up(self, worker: int, to: int) -> None:
        letter = self.letters[worker, to]
        last = letter.state is C.AGAIN or not self._is_over(to)
        self._told(worker, to)
        if last or letter.answer is None:
            letter.state = C.PASSING_ON
        else:
            self._hand(worker, to)

    def _duplicate(self, worker: int, to: int) -> None:
        self._told(worker, to)
        self.letters[worker, to].state = C.AGAIN

    def _told(self, worker: int, to: int) -> None:
        letter = self.letters[worker, to]
        self._do(to, self.workers[to].clean(letter.request.message, Asker(worker, letter.take)))

    def _answer_clean_up(self, worker: int, to: int) -> None:
        letter = self.letters.get((worker, to))
        if letter is None or letter.state is not C.PASSING_ON or to in self.dead:
            raise Refused("nobody is to answer")
        if letter.answer is None:
            raise Refused(f"worker {to} has not answered")
        self._hand(worker, to)

    def _hand(self, worker: int, to: int) -> None:
        """The answer reaches who asked."""
        letter = self.letters.pop((worker, to))
        if worker not in self.dead and letter.answer is not None:
            self._do(worker, letter.request.done(letter.answer))

    def _lose(self, worker: int, to: int) -> None:
        self.letters[worker, to].state = C.LOST

    def _repeat(self, worker: int, to: int) -> None:
        self.letters[worker, to].state = C.SENT

    # ---- the pass

    def _runs(self) -> bool:
        """Is the creator in backward()? The release ends it with an error."""
        if self.root is None or self.returned:
            return False
        return not (self.root.is_over and self.root.context.released)

    def _begin_pass(self) -> None:
        container = self.workers[CREATOR]
        context = container.contexts.get(self.number)
        if not self.model.passes or CREATOR in self.dead or context is None or self.calls or not context.known:
            raise Refused("the model begins no pass now")
        if self.root is not None and self.root.is_settled:
            raise Refused("the model begins one pass")
        edges = [(self._fetch(context, j), 0) for j in sorted(context.known)] if self.root is None else []
        try:
            self.root, effects = container.begin(context, Begin(edges, [1] * len(edges)), Mode.FAST, True, DEADLINE)
        except PassRunningError as error:
            raise Refused(str(error)) from None
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
        """A tensor of a worker comes to the root: the node that stands for it there."""
        container = self.workers[worker]
        there = container.contexts.get(self.number)
        if worker in self.dead:
            message = -1 - worker  # it came before the worker died
        elif there is None:
            raise Disagreement(f"worker {worker} does not have the context, and no one has left it")
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
            if sender == worker and letter.state in (C.LOST, C.PASSING_ON):
                del self.letters[sender, to]

    _creator_crashes = _crash

    def _notice(self, worker: int, lost: int) -> None:
        self._fails(lost, worker)
        call = self.calls.get(worker)
        if call is not None and call.state is L.REQUESTED:
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

    # ---- what can be seen

    def observe(self) -> Mapping[str, int]:
        out = {}
        for k, worker in enumerate(self.workers):
            context = worker.contexts.get(self.number)
            for j in range(len(self.workers)):
                letter = self.letters.get((k, j))
                out[f"clean[{k}][{j}]"] = ordinal(letter.state if letter is not None else C.NONE)
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


SUBJECTS: Mapping[type[System], Callable[..., Subject]] = {
    Contexts: ContextSteps, Tombstones: TombstoneSteps, IdsModel: IdSteps,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slice:
    """A model of one size, edition TRYSTATE, whose every edge is replayed."""

    system: type[System]
    sizes: Mapping[str, int] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    def build(self) -> System:
        return self.system(edition=Edition.TRYSTATE, faults=self.faults, **self.sizes)

    def subject(self, system: System, *build: Build) -> Subject:
        """The subject that performs its steps: with the runtime's own classes, or with those that `build` makes."""
        return SUBJECTS[self.system](system, *build)

    def __str__(self) -> str:
        sizes = (f"{name}={size}" for name, size in self.sizes.items())
        return " ".join((self.system.__name__, *sizes, *self.faults))


def contexts(workers: int, calls: int, outlives: int, *faults: str, passes: int = 0) -> Slice:
    """A slice of `Contexts`; with `passes=1` its creator runs a pass."""
    return Slice(Contexts, {"worker": workers, "calls": calls, "outlives": outlives, "passes": passes}, faults)


LOSSES = ("crash", "creator_crash", "timeout", "lose", "duplicate")
SLICES: tuple[Slice, ...] = (
    contexts(2, 2, 1, "crash", "creator_crash", "timeout"),
    contexts(2, 2, 0, *LOSSES),
    contexts(3, 2, 1),
    contexts(3, 2, 0, "crash", "creator_crash"),
    contexts(3, 2, 0, "crash", "lose", "duplicate"),
    contexts(2, 2, 1, "error", "crash", "creator_crash", "timeout", passes=1),
    contexts(3, 2, 1, "error", passes=1),
    Slice(Tombstones, {"peer": 1}),
    Slice(Tombstones, {"context": 2}),
    Slice(IdsModel),
)
LONG = (
    contexts(3, 2, 0, *LOSSES),
    contexts(3, 3, 1),
    contexts(4, 3, 0),
    contexts(3, 2, 1, "error", "crash", passes=1),
    Slice(Tombstones),
)

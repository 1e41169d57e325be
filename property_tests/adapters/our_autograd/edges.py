"""Steps of the model `Backward`, performed by the runtime's containers, parts and dependency counts.

Rule: this module keeps the messages under way, the losses and the deaths. The runtime decides how a worker reacts, and
each cell is compared. A part keeps its thread until the model takes `come_to_rest`, so its nodes run in any order.
The forms differ in two places: one MARK for several sends is several marks in the model, and the outputs of a recv are
one output there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trystate.impl.autograd import messages
from trystate.impl.autograd.container import Container
from trystate.impl.autograd.contexts import Context
from trystate.impl.autograd.dependencies import DependencyCounts
from trystate.impl.autograd.effects import Asker, Effect, Request
from trystate.impl.autograd.errors import AutogradError, PassError, UnusedSendError
from trystate.impl.autograd.ids import COUNTER_BITS
from trystate.impl.autograd.local_pass import Arrived, Begin, LocalPass, Marked
from trystate.impl.autograd.messages import BACKWARD, CANCEL, MARK, Mark
from trystate.impl.autograd.runner import Runner
from trystate.model.autograd.backward import Backward
from trystate.model.autograd.backward.fields import Call, Outcome
from trystate.model.autograd.graphs import Graph
from trystate.model.autograd.vocabulary import Mode, NodeKind, Part
from trystate.model.language.sorts import ordinal

from ...harness.subjects import Disagreement, Refused
from .letters import DEADLINE, JoinedAnswer, Message, Steps, take

OVER = (Part.FAILED, Part.CANCELLED)


class IntegerGraph:
    """A graph of the model with whole numbers as gradients. It implements `LocalGraph`."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = graph.nodes

    def next_edges(self, node: int) -> list[tuple[int, int]]:
        return [(fed, 0) for fed in self._nodes[node].feeds]

    def inputs_of(self, node: int) -> int:
        return 1

    def is_leaf(self, node: int) -> bool:
        return self._nodes[node].kind in (NodeKind.ACCUMULATE, NodeKind.RECV)

    def add(self, one: int, other: int) -> int:
        return one + other


@dataclass(eq=False, slots=True)
class Worker:
    """One worker: its container, its context, and what its part has run."""

    number: int
    container: Container
    context: Context
    local_pass: LocalPass | None = None
    runner: Any = None
    totals: dict[int, int] = field(default_factory=dict)  # node to the number of gradients that it waits for
    ran: dict[int, Any] = field(default_factory=dict)  # node to its gradient
    dead: bool = False

    def running(self) -> LocalPass:
        if self.local_pass is None or not self.local_pass.running or self.dead:
            raise Refused("no thread runs its part")
        return self.local_pass


class PassSteps(Steps):
    """Subject for the model `Backward` in our modes."""

    TRIED = ("begin", "run", "come_to_rest", "end_wave", "settle", "notice_loss")

    def __init__(self, model: Backward) -> None:
        self.graph = model.shape
        self.mode = Mode.SMART if model.edition is Mode.SMART else Mode.FAST
        self.number = self.graph.workers << COUNTER_BITS  # its creator is not in the graph, and never dies
        super().__init__(model)

    def reset(self) -> None:
        self.seats = [self._seat(worker) for worker in range(self.graph.workers)]
        self.home = self.seats[self.graph.home]
        self.letters: dict[tuple[int, int, int], Message] = {}  # kind, attempt, pair or worker
        self.begun: dict[int, LocalPass] = {}  # the root's part, by attempt
        self.refused: set[int] = set()  # attempts that raised at once
        self.settled: set[LocalPass] = set()
        self.over: set[LocalPass] = set()  # passes that the runtime has reported as over
        self.message: list[int] = []  # the message of each pair
        for p, pair in enumerate(self.graph.pairs):
            ships, takes = (self.seats[w] for w in self.graph.ends(p))
            edges = [(fed, 0) for fed in self.graph.nodes[pair.send].feeds]
            self.message.append(takes.container.sent(takes.context, ships.number, edges, self.graph.calls[p]))
            ships.container.received(ships.context, takes.number, self.message[p], pair.recv)

    def _seat(self, worker: int) -> Worker:
        container = Container(worker, self.graph.workers)
        context = container.heard(self.number, 0)
        assert context is not None
        return Worker(worker, container, context)

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        if step not in MESSAGES:
            super().perform(step, indices)
            return
        act, kind = MESSAGES[step]
        attempt, at = indices
        act(self, self.letters[kind, attempt, at], self.seats[at] if kind == CANCEL else self._taker(at))

    # ---- what the driver does

    def _do(self, seat: Worker, effects: Iterable[Effect]) -> None:
        """Perform effects. The thread of a part that is over ends at once, and so does a wave of marks that begins."""
        super()._do(seat, effects)
        local_pass = seat.context.local_pass
        if local_pass is not None and local_pass is not seat.local_pass:
            engine: Any = IntegerGraph(self.graph)
            seat.local_pass, seat.runner = local_pass, Runner(local_pass, engine, seat.context.by_node)
            seat.totals, seat.ran = {}, {}
        if local_pass is not None and local_pass.running and local_pass.is_over:
            self._do(seat, local_pass.next()[1])
        while local_pass is not None and local_pass.running and _marks(local_pass):
            self._do(seat, local_pass.spread(seat.runner.begin(local_pass.next()[0])))

    def _send(self, seat: Worker, request: Request) -> None:
        if request.kind not in (BACKWARD, MARK, CANCEL):
            return  # CLEAN is a step of the model
        attempt = self._attempt(request.message.number)
        letter = partial(Message, seat.number, request.kind)
        if request.kind == CANCEL:
            self.letters[CANCEL, attempt, request.to] = letter(request.message.pack(), (), request.done)
        elif request.kind == BACKWARD:
            pair = self.message.index(request.message.message)
            load = request.gradients[0]
            one = letter(request.message.pack(), request.gradients, request.done, load=load)
            self.letters[BACKWARD, attempt, pair] = one
        else:
            assert seat.context.local_pass is not None
            done = JoinedAnswer(seat.context.local_pass, len(request.message.messages))
            for message in request.message.messages:
                body = request.message._replace(messages=(message,)).pack()
                self.letters[MARK, attempt, self.message.index(message)] = letter(body, (), done)

    def _attempt(self, number: int) -> int:
        return next(attempt for attempt, local_pass in self.begun.items() if local_pass.number == number)

    def _arrive(self, letter: Message, to: Worker) -> None:
        assert letter.state is Call.OUT
        letter.state = Call.HELD
        asker = Asker(letter.source, partial(self._said, letter, to))
        self._do(to, take(to.container, letter.kind, letter.body, letter.gradients, asker))

    def _said(self, letter: Message, by: Worker, answer: bytes, gradients: Sequence[Any]) -> None:
        """An answer is sent, with the request that it carries."""
        if letter.kind == CANCEL and by.local_pass is not None and by.local_pass.running:
            raise Disagreement(f"worker {by.number} answers CANCEL while nodes of the pass may still begin there")
        told = letter.say(answer, gradients)
        if told is None:
            return
        kind, attempt = (MARK if isinstance(told, Mark) else BACKWARD), self._attempt(told.number)
        carrier = 1 + next(p for (_, _, p), one in self.letters.items() if one is letter)
        for message in told.sends:
            one = Message(by.number, kind, told.pack(), gradients, letter.done, Call.CARRIED, carrier=carrier)
            one.load = gradients[0] if gradients else 0
            self.letters[kind, attempt, self.message.index(message)] = one
            letter.carried.append(one)

    def _hear(self, letter: Message, taker: Worker) -> None:
        """The sender of the request, if it lives, receives the answer, or learns that no answer will come."""
        answer = letter.answer
        if letter.state in (Call.OUT, Call.LOST):
            answer = ConnectionError("killed") if taker.dead else TimeoutError("no answer")
        letter.state, letter.delta = Call.OVER, 0
        for one in letter.carried:
            one.state, one.carrier = Call.OVER, 0
        source = self.seats[letter.source]
        if not source.dead:
            self._do(source, letter.done(answer, letter.carries))

    def _taker(self, pair: int) -> Worker:
        return self.seats[self.graph.ends(pair)[1]]

    # ---- the pass

    def _begin(self, attempt: int) -> None:
        if attempt in self.begun or attempt in self.refused or (attempt and attempt - 1 not in self.begun):
            raise Refused("it was called already, or the attempt before it was not")
        if self.home.dead or any(local_pass.state is not Part.DONE for local_pass in self.over - self.settled):
            raise Refused("the root is dead, or is about to raise")
        container, root = self.home.container, self.graph.nodes[self.graph.root]
        begin = Begin([(fed, 0) for fed in root.feeds], [1] * len(root.feeds))
        try:
            local_pass, effects = container.begin(container.get(self.number), begin, self.mode, True, DEADLINE)
        except AutogradError as error:
            raise Refused(str(error)) from None
        self.begun[attempt] = local_pass
        self._do(self.home, effects)

    def _begin_beside(self, attempt: int) -> None:
        try:
            self._begin(attempt)
        except Refused:
            self.refused.add(attempt)

    def _count_inputs(self, worker: int) -> None:
        seat = self.seats[worker]
        seat.totals = dict(seat.runner.count().counts)

    def _run(self, node: int) -> None:
        seat = self.seats[self.graph.nodes[node].worker]
        local_pass = seat.running()
        if local_pass.dependencies is None:
            raise Refused("it has not counted")
        try:
            self._run_node(seat, local_pass, local_pass.dependencies, node)
        except AutogradError as error:
            self._do(seat, local_pass.fail(PassError(str(error), (seat.number,))))

    def _run_node(self, seat: Worker, local_pass: LocalPass, work: DependencyCounts, node: int) -> None:
        kind = self.graph.nodes[node].kind
        if kind in (NodeKind.ROOT, NodeKind.SEND):
            item = self._item(seat, node)
            if item is None:
                raise Refused("no gradient has arrived")
            local_pass._inbox.remove(item)
            local_pass._inbox.appendleft(item)  # the model may take the items in any order
            begun, effects = local_pass.next()
            self._do(seat, effects)
            seat.runner.begin(begun)
            seat.ran[node] = item.gradients[0]
            return
        if node not in work.ready:
            raise Refused("an input is missing")
        (gradient,) = work.take(node)
        seat.ran[node] = gradient
        if kind is NodeKind.RECV:
            recv = seat.context.by_node[node]
            send = self.graph.nodes[self.graph.pairs[self.graph.pair_of[node]].send]
            self._do(seat, local_pass.ship(recv, [gradient] * len(send.feeds)))
        elif kind is NodeKind.ACCUMULATE:
            seat.runner.gradients[node] = seat.context.gradients.get(node, 0) + gradient
        else:
            edges = [(fed, 0) for fed in self.graph.nodes[node].feeds]
            work.give(edges, [gradient] * len(edges))

    def _item(self, seat: Worker, node: int) -> Any:
        """The item that waits to be run for the root or a send."""

        pair = self.graph.pair_of.get(node)
        message = None if pair is None else self.message[pair]
        for item in () if seat.local_pass is None else seat.local_pass._inbox:
            if isinstance(item, Arrived) and item.send.message == message:
                return item
            if isinstance(item, Begin) and node == self.graph.root:
                return item
        return None

    def _raise_error(self, node: int) -> None:
        seat = self.seats[self.graph.nodes[node].worker]
        local_pass = seat.running()
        assert local_pass.dependencies is not None
        local_pass.dependencies.take(node)
        self._do(seat, local_pass.fail(PassError(f"node {node}", (seat.number,))))

    def _come_to_rest(self, worker: int) -> None:
        seat = self.seats[worker]
        local_pass = seat.running()
        if local_pass.dependencies is None or local_pass.dependencies.ready or local_pass._inbox:
            raise Refused("there is something to run")
        self._rest(seat, local_pass)

    def _end_wave(self, worker: int) -> None:
        seat = self.seats[worker]
        local_pass = seat.running()
        if self._phase(seat) is not Part.MARKING:
            raise Refused("it does not mark")
        self._rest(seat, local_pass)

    def _rest(self, seat: Worker, local_pass: LocalPass) -> None:
        """The thread ends if the part is at rest; otherwise the thread continues to run."""
        if local_pass.deficit.held and (local_pass.deficit.unsignalled or len(local_pass.deficit.held) > 1):
            raise Refused("it has to send a request before it rests")
        effects = local_pass.next()[1]
        if not effects:
            local_pass.running = True
            raise Refused("it waits for answers")
        self._do(seat, effects)

    def _ask_after_all(self, worker: int) -> None:
        """The thread ends, and the pass gets a thread again."""
        seat = self.seats[worker]
        local_pass = seat.running()
        effects = local_pass.next()[1]
        local_pass.running = True
        self._do(seat, effects)

    def _settle(self, worker: int) -> None:
        local_pass = self.seats[worker].local_pass
        if local_pass not in self.over - self.settled or local_pass.state is Part.DONE:
            raise Refused("not every worker has answered")
        if self.home.dead or worker != self.home.number:
            raise Refused("it is not the root")
        self.settled.add(local_pass)

    # ---- messages

    def _take_copy(self, attempt: int, pair: int) -> None:
        """The answer to a copy is lost."""
        letter, to = self.letters[BACKWARD, attempt, pair], self._taker(pair)
        asker = Asker(letter.source, lambda *_: None)
        self._do(to, take(to.container, BACKWARD, letter.body, letter.gradients, asker))

    def _lose(self, letter: Message, to: Worker) -> None:
        letter.state = Call.LOST

    # ---- failures of workers

    def _die(self, worker: int) -> None:
        self.seats[worker].dead = True
        for (kind, _, pair), letter in self.letters.items():
            if kind != CANCEL and letter.state is Call.HELD and self._taker(pair).number == worker:
                letter.state = Call.LOST

    def _notice_loss(self, worker: int) -> None:
        seat = self.seats[worker]
        if seat.dead or seat.local_pass is None or seat.local_pass.is_over:
            raise Refused("it has no part")
        for other in self.seats:
            if other.dead:
                self._do(seat, seat.container.lost(other.number, "killed"))
        if not seat.local_pass.is_over:
            raise Refused("its part does not depend on a lost worker")

    def _expire(self, worker: int) -> None:
        seat = self.seats[worker]
        assert seat.local_pass is not None
        self._do(seat, seat.local_pass.expire())

    _expire_early = _expire

    def _leave(self) -> None:
        self._do(self.home, self.home.container.release(self.number))

    def _clean(self, worker: int) -> None:
        seat, asker = self.seats[worker], Asker(self.graph.workers, lambda *_: None)
        self._do(seat, seat.container.clean(messages.Clean(self.number, self.number), asker))

    # ---- the observed cells

    def observe(self) -> Mapping[str, int]:
        out: dict[str, int] = {} if self.home.dead else {"unsure": int(self.home.context.spoiled)}
        for seat in self.seats:
            out[f"alive[{seat.number}]"] = int(not seat.dead)
            if not seat.dead:
                self._observe_part(out, seat)
                self._observe_nodes(out, seat)
        for attempt in range(self.model.sizes["attempt"]):
            out[f"outcome[{attempt}]"] = ordinal(self._outcome(attempt))
            for p in range(len(self.graph.pairs)):
                self._observe_letters(out, attempt, p)
            for seat in self.seats:
                cancel = self.letters.get((CANCEL, attempt, seat.number))
                out[f"cancel[{attempt}][{seat.number}]"] = ordinal(cancel.state if cancel else Call.UNSENT)
        return out

    def _phase(self, seat: Worker) -> Part:
        local_pass = seat.local_pass
        if local_pass is None:
            return Part.IDLE
        if local_pass.state in OVER:
            return Part.FAILED if seat is self.home and local_pass not in self.settled else local_pass.state
        if local_pass.state is Part.DONE:
            return Part.CANCELLED if seat.context.released else Part.DONE
        if local_pass.dependencies is None:
            waits = any(not isinstance(item, Marked) for item in local_pass._inbox)
            return Part.COUNTING if waits else Part.MARKING
        return Part.RUNNING if local_pass.running else Part.PASSIVE

    def _observe_part(self, out: dict[str, int], seat: Worker) -> None:
        k, local_pass, phase = seat.number, seat.local_pass, self._phase(seat)
        released = self.number not in seat.container.contexts
        out[f"phase[{k}]"] = ordinal(phase)
        out[f"released[{k}]"] = int(released)
        out[f"current[{k}]"] = 0 if local_pass is None else self._attempt(local_pass.number) + 1
        if not released:
            first = self.home.number << COUNTER_BITS
            out[f"ended[{k}]"] = seat.context.ended.get(self.home.number, first - 1) - first + 1
        if self.mode is Mode.FAST:  # SMART: answers to marks report changes too, and only the sums at the end are equal
            counted = local_pass is not None and phase in (Part.RUNNING, Part.PASSIVE)
            out[f"owed[{k}]"] = local_pass.deficit.unreported if local_pass is not None and counted else 0
        elif not released:
            for p in self.graph.sends(k):
                out[f"marked[{p}]"] = int(local_pass is not None and self.message[p] in local_pass.counted)

    def _observe_nodes(self, out: dict[str, int], seat: Worker) -> None:
        local_pass = seat.local_pass
        dropped = local_pass is None or self._phase(seat) in OVER
        work = None if local_pass is None else local_pass.dependencies
        for k in self.graph.of(seat.number):
            ran, fed, gradient = k in seat.ran, 0, seat.ran.get(k, 0)
            if k in seat.totals:
                fed = seat.totals[k] - (work.counts.get(k, 0) if work is not None else 0)
                if work is not None and not ran:
                    (gradient,) = work._buffers.get(k, [0])
            elif not ran and (item := self._item(seat, k)) is not None:
                gradient = item.gradients[0]
            elif k == self.graph.root and local_pass is not None:
                gradient = 1
            for name, value in (("ran", int(ran)), ("fed", fed), ("gradient", gradient)):
                out[f"{name}[{k}]"] = 0 if dropped else value
            if self.graph.nodes[k].kind is NodeKind.ACCUMULATE and not seat.context.released:
                out[f"grads[{k}]"] = seat.context.gradients.get(k, 0)

    def _observe_letters(self, out: dict[str, int], attempt: int, pair: int) -> None:
        call = self._letter(BACKWARD, attempt, pair)
        out[f"call[{attempt}][{pair}]"] = ordinal(call.state if call else Call.UNSENT)
        out[f"load[{attempt}][{pair}]"] = call.load if call else 0
        out[f"carrier[{attempt}][{pair}]"] = call.carrier if call else 0
        if self.mode is Mode.FAST:
            out[f"delta[{attempt}][{pair}]"] = call.delta if call else 0
        else:
            mark = self._letter(MARK, attempt, pair)
            out[f"mark[{attempt}][{pair}]"] = ordinal(mark.state if mark else Call.UNSENT)
            out[f"mark_carrier[{attempt}][{pair}]"] = mark.carrier if mark else 0

    def _letter(self, kind: int, attempt: int, pair: int) -> Message | None:
        """A message that is under way, or that its sender holds back."""
        local_pass = self.seats[self.graph.ends(pair)[0]].local_pass
        current = local_pass is not None and self._attempt(local_pass.number) == attempt
        for request in local_pass.deficit.held if local_pass is not None and current else ():
            told = request.message.messages if request.kind == MARK else (request.message.message,)
            if request.kind == kind and self.message[pair] in told:
                load = request.gradients[0] if request.gradients else 0
                return Message(request.to, kind, b"", (), request.done, Call.KEPT, load)
        return self.letters.get((kind, attempt, pair))

    def _outcome(self, attempt: int) -> Outcome:
        local_pass = self.begun.get(attempt)
        if local_pass is None:
            return Outcome.RAISED if attempt in self.refused else Outcome.AWAITED
        if local_pass.state is Part.DONE:
            return Outcome.RETURNED if local_pass in self.over else Outcome.RUNNING
        if local_pass not in self.settled:
            return Outcome.RUNNING
        return Outcome.UNUSED if isinstance(local_pass.error, UnusedSendError) else Outcome.RAISED


def _marks(local_pass: LocalPass) -> bool:
    """Whether the next work of the pass is a wave of marks."""
    return isinstance(next(iter(local_pass._inbox), None), Marked)


# The steps of messages: an act and the kind of message. The indices are the attempt, and a pair or a worker.
MESSAGES: Mapping[str, tuple[Callable[[PassSteps, Message, Worker], None], int]] = {
    "take_gradient": (PassSteps._arrive, BACKWARD),
    "take_mark": (PassSteps._arrive, MARK),
    "take_cancel": (PassSteps._arrive, CANCEL),
    "hear_answer": (PassSteps._hear, BACKWARD),
    "hear_marked": (PassSteps._hear, MARK),
    "hear_cancelled": (PassSteps._hear, CANCEL),
    "lose": (PassSteps._lose, BACKWARD),
    "lose_mark": (PassSteps._lose, MARK),
    "lose_cancel": (PassSteps._lose, CANCEL),
}

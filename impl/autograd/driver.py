"""Runs the protocol of distributed autograd on a real worker: its lock, its threads, its clock, and RPC.

Theory of operation. The core (`Container`, `LocalPass`) is sans-I/O. Every event comes to it in three steps:

    with the lock      a method of the core is called, and returns effects
    without the lock   `_perform` does them: sends requests and answers, starts threads, wakes the root
    later              an answer, a deadline or a finished run is the next event

Which thread does what:

- *Threads that read RPC* handle BACKWARD, MARK, CANCEL, CLEAN, KEPT (`_handle`) and answers (`_done`). They never run
  nodes.
- *One thread for each running local pass*: a thread of the agent's pool runs it (`run`). At the root it is the thread
  in `backward()` itself, which also waits there (`_run_until_over`), and reads the connection of its only peer
  meanwhile.
- *The thread of `DeadlineTimer`* expires passes at their deadlines, also while a node runs.
- *Threads that run calls* attach sends and recvs: this is the agent's interceptor (`outgoing`, `incoming`, `answered`).

Rule: users' code (nodes, hooks, the destructors of what a context kept) never runs under the lock, except for
destructors that a dropped dictionary calls: hence the lock is reentrant.

Failures: a node or a hook raises (the pass fails with its traceback, here and at the root); a gradient cannot
be sent, for it is of a kind that RPC refuses (the pass fails); the thread in `backward()` is interrupted (the pass
fails and is cancelled everywhere); an observer raises (reported, and nothing else).
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from trystate.model.autograd.vocabulary import Mode

from ..rpc.agent import DELIVERY_SECONDS, Agent
from ..rpc.deadline_timer import DeadlineTimer
from ..rpc.events import OneShotEvent
from ..rpc.pool import guarded
from ..rpc.remote_errors import text_of
from ..rpc.requests import Answer as Answered
from ..rpc.requests import Incoming
from . import messages
from .container import Container
from .contexts import Asker, Context, Recv
from .effects import Answer, Effect, Request, Run, Watch
from .errors import ContextError, PassError
from .ids import worker_of
from .local_pass import Begin, LocalPass
from .messages import BACKWARD, CANCEL, CLEAN, KEPT, MARK, NO_MESSAGE, PIGGYBACKED, Done, Forward
from .observer import Event, Observer
from .runner import Runner
from .torch_graph import TorchGraph, attach_recv, edge_of

CANCEL_SECONDS = 5.0  # for the answers to CANCEL and CLEAN; so long a node may run on after the pass has failed
TRACEBACK_CHARACTERS = 4_000  # of an error that travels


class _Current(threading.local):
    number: int | None = None


class _Root:
    """The thread in `backward()`: it waits, and runs the local pass of the root itself."""

    def __init__(self) -> None:
        self.flag = OneShotEvent()  # replaced after each wake
        self.is_to_run = self.is_over = False


class Driver:
    """Distributed autograd of one agent. It is the agent's interceptor."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.observer: Observer | None = None
        self.current = _Current()  # the context that this thread is in
        self._lock = threading.RLock()  # reentrant: see the module
        self._roots: dict[LocalPass, _Root] = {}
        self._watched: WeakValueDictionary[int, LocalPass] = WeakValueDictionary()
        self._deadlines = DeadlineTimer(f"autograd {agent.name}", self._is_over, self._expired)
        self.container = Container(agent.me, len(agent.workers))
        agent.interceptor = self
        for kind, take in (
            (BACKWARD, self._backward),
            (MARK, self._mark),
            (CANCEL, self._cancel),
            (CLEAN, self._clean),
            (KEPT, self._kept),
        ):
            agent.handle(kind, partial(self._handle, take))

    def observe(self, observer: Observer | None) -> None:
        """Call `observer` for every event from now on; None ends that."""
        self.observer = observer
        self.container.observe = self._observed if observer is not None else None

    def _observed(self, kind: str, local_pass: LocalPass, **detail: Any) -> None:
        self._tell(Event(kind, self.agent.me, local_pass.context.number, local_pass.number, monotonic(), detail))

    def _noticed(self, kind: str, message: Any, **detail: Any) -> None:
        if self.observer is not None:
            number = getattr(message, "number", None)
            self._tell(Event(kind, self.agent.me, message.context, number, monotonic(), {"message": message, **detail}))

    def _tell(self, event: Event) -> None:
        """Call the observer. An exception of it is reported, and goes no further."""
        if self.observer is not None:
            guarded(partial(self.observer, event))

    # Performing effects.

    @contextmanager
    def locked(self) -> Iterator[list[Effect]]:
        """Take the lock. The effects that are appended to the yielded list are performed after its release."""
        effects: list[Effect] = []
        with self._lock:
            yield effects
        self._perform(effects)

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                self._answer(effect)
            elif isinstance(effect, Request):
                self._request(effect)
            elif isinstance(effect, Run):
                self._begin(effect.local_pass)
            elif isinstance(effect, Watch):
                self._watch(effect.local_pass)
            elif (root := self._roots.get(effect.local_pass)) is not None:  # else its thread was interrupted
                root.is_over = True
                root.flag.set()

    def _watch(self, local_pass: LocalPass) -> None:
        self._watched[local_pass.number] = local_pass
        self._deadlines.add(local_pass.number, local_pass.deadline)

    def _begin(self, local_pass: LocalPass) -> None:
        root = self._roots.get(local_pass)
        if root is None:
            self.agent.later(partial(self.run, local_pass))
        else:  # the thread in backward() runs it; if that is being interrupted, the pass is over and nothing runs
            root.is_to_run = True
            root.flag.set()

    def _answer(self, answer: Answer) -> None:
        if answer.piggybacked is not None:
            self._noticed("told", answer.piggybacked, to=answer.asker.peer, answers=True)
        try:
            answer.asker.answer(answer.body, answer.gradients)
        except Exception as error:
            if answer.piggybacked is not None:  # the piggybacked gradients cannot be sent: the pass fails
                self._answer(Answer(answer.asker, messages.failed(self._raised(error))))
            else:  # the peer does not read: its own deadline ends the pass there
                guarded(partial(_raise, error))

    def _request(self, request: Request) -> None:
        seconds = CANCEL_SECONDS if request.deadline is None else max(request.deadline - monotonic(), 0.0)
        message = request.message
        if request.kind in PIGGYBACKED:
            message = message._replace(budget=seconds)
        done = partial(self._done, request)
        self._noticed("told", message, to=request.to, answers=False)
        try:
            self.agent.request(request.to, request.kind, message.pack(), request.gradients, seconds, done)
        except Exception as error:  # the message cannot be sent: the pass fails
            self.agent.later(partial(done, error))

    def _done(self, request: Request, answer: Answered | BaseException) -> None:
        outcome = answer if isinstance(answer, BaseException) else answer.body
        if self.observer is not None:
            self._observe_answer(request, outcome)
        with self._lock:
            effects = request.done(outcome, () if isinstance(answer, BaseException) else _taken(answer.tensors))
        self._perform(effects)

    def _observe_answer(self, request: Request, outcome: bytes | BaseException) -> None:
        self._noticed("answered", request.message, peer=request.to, outcome=outcome)
        done = messages.unpack_outcome(outcome) if request.kind in PIGGYBACKED and isinstance(outcome, bytes) else None
        if isinstance(done, Done) and done.piggybacked is not None:
            self._noticed("heard", done.piggybacked, peer=request.to)

    def run(self, local_pass: LocalPass) -> None:
        """Run a local pass until it has nothing to run; called by one thread at a time, see `Run`.

        Calls that hooks make belong to no context, on the root as on all other workers.
        """
        with Scope(self.current, None):
            self._run(local_pass)

    def _run(self, local_pass: LocalPass) -> None:
        if local_pass.runner is None:
            context = local_pass.context
            graph = TorchGraph(context.number, context.by_node)
            local_pass.runner = Runner(local_pass, graph, context.by_node)
        runner = local_pass.runner
        ship = partial(self._ship, local_pass)
        while True:
            with self._lock:
                item, effects = local_pass.next()
            self._perform(effects)
            if item is None:
                return
            try:
                recvs = runner.begin(item)
                item = None  # drops the last reference: AccumulateGrad takes over memory that nothing else holds
                if recvs is None:
                    runner.run(ship)
                else:
                    with self.locked() as effects:
                        effects += local_pass.spread(recvs)
            except BaseException as error:
                with self.locked() as effects:
                    effects += local_pass.fail(self._raised(error))
                if not isinstance(error, Exception):
                    raise

    def _ship(self, local_pass: LocalPass, recv: Recv, gradients: Sequence[Any | None], at_once: bool) -> None:
        with self._lock:
            effects = local_pass.ship(recv, gradients, at_once)
        self._perform(effects)

    def _raised(self, error: BaseException) -> PassError:
        if isinstance(error, PassError):
            return error
        plain = type(error) in (Exception, RuntimeError)
        text = text_of(error) if plain else f"{type(error).__name__}: {text_of(error)}"
        where = "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS:]
        told = PassError(f"{text}\n\nOn worker {self.agent.name!r}:\n{where}", (self.agent.me,))
        told.__cause__ = error
        return told

    def _is_over(self, number: int) -> bool:
        local_pass = self._watched.get(number)
        return local_pass is None or local_pass.is_over

    def _expired(self, number: int) -> None:
        local_pass = self._watched.get(number)
        if local_pass is not None:
            with self.locked() as effects:
                effects += local_pass.expire()

    # Messages of other workers.

    def _handle(self, take: Callable[[bytes, list[Any], Asker], list[Effect]], incoming: Incoming) -> None:
        asker = Asker(incoming.peer, incoming.answer)
        with self._lock:
            effects = take(incoming.body, incoming.tensors, asker)
        self._perform(effects)

    def _backward(self, body: bytes, gradients: list[Any], asker: Asker) -> list[Effect]:
        said = messages.Backward.unpack(body)
        self._noticed("heard", said, peer=asker.peer)
        self.container.check_sender(said, asker.peer)
        local_pass, effects = self._local_pass(said.number, said.context, said.mode, said.retain, said.budget)
        if isinstance(local_pass, PassError):
            return [Answer(asker, messages.failed(local_pass))]
        return effects + local_pass.arrive(said.message, said.marked(_taken(gradients)), asker)

    def _mark(self, body: bytes, gradients: list[Any], asker: Asker) -> list[Effect]:
        said = messages.Mark.unpack(body)
        self._noticed("heard", said, peer=asker.peer)
        self.container.check_sender(said, asker.peer)
        local_pass, effects = self._local_pass(said.number, said.context, Mode.SMART, said.retain, said.budget)
        if isinstance(local_pass, PassError):
            return [Answer(asker, messages.failed(local_pass))]
        return effects + local_pass.mark(said.messages, asker)

    def _local_pass(
        self, number: int, context: int, mode: Mode, retain: bool, budget: float
    ) -> tuple[LocalPass | PassError, list[Effect]]:
        return self.container.local_pass_for(number, context, mode, retain, monotonic() + budget)

    def _cancel(self, body: bytes, gradients: list[Any], asker: Asker) -> list[Effect]:
        said = messages.Cancel.unpack(body)
        self._noticed("heard", said, peer=asker.peer)
        return self.container.cancel(said, asker)

    def _clean(self, body: bytes, gradients: list[Any], asker: Asker) -> list[Effect]:
        said = messages.Clean.unpack(body)
        self._check_creator(said.context, "CLEAN")
        self._noticed("heard", said, peer=asker.peer)
        return self.container.clean(said, asker)

    def _kept(self, body: bytes, gradients: list[Any], asker: Asker) -> list[Effect]:
        said = messages.Kept.unpack(body)
        self._noticed("heard", said, peer=asker.peer)
        return self.container.kept(said, asker)

    def _check_creator(self, context: int, what: str) -> None:
        if worker_of(context) not in self.agent.workers:
            raise ContextError(f"{what} in context {context}, of which no worker is the creator")

    # The agent's interceptor: the metadata of calls.

    def outgoing(self, to: int, tensors: Sequence[Tensor], what: str) -> bytes:
        return self._leaving(to, tensors, f"{what} on {self.agent.workers[to].name} (its arguments)", True)

    def answer_metadata(self, to: int, tensors: Sequence[Tensor], what: str) -> bytes:
        return self._leaving(to, tensors, f"{what} on {self.agent.name} (its result)", False)

    def _leaving(self, to: int, tensors: Sequence[Tensor], what: str, call: bool) -> bytes:
        number = self.current.number
        if number is None:
            return b""
        records = torch.is_grad_enabled()
        needs = tuple([records and tensor.requires_grad for tensor in tensors])
        edges = [edge_of(tensor) for tensor, need in zip(tensors, needs, strict=True) if need]
        with self._lock:
            context = self.container.contexts.get(number)
            if context is None:
                return b""  # the context was left meanwhile: the call goes on without it
            message = self.container.sent(context, to, edges, what, call)
        return Forward(number, message, needs).pack()

    def incoming(self, peer: int, metadata: bytes, tensors: list[Tensor]) -> AbstractContextManager[None]:
        if not metadata:
            return Scope(self.current, None)  # also of one that an earlier function has left open in the thread
        forward = Forward.unpack(metadata)
        self._check_creator(forward.context, "a call")
        with self._lock:
            context = self.container.heard(forward.context, peer)
        if context is None:
            return Scope(self.current, None)
        self._arrived(context, peer, forward, tensors)
        return Scope(self.current, forward.context)

    def answered(self, peer: int, metadata: bytes, tensors: list[Tensor]) -> None:
        forward = Forward.unpack(metadata)
        with self._lock:
            context = self.container.contexts.get(forward.context)
        if context is None:
            return
        if peer != self.agent.me and peer not in context.known:
            raise ContextError(f"an answer in context {forward.context}, in which worker {peer} was not called")
        self._arrived(context, peer, forward, tensors)

    def _arrived(self, context: Context, peer: int, forward: Forward, tensors: list[Tensor]) -> None:
        if forward.message == NO_MESSAGE:
            return
        if worker_of(forward.message) != peer:
            raise ContextError(f"message {forward.message:#x} comes from worker {peer}, which gives out no such id")
        wanting = [tensor for tensor, need in zip(tensors, forward.needs, strict=True) if need]
        node = attach_recv(forward.context, peer, wanting)
        with self._lock:
            self.container.received(context, peer, forward.message, node)

    def unsent(self, metadata: bytes) -> None:
        forward = Forward.unpack(metadata)
        with self._lock:
            self.container.unsent(forward.context, forward.message)

    def peer_lost(self, peer: int, reason: str) -> None:
        with self.locked() as effects:
            effects += self.container.lost(peer, reason)

    # A pass.

    def backward(self, number: int, roots: Sequence[Tensor], retain: bool, mode: Mode, seconds: float) -> None:
        """Run a pass from its roots to its end.

        Args:
            number: of the context.
            roots: scalars that require a gradient.
            retain: keep the graph for another pass.
            mode: FAST or SMART.
            seconds: until the pass fails with PassTimeoutError.

        Raises:
            PassError: the pass has failed, and is cancelled on all workers.
        """
        begin = Begin([edge_of(root) for root in roots], [torch.ones_like(root) for root in roots])
        deadline, root = monotonic() + seconds, _Root()
        with self._lock:
            context = self.container.get(number)
            local_pass, _ = self.container.begin(context, begin, mode, retain, deadline)
            root.is_to_run = True
            self._roots[local_pass] = root
        self._watch(local_pass)  # a node that this thread runs may take longer than the deadline
        try:
            self._run_until_over(local_pass, root, deadline)
        finally:
            with self.locked() as effects:
                del self._roots[local_pass]
                if not local_pass.is_over:  # this thread was interrupted
                    effects += local_pass.fail(PassError("the call of backward() was interrupted", (self.agent.me,)))
        if local_pass.error is not None:
            raise local_pass.error

    def _run_until_over(self, local_pass: LocalPass, root: _Root, deadline: float) -> None:
        expired = False
        while not root.is_over:
            if root.is_to_run:
                root.is_to_run = False
                self.run(local_pass)
            peers = local_pass.peers
            there = next(iter(peers)) if len(peers) == 1 else None
            if not self.agent.wait(root.flag, deadline - monotonic(), there):
                if expired:
                    return
                expired, deadline = True, monotonic() + CANCEL_SECONDS + DELIVERY_SECONDS
                with self.locked() as effects:
                    effects += local_pass.expire()
            root.flag = OneShotEvent()  # replaced before the two flags are read: no set() after that is lost

    def gradients(self, number: int) -> dict[Tensor, Tensor]:
        with self._lock:
            return dict(self.container.gradients(number))

    def close(self) -> None:
        self._deadlines.close()


class Scope:
    """Sets the context of the thread that runs a call; entered once or several times, one after the other."""

    __slots__ = ("_before", "_current", "_number")

    def __init__(self, current: _Current, number: int | None) -> None:
        self._current, self._number = current, number

    def __enter__(self) -> None:
        self._before, self._current.number = self._current.number, self._number

    def __exit__(self, *_: object) -> None:
        self._current.number = self._before


def _taken(gradients: list[Any]) -> list[Any]:
    """The gradients of a frame, taken out of it: AccumulateGrad takes over memory that nothing else holds."""
    taken = list(gradients)
    gradients.clear()
    return taken


def _raise(error: Exception) -> None:
    raise error

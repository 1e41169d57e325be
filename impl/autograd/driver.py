"""Runs the protocol of distributed autograd on a real worker: its lock, its threads, its clock, and RPC.

Theory of operation. The core (`Container`, `LocalPass`) is sans-I/O. Every event is handled in three steps:

    with the lock      a method of the core is called, and returns effects (`do`)
    without the lock   `_perform` performs them: sends requests and answers, starts threads, wakes the root
    later              an answer, a deadline or a finished run is the next event

Which thread does what:

- *Threads that read RPC* handle BACKWARD, MARK, CANCEL, CLEAN, KEPT (`_handle`) and answers (`_done`). They never run
  nodes.
- *One thread for each running local pass* runs its nodes (`run`). It is a thread of the agent's pool. At the root it is
  the thread in `backward()`, which also waits there until the pass is over (`_run_until_over`). If this worker has sent
  messages to only one peer, the waiting thread reads the connection to this peer itself.
- *The thread of `DeadlineTimer`* expires passes at their deadlines, even while a node runs.
- *Threads that run calls* attach sends and recvs, through the agent's interceptor (`outgoing`, `incoming`, `answered`).

Rule: users' code (nodes, hooks, the destructors of objects that a context kept) does not run under the lock. There is
one exception: dropping a dictionary under the lock may call destructors. Hence the lock is reentrant.

Failures:

- *A node or a hook raises.* The pass fails with its traceback, here and at the root.
- *A gradient cannot be sent*, because RPC refuses its type. The pass fails.
- *The thread in `backward()` is interrupted.* The pass fails and is cancelled everywhere.
- *An observer raises.* The exception is reported, and has no other effect.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from trystate.model.autograd.vocabulary import Mode

from ..rpc import requests
from ..rpc.agent import DELIVERY_SECONDS, Agent
from ..rpc.deadline_timer import DeadlineTimer
from ..rpc.events import OneShotEvent
from ..rpc.pool import guarded
from ..rpc.remote_errors import text_of
from ..rpc.requests import Incoming
from . import messages
from .container import Container
from .contexts import Context
from .effects import AnswerPeer, Asker, Effect, Request, RunPass, WatchDeadline
from .errors import ContextError, PassError
from .ids import worker_of
from .local_pass import Begin, LocalPass
from .messages import CLEAN, NO_MESSAGE, PIGGYBACKED, Done, Forward
from .observer import Event, Observer
from .runner import Runner
from .torch_graph import TorchGraph, attach_recv, edge_of

CANCEL_SECONDS = 5.0  # limit for answers to CANCEL and CLEAN, which wait for a node that still runs
TRACEBACK_CHARACTERS = 4_000  # the longest traceback in an error that is sent


class _Current(threading.local):
    number: int | None = None


class _Root:
    """The thread in `backward()`: it waits, and runs the local pass of the root itself."""

    def __init__(self) -> None:
        self.flag = OneShotEvent()  # replaced after each wake
        self.is_to_run = self.is_over = False


class Driver:
    """Distributed autograd of one agent, and the agent's interceptor."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.observer: Observer | None = None
        self.current = _Current()  # the context that this thread is in
        self.lock = threading.RLock()  # reentrant: see the module
        self._roots: dict[LocalPass, _Root] = {}
        self._watched: WeakValueDictionary[int, LocalPass] = WeakValueDictionary()
        self._deadlines = DeadlineTimer(f"autograd {agent.name}", self._is_over, self._expired)
        self.container = Container(agent.me, len(agent.workers))
        agent.interceptor = self
        for kind in messages.KINDS:
            agent.handle(kind, partial(self._handle, kind))

    def observe(self, observer: Observer | None) -> None:
        """Call `observer` for every event from now on; None ends that."""
        self.observer = observer
        self.container.observe = self._observed if observer is not None else None

    def _observed(self, kind: str, local_pass: LocalPass, **detail: Any) -> None:
        self._tell(kind, local_pass.context.number, local_pass.number, detail)

    def _noticed(self, kind: str, message: Any, **detail: Any) -> None:
        if self.observer is not None:
            self._tell(kind, message.context, getattr(message, "number", None), {"message": message, **detail})

    def _tell(self, kind: str, context: int, number: int | None, detail: dict[str, Any]) -> None:
        """Call the observer. Its exceptions are reported, and not raised."""
        if self.observer is not None:
            guarded(partial(self.observer, Event(kind, self.agent.me, context, number, monotonic(), detail)))

    # Performing effects.

    def do(self, event: Callable[..., Sequence[Effect]], *arguments: Any) -> None:
        """Call a method of the core with the lock, and perform its effects without it."""
        with self.lock:
            effects = event(*arguments)
        self._perform(effects)

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, AnswerPeer):
                self._answer(effect)
            elif isinstance(effect, Request):
                self._request(effect)
            elif isinstance(effect, RunPass):
                self._begin(effect.local_pass)
            elif isinstance(effect, WatchDeadline):
                self._watch(effect.local_pass)
            elif (root := self._roots.get(effect.local_pass)) is not None:  # otherwise its thread was interrupted
                root.is_over = True
                root.flag.set()

    def _watch(self, local_pass: LocalPass) -> None:
        self._watched[local_pass.number] = local_pass
        self._deadlines.add(local_pass.number, local_pass.deadline)

    def _begin(self, local_pass: LocalPass) -> None:
        root = self._roots.get(local_pass)
        if root is None:
            self.agent.later(partial(self.run, local_pass))
        else:  # the thread in backward() runs it; if that was interrupted, the pass is over and nothing runs
            root.is_to_run = True
            root.flag.set()

    def _answer(self, answer: AnswerPeer) -> None:
        if answer.piggybacked is not None:
            self._noticed("told", answer.piggybacked, to=answer.asker.peer, answers=True)
        try:
            answer.asker.answer(answer.body, answer.gradients)
        except Exception as error:
            if answer.piggybacked is not None:  # the piggybacked gradients cannot be sent: the pass fails
                self._answer(AnswerPeer(answer.asker, messages.failed(self._raised(error))))
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

    def _done(self, request: Request, answer: requests.Answer | BaseException) -> None:
        outcome = answer if isinstance(answer, BaseException) else answer.body
        if self.observer is not None:
            self._observe_answer(request, outcome)
        self.do(request.done, outcome, () if isinstance(answer, BaseException) else _taken(answer.tensors))

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
            if local_pass.runner is None:
                context = local_pass.context
                graph = TorchGraph(context.number, context.by_node)
                local_pass.runner = Runner(local_pass, graph, context.by_node)
            runner = local_pass.runner
            ship = partial(self.do, local_pass.ship)
            while True:
                with self.lock:
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
                        self.do(local_pass.spread, recvs)
                except BaseException as error:
                    self.do(local_pass.fail, self._raised(error))
                    if not isinstance(error, Exception):
                        with self.lock:
                            _, effects = local_pass.next()  # the pass has failed: it ends, and a CANCEL is answered
                        self._perform(effects)
                        raise

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
            self.do(local_pass.expire)

    # Messages of other workers.

    def _handle(self, kind: int, incoming: Incoming) -> None:
        said = messages.KINDS[kind].unpack(incoming.body)
        if kind == CLEAN:
            self._check_creator(said.context, "CLEAN")
        asker = Asker(incoming.peer, incoming.answer)
        deadline = monotonic() + (said.budget if kind in PIGGYBACKED else 0.0)
        with self.lock:
            self._noticed("heard", said, peer=incoming.peer)
            effects = self.container.take(said, _taken(incoming.tensors), asker, deadline)
        self._perform(effects)

    def _check_creator(self, context: int, what: str) -> None:
        if worker_of(context) not in self.agent.workers:
            raise ContextError(f"{what} names context {context}, which no worker of this group can have created")

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
        with self.lock:
            context = self.container.contexts.get(number)
            if context is None:
                return b""  # the context was left meanwhile: the call continues without it
            message = self.container.sent(context, to, edges, what, call)
        return Forward(number, message, needs).pack()

    def incoming(self, peer: int, metadata: bytes, tensors: list[Tensor]) -> AbstractContextManager[None]:
        if not metadata:
            return Scope(self.current, None)  # also outside of a context that an earlier function has left open
        forward = Forward.unpack(metadata)
        self._check_creator(forward.context, "a call")
        with self.lock:
            context = self.container.heard(forward.context, peer)
        if context is None:
            return Scope(self.current, None)
        self._arrived(context, peer, forward, tensors)
        return Scope(self.current, forward.context)

    def answered(self, peer: int, metadata: bytes, tensors: list[Tensor]) -> None:
        forward = Forward.unpack(metadata)
        with self.lock:
            context = self.container.contexts.get(forward.context)
        if context is None:
            return
        if peer != self.agent.me and peer not in context.known:
            raise ContextError(f"an answer names context {forward.context}, in which worker {peer} was not called")
        self._arrived(context, peer, forward, tensors)

    def _arrived(self, context: Context, peer: int, forward: Forward, tensors: list[Tensor]) -> None:
        if forward.message == NO_MESSAGE:
            return
        if worker_of(forward.message) != peer:
            raise ContextError(f"message {forward.message:#x} comes from worker {peer}, which cannot give out this id")
        wanting = [tensor for tensor, need in zip(tensors, forward.needs, strict=True) if need]
        node = attach_recv(forward.context, peer, wanting)
        with self.lock:
            self.container.received(context, peer, forward.message, node)

    def unsent(self, metadata: bytes) -> None:
        forward = Forward.unpack(metadata)
        with self.lock:
            self.container.unsent(forward.context, forward.message)

    def peer_lost(self, peer: int, reason: str) -> None:
        self.do(self.container.lost, peer, reason)

    # A pass.

    def backward(self, number: int, roots: Sequence[Tensor], retain: bool, mode: Mode, seconds: float) -> None:
        """Run a pass from its roots to its end.

        Args:
            number: the id of the context.
            roots: scalars that require a gradient.
            retain: keep the graph for another pass.
            mode: FAST or SMART.
            seconds: until the pass fails with PassTimeoutError.

        Raises:
            PassError: the pass has failed and is cancelled on all workers.
        """
        begin = Begin([edge_of(root) for root in roots], [torch.ones_like(root) for root in roots])
        deadline, root = monotonic() + seconds, _Root()
        with self.lock:
            context = self.container.get(number)
            local_pass, _ = self.container.begin(context, begin, mode, retain, deadline)
            root.is_to_run = True
            self._roots[local_pass] = root
        self._watch(local_pass)  # a node that this thread runs may take longer than the deadline
        try:
            self._run_until_over(local_pass, root, deadline)
        finally:
            with self.lock:
                del self._roots[local_pass]
                effects: list[Effect] = []
                if not local_pass.is_over:  # this thread was interrupted
                    effects = local_pass.fail(PassError("the call of backward() was interrupted", (self.agent.me,)))
            self._perform(effects)
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
                self.do(local_pass.expire)
            root.flag = OneShotEvent()  # replaced before the two flags are read: no set() after that is lost

    def gradients(self, number: int) -> dict[Tensor, Tensor]:
        with self.lock:
            return dict(self.container.gradients(number))

    def close(self) -> None:
        self._deadlines.close()


class Scope:
    """Sets the context of the thread that runs a call; may be entered several times, one after the other."""

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

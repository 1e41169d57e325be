"""Calls of functions on other workers, and by them: names, arguments, results, and what interceptors see of them.

Rule: what is in a frame is taken in where and when it arrives (RRefs, metadata), whatever becomes of the call; what a
caller wrote runs on a thread that may wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from struct import Struct
from typing import Any, NamedTuple, TypeVar

from torch import Tensor
from torch.futures import Future
from torch.nn import Parameter

from .agent import Agent, Answer, Incoming
from .errors import AgentClosed, FrameRefused, LimitExceeded, NotAllowed, RemoteError
from .flags import Flag
from .frames import Kind
from .functions import find, name_of
from .options import checked_seconds
from .references import FORK, Fork, Held, Owned, References
from .serialise import Serialiser

T = TypeVar("T")
CALL = Struct("<HH")  # bytes of the name, forks; then both, then the pickle
RESULT = Struct("<H")  # forks; then they, then the pickle
PLAIN, NOTHING = 1, 2  # flags: the tensors are all there is; the result is None
TENSORS = {Tensor, Parameter}
NEVER_SENT = (LimitExceeded, NotAllowed, AgentClosed)
FETCH, INVOKE = ":fetch", ":invoke"  # functions that each worker has for RRefs


class Call(NamedTuple):
    """One that has arrived."""

    name: str
    references: list[Any]
    pickle: bytes


class Invocations:
    """One worker's calls, in both directions."""

    def __init__(self, agent: Agent) -> None:
        from .rref import RRef

        self.agent, self.options = agent, agent.options
        self.references = References(agent)
        self._rref = RRef
        self._serialiser = Serialiser(agent.options, self)
        self._own = {FETCH: self._fetch, INVOKE: self._invoke}
        agent.serve(Kind.CALL, self._called)
        agent.serve(Kind.REMOTE, self._made)
        agent.on_late = self._too_late

    def is_reference(self, value: object) -> bool:
        return isinstance(value, self._rref)

    # At the caller.

    def sync(self, to: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, timeout: float | None,
             ) -> Any:  # fmt: skip
        """The function's result on worker `to`. `function` is one of a module, or the name of one of `_own`."""
        seconds = self.agent.timeout if timeout is None else checked_seconds(timeout, "timeout")
        name, flags, body, tensors, forks = self._packed(to, function, args, kwargs)
        try:
            metadata = self._metadata(to, tensors, name)
            answer = self.agent.ask(to, Kind.CALL, body, tensors, seconds, metadata=metadata, flags=flags, what=name)
        except Exception as error:
            self._unsent(error, forks)
            raise
        return self._result(to, answer)

    def _unsent(self, error: BaseException, forks: list[Fork]) -> None:
        """If a request with these forks failed before it was sent, nobody else lets go of them."""
        if forks and isinstance(error, NEVER_SENT) and not isinstance(error, RemoteError):
            self.references.withdraw(forks)

    def begin(self, to: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None,
              timeout: float | None, keep: object = None) -> RpcFuture:  # fmt: skip
        """The same, without waiting. `keep` lives as long as the call."""
        seconds = self.agent.timeout if timeout is None else checked_seconds(timeout, "timeout")
        name, flags, body, tensors, forks = self._packed(to, function, args, kwargs)
        future = RpcFuture(self, to, seconds, (keep, forks))
        metadata = self._metadata(to, tensors, name)
        self.agent.request(
            to, Kind.CALL, body, tensors, seconds, future.arrived, metadata=metadata, flags=flags, what=name
        )
        return future

    def remote(self, to: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None,
               timeout: float | None, keep: object = None) -> Any:  # fmt: skip
        """An RRef to the function's result, which stays on worker `to`."""
        seconds = self.agent.timeout if timeout is None else checked_seconds(timeout, "timeout")
        name, flags, body, tensors, forks = self._packed(to, function, args, kwargs)
        references = self.references
        fork = Fork(references.new_id(), references.new_id(), to)
        metadata = self._metadata(to, tensors, name)
        # Its own this worker knows at once.
        ref = references.created(fork, to) if to == self.agent.me else references.hold(fork)
        done = partial(self._created, ref, keep, forks)
        self.agent.request(
            to, Kind.REMOTE, fork.packed() + body, tensors, seconds, done, metadata=metadata, flags=flags, what=name
        )
        return self._rref._of(ref, self)

    def _packed(self, to: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None,
                ) -> tuple[str, int, bytes, list[Tensor], list[Fork]]:  # fmt: skip
        name = function if type(function) is str else name_of(function)
        text = name.encode()
        if len(text) > self.options.limits.name_bytes:
            raise LimitExceeded(f"the name {name[:80]!r}... has {len(text)} bytes > {self.options.limits.name_bytes}")
        if not kwargs and all(type(arg) in TENSORS for arg in args):
            return name, PLAIN, CALL.pack(len(text), 0) + text, list(args), []
        data, tensors, references = self._serialiser.packed((tuple(args), dict(kwargs or {})))
        forks = self._forks(references, to)
        body = b"".join((CALL.pack(len(text), len(forks)), text, *(fork.packed() for fork in forks), data))
        return name, 0, body, tensors, forks

    def _forks(self, references: Sequence[Any], to: int) -> list[Fork]:
        return [self.references.fork(reference._ref, to) for reference in references]

    def _metadata(self, to: int, tensors: list[Tensor], name: str) -> bytes:
        interceptor = self.agent.interceptor
        return b"" if interceptor is None else interceptor.outgoing(to, tensors, name)

    def _result(self, peer: int, answer: Answer) -> Any:
        tensors: Any = answer.tensors
        if answer.metadata and self.agent.interceptor is not None:
            self.agent.interceptor.answered(peer, answer.metadata, tensors)
        if answer.flags & PLAIN:
            return tensors[0]
        if answer.flags & NOTHING:
            return None
        references, at = self._joined(peer, answer.body, RESULT.size, RESULT.unpack_from(answer.body)[0])
        return self._serialiser.unpacked(answer.body[at:], tensors, references)

    def _too_late(self, peer: int, answer: Answer) -> None:
        """Nobody waits for it, but its RRefs have to be let go of."""
        if not answer.flags & (PLAIN | NOTHING) and len(answer.body) >= RESULT.size:
            self._joined(peer, answer.body, RESULT.size, RESULT.unpack_from(answer.body)[0])

    def _joined(self, peer: int, body: bytes, at: int, count: int) -> tuple[list[Any], int]:
        """The RRefs in a frame, and where they end."""
        end = at + count * FORK.size
        if end > len(body):
            raise FrameRefused(f"{count} RRefs in {len(body)} bytes")
        forks = [Fork.unpacked(body, place) for place in range(at, end, FORK.size)]
        return [self._rref._of(self.references.join(fork, peer), self) for fork in forks], end

    def _created(self, ref: Owned | Held, keep: object, forks: list[Fork], result: Answer | BaseException) -> None:
        """The owner has, or has not, taken in what was to make a value."""
        if not isinstance(result, BaseException):
            if isinstance(ref, Held):
                ref.confirmed = True
            return
        self._unsent(result, forks)
        if isinstance(ref, Held):
            ref.failed = result
        elif not ref.future.done():
            ref.future.set_exception(result)

    # At the called.

    def _called(self, incoming: Incoming) -> None:
        call, scope = self._opened(incoming, 0)
        self.agent.later(partial(self._run, incoming, call, scope), partial(self._refused, incoming))

    def _made(self, incoming: Incoming) -> None:
        fork = Fork.unpacked(incoming.body, 0)
        known = fork.owner == incoming.peer == self.agent.me
        owned = self.references.owned(fork.reference) if known else self.references.created(fork, incoming.peer)
        call, scope = self._opened(incoming, FORK.size)
        work = partial(self._run, incoming, call, scope, owned)
        self.agent.later(work, partial(self._refused, incoming, owned))
        incoming.answer(b"")
        if known:
            self.references._unshare(fork.reference, fork.fork)

    def _opened(self, incoming: Incoming, at: int) -> tuple[Call, AbstractContextManager[None]]:
        body = incoming.body
        named, count = CALL.unpack_from(body, at)
        at += CALL.size
        name = body[at : at + named].decode()
        references, at = self._joined(incoming.peer, body, at + named, count) if count else ([], at + named)
        scope: AbstractContextManager[None] = nullcontext()
        if incoming.metadata and self.agent.interceptor is not None:
            scope = self.agent.interceptor.incoming(incoming.peer, incoming.metadata, incoming.tensors)  # type: ignore[arg-type]
        return Call(name, references, body[at:]), scope

    def _refused(self, incoming: Incoming, owned: Owned | None = None) -> None:
        error = LimitExceeded(f"{self.options.limits.threads} calls are running on worker {self.agent.name!r}, or wait "
                              "there for others: raise the limit `threads`, or nest calls less deeply")  # fmt: skip
        if owned is None:
            incoming.fail(error)
        else:
            owned.future.set_exception(error)

    def _run(
        self, incoming: Incoming, call: Call, scope: AbstractContextManager[None], owned: Owned | None = None
    ) -> None:
        over = partial(self._over, incoming, call.name, scope, owned)
        try:
            with scope:
                result = self._result_of(incoming, call)
                if not isinstance(result, Future):
                    self._answer(incoming, call.name, owned, result)
                    return
            result.add_done_callback(over)
        except BaseException as error:  # SystemExit too is the caller's to know
            self._fail(incoming, owned, error)

    def _result_of(self, incoming: Incoming, call: Call) -> Any:
        function: Any = self._own.get(call.name) or find(
            call.name, self.options.modules, self.options.limits.name_bytes
        )
        if incoming.flags & PLAIN:
            return function(*incoming.tensors)
        args, kwargs = self._serialiser.unpacked(call.pickle, incoming.tensors, call.references)
        return function(*args, **kwargs)

    def _over(self, incoming: Incoming, name: str, scope: AbstractContextManager[None], owned: Owned | None,
              future: Future[Any]) -> None:  # fmt: skip
        """A future that a function returned is set."""
        try:
            with scope:
                self._answer(incoming, name, owned, future.value())
        except BaseException as error:
            self._fail(incoming, owned, error)

    def _fail(self, incoming: Incoming, owned: Owned | None, error: BaseException) -> None:
        if owned is None:
            incoming.fail(error)
        elif not owned.future.done():
            owned.future.set_exception(error)

    def _answer(self, incoming: Incoming, name: str, owned: Owned | None, result: Any) -> None:
        if owned is not None:
            owned.future.set_result(result)
            return
        interceptor, peer = self.agent.interceptor, incoming.peer
        forks: list[Fork] = []
        if type(result) in TENSORS:
            flags, body, tensors = PLAIN, b"", [result]
        elif result is None:
            flags, body, tensors = NOTHING, b"", []
        else:
            data, tensors, references = self._serialiser.packed(result)
            forks = self._forks(references, peer)
            flags, body = 0, b"".join((RESULT.pack(len(forks)), *(fork.packed() for fork in forks), data))
        try:
            metadata = b"" if interceptor is None else interceptor.answer_metadata(peer, tensors, name)
            incoming.answer(body, tensors, metadata, flags)
        except BaseException:
            self.references.withdraw(forks)
            raise

    def _fetch(self, creator: int, number: int) -> Any:
        future = self.references.owned((creator, number)).future
        return future.value() if future.done() else future

    def _invoke(self, creator: int, number: int, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if method.startswith("_"):
            raise NotAllowed(f"{method!r} is not called through an RRef: only what does not begin with '_'")
        future = self.references.owned((creator, number)).future
        if future.done():
            return getattr(future.value(), method)(*args, **kwargs)
        return _flat(future, lambda value: getattr(value, method)(*args, **kwargs))


def _flat(future: Future[Any], then: Callable[[Any], Any]) -> Future[Any]:
    """The result of `then` on the value; of its future, if it returns one."""
    return future.then(lambda done: then(done.value()))


class RpcFuture(Future[Any]):
    """The result of a call. It is set at the latest at the call's timeout, so that no wait for it is without end."""

    def __init__(self, calls: Invocations, peer: int, seconds: float, keep: tuple[object, list[Fork]]) -> None:
        super().__init__()
        self._calls, self._peer, self._seconds, self._keep = calls, peer, seconds, keep
        self._flag, self._once = Flag(), threading.Lock()
        self._answer: Answer | BaseException | None = None

    def arrived(self, result: Answer | BaseException) -> None:
        self._answer = result
        self._flag.set()
        self._calls.agent.later(self._complete)  # callbacks of users may wait

    def wait(self) -> Any:
        """The result. Raises what the function raised, RpcTimeout, PeerLost."""
        if not self.done():
            agent = self._calls.agent
            if agent.wait(self._flag, self._seconds, self._peer):
                self._complete()
        return super().wait()

    def _complete(self) -> None:
        with self._once:
            answer, self._answer = self._answer, None
            if answer is None:
                return
            (_, forks), self._keep = self._keep, (None, [])
            try:
                if isinstance(answer, BaseException):
                    self._calls._unsent(answer, forks)
                    raise answer
                result = self._calls._result(self._peer, answer)
            except Exception as error:
                self.set_exception(error)
            else:
                self.set_result(result)

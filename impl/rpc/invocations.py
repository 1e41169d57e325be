"""Calls of functions, in both directions: names, arguments, results, and the interceptor's metadata.

Theory of operation. The caller packs a function's name, the arguments and the metadata (`_packed`). It sends a CALL,
whose answer is the result (`sync`, `begin`), or a REMOTE, whose result stays at the callee (`remote`). At the callee
the thread that reads makes an `Execution`, which unpacks the RRefs and the metadata. The `Execution` runs on the same
thread or on another one of the pool: it finds the function, unpickles the arguments, calls the function, and answers.
If the result is a future, the answer is sent when the future is set (`_postpone`).

Rule: the thread that reads a frame registers its RRefs and its metadata, in the order of frames, even if the call then
fails. A user's function may block, so it runs by `Agent.later`.
"""

from __future__ import annotations

import itertools
import logging
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from struct import Struct
from types import MethodType
from typing import Any, NamedTuple, TypeVar

from torch import Tensor
from torch._C import Future as AnyFuture  # returned by then() and collect_all(); the other derives from it
from torch._C._autograd import _profiler_enabled
from torch.autograd.profiler import record_function
from torch.nn import Parameter

from .agent import Agent
from .errors import AgentClosed, FrameRefused, LimitExceeded, NotAllowed, RpcError, RpcTimeout
from .frames import Kind
from .functions import find, method_of, name_of
from .futures import RpcFuture, collected
from .gathering import GATHER, LEAVE, LEAVE_SECONDS, Gatherings, Ranks
from .inquiries import Inquiries, Key
from .modes import outside
from .references import FORK, Fork, Held, Owned, References
from .remote_errors import RemoteError
from .requests import Answer, Incoming
from .serialise import PLAIN_CLASSES, Serialiser

log = logging.getLogger(__name__)
T = TypeVar("T")
CALL = Struct("<HH")  # bytes of the name, number of forks; then the name, the forks and the pickle
RESULT = Struct("<H")  # number of forks; then the forks and the pickle
# Flags: only tensors, without a pickle; the result is None; an answer has RRefs; a thread of RPC makes the call, and a
# function may wait for it.
PLAIN, NOTHING, SHARING, NESTED = 1, 2, 4, 8
TENSORS = {Tensor, Parameter}
NEVER_SENT = (LimitExceeded, NotAllowed, AgentClosed)
FETCH, INVOKE, TYPE, BACKWARD = ":fetch", ":invoke", ":type", ":backward"  # functions that each worker has for RRefs
PROFILED = {TYPE: "_rref_typeof_on_owner"}  # functions that torch's profiler has under another name


class _Packed(NamedTuple):
    """A call that is ready to be sent."""

    name: str
    flags: int
    body: bytes
    tensors: list[Tensor]
    forks: list[Fork]
    metadata: bytes


class _Later(NamedTuple):
    """A result that is not made yet: once the future is set, it is the return value of `get`."""

    future: AnyFuture[Any]
    get: Callable[[], Any]
    maker: Key | None  # the call that sets it


class Invocations:
    """One worker's calls, in both directions."""

    def __init__(self, agent: Agent, reference_type: type[Any]) -> None:
        """`reference_type` is RRef, which this module cannot import: RRef uses these calls."""
        self.agent, self.options = agent, agent.options
        self.references = References(agent)
        self.inquiries = Inquiries(agent)
        self._reference_type = reference_type
        self._serialiser = Serialiser(agent.options, reference_type)
        self._gatherings = Gatherings(agent.loss)
        self._gather_ids = itertools.count()
        self._own: dict[str, Callable[..., Any]] = {
            FETCH: self._of_value, INVOKE: self._invoke, BACKWARD: self._backward,
            TYPE: lambda creator, number: self._of_value(creator, number, type),
            GATHER: lambda ranks, *given: self._gatherings.come(ranks, self._caller(), *given),
            LEAVE: lambda ranks, number: self._gatherings.leave(ranks, self._caller(), number),
        }  # fmt: skip
        agent.serve(Kind.CALL, self._called)
        agent.serve(Kind.REMOTE, self._made)
        agent.on_late = self._too_late
        agent.on_peer_lost(self._gatherings.lost)

    # The caller.

    def sync(self, to: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, timeout: float | None,
             ) -> Any:  # fmt: skip
        """The function's result on worker `to`. `function` is a function of a module, or the name of one of `_own`."""
        seconds = self.agent.seconds(timeout)
        call = self._packed(to, function, args, kwargs)
        try:
            with self._profiled("sync", call.name, to):
                answer = self.agent.ask(to, Kind.CALL, call.body, call.tensors, seconds, metadata=call.metadata,
                                        flags=call.flags, what=call.name)  # fmt: skip
        except Exception as error:
            self._unsent(error, call.forks, call.metadata)
            raise
        return self._result(to, answer)

    def _profiled(self, mode: str, name: str, to: int) -> AbstractContextManager[Any]:
        """An event of torch's profiler, under torch's name, if the profiler runs: a call, or the sending of a call."""
        if not _profiler_enabled():
            return nullcontext()
        workers, function = self.agent.workers, PROFILED.get(name, name.partition(":")[2])
        return record_function(f"rpc_{mode}#{function}({self.agent.name} -> {workers[to].name})")

    def _unsent(self, error: BaseException, forks: list[Fork], metadata: bytes) -> None:
        """Drop the forks and the metadata of a request, if the error means that it was not sent."""
        if isinstance(error, NEVER_SENT) and not isinstance(error, RemoteError):
            self._withdraw(forks, metadata)

    @contextmanager
    def _withdrawn(self, call: _Packed, *made: Fork) -> Iterator[None]:
        """Withdraw the forks and the metadata of a request, and the fork that it makes, if it raises."""
        try:
            yield
        except RpcError:
            self._withdraw([*made, *call.forks], call.metadata)
            raise

    def _withdraw(self, forks: list[Fork], metadata: bytes) -> None:
        self.references.withdraw(forks)
        if metadata and self.agent.interceptor is not None:
            self.agent.interceptor.unsent(metadata)

    def begin(self, to: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None,
              timeout: float | None, keep: object = None) -> RpcFuture:  # fmt: skip
        """Like `sync`, but without waiting: returns a future. `keep` lives as long as the call."""
        seconds = self.agent.seconds(timeout)
        call = self._packed(to, function, args, kwargs)
        future = RpcFuture(self, to, seconds, (keep, call.forks, call.metadata))
        with self._profiled("async", call.name, to), self._withdrawn(call):
            self.agent.request(to, Kind.CALL, call.body, call.tensors, seconds, future.arrived, metadata=call.metadata,
                               flags=call.flags, what=call.name)  # fmt: skip
        if collected.future_list is not None:
            collected.future_list.append(future)
        return future

    def remote(self, to: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None,
               timeout: float | None, keep: object = None) -> Any:  # fmt: skip
        """An RRef to the function's result, which stays on worker `to`."""
        seconds = self.agent.seconds(timeout)
        references = self.references
        call = self._packed(to, function, args, kwargs)
        with references.making(to) as fork, self._withdrawn(call, fork):
            # A value of this worker needs no confirmation.
            ref = references.created(fork, to) if to == self.agent.me else references.hold(fork)
            done = partial(self._created, ref, keep, [fork, *call.forks], call.metadata)
            with self._profiled("remote", call.name, to):
                self.agent.request(to, Kind.REMOTE, fork.packed() + call.body, call.tensors, seconds, done,
                                   metadata=call.metadata, flags=call.flags, what=call.name)  # fmt: skip
        return self._reference_type._of(ref, self)

    def all_gather(self, value: Any, ranks: Ranks, timeout: float | None) -> dict[str, Any]:
        """The values that all workers of these ranks give, by name (gathering.py)."""
        agent = self.agent
        seconds, number = agent.seconds(timeout), next(self._gather_ids)
        leader = min(ranks, key=lambda rank: agent.workers[rank].name)
        try:
            values = self.sync(leader, GATHER, (ranks, number, value), None, seconds)
        except RpcTimeout:
            raise RpcTimeout(self._withdraw_and_explain(leader, ranks, number, seconds)) from None
        return {agent.workers[rank].name: values[rank] for rank in ranks}

    def _withdraw_and_explain(self, leader: int, ranks: Ranks, number: int, seconds: float) -> str:
        """Take the value of a late call back. Returns the text of its error."""
        agent = self.agent
        names = [agent.workers[rank].name for rank in ranks]
        text = f"timed out in _all_gather after {seconds:.2f} seconds, of {', '.join(names)}: "
        try:
            late = self.sync(leader, LEAVE, (ranks, number), None, min(seconds, LEAVE_SECONDS))
        except RpcError as error:
            return f"{text}worker {agent.workers[leader].name!r} did not answer which of them came ({error})"
        if not late:
            return f"{text}all came, but the values did not arrive in time: give it a longer timeout"
        missing = ", ".join(agent.workers[rank].name for rank in late)
        return f"{text}{missing} did not come: see what it does, or give it a longer timeout"

    def _packed(self, to: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> _Packed:
        if type(function) is MethodType and not isinstance(function.__self__, type):
            args, function = (function.__self__, *args), function.__func__  # its object is the first argument
        name = function if type(function) is str else name_of(function)
        text = name.encode()
        if len(text) > self.options.limits.name_bytes:
            raise LimitExceeded(f"the name {name[:80]!r}... has {len(text)} bytes, the limit is "
                                f"{self.options.limits.name_bytes}")  # fmt: skip
        nested = NESTED if self.agent.pool.is_here else 0
        # Without a pickle, a tensor that is given twice would arrive as two tensors.
        if not kwargs and all(type(arg) in TENSORS for arg in args) and len({*map(id, args)}) == len(args):
            tensors = list(args)
            metadata = self._metadata(to, tensors, name)
            return _Packed(name, PLAIN | nested, CALL.pack(len(text), 0) + text, tensors, [], metadata)
        data, tensors, references = self._serialiser.packed((tuple(args), dict(kwargs or {})))
        metadata = self._metadata(to, tensors, name)
        try:
            forks = self._forks(references, to)  # last: nothing that may fail comes between them and the request
        except RpcError:
            self._withdraw([], metadata)
            raise
        body = b"".join((CALL.pack(len(text), len(forks)), text, *(fork.packed() for fork in forks), data))
        return _Packed(name, nested, body, tensors, forks, metadata)

    def _forks(self, references: Sequence[Any], to: int) -> list[Fork]:
        forks: list[Fork] = []
        try:
            for reference in references:
                if reference._calls is not self:  # its number may be of another value in this group
                    raise AgentClosed(f"Cannot send {reference!r} after deletion: it is of a group that has ended")
                forks.append(self.references.fork(reference._ref, to))
        except RpcError:
            self.references.withdraw(forks)
            raise
        return forks

    def _metadata(self, to: int, tensors: list[Tensor], name: str) -> bytes:
        interceptor = self.agent.interceptor
        return b"" if interceptor is None else interceptor.outgoing(to, tensors, name)

    def _result(self, peer: int, answer: Answer) -> Any:
        tensors: Any = answer.tensors
        if answer.metadata and self.agent.interceptor is not None:
            self.agent.interceptor.answered(peer, answer.metadata, tensors)
        if answer.flags & PLAIN and len(tensors) == 1:
            return tensors[0]
        if answer.flags & NOTHING:
            return None
        references, at = self._joined(peer, answer.body, RESULT.size, _count(answer.body))
        return self._serialiser.unpacked(answer.body[at:], tensors, references)

    def _too_late(self, peer: int, answer: Answer) -> None:
        """Take in the RRefs of a late answer. They are dropped at once, which notifies their owners."""
        if answer.flags & SHARING:
            self._joined(peer, answer.body, RESULT.size, _count(answer.body))

    def _joined(self, peer: int, body: bytes, at: int, count: int) -> tuple[list[Any], int]:
        """The RRefs in a frame, and the place where they end."""
        end = at + count * FORK.size
        if end > len(body):
            raise FrameRefused(f"{count} RRefs do not fit in {len(body)} bytes")
        forks = [Fork.unpacked(body, place) for place in range(at, end, FORK.size)]
        return [self._reference_type._of(self.references.join(fork, peer), self) for fork in forks], end

    def _created(
        self, ref: Owned | Held, keep: object, forks: list[Fork], metadata: bytes, result: Answer | BaseException
    ) -> None:
        """The owner has taken in the call that makes a value, or the call has failed."""
        if not isinstance(result, BaseException):
            if isinstance(ref, Held):
                ref.confirmed = True
                ref.end_taking_in()
            return
        self._unsent(result, forks, metadata)
        if isinstance(ref, Held):
            ref.failed = result
            ref.end_taking_in()
        elif not ref.made.done():
            ref.fail(result)

    # The callee.

    def _called(self, incoming: Incoming) -> None:
        Execution(self, incoming, 0).begin()

    def _made(self, incoming: Incoming) -> None:
        fork = Fork.unpacked(incoming.body, 0)
        execution = Execution(self, incoming, FORK.size)
        # A worker that calls remote() on itself has made the place for the value already. Its own fork has kept that
        # place until now, and ends here. torch: RRefContext::addSelfAsFork (rref_context.cpp).
        known = fork.owner == incoming.peer == self.agent.me
        owned = self.references.owned(fork.reference) if known else self.references.created(fork, incoming.peer)
        owned.maker = incoming.peer, incoming.number
        execution.owned = owned
        execution.begin()
        incoming.answer(b"")
        if known:
            self.references._unshare(fork.reference, fork.fork)

    def _of_value(self, creator: int, number: int, work: Callable[[Any], Any] | None = None) -> Any:
        """The result of `work` for the value of a reference, or the value itself; `_Later` before the value is made."""
        owned = self.references.owned((creator, number))

        def get() -> Any:
            return owned.get() if work is None else work(owned.get())

        return get() if owned.made.done() else _Later(owned.made, get, owned.maker)

    def _invoke(self, creator: int, number: int, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if method.startswith("_"):
            raise NotAllowed(f"{method!r} begins with '_' and cannot be called through an RRef: call a public method")

        def call(value: Any) -> Any:
            # No method of plain data reaches anything else, except str.format: `{0.__globals__}` of a function. An
            # attribute may: the default_factory of a defaultdict is any function.
            is_method = callable(getattr(type(value), method, None))
            if type(value) in PLAIN_CLASSES and is_method and method not in ("format", "format_map"):
                return getattr(value, method)(*args, **kwargs)
            return method_of(value, method, self.options.modules)(*args, **kwargs)

        return self._of_value(creator, number, call)

    def _backward(self, creator: int, number: int, context_id: int, retain_graph: bool) -> Any:
        return self._of_value(creator, number, lambda value: self.backward_from(value, context_id, retain_graph))

    def backward_from(self, value: Any, context_id: int, retain_graph: bool) -> None:
        """Run a distributed backward pass from a value of this worker.

        Raises RpcError if the value is not a tensor, and the errors of `autograd.backward`.
        """
        if not isinstance(value, Tensor):
            raise RpcError(f"RRef should contain a tensor for .backward(): it refers to a {type(value).__name__}")
        if self.agent.backward is None:
            raise RpcError("this worker has no distributed autograd: start RPC with init_rpc()")
        self.agent.backward(context_id, [value], retain_graph)

    def _caller(self) -> int:
        call = self.agent.thread.call
        assert call is not None, "an own function runs in an incoming call"
        return call[0]


class Execution:
    """One call that has arrived: its function runs on a thread of the pool, and its result is the answer, or `owned`.

    The RRefs and the metadata of the frame are taken in when it is made.
    """

    __slots__ = ("_calls", "_incoming", "_name", "_pickle", "_references", "_scope", "owned")

    def __init__(self, calls: Invocations, incoming: Incoming, at: int) -> None:
        """`at`: where the call begins in the body."""
        self._calls, self._incoming = calls, incoming
        self.owned: Owned | None = None
        body, interceptor = incoming.body, calls.agent.interceptor
        named, count = CALL.unpack_from(body, at)
        at += CALL.size + named
        self._name = body[at - named : at].decode()
        self._references: list[Any] = []
        if count:
            self._references, at = calls._joined(incoming.peer, body, at, count)
        self._pickle = body[at:]
        self._scope: AbstractContextManager[None] = nullcontext()
        if interceptor is not None:
            tensors: Any = incoming.tensors
            self._scope = interceptor.incoming(incoming.peer, incoming.metadata, tensors)

    def begin(self) -> None:
        self._calls.inquiries.begun(self._incoming)
        # Only a call of a program's thread may wait for a free thread. If nested calls were kept, two workers whose
        # functions call each other would wait for ever (pool.py).
        self._calls.agent.later(self._run, self._refuse, not self._incoming.flags & NESTED)

    def _refuse(self) -> None:
        limits, name = self._calls.options.limits, self._calls.agent.name
        remedy = "raise the limit `threads`, or nest calls less deeply"
        if not self._incoming.flags & NESTED:
            remedy = f"and {limits.queued} more wait for a thread: send fewer at once, or raise the limit `queued`"
        self._fail(LimitExceeded(f"{limits.threads} calls are running on worker {name!r}, or wait there for others: "
                                 f"{remedy}"))  # fmt: skip

    def _run(self) -> None:
        thread, incoming = self._calls.agent.thread, self._incoming
        try:
            thread.call = incoming.peer, incoming.number
            with self._scope:
                result = self._result()
                if not isinstance(result, AnyFuture | _Later):
                    outside(self._answer, result)  # outside of modes that the function has left on
                    return
            self._postpone(result)
        except BaseException as error:  # the caller gets SystemExit too
            self._fail(error)
        finally:
            thread.call = None

    def _result(self) -> Any:
        calls, incoming, name = self._calls, self._incoming, self._name
        function: Any = calls._own.get(name) or find(name, calls.options.modules, calls.options.limits.name_bytes)
        if incoming.flags & PLAIN:
            return function(*incoming.tensors)
        args, kwargs = calls._serialiser.unpacked(self._pickle, incoming.tensors, self._references)
        return function(*args, **kwargs)

    def _postpone(self, result: AnyFuture[Any] | _Later) -> None:
        """Answer when the future is set. Its value may be another future, such as the result of a method."""
        is_future = isinstance(result, AnyFuture)
        future, get, maker = (result, result.value, None) if isinstance(result, AnyFuture) else result
        self._incoming.waits_for = maker

        def answered() -> Any:
            with self._scope:
                found = get()
                if not isinstance(found, AnyFuture):
                    self._answer(found)
            return found

        def over(_: object) -> None:
            try:
                found = outside(answered)  # outside of the modes of the thread that sets the future
                if isinstance(found, AnyFuture):
                    self._postpone(found)
            except BaseException as error:
                self._fail(error)
                if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                    raise  # an interrupt of the program's thread, which has set the future

        # A method may wait, so it runs on another thread than the one that sets the future.
        future.add_done_callback(over if is_future else lambda _: self._calls.agent.later(partial(over, None)))

    def _fail(self, error: BaseException) -> None:
        calls, incoming, owned = self._calls, self._incoming, self.owned
        calls.inquiries.ended(incoming)
        # If the caller never reads its future, this warning is the only trace of the error. The text is made here:
        # a log that keeps records would otherwise keep the frames of the error, and their objects.
        log.warning("a call of worker %r failed on worker %r:\n%s", calls.agent.workers[incoming.peer].name,
                    calls.agent.name, "".join(traceback.format_exception(error)))  # fmt: skip
        if owned is None:
            incoming.fail(error)
        elif not owned.made.done():
            owned.fail(error)

    def _answer(self, result: Any) -> None:
        calls, incoming = self._calls, self._incoming
        calls.inquiries.ended(incoming)
        if self.owned is not None:
            self.owned.set(result)
            return
        interceptor, peer = calls.agent.interceptor, incoming.peer
        forks: list[Fork] = []
        if type(result) in TENSORS:
            flags, body, tensors = PLAIN, b"", [result]
        elif result is None:
            flags, body, tensors = NOTHING, b"", []
        else:
            data, tensors, references = calls._serialiser.packed(result)
            forks = calls._forks(references, peer)
            flags = SHARING if forks else 0
            body = b"".join((RESULT.pack(len(forks)), *(fork.packed() for fork in forks), data))
        metadata = b""
        try:
            metadata = b"" if interceptor is None else interceptor.answer_metadata(peer, tensors, self._name)
            incoming.answer(body, tensors, metadata, flags)
        except BaseException:
            calls._withdraw(forks, metadata)
            raise


def _count(body: bytes) -> int:
    """The number of RRefs in a result."""
    if len(body) < RESULT.size:
        raise FrameRefused(f"a result has only {len(body)} bytes: does the peer run the same version?")
    count: int = RESULT.unpack_from(body)[0]
    return count


class _Process:
    """The state of this process."""

    calls: Invocations | None = None


def current() -> Invocations:
    """The calls of this process's worker. Raises AgentClosed before `init_rpc` and after `shutdown`."""
    calls = _Process.calls
    if calls is None:
        raise AgentClosed(
            "RPC has not been initialized in this process. Current RPC agent is not set! Did you initialize the RPC "
            "framework by init_rpc()?"
        )
    return calls


def use(calls: Invocations | None) -> None:
    """Set the calls that `current` returns; with None it raises."""
    _Process.calls = calls

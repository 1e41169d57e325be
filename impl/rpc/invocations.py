"""Calls of functions, in both directions: names, arguments, results, and the interceptor's metadata.

Theory of operation. The caller packs a function's name, the arguments and the metadata (`_packed`), and sends a CALL,
whose answer is the result (`sync`, `begin`), or a REMOTE, whose result stays at the callee (`remote`). At the callee
the thread that reads unpacks the RRefs and the metadata (`_called`, `_made`). `_run` follows on the same thread or
another one of the pool: it finds the function, unpickles the arguments, calls the function, and answers. A result that
is a future is answered when the future is set (`_postponed`).

Rule: the RRefs and the metadata of a frame are taken in on the thread that reads it, in the order of frames, whatever
becomes of the call. A user's function runs on a thread that may block: `Agent.later`.
"""

from __future__ import annotations

import itertools
import logging
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from struct import Struct
from types import MethodType
from typing import Any, NamedTuple, Protocol, TypeVar

from torch import Tensor
from torch._C import Future as AnyFuture  # returned by then() and collect_all(); the other derives from it
from torch._C._autograd import _profiler_enabled
from torch.autograd.profiler import record_function
from torch.futures import Future
from torch.nn import Parameter

from . import remote_errors
from .agent import DELIVERY_SECONDS, Agent
from .errors import AgentClosed, FrameRefused, LimitExceeded, NotAllowed, RpcError, RpcTimeout
from .events import OneShotEvent
from .frames import Kind
from .functions import find, method_of, name_of
from .gathering import GATHER, LEAVE, LEAVE_SECONDS, Gatherings, Ranks
from .inquiries import Inquiries, Key
from .modes import outside
from .references import FORK, Fork, Held, Owned, References
from .remote_errors import RemoteError
from .requests import Answer, Incoming
from .serialise import PLAIN_CLASSES, Serialiser

log = logging.getLogger(__name__)
T = TypeVar("T")
CALL = Struct("<HH")  # bytes of the name, forks; then both, then the pickle
RESULT = Struct("<H")  # forks; then they, then the pickle
# Flags: the tensors are all there is; the result is None; there are RRefs in an answer; a call of a thread of RPC, for
# which a function may wait.
PLAIN, NOTHING, SHARING, NESTED = 1, 2, 4, 8
TENSORS = {Tensor, Parameter}
NEVER_SENT = (LimitExceeded, NotAllowed, AgentClosed)
FETCH, INVOKE, TYPE, BACKWARD = ":fetch", ":invoke", ":type", ":backward"  # functions that each worker has for RRefs
PROFILED = {TYPE: "_rref_typeof_on_owner"}  # those that torch's profiler has under another name


class _Packed(NamedTuple):
    """A call that is ready to be sent."""

    name: str
    flags: int
    body: bytes
    tensors: list[Tensor]
    forks: list[Fork]
    metadata: bytes


class Call(NamedTuple):
    """A call that has arrived."""

    name: str
    references: list[Any]
    pickle: bytes


class _Later(NamedTuple):
    """A result that is not there yet: it is the return value of `get` once the future is set."""

    future: AnyFuture[Any]
    get: Callable[[], Any]
    maker: Key | None  # the call that sets it


class Reference(Protocol):
    """A program's reference to a value; `rref.RRef`."""

    @classmethod
    def _of(cls, ref: Owned | Held, calls: Invocations) -> Reference: ...


class Invocations:
    """One worker's calls, in both directions."""

    def __init__(self, agent: Agent, reference_type: type[Reference]) -> None:
        """`reference_type` is RRef, which is made of these calls."""
        self.agent, self.options = agent, agent.options
        self.references = References(agent)
        self.inquiries = Inquiries(agent)
        self._reference_type = reference_type
        self._serialiser = Serialiser(agent.options, self)
        self._gatherings = Gatherings(agent.loss)
        self._come = itertools.count()
        self._own: dict[str, Callable[..., Any]] = {
            FETCH: self._fetch, INVOKE: self._invoke, TYPE: self._type, BACKWARD: self._backward,
            GATHER: self._gather, LEAVE: self._leave,
        }  # fmt: skip
        agent.serve(Kind.CALL, self._called)
        agent.serve(Kind.REMOTE, self._made)
        agent.on_late = self._too_late
        agent.on_peer_lost(self._gatherings.lost)

    def is_reference(self, value: object) -> bool:
        return isinstance(value, self._reference_type)

    # At the caller.

    def sync(self, to: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, timeout: float | None,
             ) -> Any:  # fmt: skip
        """The function's result on worker `to`. `function` is one of a module, or the name of one of `_own`."""
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
        """An event of torch's profiler, under torch's name, if it runs: a call, or the sending of one."""
        if not _profiler_enabled():
            return nullcontext()
        workers, function = self.agent.workers, PROFILED.get(name, name.partition(":")[2])
        return record_function(f"rpc_{mode}#{function}({self.agent.name} -> {workers[to].name})")

    def _unsent(self, error: BaseException, forks: list[Fork], metadata: bytes) -> None:
        """Let go of the forks and the metadata of a request, if the error says that it was not sent."""
        if isinstance(error, NEVER_SENT) and not isinstance(error, RemoteError):
            self._withdraw(forks, metadata)

    def _withdraw(self, forks: list[Fork], metadata: bytes) -> None:
        self.references.withdraw(forks)
        if metadata and self.agent.interceptor is not None:
            self.agent.interceptor.unsent(metadata)

    def begin(self, to: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None,
              timeout: float | None, keep: object = None) -> RpcFuture:  # fmt: skip
        """The same, without waiting. `keep` lives as long as the call."""
        seconds = self.agent.seconds(timeout)
        call = self._packed(to, function, args, kwargs)
        future = RpcFuture(self, to, seconds, (keep, call.forks, call.metadata))
        with self._profiled("async", call.name, to):
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
        with references.making(to) as fork:
            try:  # its own this worker knows at once
                ref = references.created(fork, to) if to == self.agent.me else references.hold(fork)
            except LimitExceeded:
                self._withdraw(call.forks, call.metadata)
                raise
            done = partial(self._created, ref, keep, call.forks, call.metadata)
            with self._profiled("remote", call.name, to):
                self.agent.request(to, Kind.REMOTE, fork.packed() + call.body, call.tensors, seconds, done,
                                   metadata=call.metadata, flags=call.flags, what=call.name)  # fmt: skip
        return self._reference_type._of(ref, self)

    def all_gather(self, value: Any, ranks: Ranks, timeout: float | None) -> dict[str, Any]:
        """The values that all workers of these ranks give, by name. See gathering.py."""
        agent = self.agent
        seconds, number = agent.seconds(timeout), next(self._come)
        leader = min(ranks, key=lambda rank: agent.workers[rank].name)
        try:
            values = self.sync(leader, GATHER, (ranks, number, value), None, seconds)
        except RpcTimeout:
            raise RpcTimeout(self._not_there(leader, ranks, number, seconds)) from None
        return {agent.workers[rank].name: values[rank] for rank in ranks}

    def _not_there(self, leader: int, ranks: Ranks, number: int, seconds: float) -> str:
        """Take the value of a call back that is late; the text of its error."""
        agent = self.agent
        names = [agent.workers[rank].name for rank in ranks]
        text = f"timed out in _all_gather after {seconds:.2f} seconds, of {', '.join(names)}: "
        try:
            late = self.sync(leader, LEAVE, (ranks, number), None, min(seconds, LEAVE_SECONDS))
        except RpcError as error:
            return f"{text}{agent.workers[leader].name!r} did not say which of them came ({error})"
        if not late:
            return f"{text}all came, but the values not in time: give it a longer timeout"
        missing = ", ".join(agent.workers[rank].name for rank in late)
        return f"{text}{missing} did not come: see what it does, or give it a longer timeout"

    def _packed(self, to: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> _Packed:
        if type(function) is MethodType and not isinstance(function.__self__, type):
            args, function = (function.__self__, *args), function.__func__  # its object goes as the first argument
        name = function if type(function) is str else name_of(function)
        text = name.encode()
        if len(text) > self.options.limits.name_bytes:
            raise LimitExceeded(f"the name {name[:80]!r}... has {len(text)} bytes > {self.options.limits.name_bytes}")
        nested = NESTED if self.agent.pool.is_here else 0
        # A tensor that is given twice has to arrive as one: the pickle tells.
        if not kwargs and all(type(arg) in TENSORS for arg in args) and len({*map(id, args)}) == len(args):
            tensors = list(args)
            metadata = self._metadata(to, tensors, name)
            return _Packed(name, PLAIN | nested, CALL.pack(len(text), 0) + text, tensors, [], metadata)
        data, tensors, references = self._serialiser.packed((tuple(args), dict(kwargs or {})))
        metadata = self._metadata(to, tensors, name)
        try:
            forks = self._forks(references, to)  # last: nothing that may fail comes between them and the request
        except LimitExceeded:
            self._withdraw([], metadata)
            raise
        body = b"".join((CALL.pack(len(text), len(forks)), text, *(fork.packed() for fork in forks), data))
        return _Packed(name, nested, body, tensors, forks, metadata)

    def _forks(self, references: Sequence[Any], to: int) -> list[Fork]:
        forks: list[Fork] = []
        try:
            for reference in references:
                forks.append(self.references.fork(reference._ref, to))
        except LimitExceeded:
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
        """An answer after its deadline: take in its RRefs, which are dropped at once, so that their owners are told."""
        if answer.flags & SHARING:
            self._joined(peer, answer.body, RESULT.size, _count(answer.body))

    def _joined(self, peer: int, body: bytes, at: int, count: int) -> tuple[list[Any], int]:
        """The RRefs in a frame, and where they end."""
        end = at + count * FORK.size
        if end > len(body):
            raise FrameRefused(f"{count} RRefs in {len(body)} bytes")
        forks = [Fork.unpacked(body, place) for place in range(at, end, FORK.size)]
        return [self._reference_type._of(self.references.join(fork, peer), self) for fork in forks], end

    def _created(
        self, ref: Owned | Held, keep: object, forks: list[Fork], metadata: bytes, result: Answer | BaseException
    ) -> None:
        """The owner has, or has not, taken in what was to make a value."""
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

    # At the called.

    def _called(self, incoming: Incoming) -> None:
        call, scope = self._opened(incoming, 0)
        self.inquiries.begun(incoming)
        patient = not incoming.flags & NESTED
        self.agent.later(partial(self._run, incoming, call, scope), partial(self._refused, incoming), patient)

    def _made(self, incoming: Incoming) -> None:
        fork = Fork.unpacked(incoming.body, 0)
        call, scope = self._opened(incoming, FORK.size)
        known = fork.owner == incoming.peer == self.agent.me
        owned = self.references.owned(fork.reference) if known else self.references.created(fork, incoming.peer)
        owned.maker = incoming.peer, incoming.number
        self.inquiries.begun(incoming)
        work = partial(self._run, incoming, call, scope, owned)
        self.agent.later(work, partial(self._refused, incoming, owned), not incoming.flags & NESTED)
        incoming.answer(b"")
        if known:
            self.references._unshare(fork.reference, fork.fork)

    def _opened(self, incoming: Incoming, at: int) -> tuple[Call, AbstractContextManager[None]]:
        body = incoming.body
        named, count = CALL.unpack_from(body, at)
        at += CALL.size
        name = body[at : at + named].decode()
        references, at = self._joined(incoming.peer, body, at + named, count) if count else ([], at + named)
        interceptor, tensors = self.agent.interceptor, incoming.tensors
        if interceptor is None:
            return Call(name, references, body[at:]), nullcontext()
        return Call(name, references, body[at:]), interceptor.incoming(incoming.peer, incoming.metadata, tensors)  # type: ignore[arg-type]

    def _refused(self, incoming: Incoming, owned: Owned | None = None) -> None:
        limits, name = self.options.limits, self.agent.name
        remedy = "raise the limit `threads`, or nest calls less deeply"
        if not incoming.flags & NESTED:
            remedy = f"and {limits.queued} more wait for a thread: send fewer at once, or raise the limit `queued`"
        error = LimitExceeded(f"{limits.threads} calls are running on worker {name!r}, or wait there for others: "
                              f"{remedy}")  # fmt: skip
        self._fail(incoming, owned, error)

    def _run(
        self, incoming: Incoming, call: Call, scope: AbstractContextManager[None], owned: Owned | None = None
    ) -> None:
        thread = self.agent.thread
        try:
            thread.call = incoming.peer, incoming.number
            with scope:
                result = self._result_of(incoming, call)
                if not isinstance(result, AnyFuture | _Later):
                    with outside():  # of what the function has left on
                        self._answer(incoming, call.name, owned, result)
                    return
            self._postponed(incoming, call.name, scope, owned, result)
        except BaseException as error:  # SystemExit too is the caller's to know
            self._fail(incoming, owned, error)
        finally:
            thread.call = None

    def _result_of(self, incoming: Incoming, call: Call) -> Any:
        function: Any = self._own.get(call.name) or find(
            call.name, self.options.modules, self.options.limits.name_bytes
        )
        if incoming.flags & PLAIN:
            return function(*incoming.tensors)
        args, kwargs = self._serialiser.unpacked(call.pickle, incoming.tensors, call.references)
        return function(*args, **kwargs)

    def _postponed(self, incoming: Incoming, name: str, scope: AbstractContextManager[None], owned: Owned | None,
                   result: AnyFuture[Any] | _Later) -> None:  # fmt: skip
        """Answer when the future is set. Its value may be a future once more: that of a method, say."""
        get = result.value if isinstance(result, AnyFuture) else result.get
        incoming.waits_for = None if isinstance(result, AnyFuture) else result.maker

        def over(_: object) -> None:
            try:
                with outside(), scope:  # of what is on in the thread that sets the future
                    found = get()
                    if not isinstance(found, AnyFuture):
                        self._answer(incoming, name, owned, found)
                        return
                self._postponed(incoming, name, scope, owned, found)
            except BaseException as error:
                self._fail(incoming, owned, error)
                if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                    raise  # an interrupt of the program's thread, which has set the future

        future = result if isinstance(result, AnyFuture) else result.future
        # A method may wait: on a thread of its own, and not on the one that sets the future.
        future.add_done_callback(
            over if isinstance(result, AnyFuture) else lambda _: self.agent.later(partial(over, None))
        )

    def _fail(self, incoming: Incoming, owned: Owned | None, error: BaseException) -> None:
        self.inquiries.ended(incoming)
        # The caller may never look at its future: then this is all that anybody sees of the error. It is written out
        # here, since a log that keeps records would keep the frames of the error, and what they hold.
        log.warning("a call of %s failed on %r:\n%s", self.agent.workers[incoming.peer].name, self.agent.name,
                    "".join(traceback.format_exception(error)))  # fmt: skip
        if owned is None:
            incoming.fail(error)
        elif not owned.made.done():
            owned.fail(error)

    def _answer(self, incoming: Incoming, name: str, owned: Owned | None, result: Any) -> None:
        self.inquiries.ended(incoming)
        if owned is not None:
            owned.set(result)
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
            flags = SHARING if forks else 0
            body = b"".join((RESULT.pack(len(forks)), *(fork.packed() for fork in forks), data))
        metadata = b""
        try:
            metadata = b"" if interceptor is None else interceptor.answer_metadata(peer, tensors, name)
            incoming.answer(body, tensors, metadata, flags)
        except BaseException:
            self._withdraw(forks, metadata)
            raise

    def _fetch(self, creator: int, number: int) -> Any:
        owned = self.references.owned((creator, number))
        return owned.get() if owned.made.done() else _Later(owned.made, owned.get, owned.maker)

    def _invoke(self, creator: int, number: int, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if method.startswith("_"):
            raise NotAllowed(f"{method!r} is not called through an RRef: only what does not begin with '_'")
        owned = self.references.owned((creator, number))

        def call() -> Any:
            value = owned.get()
            if type(value) in PLAIN_CLASSES:  # lists and the like have no method that reaches anything else
                return getattr(value, method)(*args, **kwargs)
            return method_of(value, method, self.options.modules)(*args, **kwargs)

        return call() if owned.made.done() else _Later(owned.made, call, owned.maker)

    def _type(self, creator: int, number: int) -> Any:
        owned = self.references.owned((creator, number))

        def kind() -> Any:
            return type(owned.get())

        return kind() if owned.made.done() else _Later(owned.made, kind, owned.maker)

    def _backward(self, creator: int, number: int, context_id: int, retain_graph: bool) -> Any:
        owned = self.references.owned((creator, number))

        def work() -> None:
            self.backward_from(owned.get(), context_id, retain_graph)

        return work() if owned.made.done() else _Later(owned.made, work, owned.maker)

    def backward_from(self, value: Any, context_id: int, retain_graph: bool) -> None:
        """A distributed backward pass from a value of this worker.

        Raises RpcError: the value is no tensor; and what `autograd.backward` raises.
        """
        if not isinstance(value, Tensor):
            raise RpcError(f"RRef should contain a tensor for .backward(): it refers to a {type(value).__name__}")
        if self.agent.backward is None:
            raise RpcError("this worker has no distributed autograd: start RPC by init_rpc()")
        self.agent.backward(context_id, [value], retain_graph)

    def _gather(self, ranks: Ranks, number: int, value: Any) -> Any:
        return self._gatherings.come(ranks, self._caller(), number, value)

    def _leave(self, ranks: Ranks, number: int) -> list[int]:
        return self._gatherings.leave(ranks, self._caller(), number)

    def _caller(self) -> int:
        call = self.agent.thread.call
        assert call is not None, "an own function runs in an incoming call"
        return call[0]


def _count(body: bytes) -> int:
    """How many RRefs a result has."""
    if len(body) < RESULT.size:
        raise FrameRefused(f"a result of {len(body)} bytes: is the peer of this version?")
    count: int = RESULT.unpack_from(body)[0]
    return count


class RpcFuture(Future[Any]):
    """The result of a call. It is set at the latest at the call's timeout, so that no wait for it is without end."""

    def __init__(self, calls: Invocations, peer: int, seconds: float, keep: tuple[object, list[Fork], bytes]) -> None:
        super().__init__()
        self._calls, self._peer, self._seconds, self._keep = calls, peer, seconds, keep
        self._flag, self._once = OneShotEvent(), threading.RLock()  # reentrant for handlers of signals
        self._answer: Answer | BaseException | None = None
        self._error: Exception | None = None

    def arrived(self, result: Answer | BaseException) -> None:
        with self._once:
            late = self._flag.is_set
            if not late:
                self._answer = result
                self._flag.set()
        if not late:
            self._calls.agent.later(self._complete)  # callbacks of users may wait
        elif isinstance(result, Answer):
            self._calls._too_late(self._peer, result)

    def wait(self) -> Any:
        """The result. Raises what the function raised, RpcTimeout, PeerLost."""
        if not self.done():
            # The agent sets the event at the deadline; this limit is for an agent that fails to.
            if not self._calls.agent.wait(self._flag, self._seconds + DELIVERY_SECONDS, self._peer):
                self.arrived(RpcTimeout(f"there was no answer, nor word of its timeout of {self._seconds:g} s"))
            self._complete()
        if self._error is not None:
            raise remote_errors.fresh(self._error)
        return super().wait()

    def value(self) -> Any:
        """The same, of a call that is over."""
        if self._error is not None:
            raise remote_errors.fresh(self._error)
        return super().value()

    def _complete(self) -> None:
        with self._once:
            answer, self._answer = self._answer, None
        if answer is None:  # another thread does it
            return
        (_, forks, metadata), self._keep = self._keep, (None, [], b"")
        try:
            if isinstance(answer, BaseException):
                self._calls._unsent(answer, forks, metadata)
                raise answer
            result = self._calls._result(self._peer, answer)
        except Exception as error:
            self._error = error.with_traceback(None)
            self.set_exception(error)
        except BaseException:  # an interrupt of this thread: others wait too
            self._error = RpcError("the thread that was taking in the answer was interrupted")
            self.set_exception(self._error)
            raise
        else:
            self.set_result(result)


class _Collected(threading.local):
    """The futures of the calls that this thread has begun inside of `calls.wait_all`; None outside."""

    future_list: list[RpcFuture] | None = None


collected = _Collected()


class _Process:
    """Of this process."""

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
    """Set what `current` returns; None: nothing."""
    _Process.calls = calls


def is_used() -> bool:
    """Whether this process is a worker."""
    return _Process.calls is not None

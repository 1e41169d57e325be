"""One worker's end of RPC: requests and their answers, deadlines, lost peers.

Rule: every request ends, once: with its answer, at its deadline, or when its peer is lost. Frames of one ordered pair
of workers are handled in the order in which they were sent.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import NamedTuple, Protocol

from torch import Tensor
from trystate.model.errors import UsageError

from . import remote_errors
from .connection import Connection
from .deadline_timer import DeadlineTimer
from .errors import AgentClosed, LimitExceeded, PeerLost, RpcError, RpcTimeout
from .events import OneShotEvent
from .frames import Frame, Kind, Tensors, encode
from .inquiries import Key, lead_time
from .options import UNSET, Options, checked_seconds
from .pool import Pool, Work, guarded

FREE_KINDS = range(64, 128)  # kinds of requests that others may take for themselves: see `Agent.handle`
LOOK_SECONDS = 0.05
GRACE_SECONDS = 5.0  # for a thread that has begun to deliver an answer


class WorkerInfo(NamedTuple):
    """Who a worker is: `name` is unique, `id` its rank."""

    name: str
    id: int


class Answer(NamedTuple):
    """What a request was answered."""

    body: bytes
    tensors: list[Tensor | None]
    metadata: bytes = b""
    flags: int = 0


class Interceptor(Protocol):
    """Sees the tensors of each call (not of other requests) where they leave and where they arrive."""

    def outgoing(self, to: int, tensors: Sequence[Tensor], what: str) -> bytes:
        """Metadata for a call of function `what`; b"" if there is nothing to say."""

    def incoming(self, peer: int, metadata: bytes, tensors: list[Tensor]) -> AbstractContextManager[None]:
        """In frame order, only for metadata other than b""; may replace elements of the list.

        The scope is entered by the thread that runs the body and makes the answer; for a function that answers later,
        once more then: it must allow to be entered several times, one after the other.
        """

    def answer_metadata(self, to: int, tensors: Sequence[Tensor], what: str) -> bytes:
        """As `outgoing`, for an answer; called inside the scope."""

    def unsent(self, metadata: bytes) -> None:
        """What `outgoing` or `answer_metadata` made metadata for could not be sent; not for b""."""

    def answered(self, peer: int, metadata: bytes, tensors: list[Tensor]) -> None:
        """At the caller, before the result is made of the tensors; may replace elements.

        Only for metadata other than b"", and not for an answer that comes too late.
        """

    def peer_lost(self, peer: int, reason: str) -> None: ...


Done = Callable[[Answer | BaseException], None]
Handler = Callable[
    [int, bytes, list[Tensor | None], Callable[[bytes, Tensors], None], Callable[[BaseException], None]], None
]


class Incoming:
    """A request of a peer, until it is answered or has failed: the first counts."""

    __slots__ = (
        "_agent", "_answered", "_connection", "body", "flags", "kind", "metadata", "number", "peer", "tensors",
        "waits_for",
    )  # fmt: skip

    def __init__(self, agent: Agent, connection: Connection, frame: Frame) -> None:
        self._agent, self._connection, self.peer = agent, connection, connection.peer
        self.kind, self.flags, self.number, self.body, self.metadata, self.tensors = frame
        self._answered = False
        self.waits_for: Key | None = None  # the call that makes the value that this one asks for

    def answer(self, body: bytes, tensors: Tensors = (), metadata: bytes = b"", flags: int = 0) -> None:
        """Raises LimitExceeded and NotAllowed if the answer cannot be sent; then it is still to be answered."""
        if not self._answered:
            self._reply(Kind.ANSWER, body, tensors, metadata, flags)

    def fail(self, error: BaseException) -> None:
        if not self._answered:
            self._reply(Kind.FAILED, remote_errors.encoded(error, self._agent.name), (), b"", 0)

    def _reply(self, kind: Kind, body: bytes, tensors: Tensors, metadata: bytes, flags: int) -> None:
        with suppress(PeerLost):  # nobody waits for it any more
            self._agent.transmit(self._connection, kind, self.number, body, tensors, metadata, flags)
        self._answered = True


class _Outcome(OneShotEvent):
    """The end of a request that one thread waits for."""

    __slots__ = ("result",)

    def __init__(self) -> None:
        super().__init__()
        self.result: Answer | BaseException = RpcTimeout("the answer was being delivered, and never was")

    def done(self, result: Answer | BaseException) -> None:
        self.result = result
        self.set()


@dataclass(slots=True, eq=False)
class Request:
    """One that is not answered yet."""

    to: int
    done: Done
    what: str
    seconds: float
    deadline: float
    cause: Key | None  # the call whose function made it
    found: Callable[[], str] | None = None  # what the inquiry after it has found; None before its beginning


class _Thread(threading.local):
    """What a thread runs."""

    call: Key | None = None


class Agent:
    """One worker's end of RPC, on connections to all others."""

    def __init__(self, me: int, names: Sequence[str], options: Options) -> None:
        self.me, self.name, self.options = me, names[me], options
        self.workers: Mapping[int, WorkerInfo] = {rank: WorkerInfo(name, rank) for rank, name in enumerate(names)}
        self.ranks: Mapping[str, int] = {name: rank for rank, name in enumerate(names)}
        self.timeout = options.timeout
        self.interceptor: Interceptor | None = None
        self.closed: str | None = None
        self.pool = Pool(f"rpc {self.name}", options.limits.threads)
        self._connections: dict[int, Connection] = {}
        self._handlers: dict[int, Callable[[Incoming], None]] = {}
        self._numbers = itertools.count(1)
        self._requests: dict[int, Request] = {}
        self.thread = _Thread()
        self.inquire: Callable[[int, Request, float], Callable[[], str]] | None = None  # shortly before a deadline
        self._deadlines = DeadlineTimer(f"rpc {self.name} deadlines", self._is_over, self._due)
        self.on_late: Callable[[int, Answer], None] = _forgotten  # for answers that nobody waits for any more
        self._on_lost: list[Callable[[int, str], None]] = []
        self._changed = threading.Condition()  # a connection is over

    def connect(self, connections: Mapping[int, Connection], alone: tuple[Connection, Connection]) -> None:
        """Use these. `alone` are both ends of this worker's connection to itself: it asks at one, the other answers."""
        self._connections = {**connections, self.me: alone[0]}
        self._all = [*connections.values(), *alone]
        for connection in self._all:
            connection.belong(self.pool, self._take, self._over)

    def start(self) -> None:
        """Serve, by the handlers that there are."""
        self.pool.start()
        for connection in self._all:
            connection.begin()

    # What others build on.

    def request(
        self, to: int, kind: int, body: bytes, tensors: Tensors, timeout: float, done: Done, *, metadata: bytes = b"",
        flags: int = 0, what: str = "",
    ) -> None:  # fmt: skip
        """Send a request; it never waits for the peer. FIFO for each ordered pair of workers.

        `done` is called exactly once, on any thread but never inside this call, at the latest after `timeout` seconds,
        with the answer or an error. It must not block: see `later`.
        """
        number = next(self._numbers)
        deadline = monotonic() + timeout
        entry = Request(to, done, what, timeout, deadline, self.thread.call)
        try:
            self._send(number, entry, kind, body, tensors, metadata, flags)
        except RpcError as error:
            self.later(partial(done, error))
        else:
            self._deadlines.add(number, deadline - lead_time(timeout))

    def ask(
        self, to: int, kind: int, body: bytes, tensors: Tensors, timeout: float, *, metadata: bytes = b"",
        flags: int = 0, what: str = "",
    ) -> Answer:  # fmt: skip
        """Send a request and wait for its answer. Raises RpcError, RpcTimeout, PeerLost, RemoteError."""
        deadline = monotonic() + timeout
        number, outcome = next(self._numbers), _Outcome()
        entry = Request(to, outcome.done, what, timeout, deadline, self.thread.call)
        self._send(number, entry, kind, body, tensors, metadata, flags)
        try:
            for until, then in ((deadline - lead_time(timeout), self._late), (deadline, self._expired)):
                self._connections[to].lead(outcome, until)
                if outcome.is_set or outcome.wait(until - monotonic()):
                    break
                then(number)
            else:
                outcome.wait(GRACE_SECONDS)
        finally:
            self._requests.pop(number, None)  # after an interrupt it is still there
        if isinstance(outcome.result, BaseException):
            raise outcome.result
        return outcome.result

    def handle(self, kind: int, handler: Handler) -> None:
        """Have `handler(peer, body, tensors, answer, fail)` called for each request of a kind (of FREE_KINDS), in the
        order of its peer's frames.

        It must not block: see `later`. It may keep `answer` and `fail`; the first call of one of them counts.
        """
        if kind not in FREE_KINDS:
            raise UsageError(f"kind {kind} is not free: take one from {FREE_KINDS.start} to {FREE_KINDS.stop - 1}")
        self.serve(kind, lambda i: handler(i.peer, i.body, i.tensors, i.answer, i.fail))

    def serve(self, kind: int, handler: Callable[[Incoming], None]) -> None:
        """As `handle`, for a handler that sees all of the request."""
        self._handlers[kind] = handler

    def later(self, work: Work, refuse: Work | None = None) -> None:
        """Run `work` on a thread of the agent, where it may block.

        Called from a handler or from `done` it usually runs on the same thread as soon as that has returned, so that
        no other thread is woken. Safe in `__del__`. When as many threads as may be are in works, `refuse` is called
        instead; work without it runs all the same, and must not block then.
        """
        self.pool.later(work, refuse)

    def wait(self, flag: OneShotEvent, seconds: float, peer: int | None = None) -> bool:
        """Wait until the flag is set; whether it was in time.

        Faster if what sets it is a frame of this `peer`: this thread then reads its connection itself.
        """
        deadline = monotonic() + seconds
        connection = self._connections.get(peer) if peer is not None else None
        if connection is not None:
            connection.lead(flag, deadline)
        return flag.wait(deadline - monotonic())

    def on_peer_lost(self, call: Callable[[int, str], None]) -> None:
        """Have `call(peer, reason)` called when a peer is lost; it must not block."""
        self._on_lost.append(call)

    def seconds(self, timeout: float | None) -> float:
        """Of a request with this timeout. Raises UsageError for what cannot be."""
        return self.timeout if timeout is None or timeout == UNSET else checked_seconds(timeout, "timeout")

    def rank_of(self, worker: str | int | WorkerInfo) -> int:
        """Raises UsageError for a worker that there is not."""
        if isinstance(worker, WorkerInfo):
            worker = worker.id
        rank = self.ranks.get(worker) if isinstance(worker, str) else worker
        if rank is None or rank not in self.workers:
            names = ", ".join(info.name for info in itertools.islice(self.workers.values(), 8))
            raise UsageError(f"there is no worker {worker!r}: there are {len(self.workers)}, {names}")
        return rank

    # Sending.

    def transmit(
        self, connection: Connection, kind: int, number: int, body: bytes, tensors: Tensors, metadata: bytes, flags: int
    ) -> None:
        """Send a frame. Raises PeerLost, LimitExceeded and NotAllowed; then nothing was sent."""
        options = self.options
        frame = encode(kind, number, body, tensors, metadata, options.limits, flags=flags, arena=connection.arena,
                       shared_from=options.shared_tensor_bytes)  # fmt: skip
        connection.send(frame)

    def _send(
        self, number: int, entry: Request, kind: int, body: bytes, tensors: Tensors, metadata: bytes, flags: int
    ) -> None:
        if self.closed is not None:
            raise AgentClosed(self.closed)
        connection = self._connections.get(entry.to)
        if connection is None:
            raise UsageError(f"there is no worker {entry.to}: there are {len(self.workers)}")
        if len(self._requests) >= self.options.limits.unanswered:
            raise LimitExceeded(
                f"{len(self._requests)} requests of this worker are not answered: wait for some of them"
            )
        self._requests[number] = entry  # before it is sent: the answer may be there before this returns
        try:
            self.transmit(connection, kind, number, body, tensors, metadata, flags)
        except BaseException as error:
            if self._requests.pop(number, None) is None:
                return  # the loss of the peer has told it already
            if isinstance(error, PeerLost):
                raise PeerLost(self._loss(entry.to, connection)) from None
            raise

    # Receiving: on whatever thread reads the connection.

    def _take(self, connection: Connection, frame: Frame) -> None:
        kind = frame.kind
        if kind <= Kind.FAILED:
            entry = self._requests.pop(frame.number, None)
            if entry is None:
                if kind == Kind.ANSWER:
                    self.on_late(connection.peer, Answer(frame.body, frame.tensors, frame.metadata, frame.flags))
                return
            result = (
                Answer(frame.body, frame.tensors, frame.metadata, frame.flags)
                if kind == Kind.ANSWER
                else remote_errors.decoded(frame.body, self.workers[connection.peer].name)
            )
            guarded(partial(entry.done, result))
        elif kind == Kind.GOODBYE:
            connection.goodbye = True
            with self._changed:
                self._changed.notify_all()
        else:
            incoming = Incoming(self, connection, frame)
            handler = self._handlers.get(kind)
            if handler is None:
                incoming.fail(
                    RpcError(f"worker {self.name!r} takes no requests of kind {kind}: is it of this version?")
                )
                return
            try:
                handler(incoming)
            except Exception as error:
                incoming.fail(error)

    def _over(self, connection: Connection, why: str) -> None:
        """Fail all that was asked of it, once it reads no more."""
        with self._changed:
            self._changed.notify_all()
        if self.closed is not None:
            return  # `close` tells everybody
        peer = connection.peer
        reason = self._loss(peer, connection)
        for number, entry in list(self._requests.items()):
            if entry.to == peer and self._requests.pop(number, None) is not None:
                self.later(partial(entry.done, PeerLost(reason)))
        for call in self._listeners():
            self.later(partial(call, peer, reason))

    def loss(self, peer: int) -> str | None:
        """Why a worker is lost; None if it is not."""
        connection = self._connections[peer]
        return self._loss(peer, connection) if connection.lost is not None else None

    def _listeners(self) -> list[Callable[[int, str], None]]:
        return [*self._on_lost, *([self.interceptor.peer_lost] if self.interceptor is not None else [])]

    def _loss(self, peer: int, connection: Connection) -> str:
        if self.closed is not None:
            return self.closed
        name = self.workers[peer].name
        if connection.goodbye:
            return f"worker {name!r} has shut down: have all workers call shutdown() when all work is done"
        return f"worker {name!r} is lost: {connection.lost}; see what it wrote last, and start the job again"

    # Deadlines.

    def _is_over(self, number: int) -> bool:
        return number not in self._requests

    def _due(self, number: int) -> None:
        entry = self._requests.get(number)
        if entry is not None and entry.found is None:
            self._late(number)
            self._deadlines.add(number, entry.deadline)
        else:
            self._expired(number)

    def _late(self, number: int) -> None:
        """Shortly before its deadline, the worker inquires after a call."""
        entry = self._requests.get(number)
        if entry is not None:
            inquire = self.inquire if entry.what else None
            entry.found = str if inquire is None else inquire(number, entry, entry.deadline - monotonic())

    def _expired(self, number: int) -> None:
        entry = self._requests.pop(number, None)
        if entry is not None:
            what, name = entry.what or "a request", self.workers[entry.to].name
            found = (entry.found() if entry.found is not None else "") or "see what it does there"
            late = f"{what} on worker {name!r} was not answered within {entry.seconds:g} s"
            guarded(partial(entry.done, RpcTimeout(f"{late}: {found}, or give it a longer timeout")))

    def caused_by(self, calls: Collection[Key | None]) -> list[tuple[int, Request]]:
        """The requests that functions of these calls have made and that are not answered, with their numbers."""
        # Inquiries are made on the thread of a function too, and have no name of a function.
        return [(n, r) for n, r in list(self._requests.items()) if r.what and r.cause is not None and r.cause in calls]

    # The end.

    @property
    def busy(self) -> tuple[int, int]:
        """Requests that are not answered, and works that are not over."""
        return len(self._requests), self.pool.open

    @property
    def traffic(self) -> tuple[int, int]:
        """Frames sent and received on all connections since the beginning."""
        return sum(c.frames_sent for c in self._all), sum(c.frames_received for c in self._all)

    def farewell(self, seconds: float, last: Callable[[], object] | None = None) -> None:
        """Say good-bye to all, and wait until all have, or are lost.

        With `last` only when all others have, and after calling it: nobody leaves before it is done.
        """
        deadline = monotonic() + seconds
        if last is not None:
            others = [connection for connection in self._all if connection.peer != self.me]
            self._wait_for(lambda: all(c.lost or c.goodbye for c in others), deadline)
            last()
        for connection in self._all:
            with suppress(RpcError):
                self.transmit(connection, Kind.GOODBYE, 0, b"", (), b"", 0)
        self._wait_for(lambda: all(c.lost or (c.goodbye and not c.unsent) for c in self._all), deadline)

    def _wait_for(self, look: Callable[[], bool], deadline: float) -> None:
        with self._changed:
            while not look() and (left := deadline - monotonic()) > 0:
                self._changed.wait(min(left, LOOK_SECONDS))  # nobody tells when the last byte is sent

    def close(self, why: str) -> None:
        """End at once: what is not answered fails with AgentClosed."""
        if self.closed is None:
            self.closed = why
        for connection in self._all:
            connection.close(why)
        for number in list(self._requests):
            if (entry := self._requests.pop(number, None)) is not None:
                guarded(partial(entry.done, AgentClosed(why)))
        self._deadlines.close()
        self.pool.close()
        self.release()

    def release(self) -> None:
        """Give the descriptors back; in a fork, nothing else may be done with them."""
        for connection in self._all:
            connection.release()


def _forgotten(peer: int, answer: Answer) -> None:
    """What an answer is that comes too late."""

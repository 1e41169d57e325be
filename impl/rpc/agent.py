"""One worker's end of RPC: requests and their answers, deadlines, lost peers.

Theory of operation. An agent has one connection to each worker (connection.py), and a pool of threads that read them
(pool.py). A *request* is a frame with a number; its *answer* repeats the number. One `rpc_sync`, from call to result:

    caller's thread    invocations.sync -> ask: a number, an entry in `_requests`, the frame is sent
                       lead: this thread reads the connection to that worker, if no other does
    callee's pool      _take: the frame is a request; the handler of its kind gets an `Incoming` (invocations._called)
                       later: after the reading a thread of the pool, usually the same one, runs the function
                       and answers
    caller's thread    _take: the frame is an answer; its entry is removed from `_requests`, and `done` sets the
                       caller's event
                       ask returns the Answer, or raises the error

A request is open while its entry is in `_requests`. Four events can remove the entry, on different threads. Exactly one
`pop` succeeds, and its event ends the request with `done`:

- the answer, on the thread that reads (`_take`);
- the deadline, on the thread of `DeadlineTimer` or on the caller's own (`_expired`). Shortly before the deadline the
  same thread inquires how far the call is (`_late`, inquiries.py);
- the loss of the peer, on the thread that reads (`_over`);
- `close`, on the thread of `shutdown()`.

Rule: every request ends exactly once. Frames from one worker to another are handled in the order in which they were
sent. Handlers and `done` run on threads that read, so they must not block. They pass work that may block to `later`.

Failures:

- *The peer is lost.* All requests to it fail with PeerLost, now and later.
- *The peer is slow.* The request fails with RpcTimeout. The caller cannot find out whether the call happened.
- *This side is over a limit.* The request raises LimitExceeded, and nothing was sent.
- *The answer comes after its deadline.* `on_late` releases the references in the answer.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import NamedTuple

from torch import Tensor

from trystate.model.errors import UsageError

from . import remote_errors
from .arena import IDLE_SECONDS, Arena
from .connection import Connection
from .deadline_timer import DeadlineTimer
from .directory import checked_name
from .errors import (
    AgentClosed,
    FrameRefused,
    LimitExceeded,
    NotAllowed,
    NoWorker,
    PeerLost,
    RpcError,
    RpcTimeout,
    UnknownWorker,
)
from .events import OneShotEvent
from .frames import Frame, Kind, Tensors, encode
from .inquiries import Key, lead_time
from .modes import outside
from .options import UNSET, Options, call_seconds
from .pool import Pool, Work, guarded
from .requests import Answer, Done, Handler, Incoming, Interceptor, Outcome, Request

FREE_KINDS = range(64, 128)  # kinds of requests that packages above RPC may take: see `Agent.handle`
OUTBOX_POLL_SECONDS = 0.05  # time between two checks whether the last byte has left: no event reports it
DELIVERY_SECONDS = 5.0  # a caller's extra wait after its deadline for a thread that has begun to deliver the answer


class _Worker(NamedTuple):
    name: str
    id: int


class WorkerInfo(_Worker):
    """A worker: its unique name, and its rank as `id`. Raises BadName: no worker can have this name."""

    __slots__ = ()

    def __new__(cls, name: str, id: int) -> WorkerInfo:
        return super().__new__(cls, checked_name(name), id)

    def __str__(self) -> str:
        return f"WorkerInfo(id={self.id}, name={self.name})"


class _Thread(threading.local):
    """The incoming call whose function the thread runs."""

    call: Key | None = None


class Agent:
    """One worker's end of RPC, on connections to all others.

    Args:
        me: the rank of this worker.
        names: the names of all workers, by rank.
        options: this worker's options.
    """

    def __init__(self, me: int, names: Sequence[str], options: Options) -> None:
        self.me, self.name, self.options = me, names[me], options
        self.workers: Mapping[int, WorkerInfo] = {rank: WorkerInfo(name, rank) for rank, name in enumerate(names)}
        self.ranks: Mapping[str, int] = {name: rank for rank, name in enumerate(names)}
        self.timeout = options.timeout
        self.interceptor: Interceptor | None = None
        self.backward: Callable[[int, list[Tensor], bool], None] | None = None  # distributed autograd's
        self.closed: str | None = None
        self.pool = Pool(f"rpc {self.name}", options.limits.threads, options.limits.queued)
        self._connections: dict[int, Connection] = {}
        self._handlers: dict[int, Callable[[Incoming], None]] = {}
        self._numbers = itertools.count(1)
        self._requests: dict[int, Request] = {}
        self._acts: dict[int, Callable[[], object]] = {}  # functions that `after` has to call
        self.thread = _Thread()
        self.inquire: Callable[[int, Request, float], Callable[[], str]] | None = None  # shortly before a deadline
        self._deadlines = DeadlineTimer(f"rpc {self.name} deadlines", self._is_over, self._due)
        self.on_late: Callable[[int, Answer], None] = lambda *_: None  # called with late answers
        self._on_lost: list[Callable[[int, str], None]] = []
        self._changed = threading.Condition()  # notified when a connection ends, or its peer sends GOODBYE

    def connect(self, connections: Mapping[int, Connection], alone: tuple[Connection, Connection]) -> None:
        """Set the connections to the other workers, and both ends of this worker's connection to itself.

        Requests to itself are sent into the first end of `alone`, and answered from the second.
        """
        self._connections = {**connections, self.me: alone[0]}
        self._all = [*connections.values(), *alone]
        for connection in self._all:
            connection.belong(self.pool, self._take, self._over)

    def start(self) -> None:
        """Start to read. All handlers must be set before: a request without one fails."""
        self.pool.start()
        for connection in self._all:
            connection.begin()

    # The interface of the other modules.

    def request(
        self, to: int, kind: int, body: bytes, tensors: Tensors, timeout: float, done: Done, *, metadata: bytes = b"",
        flags: int = 0, what: str = "",
    ) -> None:  # fmt: skip
        """Send a request, and return without waiting for the peer.

        Args:
            to: the rank of the peer.
            kind: `Kind`, or one of FREE_KINDS.
            body, tensors: what is sent; the tensors may be changed when this returns.
            timeout: seconds.
            done: called exactly once, at the latest after `timeout`, with the answer or the error. On any thread, but
                never inside this call. It must not block: see `later`.
            metadata, flags: for the handler.
            what: the name of a function, for errors and inquiries; "" for requests of the protocol.

        Raises:
            UsageError, NotAllowed: nothing was sent, and `done` is not called.
        """
        number = next(self._numbers)
        deadline = monotonic() + timeout
        entry = Request(to, done, what, timeout, deadline, self.thread.call)
        try:
            self._send(number, entry, kind, body, tensors, metadata, flags)
        except (NotAllowed, UsageError):
            raise
        except RpcError as error:
            self.later(partial(done, error))
        else:
            self._deadlines.add(number, deadline - lead_time(timeout))

    def ask(
        self, to: int, kind: int, body: bytes, tensors: Tensors, timeout: float, *, metadata: bytes = b"",
        flags: int = 0, what: str = "",
    ) -> Answer:  # fmt: skip
        """Send a request, like `request`, and wait for its answer on the calling thread.

        Raises:
            RpcTimeout: no answer within `timeout` seconds; whether the request was handled is not known.
            PeerLost: the callee, or the connection to it, was lost.
            RemoteError: the callee raised an exception.
            RpcError: nothing was sent: a limit, or the agent is closed.
        """
        deadline = monotonic() + timeout
        number, outcome = next(self._numbers), Outcome()
        entry = Request(to, outcome.done, what, timeout, deadline, self.thread.call)
        self._send(number, entry, kind, body, tensors, metadata, flags)
        try:
            # Wait until shortly before the deadline, and inquire how far the call is. Wait until the deadline. Then
            # wait for a result that another thread has begun to deliver.
            for until, then in ((deadline - lead_time(timeout), self._late), (deadline, self._expired)):
                self._connections[to].lead(outcome, until)
                if outcome.is_set or outcome.wait(until - monotonic()):
                    break
                then(number)
            else:
                outcome.wait(DELIVERY_SECONDS)
        finally:
            self._requests.pop(number, None)  # a signal has interrupted the wait, and the entry still exists
        if isinstance(outcome.result, BaseException):
            raise outcome.result
        return outcome.result

    def handle(self, kind: int, handler: Handler) -> None:
        """Call `handler(incoming)` for each request of a kind of FREE_KINDS, in the order of its peer's frames.

        The handler must not block (see `later`). It may keep `incoming`, and answer it later.

        Raises:
            UsageError: the kind is not one of FREE_KINDS.
        """
        if kind not in FREE_KINDS:
            raise UsageError(f"kind {kind} is not free: take one from {FREE_KINDS.start} to {FREE_KINDS.stop - 1}")
        self.serve(kind, handler)

    def serve(self, kind: int, handler: Handler) -> None:
        """Like `handle`, but for RPC's own kinds."""
        self._handlers[kind] = handler

    def later(self, work: Work, refuse: Work | None = None, patient: bool = False) -> None:
        """Run `work` on a thread of the agent, where it may block. May be called in `__del__`.

        From a handler or from `done`, the same thread usually runs it when that has returned: no other is woken.
        `refuse` is called instead when `Limits.threads` threads are busy, and `Limits.queued` works wait for one if it
        is `patient`; work without `refuse` must not block.
        """
        self.pool.later(work, refuse, patient)

    def after(self, seconds: float, act: Callable[[], object]) -> Callable[[], object]:
        """Call `act` after `seconds` on the thread of deadlines; it must not block. A call of the result cancels it."""
        number = next(self._numbers)
        self._acts[number] = act
        self._deadlines.add(number, monotonic() + seconds)
        return partial(self._acts.pop, number, None)

    def wait(self, flag: OneShotEvent, seconds: float, peer: int | None = None) -> bool:
        """Wait for an event for at most `seconds`. True: it has happened.

        With `peer`, the rank of the worker whose frame will set the event, this thread reads that connection itself
        meanwhile (`Connection.lead`), and no other thread has to be woken.
        """
        deadline = monotonic() + seconds
        connection = self._connections.get(peer) if peer is not None else None
        if connection is not None:
            connection.lead(flag, deadline)
        return flag.wait(deadline - monotonic())

    def on_peer_lost(self, call: Callable[[int, str], None]) -> None:
        """Call `call(peer, reason)` when a peer is lost; it must not block."""
        self._on_lost.append(call)

    def seconds(self, timeout: float | None) -> float:
        """The seconds of a timeout; None and UNSET mean the default, 0 the longest. Raises UsageError."""
        return self.timeout if timeout is None or timeout == UNSET else call_seconds(timeout, "timeout")

    def rank_of(self, worker: str | int | WorkerInfo) -> int:
        """The rank of a worker, by its name, rank or WorkerInfo. Raises UnknownWorker and NoWorker."""
        if isinstance(worker, WorkerInfo):
            worker = worker.id
        if not isinstance(worker, str | int):
            raise NoWorker(f"{worker!r} does not name a worker: give a name, a rank, or a WorkerInfo")
        rank = self.ranks.get(worker) if isinstance(worker, str) else worker
        if rank is None or rank not in self.workers:
            names = ", ".join(info.name for info in itertools.islice(self.workers.values(), 8))
            raise UnknownWorker(
                f"could not find destination {worker!r}: there are {len(self.workers)} workers, {names}"
            )
        return rank

    def get_worker_infos(self) -> list[WorkerInfo]:
        """All workers, by rank."""
        return list(self.workers.values())

    def get_debug_info(self) -> dict[str, int]:
        """How many requests have no answer yet, and how many works run or wait here."""
        requests, works = self.busy
        return {"agent.num_open_requests": requests, "agent.num_running": works}

    # Sending.

    def transmit(
        self, connection: Connection, kind: int, number: int, body: bytes, tensors: Tensors, metadata: bytes, flags: int
    ) -> None:
        """Send a frame. Raises PeerLost, LimitExceeded and NotAllowed; then nothing was sent."""
        options, arena = self.options, connection.arena
        frame = outside(encode, kind, number, body, tensors, metadata, options.limits, flags=flags, arena=arena,
                        shared_from=options.shared_tensor_bytes)  # fmt: skip
        connection.send(frame, kind <= Kind.FAILED)
        if arena is not None and arena.has_more and not arena.is_looked_at:
            self._look_at(arena)

    def _look_at(self, arena: Arena) -> None:
        """Have the arena give memory back when it was not used for a while."""
        arena.is_looked_at = True

        def give_back() -> None:
            arena.is_looked_at = False
            arena.give_back()
            if arena.has_more and self.closed is None:
                self._look_at(arena)

        self.after(IDLE_SECONDS, partial(self.later, give_back))

    def _send(
        self, number: int, entry: Request, kind: int, body: bytes, tensors: Tensors, metadata: bytes, flags: int
    ) -> None:
        if self.closed is not None:
            raise AgentClosed(self.closed)
        connection = self._connections.get(entry.to)
        if connection is None:
            raise UnknownWorker(f"could not find destination {entry.to}: there are {len(self.workers)} workers")
        if len(self._requests) >= self.options.limits.unanswered:
            raise LimitExceeded(
                f"{len(self._requests)} requests of this worker have no answer: wait for some answers, or raise the "
                "limit `unanswered`"
            )
        self._requests[number] = entry  # before the frame leaves: the answer may be read before `transmit` returns
        try:
            self.transmit(connection, kind, number, body, tensors, metadata, flags)
        except BaseException as error:
            if self._requests.pop(number, None) is None and isinstance(error, RpcError):
                return  # `_over` was faster and has called `done` with PeerLost; an interrupt is raised nevertheless
            if isinstance(error, PeerLost):
                raise PeerLost(self._loss(entry.to, connection)) from None
            raise

    # Receiving: on the thread that reads the connection.

    def _take(self, connection: Connection, frame: Frame) -> None:
        kind = frame.kind
        if kind <= Kind.FAILED:
            entry = self._requests.get(frame.number)
            # Numbers are easy to guess. A worker that answers a request to another one must not end that request.
            if entry is not None and entry.to != connection.peer:
                raise FrameRefused(f"it answers request {frame.number}, which was not sent to it")
            entry = self._requests.pop(frame.number, None)
            if kind == Kind.ANSWER:
                answer = Answer(frame.body, frame.tensors, frame.metadata, frame.flags)
                if entry is None:
                    self.on_late(connection.peer, answer)
                else:
                    guarded(partial(entry.done, answer))
            elif entry is not None:
                guarded(partial(entry.done, remote_errors.decoded(frame.body, self.workers[connection.peer].name)))
        elif kind == Kind.GOODBYE:
            connection.goodbye = True
            with self._changed:
                self._changed.notify_all()
        else:
            incoming = Incoming(self, connection, frame)
            handler = self._handlers.get(kind)
            if handler is None:
                incoming.fail(
                    RpcError(f"worker {self.name!r} takes no requests of kind {kind}: does it run the same version?")
                )
                return
            try:
                handler(incoming)
            except Exception as error:
                incoming.fail(error)

    def _over(self, connection: Connection, why: str) -> None:
        """A connection has ended: fail all requests to its peer."""
        with self._changed:
            self._changed.notify_all()
        if self.closed is not None:
            return  # `close` fails all requests itself
        peer = connection.peer
        reason = self._loss(peer, connection)
        for number, entry in list(self._requests.items()):
            if entry.to == peer and self._requests.pop(number, None) is not None:
                self.later(partial(entry.done, PeerLost(reason)))
        for call in (*self._on_lost, *([self.interceptor.peer_lost] if self.interceptor is not None else ())):
            self.later(partial(call, peer, reason))

    def loss(self, peer: int) -> str | None:
        """Why a worker is lost; None if it is not."""
        connection = self._connections[peer]
        return self._loss(peer, connection) if connection.lost is not None else None

    def _loss(self, peer: int, connection: Connection) -> str:
        if self.closed is not None:
            return self.closed
        name = self.workers[peer].name
        if connection.goodbye:
            return f"worker {name!r} has shut down: have all workers call shutdown() when all work is done"
        return f"worker {name!r} is lost: {connection.lost}; see what it wrote last, and start the job again"

    # Deadlines.

    def _is_over(self, number: int) -> bool:
        return number not in self._requests and number not in self._acts

    def _due(self, number: int) -> None:
        if (act := self._acts.pop(number, None)) is not None:
            act()
            return
        # A request comes here twice: shortly before its deadline for the inquiry, and at its deadline.
        entry = self._requests.get(number)
        if entry is not None and entry.found is None:
            self._late(number)
            self._deadlines.add(number, entry.deadline)
        else:
            self._expired(number)

    def _late(self, number: int) -> None:
        """Inquire shortly before the deadline of a call how far the call is, for the text of the error."""
        entry = self._requests.get(number)
        if entry is not None:
            inquire = self.inquire if entry.what else None
            entry.found = (lambda: "") if inquire is None else inquire(number, entry, entry.deadline - monotonic())

    def _expired(self, number: int) -> None:
        entry = self._requests.pop(number, None)
        if entry is not None:
            what, name = entry.what or "a request", self.workers[entry.to].name
            found = (entry.found() if entry.found is not None else "") or "see what it does there"
            late = f"{what} on worker {name!r} was not answered within {entry.seconds:g} s"
            guarded(partial(entry.done, RpcTimeout(f"{late}: {found}, or give it a longer timeout")))

    def caused_by(self, calls: Collection[Key | None]) -> list[tuple[int, Request]]:
        """The open requests that the functions of these incoming calls have made, with their numbers."""
        # An inquiry may also be made on the thread of a function. It has no `what`, and is left out.
        return [(n, r) for n, r in list(self._requests.items()) if r.what and r.cause is not None and r.cause in calls]

    # The end.

    @property
    def busy(self) -> tuple[int, int]:
        """The numbers of open requests and of works that are queued or run."""
        return len(self._requests), self.pool.open

    @property
    def traffic(self) -> tuple[int, int]:
        """Frames sent and received on all connections since the beginning."""
        return sum(c.frames_sent for c in self._all), sum(c.frames_received for c in self._all)

    def farewell(self, seconds: float, last: Callable[[], object] | None = None) -> None:
        """Send GOODBYE to all workers, and wait at most `seconds` until each has sent its own or is lost.

        With `last`, this worker leaves last: it waits for the others, calls `last` and then sends its GOODBYE. So no
        other worker leaves before `last` has returned.
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
                self._changed.wait(min(left, OUTBOX_POLL_SECONDS))

    def close(self, why: str) -> None:
        """End at once: open requests fail with AgentClosed."""
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
        """Close the descriptors; in a forked child, nothing else may be done with them."""
        for connection in self._all:
            connection.release()

"""Distributed reference counts: the values that this worker owns for others, and its handles of values elsewhere.

Source: torch's Remote Reference Protocol (docs/source/rpc/rref.rst, rref_context.cpp). The words are torch's.

Theory of operation. Each handle on another worker is a *fork*. The owner of the value registers the id of the fork. The
owner keeps a value while the value has forks, or while the owner itself holds it. A worker that passes a handle on
keeps its own handle until the owner has registered the new fork: the receiver sends FORKED to the owner, and the owner
sends ACCEPTED to the worker that passed the handle on. So the count does not fall to 0 in between. Frames from one
worker to another arrive in order, so the end of a fork (DELETED) never overtakes the beginning of the fork or a call
that uses it.

Failures:

- *A reference reaches its owner before the call that makes its value*, because another worker has sent it. The owner
  keeps a place for the value in `_awaited`, for a limited time. Calls of one worker that make values here come in the
  order of their references' ids (`making`). So no place is kept if a call of the same worker with a larger id has come
  already: the value does not exist any more (RRefGone).
- *A notice exceeds a limit.* It is sent again.
- *A worker is lost.* Its forks end.
"""

from __future__ import annotations

import enum
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from struct import Struct
from typing import Any, NamedTuple

from torch.futures import Future

from . import remote_errors
from .agent import Agent
from .errors import FrameRefused, LimitExceeded, RpcError, RRefGone
from .frames import Kind
from .requests import Answer, Incoming

Id = tuple[int, int]  # the worker that made the id, and its counter
FORK = Struct("<IQIQI")  # a reference's id, the fork's id, the owner
NOTICE = Struct("<BIQIQ")  # the notice, a reference's id, the fork's id
AGAIN_SECONDS = 1.0  # the time until a notice that a limit has stopped is sent again


class Happened(enum.IntEnum):
    """The notices about a fork."""

    FORKED = 1  # to the owner: this worker has the fork
    ACCEPTED = 2  # to the worker that passed the handle on: the owner has registered the fork
    DELETED = 3  # to the owner: the fork has ended


Notice = tuple[int, Happened, Id, Id, Any]  # the receiver, the notice, the reference, the fork, and a `done` or None


class Fork(NamedTuple):
    """One handle, as it is sent."""

    reference: Id
    fork: Id
    owner: int

    def packed(self) -> bytes:
        return FORK.pack(*self.reference, *self.fork, self.owner)

    @classmethod
    def unpacked(cls, data: bytes, at: int) -> Fork:
        a, b, c, d, owner = FORK.unpack_from(data, at)
        return cls((a, b), (c, d), owner)


class Owned:
    """A value of this worker that others may hold."""

    __slots__ = ("__weakref__", "_failure", "_value", "_worker", "forks", "made", "maker", "reference")

    def __init__(self, reference: Id, worker: str) -> None:
        self.reference, self._worker = reference, worker
        self.made: Future[None] = Future()  # set when the value is made, or has failed
        self._value: Any = None
        self._failure: bytes | None = None
        self.forks: dict[Id, int] = {}  # the worker that holds each fork
        self.maker: tuple[int, int] | None = None  # the call whose function makes the value: its worker and number

    def set(self, value: Any) -> None:
        self._value = value
        self.made.set_result(None)

    def fail(self, error: BaseException) -> None:
        self._failure = remote_errors.encoded(error, self._worker)  # bytes do not keep the frames of the error
        self.made.set_result(None)

    def get(self) -> Any:
        """The value. Raises the error if it could not be made."""
        if self._failure is not None:
            raise remote_errors.decoded(self._failure, self._worker)
        return self._value


class Held:
    """A handle of another worker's value; its end is the end of the fork."""

    def __init__(self, references: References, fork: Fork) -> None:
        self.reference, self.fork, self.owner = fork
        self.confirmed = False
        self.failed: BaseException | None = None  # why the value was not made, if this worker has that error
        self._references = references
        self._taking_in: Future[Any] | None = None

    def taking_in(self) -> Future[Any]:
        """A future that is set when the owner has taken in the call that makes the value, or fails with its error."""
        with self._references.lock:
            if self._taking_in is None:
                self._taking_in = Future()
                if self.confirmed or self.failed is not None:
                    self._set(self._taking_in)
            return self._taking_in

    def end_taking_in(self) -> None:
        """Set the future of `taking_in`, after `confirmed` or `failed` was set."""
        with self._references.lock:
            future = self._taking_in
        if future is not None and not future.done():
            self._set(future)

    def _set(self, future: Future[Any]) -> None:
        if self.failed is None:
            future.set_result(None)
        elif isinstance(self.failed, Exception):
            future.set_exception(remote_errors.fresh(self.failed))
        else:
            future.set_exception(RpcError(f"the call that makes the value was interrupted: {self.failed!r}"))

    def __del__(self) -> None:
        self._references.dropped(self.owner, self.reference, self.fork)


class References:
    """The tables of one worker."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._numbers = itertools.count()
        self.lock = threading.RLock()  # reentrant for handlers of signals
        self._shared: dict[Id, Owned] = {}  # values that other workers hold references to
        self._known: weakref.WeakValueDictionary[Id, Owned] = weakref.WeakValueDictionary()
        # Places for values that others refer to before they are made, each with a function that ends its wait.
        self._awaited: dict[Id, tuple[Owned, Callable[[], object]]] = {}
        self._latest: dict[int, int] = {}  # the counter of the last value that each worker has made here
        self._making = {worker: threading.RLock() for worker in agent.workers}
        self._passed: dict[Id, tuple[Held, int]] = {}  # forks that the owner has not registered, and their receivers
        self._handles: weakref.WeakSet[Held] = weakref.WeakSet()
        self._untold: list[Notice] = []  # notices that a limit has stopped
        agent.serve(Kind.RREF, self._happened)
        agent.on_peer_lost(self._peer_lost)

    def counts(self) -> dict[str, int]:
        """The numbers of values that others hold here, of this worker's handles, and of forks that are passed on."""
        return {"owned": len(self._shared), "held": len(self._handles), "passed": len(self._passed)}

    def forks(self) -> int:
        """The number of handles that others have of this worker's values."""
        with self.lock:
            return sum(len(owned.forks) for owned in self._shared.values())

    def new_id(self) -> Id:
        return self.agent.me, next(self._numbers)

    def own(self) -> Owned:
        """A new value of this worker. Raises LimitExceeded."""
        owned = Owned(self.new_id(), self.agent.name)
        with self.lock:
            self._known[owned.reference] = owned
        return owned

    def owned(self, reference: Id) -> Owned:
        """The value, or the place for a value that is not made yet.

        Raises RRefGone if this worker does not have the value any more, and LimitExceeded.
        """
        found = self._known.get(reference)
        if found is not None:
            return found
        maker, number = reference
        if maker == self.agent.me or maker not in self.agent.workers or self.agent.loss(maker) is not None:
            raise self._gone(reference)
        with self.lock:
            if (found := self._known.get(reference)) is not None:
                return found
            if number <= self._latest.get(maker, -1):  # the call that makes it has come and gone
                raise self._gone(reference)
            if len(self._awaited) >= self.agent.options.limits.rrefs:
                raise LimitExceeded(
                    f"{len(self._awaited)} values to which others refer were never made here: raise the limit `rrefs`"
                )
            owned = self._known[reference] = Owned(reference, self.agent.name)
            wait = self.agent.after(self.agent.timeout, partial(self._in_vain, reference))
            self._awaited[reference] = owned, wait
        return owned

    def _in_vain(self, reference: Id) -> None:
        """End the wait for a value that no call will make."""
        with self.lock:
            owned, end_of_wait = self._awaited.pop(reference, (None, lambda: None))
        end_of_wait()
        if owned is not None:
            owned.fail(self._gone(reference))

    def _gone(self, reference: Id) -> RRefGone:
        return RRefGone(f"worker {self.agent.name!r} does not have the value of RRef {reference} any more: keep an "
                        "RRef to it as long as it is used")  # fmt: skip

    def created(self, fork: Fork, peer: int) -> Owned:
        """The place for the value that `peer` lets this worker make, and holds. Raises LimitExceeded."""
        maker, number = fork.reference
        with self.lock:
            # Checked under the lock: `owned` may run on the thread that reads another worker's notice of this
            # reference, and enters it in `_known` before `_awaited`.
            if maker != peer or (fork.reference in self._known and fork.reference not in self._awaited):
                raise FrameRefused(
                    f"worker {peer} makes RRef {fork.reference}, which exists or belongs to another worker"
                )
            self._latest[peer] = max(number, self._latest.get(peer, -1))
            awaited, end_of_wait = self._awaited.pop(fork.reference, (None, lambda: None))
            owned = self._known[fork.reference] = awaited or Owned(fork.reference, self.agent.name)
        end_of_wait()
        self._share(owned, fork.fork, peer)
        return owned

    @contextmanager
    def making(self, to: int) -> Iterator[Fork]:
        """A new reference and its fork, for a call that makes a value on worker `to` and is sent inside the block.

        So calls are sent in the order of their references' ids.
        """
        with self._making[to]:
            yield Fork(self.new_id(), self.new_id(), to)

    def hold(self, fork: Fork) -> Held:
        held = Held(self, fork)
        self._handles.add(held)
        return held

    # Passing on.

    def fork(self, ref: Owned | Held, to: int) -> Fork:
        """A handle for worker `to`. Raises LimitExceeded."""
        fork = self.new_id()
        if isinstance(ref, Owned):
            self._share(ref, fork, to)
            return Fork(ref.reference, fork, self.agent.me)
        with self.lock:
            if self.agent.loss(to) is None:
                self._passed[fork] = ref, to
        return Fork(ref.reference, fork, ref.owner)

    def withdraw(self, forks: Sequence[Fork]) -> None:
        """End forks that were not sent."""
        for fork in forks:
            with self.lock:
                self._passed.pop(fork.fork, None)
            self._unshare(fork.reference, fork.fork)

    def join(self, fork: Fork, peer: int) -> Owned | Held:
        """Take a fork that `peer` has passed on. Raises RRefGone."""
        me = self.agent.me
        if fork.owner == me:
            if peer != me or fork.fork in self._passed:  # even without the value, else `peer` would keep its handle
                self._tell(peer, Happened.ACCEPTED, fork.reference, fork.fork)
            owned = self.owned(fork.reference)
            self._unshare(fork.reference, fork.fork, me)  # the owner needs no fork
            return owned
        held = self.hold(fork)
        held.confirmed = peer == fork.owner
        if not held.confirmed:
            self._tell(fork.owner, Happened.FORKED, fork.reference, fork.fork, partial(self._known_there, held, peer))
        return held

    def _known_there(self, held: Held, parent: int, result: Answer | BaseException) -> None:
        if isinstance(result, LimitExceeded):
            again = partial(self._known_there, held, parent)
            return self._told((held.owner, Happened.FORKED, held.reference, held.fork, again), result)
        if isinstance(result, BaseException):
            held.failed = result
        else:
            held.confirmed = True
        held.end_taking_in()
        self._tell(parent, Happened.ACCEPTED, held.reference, held.fork)

    def dropped(self, owner: int, reference: Id, fork: Id) -> None:
        """Notify the owner of a handle's end. The garbage collector calls it on any thread, at any place."""
        if self.agent.closed is None:
            self.agent.later(partial(self._tell, owner, Happened.DELETED, reference, fork))

    # The notices between workers.

    def _tell(self, to: int, what: Happened, reference: Id, fork: Id, done: Any = None) -> None:
        body = NOTICE.pack(what, *reference, *fork)
        done = done or partial(self._told, (to, what, reference, fork, None))
        self.agent.request(to, Kind.RREF, body, (), self.agent.timeout, done, what="a notice of an RRef")

    def _told(self, notice: Notice, result: Answer | BaseException) -> None:
        """Send a notice over a limit again. After another error the worker is lost, with its references and values."""
        if not isinstance(result, LimitExceeded):
            return
        with self.lock:
            self._untold.append(notice)
            if len(self._untold) > 1:
                return  # the timer of the first one runs
        self.agent.after(AGAIN_SECONDS, self._tell_again)

    def _tell_again(self) -> None:
        with self.lock:
            notices, self._untold = self._untold, []
        if self.agent.closed is None:
            for notice in notices:
                self._tell(*notice)

    def _happened(self, incoming: Incoming) -> None:
        what, a, b, c, d = NOTICE.unpack(incoming.body)
        reference, fork, peer = (a, b), (c, d), incoming.peer
        if what == Happened.FORKED:
            owned = self.owned(reference)
            if owned.forks.get(fork, peer) != peer:
                raise FrameRefused(f"worker {peer} takes fork {fork}, which belongs to another worker")
            self._share(owned, fork, peer)
        elif what == Happened.ACCEPTED:
            with self.lock:
                if self._passed.get(fork, (None, peer))[1] == peer:
                    self._passed.pop(fork, None)
        else:
            self._unshare(reference, fork, peer)
        incoming.answer(b"")

    def _share(self, owned: Owned, fork: Id, holder: int) -> None:
        limit = self.agent.options.limits.rrefs
        with self.lock:
            if self.agent.loss(holder) is not None:  # `_peer_lost` has ended its forks, or will
                return
            if len(self._shared) >= limit and owned.reference not in self._shared:
                raise LimitExceeded(
                    f"worker {self.agent.name!r} owns {limit} values that others hold: drop some RRefs, or raise "
                    "the limit `rrefs`"
                )
            owned.forks[fork] = holder
            self._shared[owned.reference] = owned

    def _unshare(self, reference: Id, fork: Id, by: int | None = None) -> None:
        """End a fork. `by` is the worker that reports its end; it cannot end a fork of another worker."""
        with self.lock:
            owned = self._shared.get(reference)
            if owned is not None and by in (None, owned.forks.get(fork)):
                owned.forks.pop(fork, None)
                if not owned.forks:
                    del self._shared[reference]
        # The value may die here, outside of the lock: its destructor may do anything.

    def _peer_lost(self, peer: int, reason: str) -> None:
        with self.lock:
            gone = [(owned.reference, fork) for owned in self._shared.values()
                    for fork, holder in owned.forks.items() if holder == peer]  # fmt: skip
            awaited = [reference for reference in self._awaited if reference[0] == peer]
            passed = [self._passed.pop(fork) for fork, (_, to) in list(self._passed.items()) if to == peer]
        for reference, fork in gone:
            self._unshare(reference, fork, peer)
        passed.clear()
        for reference in awaited:
            self._in_vain(reference)

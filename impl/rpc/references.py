"""Distributed reference counts: the values that this worker owns for others, and its handles of values elsewhere.

Source: torch's Remote Reference Protocol (docs/source/rpc/rref.rst, rref_context.cpp), whose words are used.

Theory of operation. Each handle on another worker is a *fork*, which the owner knows by its id. The owner keeps a value
while it has forks, or while the owner itself holds it. A worker that passes a handle on keeps its own until the owner
knows the new fork (FORKED to the owner, then ACCEPTED to the worker that passed it on): so the count never falls to 0
in between. Frames of two workers arrive in order: the end of a fork (DELETED) never overtakes its beginning, nor a call
that uses it.

Failures: frames of three workers have no order. A reference may reach its owner by another worker before the
call that makes its value: `_awaited` keeps a place for it, for a limited time. Calls of one worker that make values
here come in the order of their references' ids (`making`), so that a reference is waited for only while no call with a
larger id has come. A notice may meet a limit, and is sent again. A worker may be lost: its forks end.
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
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.futures import Future

from . import remote_errors
from .errors import FrameRefused, LimitExceeded, RpcError, RRefGone
from .frames import Kind

if TYPE_CHECKING:
    from .agent import Agent
    from .requests import Answer, Incoming

Id = tuple[int, int]  # the worker that made it, and its counter
FORK = Struct("<IQIQI")  # a reference's id, the fork's id, the owner
NOTICE = Struct("<BIQIQ")  # the notice, a reference's id, the fork's id
AGAIN_SECONDS = 1.0  # until a notice that a limit has stopped is sent again


class Happened(enum.IntEnum):
    """The notices about a fork."""

    FORKED = 1  # to the owner: this worker has the fork
    ACCEPTED = 2  # to the worker that passed the handle on: the owner knows the fork
    DELETED = 3  # to the owner: the fork has ended


Notice = tuple[int, Happened, Id, Id]  # to whom, and of which reference and fork


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
        self.made: Future[None] = Future()  # set when there is a value, or an error instead
        self._value: Any = None
        self._failure: bytes | None = None
        self.forks: dict[Id, int] = {}  # forks, and the worker that holds each
        self.maker: tuple[int, int] | None = None  # the call whose function makes the value: its worker, its number

    def set(self, value: Any) -> None:
        self._value = value
        self.made.set_result(None)

    def fail(self, error: BaseException) -> None:
        self._failure = remote_errors.encoded(error, self._worker)  # without the frames that it was raised in
        self.made.set_result(None)

    def get(self) -> Any:
        """The value that was made. Raises the error that there was instead."""
        if self._failure is not None:
            raise remote_errors.decoded(self._failure, self._worker)
        return self._value


class Held:
    """A handle of another worker's value; its end is the end of the fork."""

    def __init__(self, references: References, fork: Fork) -> None:
        self.reference, self.fork, self.owner = fork
        self.confirmed = False
        self.failed: BaseException | None = None  # why the value was never made, as far as is known here
        self._references = references
        self._taking_in: Future[Any] | None = None

    def taking_in(self) -> Future[Any]:
        """Set when the owner has taken in the call that makes the value, or with the error that there was instead."""
        with self._references.lock:
            if self._taking_in is None:
                self._taking_in = Future()
                if self.confirmed or self.failed is not None:
                    self._set(self._taking_in)
            return self._taking_in

    def end_taking_in(self) -> None:
        """`confirmed` or `failed` has just been set."""
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


def _nothing() -> None:
    """No wait has to end."""


class References:
    """The tables of one worker."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._numbers = itertools.count()
        self.lock = threading.RLock()  # reentrant for handlers of signals
        self._shared: dict[Id, Owned] = {}  # values that other workers hold references to
        self._known: weakref.WeakValueDictionary[Id, Owned] = weakref.WeakValueDictionary()
        # Places of values that others speak of, and nothing has made yet; with what ends the wait for each.
        self._awaited: dict[Id, tuple[Owned, Callable[[], object]]] = {}
        self._latest: dict[int, int] = {}  # by worker, the last that it has had made here
        self._making = {worker: threading.RLock() for worker in agent.workers}
        self._passed: dict[Id, tuple[Held, int]] = {}  # forks that the owner does not know yet, and to whom they went
        self._handles: weakref.WeakSet[Held] = weakref.WeakSet()
        self._untold: list[Notice] = []  # too many requests were not answered, or too much was not sent
        agent.serve(Kind.RREF, self._happened)
        agent.on_peer_lost(self._peer_lost)

    def counts(self) -> dict[str, int]:
        """How many values others hold here, handles this worker has, and forks are being passed on."""
        return {"owned": len(self._shared), "held": len(self._handles), "passed": len(self._passed)}

    def forks(self) -> int:
        """How many handles others have of this worker's values."""
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
        """The value, or the place for it if it is still to be made.

        Raises RRefGone if this worker has it no more, LimitExceeded.
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
            if number <= self._latest.get(maker, -1):  # the call that makes it has come, and none comes again
                raise self._gone(reference)
            if len(self._awaited) >= self.agent.options.limits.rrefs:
                raise LimitExceeded(f"{len(self._awaited)} values that others speak of were never made here")
            owned = self._known[reference] = Owned(reference, self.agent.name)
            wait = self.agent.after(self.agent.timeout, partial(self._in_vain, reference))
            self._awaited[reference] = owned, wait
        return owned

    def _in_vain(self, reference: Id) -> None:
        """Nothing will make it."""
        with self.lock:
            owned, end_of_wait = self._awaited.pop(reference, (None, _nothing))
        end_of_wait()
        if owned is not None:
            owned.fail(self._gone(reference))

    def _gone(self, reference: Id) -> RRefGone:
        return RRefGone(f"worker {self.agent.name!r} does not have the value of RRef {reference} any more: keep an "
                        "RRef to it as long as it is used")  # fmt: skip

    def created(self, fork: Fork, peer: int) -> Owned:
        """The value that `peer` has this worker make, and holds. Raises LimitExceeded."""
        maker, number = fork.reference
        if maker != peer or (fork.reference in self._known and fork.reference not in self._awaited):
            raise FrameRefused(f"worker {peer} makes RRef {fork.reference}, which is not its to make")
        with self.lock:
            self._latest[peer] = max(number, self._latest.get(peer, -1))
            awaited, end_of_wait = self._awaited.pop(fork.reference, (None, _nothing))
            owned = self._known[fork.reference] = awaited or Owned(fork.reference, self.agent.name)
        end_of_wait()
        self._share(owned, fork.fork, peer)
        return owned

    @contextmanager
    def making(self, to: int) -> Iterator[Fork]:
        """A new reference and its fork, for a call that is to make a value on worker `to` and is sent inside.

        Calls are so sent in the order of their references' ids.
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
            self._passed[fork] = ref, to
        return Fork(ref.reference, fork, ref.owner)

    def withdraw(self, forks: Sequence[Fork]) -> None:
        """They were not sent."""
        for fork in forks:
            with self.lock:
                self._passed.pop(fork.fork, None)
            self._unshare(fork.reference, fork.fork)

    def join(self, fork: Fork, peer: int) -> Owned | Held:
        """Take what `peer` has passed. Raises RRefGone."""
        me = self.agent.me
        if fork.owner == me:
            if peer != me or fork.fork in self._passed:  # also if the value is gone: `peer` would keep its handle
                self._tell(peer, Happened.ACCEPTED, fork.reference, fork.fork)
            owned = self.owned(fork.reference)
            self._unshare(fork.reference, fork.fork, me)  # it is at home
            return owned
        held = self.hold(fork)
        held.confirmed = peer == fork.owner
        if not held.confirmed:
            self._tell(fork.owner, Happened.FORKED, fork.reference, fork.fork, partial(self._known_there, held, peer))
        return held

    def _known_there(self, held: Held, parent: int, result: Answer | BaseException) -> None:
        if isinstance(result, BaseException):
            held.failed = result
        else:
            held.confirmed = True
        held.end_taking_in()
        self._tell(parent, Happened.ACCEPTED, held.reference, held.fork)

    def dropped(self, owner: int, reference: Id, fork: Id) -> None:
        """A handle died, on any thread, in the middle of anything."""
        if self.agent.closed is None:
            self.agent.later(partial(self._tell, owner, Happened.DELETED, reference, fork))

    # The notices between workers.

    def _tell(self, to: int, what: Happened, reference: Id, fork: Id, done: Any = None) -> None:
        body = NOTICE.pack(what, *reference, *fork)
        done = done or partial(self._told, (to, what, reference, fork))
        self.agent.request(to, Kind.RREF, body, (), self.agent.timeout, done, what="a notice of an RRef")

    def _told(self, notice: Notice, result: Answer | BaseException) -> None:
        """A notice over a limit is sent again. After any other error the worker is lost, with its references and
        values."""
        if not isinstance(result, LimitExceeded):
            return
        with self.lock:
            self._untold.append(notice)
            if len(self._untold) > 1:
                return  # for the first of them it is under way
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
                raise FrameRefused(f"worker {peer} takes fork {fork}, which another worker has")
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
            if len(self._shared) >= limit and owned.reference not in self._shared:
                raise LimitExceeded(
                    f"worker {self.agent.name!r} owns {limit} values that others hold: let go of some RRefs"
                )
            owned.forks[fork] = holder
            self._shared[owned.reference] = owned

    def _unshare(self, reference: Id, fork: Id, by: int | None = None) -> None:
        """A fork has ended. `by`: the worker that says so, which ends no fork of another."""
        with self.lock:
            owned = self._shared.get(reference)
            if owned is not None and by in (None, owned.forks.get(fork)):
                owned.forks.pop(fork, None)
                if not owned.forks:
                    del self._shared[reference]
        # Outside of the lock the value may die, and do anything.

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

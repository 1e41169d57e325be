"""torch's `RendezvousHandler` on our engine: the rendezvous as torchrun uses it.

Theory of operation. Three kinds of threads of a node are here at the same time:

- the agent's main thread, which calls `next_rendezvous` and, several times a second, `num_nodes_waiting`;
- the heartbeat thread (`driver.KeepAlive`), from the end of `next_rendezvous` until the next one begins;
- a thread that leaves (`_Resources.depart`), when the handler is dropped or the process ends.

`_Resources` holds the engine, the state holder, the heartbeat thread and the endpoint. It has no reference to the
handler, so that a handler without users is collected, and its finalizer lets the node leave. The heartbeat thread owns
the state holder while it runs; an operation that comes meanwhile works on a clone with a connection of its own
(`run_on_clone`).

Rule: `num_nodes_waiting` reads no store and never fails. Every operation on the store has a limit of time from the
options. A node that goes leaves the rendezvous, however it goes.

Failures: the process is killed (the others expel the node after its window); the store does not answer while
the process ends (`leave` returns after DEPART_SECONDS, and the others expel the node); the process forks (the child
does nothing here: it is not the node).
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import functools
import itertools
import logging
import os
import random
import secrets
import socket
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Generator
from dataclasses import replace
from multiprocessing.util import Finalize
from types import TracebackType
from typing import Any, Self, TypeVar

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousParameters
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend

from .. import torch_release
from ..host.addresses import own_host
from ..store.lives import VARIABLE as ROUND_STORE
from . import bootstrap, endpoint, meeting_place
from .backend import Backend
from .command import UNKNOWN, Command
from .driver import STOP_SECONDS, KeepAlive, run
from .engine import Effect, Engine, Joined, Seen, Standing, Sync, closed_error
from .errors import (
    NotNeeded,
    RendezvousClosedError,
    RendezvousDrained,
    RendezvousError,
    RendezvousIdShared,
    RendezvousTimeoutError,
)
from .events import Recorder
from .options import NO_ID, Options
from .state import Node, Participant, State
from .state_holder import StateHolder
from .store_backend import StoreBackend
from .torch_backend import TorchBackend
from .waiting import SEATLESS, Teller, Waits, lasting, served, unfinished

NAME = "trystate"
LEAVE_SECONDS = 3.0  # a node that ends takes itself off the lists within this time, or is expelled by the others
DEPART_SECONDS = LEAVE_SECONDS + STOP_SECONDS  # `leave` returns by then, whatever the store does
LINGER_SECONDS = 0.5  # a node that has closed the rendezvous, and serves it, lets the others read that for so long
HURRY_SECONDS = 0.5  # between two looks at whether somebody is in a hurry
OUTAGE_SECONDS_MAX = 1.0  # short operations tolerate an outage of this length: one more attempt, on a new connection
SIGNALLED = (SignalException, KeyboardInterrupt)
GOOD = (Standing.CURRENT, Standing.NEWCOMERS)

_local_ids = itertools.count()
T = TypeVar("T")
log = logging.getLogger("trystate.rendezvous")


class DynamicRendezvousHandler(RendezvousHandler):
    """One node's part in the rendezvous of the agents of a job.

    Unlike torch's class of this name it has a lease: `num_nodes_waiting` is positive, and the agent stops its
    workers, also when the node cannot know any more whether it is still a member.
    """

    def __init__(self, options: Options, backend: Backend, at: endpoint.Endpoint | None = None) -> None:
        """`backend` becomes the handler's, and so does the endpoint that it is `at`."""
        self._options = options
        local_id = options.local_id if options.local_id is not None else next(_local_ids)
        address = options.local_addr or socket.gethostname()
        node = Node(address, os.getpid(), local_id, secrets.token_hex(8))
        self._recorder = Recorder(options.run_id, node)
        host = own_host(options.local_addr, at.host if at is not None else "")
        me = Participant(node, host, 0, rank_key=options.rank_key)
        engine = Engine(me, options.settings, draw=random.random, life=uuid.uuid4().hex)
        meeting = bootstrap.Meeting(host, options.read_timeout, options.join_timeout)
        holder = StateHolder(backend, told=self._recorder.told)
        local = meeting_place.local(options)
        self._part = part = _Resources(engine, holder, meeting, at, self._recorder.standing, local)
        self._closed = False
        self.for_launcher = False  # torch's `launch_agent` made it: its agent is the only one to use it
        self._outer_error = sys.exc_info()[1]  # that the caller handles already: it is not the agent's
        # At the end of the process before the stores close, which were imported earlier; else with the object.
        dropped = weakref.finalize(self, part.depart, os.getpid())
        dropped.atexit = False
        self._depart = part.at_exit = functools.partial(_depart, dropped, part)
        atexit.register(self._depart)
        part.at_end = Finalize(None, self._depart, exitpriority=0)  # a child of multiprocessing runs no atexit

    @classmethod
    def of(cls, params: RendezvousParameters, command: Command = UNKNOWN) -> Self:
        """The handler for torchrun's options and the node's command, as far as that is known.

        Raises:
            RendezvousSettingsError: an option is wrong, or not the one of the other nodes.
            RendezvousConnectionError: the endpoint cannot be reached.
        """
        options = meeting_place.checked(Options.of(params, command))
        bootstrap.note_of_variable()
        for said in filter(None, (meeting_place.warning(options), meeting_place.ignored(options))):
            log.warning("%s", said)
        if options.run_id == NO_ID and params.endpoint:
            log.warning("no --rdzv-id was given: this node takes part in the job %r, as any other at this endpoint "
                        "that gives none; give each job an id", NO_ID)  # fmt: skip
        at = endpoint.meet(options)
        return cls(options, StoreBackend(at.store, options.run_id, at.owner), at)

    @classmethod
    def from_store(
        cls, run_id: str, store: Any, min_nodes: int, max_nodes: int, local_addr: str | None = None, **config: Any
    ) -> Self:
        """A handler on any torch store, which stays the caller's; `config` is what --rdzv-conf may have."""
        params = RendezvousParameters(NAME, "", run_id, min_nodes, max_nodes, local_addr, **config)
        return cls(Options.of(params), StoreBackend(store, run_id))

    @classmethod
    def from_backend(
        cls, run_id: str, backend: RendezvousBackend, min_nodes: int, max_nodes: int,
        local_addr: str | None = None, **config: Any,
    ) -> Self:  # fmt: skip
        """A handler on a backend that was written for torch's dynamic rendezvous."""
        params = RendezvousParameters(NAME, "", run_id, min_nodes, max_nodes, local_addr, **config)
        return cls(Options.of(params), TorchBackend(backend))

    # ---- what torch's agent calls

    def get_backend(self) -> str:
        """The name of the entry point."""
        return NAME

    def get_run_id(self) -> str:
        """The name of the job."""
        return self._options.run_id

    @property
    def use_agent_store(self) -> bool:
        """The workers use the round's store."""
        return True

    def next_rendezvous(self, failed: bool = False, lapsed: bool = False, final: str = "") -> RendezvousInfo:
        """Join the next complete round, and meet its members.

        `failed`: because the workers did; `final`: why that is not restarted, and ends the job; `lapsed`: because they
        were killed at the end of a lease.

        Raises:
            RendezvousClosedError: the job is over.
            RendezvousTimeoutError: no round was complete within `join_timeout`.
            RendezvousSettingsError: the other nodes have other settings.
            RendezvousConnectionError: the store cannot be reached.
            RendezvousDrained: an operator has drained this node, which has left.
            NotNeeded: the launcher's process has nothing to do any more.
        """
        part, seen = self._part, self._part.seen
        self._recorder.said("joining", seen)
        try:
            if seen is not None and seen.closed is not None:  # for good, also if the store went with its owner
                raise closed_error(seen.closed)
            while True:
                joined = part.join(self._options.join_timeout, failed, lapsed, final)
                failed, lapsed, final = False, False, ""
                info = part.meeting.begin(joined, lambda: self._standing() in GOOD)
                if info is not None:
                    # For the workers of torch's agent, which inherit it; ours gives it to its workers itself.
                    os.environ[ROUND_STORE] = f"{joined.master.host}:{joined.master.port}"
                    self._recorder.said("joined", joined.state, rank=joined.rank, world_size=joined.world_size,
                                        cause=joined.state.cause)  # fmt: skip
                    return info
                self._recorder.said("broken", joined.state, standing=self._standing().name)
        except RendezvousError as error:
            state = part.holder.state
            if isinstance(error, RendezvousClosedError) and state is not None and self._unused(state, error):
                # torch's agent has no result for a node that never ran, and fails for want of one.
                if self.for_launcher and _succeeded(state):
                    raise NotNeeded(0) from None
                raise
            if isinstance(error, RendezvousDrained):
                part.stop()
                part.listed = False  # it has left
                self._recorder.said("drained", state)
                if self.for_launcher:
                    log.warning("%s", error)
                    raise NotNeeded(0) from None
                raise
            self._recorder.failed(error, state)
            if isinstance(error, RendezvousClosedError) and part.waits is not None and part.waits.late:
                raise self._used_up(error) from None
            if isinstance(error, RendezvousTimeoutError):  # it has left, also if it could not meet the others
                for why in part.waits.reasons() if part.waits is not None else ():
                    error.add_note(why)
                part.stop()
                with contextlib.suppress(RendezvousError):
                    part.leave(LEAVE_SECONDS)
            raise

    def num_nodes_waiting(self) -> int:
        """How many nodes wait for a seat that is there, at least 1 if this round is over; no store, never fails."""
        standing, state = self._standing(), self._part.seen
        if standing in (Standing.REPLACED, Standing.EXPELLED, Standing.LAPSED):
            return 1
        return min(len(state.waiting), state.seats) if standing is Standing.NEWCOMERS and state is not None else 0

    def is_closed(self) -> bool:
        """Whether the rendezvous is closed. Raises RendezvousConnectionError."""
        if self._closed or self._standing() is Standing.CLOSED:
            return True
        state = self._part.run_on_clone(_look(), self._options.close_timeout, OUTAGE_SECONDS_MAX)
        return state is not None and state.closed is not None

    def set_closed(self) -> None:
        """Close the rendezvous for everyone. Raises RendezvousConnectionError, RendezvousTimeoutError."""
        self._close("set_closed() was called", anyway=True)

    def shutdown(self) -> bool:
        """End this node's part: a member closes the rendezvous for all, anybody else leaves. False if it failed."""
        if torch_release.is_agents(sys._getframe(1)):
            return True  # nothing is known yet of how the job ends; the launcher calls again
        error = sys.exc_info()[1]  # torch calls this from a `finally`: an agent that raises nothing has succeeded
        if error is not None and error is not self._outer_error:
            failed = "failed" if self.for_launcher else ""
            return self.close(f"its agent has ended with {type(error).__name__}", failed)
        if self.for_launcher:
            return self.close("its workers have succeeded", "succeeded")
        return self.close("its agent has ended")

    # ---- ours

    @property
    def state(self) -> State | None:
        """The shared state, as this node saw it last."""
        return self._part.seen

    def standing(self) -> Standing:
        """The standing of this node's round; never waits, never fails."""
        return self._standing()

    def wait(self, seconds: float, known: Standing) -> None:
        """Return when the standing is another one than is known, or after `seconds`."""
        beating = self._part.keep_alive
        if beating is not None:
            beating.wait(seconds, known)

    def unfinished(self) -> str:
        """The nodes whose workers still run, in a sentence, once those of this node have succeeded; else empty."""
        return unfinished(self._part.seen, self._part.engine.token)

    @property
    def makes_room(self) -> bool:
        """Whether the round is replaced for a node that waits: an agent says so while its workers run."""
        return self._part.engine.makes_room

    @makes_room.setter
    def makes_room(self, wanted: bool) -> None:
        self._part.engine.makes_room = wanted

    def on_renewal(self, told: Callable[[float], None]) -> None:
        """`told` hears after each acknowledged heartbeat when the lease ends, by `holder.elapsed`; on any thread."""
        self._part.engine.lease.renewed = told

    @property
    def max_restarts(self) -> int:
        """Of the job; -1: they are not counted here."""
        return self._options.settings.max_restarts

    def count_restarts(self, max_restarts: int) -> None:
        """Before the first join: have the job's restarts counted here, where the options do not say how many."""
        settings = replace(self._options.settings, max_restarts=max_restarts)
        self._options, self._part.engine.settings = replace(self._options, settings=settings), settings

    @property
    def join_timeout(self) -> float:
        """Seconds within which this node must be in a complete round."""
        return self._options.join_timeout

    def done(self) -> bool:
        """Report that the workers of this node have succeeded; the last report closes the rendezvous as succeeded.

        False if the round was replaced. Raises RendezvousConnectionError, RendezvousTimeoutError.
        """
        part = self._part
        assert part.joined is not None  # after next_rendezvous
        return part.run_on_clone(_done(part.engine, part.joined), self._options.close_timeout, OUTAGE_SECONDS_MAX)

    def step_out(self, failed: bool = False, lapsed: bool = False) -> None:
        """Before the health of this node is checked: replace its round, so that the others restart; never fails.

        They wait for this node until it joins, leaves or stands aside. `failed`, `lapsed`: as of `next_rendezvous`,
        which replaces the round if this could not.
        """
        part = self._part
        if part.joined is not None and part.listed:
            with contextlib.suppress(RendezvousError):
                part.run_on_clone(part.engine.step_out(failed, lapsed), OUTAGE_SECONDS_MAX, OUTAGE_SECONDS_MAX)

    def stand_aside(self) -> None:
        """Take this node off the lists, which it may join again; never fails: if need be the others expel it."""
        self._part.stop()
        with contextlib.suppress(RendezvousError):
            self._part.leave(LEAVE_SECONDS)

    def give_notice(self) -> None:
        """Before a node that will leave stops its workers: end its round, which spends a restart; never fails."""
        part = self._part
        if part.joined is not None and part.listed:
            with contextlib.suppress(RendezvousError):
                part.run_on_clone(part.engine.give_notice(part.joined), OUTAGE_SECONDS_MAX, OUTAGE_SECONDS_MAX)

    def linger(self) -> None:
        """If this node serves the endpoint: wait until the others have left; never fails.

        The nodes of its own job have a window to leave, the nodes of other jobs have other_jobs_timeout.
        """
        settings = self._options.settings
        if self._part.serves:
            with contextlib.suppress(RendezvousError):
                steps = _alone(self._part.engine.token, settings.expiry_seconds)
                self._part.run_on_clone(steps, settings.expiry_seconds, OUTAGE_SECONDS_MAX)
            self._part.serve_others(self._options.other_jobs_timeout)

    def close(self, reason: str, verdict: str = "") -> bool:
        """`shutdown`, with the reason that the others are told, and how the job ended."""
        part, over = self._part, self._standing() is Standing.CLOSED
        part.stop()
        try:
            if part.listed and not over and not self._close(reason, anyway=False, verdict=verdict):
                part.leave(self._options.close_timeout)
            if self._closed and part.serves:
                time.sleep(LINGER_SECONDS)
            self._closed = self._closed or over
            # torch's launcher has nothing to do after this. A signal that has ended the agent ends the store too.
            if self._closed and self.for_launcher and not isinstance(sys.exc_info()[1], SIGNALLED):
                with contextlib.suppress(*SIGNALLED):
                    part.serve_others(self._options.other_jobs_timeout)
        except RendezvousError as error:
            self._recorder.failed(error, None)
            return False
        finally:
            part.listed = False  # closing is not tried again, whether or not it failed
            self.leave()
        return True

    def leave_last(self, hurry: Callable[[], bool] = lambda: False) -> None:
        """`leave`; where this node serves the endpoint, it goes on serving until the others have left.

        That ends after close_timeout at the latest, or when `hurry` says so, which is asked twice a second.
        """
        part, seconds, teller = self._part, self._options.close_timeout, Teller()
        if part.serves:
            part.stop()
            with contextlib.suppress(RendezvousError):
                part.leave(LEAVE_SECONDS)  # first: nobody waits for a node that will not come back
                ends, token = part.holder.clock() + seconds, part.engine.token

                def look(seen: Seen) -> None:
                    teller.tell(
                        lambda: served(seen.state, token), seen.now, lambda: f"up to {lasting(ends - seen.now)}"
                    )

                part.run_on_clone(_alone(token, seconds, hurry), seconds + OUTAGE_SECONDS_MAX, OUTAGE_SECONDS_MAX, look)
        self.leave()

    def leave(self) -> None:
        """Take this node off the rendezvous, which goes on without it; never fails, and may be called twice.

        Returns after DEPART_SECONDS at the latest.
        """
        self._depart()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def __repr__(self) -> str:
        return f"<DynamicRendezvousHandler of {self._part.engine.me.node} in {self._options.run_id!r}>"

    def _standing(self) -> Standing:
        beating = self._part.keep_alive
        return beating.standing() if beating is not None else Standing.CURRENT

    def _unused(self, state: State, error: RendezvousError) -> bool:
        """Whether the rendezvous was closed while this node had no seat: then the node says so."""
        token, waits = self._part.engine.token, self._part.waits
        had = SEATLESS.get(state.membership(token))
        # The last member closes the rendezvous as succeeded and leaves, which gives its seat to a spare. A spare that
        # reads the state only then is a participant of a round that will never run.
        if had is None and waits is not None and waits.seatless is not None and _succeeded(state):
            state = waits.seatless
            had = SEATLESS.get(state.membership(token))
        if had is None:
            return False
        cause = f"max_nodes={state.settings.max_nodes}, and {len(state.participants)} other nodes were members"
        log.warning("this node was %s of the job %r (%s), so that no worker ran here at the end: %s", had,
                    self.get_run_id(), cause, error)  # fmt: skip
        self._recorder.said("unused", state, cause=cause)
        if self.get_run_id() == NO_ID and self._part.joined is None:
            raise RendezvousIdShared(
                f"no worker has run here: the job {NO_ID!r} had its workers on other nodes ({cause}), and is over. No "
                "--rdzv-id was given, so that this node took part in the job of all that give none: if it is another "
                "job, give it an --rdzv-id; a spare of a job that has an id ends as that job does"
            )
        return True

    def _used_up(self, error: RendezvousError) -> RendezvousClosedError:
        """The error of a node that came when the job was over: it is not about a failure of this node's."""
        state = self._part.holder.state
        closed = state.closed if state is not None else None
        end = {"succeeded": " and has succeeded", "failed": " and has failed"}.get(closed.verdict if closed else "", "")
        return RendezvousClosedError(
            f"the job {self.get_run_id()!r} was over{end} before this node came, which has started nothing: {error}. "
            "Each id is for one job: a new one needs a new --rdzv-id, or the variable PET_RDZV_ID where a launcher has "
            "no such option, as accelerate"
        )

    def _close(self, reason: str, *, anyway: bool, verdict: str = "") -> bool:
        """True if the rendezvous is closed now, by whomever."""
        steps = self._part.engine.close(reason, verdict, anyway=anyway)
        done = self._part.run_on_clone(steps, self._options.close_timeout, OUTAGE_SECONDS_MAX)
        self._closed = done or self.is_closed()
        return self._closed


def _depart(dropped: weakref.finalize[..., Any], part: _Resources) -> None:
    """Have the node leave, unless it has left or somebody else sees to that; wait until it has, with a limit."""
    dropped()
    if not part.departed.wait(DEPART_SECONDS):
        log.warning("the store did not answer within %g s: the others will notice that this node has left",
                    DEPART_SECONDS)  # fmt: skip


def _look() -> Generator[Effect, Seen, State | None]:
    return (yield Sync()).state


def _succeeded(state: State) -> bool:
    return state.closed is not None and state.closed.verdict == "succeeded"


def _done(engine: Engine, joined: Joined) -> Generator[Effect, Seen, bool]:
    yield from engine.done(joined)
    state = (yield Sync()).state
    return state is not None and engine.token in state.done


def _alone(token: str, seconds: float, hurry: Callable[[], bool] = lambda: False) -> Generator[Effect, Seen, None]:
    seen = yield Sync()
    ends = seen.now + seconds
    while seen.now < ends and seen.state is not None and any(p.node.token != token for p in seen.state.listed()):
        if hurry():
            return
        seen = yield Sync(min(HURRY_SECONDS, ends - seen.now), seen.state.revision)


class _Resources:
    """The resources of a handler, released at its end; without a reference to the handler: see the module."""

    def __init__(
        self, engine: Engine, holder: StateHolder, meeting: bootstrap.Meeting, place: endpoint.Endpoint | None,
        told: Callable[[Standing, State | None], None], local: str = "",
    ) -> None:  # fmt: skip
        """`local`: the sentence for an endpoint that other machines cannot reach."""
        self._local = local
        self.engine, self.holder, self.meeting, self._place, self._told = engine, holder, meeting, place, told
        self.keep_alive: KeepAlive | None = None
        self.joined: Joined | None = None
        self.waits: Waits | None = None  # of the last join
        self.listed = False  # True from the beginning of a join: after a failed one it is unknown, and `leave` asks
        self.departed = threading.Event()
        self.at_exit: Callable[[], None] = lambda: None  # registered with atexit
        self.at_end: Finalize[Any] | None = None  # and with multiprocessing

    @property
    def serves(self) -> bool:
        """Whether the endpoint ends with this node."""
        return self._place is not None and self._place.server is not None

    @property
    def seen(self) -> State | None:
        """The state as it was seen last."""
        return self.keep_alive.state if self.keep_alive is not None else self.holder.state

    def join(self, seconds: float, failed: bool = False, lapsed: bool = False, final: str = "") -> Joined:
        """Become a member of a complete round, and start its heartbeats."""
        self.stop()
        self.engine.me = replace(self.engine.me, port=self.meeting.promise())
        self.listed = True
        self.waits = waits = Waits(
            self.engine.token, self.holder.clock() + seconds, place=self._local, others=self._others
        )
        joined = run(self.engine.join(seconds, failed=failed, lapsed=lapsed, final=final), self.holder,
                     outage_seconds_max=seconds, look=waits.look, away=waits.away)  # fmt: skip
        self.joined = joined
        self.keep_alive = KeepAlive(self.engine, joined, self.holder, self._told)
        return joined

    def _others(self) -> str:
        backend = self.holder.backend
        with contextlib.suppress(RendezvousError):
            return backend.others() if isinstance(backend, StoreBackend) else ""
        return ""

    def run_on_clone(
        self, steps: Generator[Effect, Seen, T], timeout_seconds: float, outage_seconds_max: float,
        look: Callable[[Seen], None] = lambda seen: None,
    ) -> T:  # fmt: skip
        """Run a generator on a connection of its own, while another thread uses the state holder."""
        holder = self.holder.clone()
        try:
            return run(steps, holder, outage_seconds_max=outage_seconds_max, timeout_seconds=timeout_seconds, look=look)
        finally:
            holder.close()

    def leave(self, timeout_seconds: float) -> None:
        if self.listed:
            self.run_on_clone(self.engine.leave(), timeout_seconds, OUTAGE_SECONDS_MAX)
            self.listed = False

    def serve_others(self, seconds: float) -> None:
        """Leave, and return when no other job uses the store that this node serves, after `seconds` at the latest."""
        if self._place is None or not self.serves:
            return
        self.stop()
        with contextlib.suppress(RendezvousError):
            self.leave(LEAVE_SECONDS)  # first: nobody waits for a node that has ended
        self._place.serve_others(seconds)

    def stop(self) -> None:
        beating, self.keep_alive = self.keep_alive, None
        if beating is None:
            return
        if beating.stop():
            self.holder.resume()
        else:  # the thread is stuck in an operation of the store: it keeps this holder, and gets no other
            stuck, self.holder = self.holder, self.holder.clone()
            stuck.close()

    def depart(self, owner: int) -> None:
        """Leave, and let go of everything, in another thread; a fork of the node does neither.

        The collector of garbage calls this in any thread, which may hold any lock: `threading` would take one.
        """
        if os.getpid() != owner:
            self.departed.set()
            return
        try:
            _thread.start_new_thread(self._depart, ())
        except RuntimeError:  # the interpreter ends
            self._depart()

    def _depart(self) -> None:
        try:
            self.stop()
            self.holder.interrupt()
            try:
                self.leave(LEAVE_SECONDS)
            except RendezvousError as error:
                log.warning("the others will notice that this node has left, it could not tell them: %s", error)
            self.holder.close()
            self.meeting.close()
            if self._place is not None:
                self._place.close()
        finally:
            atexit.unregister(self.at_exit)
            if self.at_end is not None:
                self.at_end.cancel()
            self.departed.set()

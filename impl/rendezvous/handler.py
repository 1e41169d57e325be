"""torch's `RendezvousHandler`, implemented with our engine: the rendezvous that torchrun uses.

Theory of operation. Three kinds of threads of a node run this module at the same time:

- the agent's main thread, which calls `next_rendezvous` and, several times a second, `num_nodes_waiting`;
- the heartbeat thread of the node's part, from the end of `next_rendezvous` until the next one begins;
- a thread that leaves (`Resources.release_async`) when the handler is dropped or the process ends.

The part does the operations on the shared state: a `RoomPart` if the server of the store has rooms, else a
`DocumentPart`. `Resources` holds the part, the stores of the rounds and the endpoint. It has no reference to the
handler, so a handler without users is collected, and its finalizer makes the node leave.

A restart of the job is spent whenever a complete round loses a member. These calls make a node leave or step out:

    call                     caller                                   the other nodes see
    shutdown, close          torch's launcher, our agent              the rendezvous closed, or one node fewer
    set_closed               any node                                 the rendezvous closed
    done, then linger        our agent: its workers have succeeded    a member that is done; the last one closes
    step_out                 our agent, before a health check         a member that is expected again
    stand_aside              our agent: its health check failed       one node fewer, which may join again
    give_notice, then leave  our agent, on a signal                   the round replaced, then one node fewer
    leave, leave_last        our agent, at its end                    one node fewer

Rule: `num_nodes_waiting` does not read the store and never fails. Every operation on the store has a time limit from
the options. A node that ends leaves the rendezvous or is expelled.

Failures:

- The process is killed. The others expel the node after its expiry window.
- The store does not answer while the process ends. `leave` returns after DEPART_SECONDS, and the others expel the node.
- The process forks. The child does nothing here, because it is not the node.
"""

from __future__ import annotations

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
import time
import uuid
import weakref
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.util import Finalize
from types import TracebackType
from typing import Any, Self

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousParameters
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend

from .. import torch_release
from ..host.addresses import own_host
from ..store.lives import VARIABLE as ROUND_STORE
from ..store.tcp import TCPStore
from . import bootstrap, endpoint, meeting_place
from .backend import Backend
from .command import UNKNOWN, Command
from .document_part import DocumentPart
from .driver import STOP_SECONDS
from .engine import RUNS, Engine, Standing
from .errors import (
    NotNeeded,
    RendezvousClosedError,
    RendezvousDrained,
    RendezvousError,
    RendezvousIdShared,
    RendezvousTimeoutError,
    closed_error,
)
from .events import Recorder
from .options import NO_ID, Options
from .resources import LEAVE_SECONDS, Resources
from .rooms.messages import Summary
from .rooms.part import RoomPart
from .state import Node, Participant
from .state_holder import StateHolder
from .store_backend import StoreBackend
from .torch_backend import TorchBackend
from .waiting import SEATLESS

NAME = "trystate"
DEPART_SECONDS = LEAVE_SECONDS + STOP_SECONDS  # `leave` returns by then, whatever the store does
LINGER_SECONDS = 0.5  # a node that has closed the rendezvous serves the store for this time, so others can read it
DRAINED_SECONDS = 86_400.0  # a drained node serves the store of its job at least for this time, if it has to
SIGNALLED = (SignalException, KeyboardInterrupt)

_local_ids = itertools.count()
log = logging.getLogger("trystate.rendezvous")


class DynamicRendezvousHandler(RendezvousHandler):
    """One node's part in the rendezvous of the agents of a job.

    Unlike torch's class of this name it has a lease: `num_nodes_waiting` is positive, and the agent stops its
    workers, also when the node cannot confirm any more that it is still a member.
    """

    def __init__(self, options: Options, backend: Backend, at: endpoint.Endpoint | None = None) -> None:
        """The handler owns `backend`, and the endpoint `at` if there is one."""
        self._options = options
        local_id = options.local_id if options.local_id is not None else next(_local_ids)
        address = options.local_addr or socket.gethostname()
        node = Node(address, os.getpid(), local_id, secrets.token_hex(8))
        self._recorder = Recorder(options.run_id, node)
        host = own_host(options.local_addr, at.host if at is not None else "")
        me = Participant(node, host, 0, rank_key=options.rank_key)
        self._part = part = _part(me, options, backend, self._recorder)
        meeting = bootstrap.Meeting(host, options.read_timeout, options.join_timeout)
        self._resources = resources = Resources(part, meeting, at)
        self._closed = False
        self.for_launcher = False  # torch's `launch_agent` made the handler, and only its agent uses it
        self._outer_error = sys.exc_info()[1]  # the caller handles this error already: it is not the agent's
        # The node leaves when the handler is dropped, or at exit before the stores close, which registered earlier.
        dropped = weakref.finalize(self, resources.release_async, os.getpid())
        dropped.atexit = False
        self._leave = resources.at_exit = functools.partial(_released, dropped, resources)
        atexit.register(self._leave)
        resources.at_end = Finalize(None, self._leave, exitpriority=0)  # children of multiprocessing run no atexit

    @classmethod
    def of(cls, params: RendezvousParameters, command: Command = UNKNOWN) -> Self:
        """The handler for torchrun's options and the node's command, if the command is known.

        Raises:
            RendezvousSettingsError: an option is wrong.
            RendezvousConnectionError: the endpoint cannot be reached.
        """
        options = meeting_place.checked(Options.of(params, command))
        bootstrap.note_of_variable()
        for said in filter(None, (meeting_place.warning(options), meeting_place.ignored(options))):
            log.warning("%s", said)
        if options.run_id == NO_ID and params.endpoint:
            log.warning("no --rdzv-id was given: this node joins the job %r, like every node at this endpoint without "
                        "an id; give each job an --rdzv-id", NO_ID)  # fmt: skip
        at = endpoint.meet(options)
        return cls(options, StoreBackend(at.store, options.run_id, at.owner), at)

    @classmethod
    def from_store(
        cls, run_id: str, store: Any, min_nodes: int, max_nodes: int, local_addr: str | None = None, **config: Any
    ) -> Self:
        """A handler on any torch store, which the caller closes; `config` takes the options of --rdzv-conf."""
        params = RendezvousParameters(NAME, "", run_id, min_nodes, max_nodes, local_addr, **config)
        return cls(Options.of(params), StoreBackend(store, run_id))

    @classmethod
    def from_backend(
        cls, run_id: str, backend: RendezvousBackend, min_nodes: int, max_nodes: int,
        local_addr: str | None = None, **config: Any,
    ) -> Self:  # fmt: skip
        """A handler on any backend that implements the interface of torch's dynamic rendezvous."""
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
        """Join the next complete round and meet its members.

        `failed`: the workers failed. `final`: why that failure is not restarted but ends the job. `lapsed`: the workers
        were killed at the end of a lease.

        Raises:
            RendezvousClosedError: the job is over.
            RendezvousTimeoutError: no round was complete within `join_timeout`.
            RendezvousSettingsError: the other nodes have other settings.
            RendezvousConnectionError: the store cannot be reached.
            RendezvousDrained: an operator has drained this node, which has left.
            NotNeeded: the launcher's process has nothing left to do.
        """
        part, seen, meeting = self._part, self._part.seen, self._resources.meeting
        self._recorder.said("joining", seen)
        try:
            if seen is not None and seen.closed is not None:  # final, even if the store has ended since
                raise closed_error(seen.closed)
            while True:
                joined = part.join(self._options.join_timeout, meeting.promise(), failed, lapsed, final)
                failed, lapsed, final = False, False, ""
                info = meeting.begin(joined, lambda: self.standing() in RUNS)
                if info is not None:
                    # The workers of torch's agent inherit this variable; our agent passes it to its workers itself.
                    os.environ[ROUND_STORE] = str(joined.master)
                    self._recorder.said("joined", joined, rank=joined.rank, world_size=joined.participants,
                                        cause=joined.cause)  # fmt: skip
                    return info
                # A member was lost before all had met at the round's store. The node joins the next round.
                self._recorder.said("broken", joined, standing=self.standing().name)
        except RendezvousError as error:
            state = part.seen
            if isinstance(error, RendezvousClosedError) and state is not None and self._unused(state, error):
                # A spare is not needed because the job has succeeded. torch's launcher (api.py:launch_agent) has no
                # result for a node that never ran, and would report a failure.
                if self.for_launcher and _succeeded(state):
                    raise NotNeeded(0) from None
                raise
            if isinstance(error, RendezvousDrained):
                part.stop()
                part.listed = False  # it has left
                self._recorder.said("drained", state)
                self.linger(max(self._options.other_jobs_timeout, DRAINED_SECONDS))  # the others need the store
                if self.for_launcher:
                    log.warning("%s", error)
                    raise NotNeeded(0) from None
                raise
            self._recorder.failed(error, state)
            if isinstance(error, RendezvousClosedError) and part.waits is not None and part.waits.late:
                raise self._used_up(error) from None
            if isinstance(error, RendezvousTimeoutError):  # the node leaves, even if its round was complete
                for why in part.waits.reasons() if part.waits is not None else ():
                    error.add_note(why)
                part.stop()
                with contextlib.suppress(RendezvousError):
                    part.leave(LEAVE_SECONDS)
            raise

    def num_nodes_waiting(self) -> int:
        """The number of waiting nodes with a free seat, or 1 if this round is over; reads no store, never fails."""
        standing, seen = self.standing(), self._part.seen
        # torch's agent (api.py:_invoke_run) restarts its workers whenever the number is positive, whatever the reason.
        if standing in (Standing.REPLACED, Standing.EXPELLED, Standing.LAPSED):
            return 1
        return min(seen.waiting, seen.seats) if standing is Standing.NEWCOMERS and seen is not None else 0

    def is_closed(self) -> bool:
        """Whether the rendezvous is closed. Raises RendezvousConnectionError."""
        if self._closed or self.standing() is Standing.CLOSED:
            return True
        seen = self._part.look(self._options.close_timeout)
        return seen is not None and seen.closed is not None

    def set_closed(self) -> None:
        """Close the rendezvous for everyone. Raises RendezvousConnectionError, RendezvousTimeoutError."""
        self._close("set_closed() was called", anyway=True)

    def shutdown(self) -> bool:
        """End this node's part: a member closes the rendezvous for all, any other node leaves. False if it failed."""
        if torch_release.is_agents(sys._getframe(1)):
            return True  # the result of the job is not known yet; the launcher calls again
        error = sys.exc_info()[1]  # torch calls this from a `finally`: an agent that raises nothing has succeeded
        if error is not None and error is not self._outer_error:
            failed = "failed" if self.for_launcher else ""
            return self.close(f"its agent has ended with {type(error).__name__}", failed)
        if self.for_launcher:
            return self.close("its workers have succeeded", "succeeded")
        return self.close("its agent has ended")

    # ---- ours

    @property
    def state(self) -> Summary | None:
        """The parts of the shared state that this node has read last."""
        return self._part.seen

    def standing(self) -> Standing:
        """The standing of this node's round; never waits, never fails."""
        return self._part.standing()

    def wait(self, seconds: float, known: Standing) -> None:
        """Return when the standing differs from `known`, or after `seconds`."""
        self._part.wait(seconds, known)

    def unfinished(self) -> str:
        """The sentence for a node whose workers have succeeded while other nodes' workers still run; else empty."""
        return self._part.unfinished()

    @property
    def makes_room(self) -> bool:
        """Whether the round is replaced for a waiting node; an agent sets it while its workers run."""
        return self._part.core.makes_room

    @makes_room.setter
    def makes_room(self, wanted: bool) -> None:
        self._part.core.makes_room = wanted

    def on_renewal(self, told: Callable[[float], None]) -> None:
        """Call `told` with the new end of the lease after each acknowledged heartbeat, on any thread.

        The time is one of `state_holder.elapsed`.
        """
        self._part.core.lease.renewed = told

    @property
    def max_restarts(self) -> int:
        """The restarts of the job; -1: the rendezvous does not count them."""
        return self._options.settings.max_restarts

    def count_restarts(self, max_restarts: int) -> None:
        """Make the rendezvous count the job's restarts, before the first join, if the options have no limit."""
        settings = replace(self._options.settings, max_restarts=max_restarts)
        self._options, self._part.core.settings = replace(self._options, settings=settings), settings

    @property
    def join_timeout(self) -> float:
        """Seconds within which this node must be in a complete round."""
        return self._options.join_timeout

    def done(self) -> bool:
        """Report that the workers of this node have succeeded; the last report closes the rendezvous as succeeded.

        False if the round was replaced. Raises RendezvousConnectionError, RendezvousTimeoutError.
        """
        return self._part.report(self._options.close_timeout)

    def step_out(self, failed: bool = False, lapsed: bool = False) -> None:
        """Replace this node's round before its health is checked, so the others restart; never fails.

        They wait for this node until it joins, leaves or steps back. `failed`, `lapsed`: see `next_rendezvous`,
        which replaces the round if this call could not.
        """
        self._part.step_out(failed, lapsed)

    def stand_aside(self) -> None:
        """Take this node off the lists; it may join again. Never fails: without the store, the others expel it."""
        self._part.stop()
        with contextlib.suppress(RendezvousError):
            self._part.leave(LEAVE_SECONDS)

    def give_notice(self) -> None:
        """End the round of a leaving node before it stops its workers; this spends a restart and never fails."""
        self._part.give_notice()

    def linger(self, seconds: float | None = None) -> None:
        """Wait until the other nodes have left, if this node serves the endpoint; never fails.

        The nodes of this job have `seconds`, or a window, to leave; the nodes of other jobs have other_jobs_timeout.
        """
        if self._resources.serves:
            with contextlib.suppress(RendezvousError):
                self._part.until_alone(self._options.settings.expiry_seconds if seconds is None else seconds)
            self._resources.serve_others(self._options.other_jobs_timeout)

    def close(self, reason: str, verdict: str = "") -> bool:
        """Like `shutdown`, but with the reason that the other nodes read and the result of the job."""
        part, over = self._part, self.standing() is Standing.CLOSED
        part.stop()
        try:
            if part.listed and not over and not self._close(reason, anyway=False, verdict=verdict):
                part.leave(self._options.close_timeout)
            # The others must read that the job is closed before the store ends with this node.
            if self._closed and self._resources.serves:
                time.sleep(LINGER_SECONDS)
            self._closed = self._closed or over
            # torch's launcher has nothing to do after this, so the node serves other jobs until they have left. A
            # signal that has ended the agent ends the store too.
            if self._closed and self.for_launcher and not isinstance(sys.exc_info()[1], SIGNALLED):
                with contextlib.suppress(*SIGNALLED):
                    self._resources.serve_others(self._options.other_jobs_timeout)
        except RendezvousError as error:
            self._recorder.failed(error, None)
            return False
        finally:
            part.listed = False  # closing is not tried again, whether or not it failed
            self.leave()
        return True

    def leave_last(self, hurry: Callable[[], bool] = lambda: False) -> None:
        """Like `leave`, but a node that serves the endpoint continues to serve until the others have left.

        Returns after at most close_timeout, or as soon as `hurry()` is true (polled twice a second).
        """
        if self._resources.serves:
            self._part.stop()
            with contextlib.suppress(RendezvousError):
                self._part.leave(LEAVE_SECONDS)  # first: then no node waits for one that will not come back
                self._part.until_alone(self._options.close_timeout, hurry)
        self.leave()

    def leave(self) -> None:
        """Take this node off the rendezvous, which continues without it; never fails, and may be called twice.

        Returns after at most DEPART_SECONDS.
        """
        self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def __repr__(self) -> str:
        return f"<DynamicRendezvousHandler of {self._part.core.me.node} in {self._options.run_id!r}>"

    def _unused(self, seen: Summary, error: RendezvousError) -> bool:
        """Whether the rendezvous was closed while this node had no seat, which is then logged."""
        waits, most = self._part.waits, self._options.settings.max_nodes
        had = SEATLESS.get(seen.membership)
        # The last member closes the rendezvous as succeeded and leaves, which gives its seat to a spare. A spare that
        # reads the state only then is a participant of a round that will never run.
        if had is None and waits is not None and waits.seatless is not None and _succeeded(seen):
            seen = waits.seatless
            had = SEATLESS.get(seen.membership)
        if had is None:
            return False
        cause = f"max_nodes={most}, and {seen.participants} other nodes were members"
        log.warning("this node was %s of the job %r (%s), and no worker ran here at the end: %s", had,
                    self.get_run_id(), cause, error)  # fmt: skip
        self._recorder.said("unused", seen, cause=cause)
        if self.get_run_id() == NO_ID and self._part.joined is None:
            raise RendezvousIdShared(
                f"no worker has run here: the job {NO_ID!r} had its workers on other nodes ({cause}), and is over. No "
                "--rdzv-id was given, and this node joined the job of all nodes without an id. If it belongs to "
                "another job, give that job an --rdzv-id; a spare of a job with an id ends with the job's result"
            )
        return True

    def _used_up(self, error: RendezvousError) -> RendezvousClosedError:
        """The error of a node that started after the end of the job; the node itself has not failed."""
        seen = self._part.seen
        closed = seen.closed if seen is not None else None
        end = {"succeeded": " and has succeeded", "failed": " and has failed"}.get(closed.verdict if closed else "", "")
        return RendezvousClosedError(
            f"the job {self.get_run_id()!r} was over{end} before this node came, and no worker ran here: {error}. An "
            "id is for one job: give a new job a new --rdzv-id, or set the variable PET_RDZV_ID if the launcher has no "
            "such option, like accelerate"
        )

    def _close(self, reason: str, *, anyway: bool, verdict: str = "") -> bool:
        """Close the rendezvous. True if it is closed now, by this node or another."""
        done = self._part.close(reason, verdict, self._options.close_timeout, anyway=anyway)
        self._closed = done or self.is_closed()
        return self._closed


def _released(dropped: weakref.finalize[..., Any], resources: Resources) -> None:
    """Make the node leave, unless it has left or another call does that; wait for it, with a limit."""
    dropped()
    if not resources.departed.wait(DEPART_SECONDS):
        log.warning("the store did not answer within %g s; the other nodes will notice that this node has left",
                    DEPART_SECONDS)  # fmt: skip


def _succeeded(seen: Summary) -> bool:
    return seen.closed is not None and seen.closed.verdict == "succeeded"


def _part(me: Participant, options: Options, backend: Backend, recorder: Recorder) -> DocumentPart | RoomPart:
    """The node's part: in a room if the store's server has rooms, on a document otherwise."""
    local = meeting_place.local(options)
    if isinstance(backend, StoreBackend) and isinstance(backend.store, TCPStore) and backend.store.rooms:
        return RoomPart(me, options.settings, backend.store, options.run_id, recorder, local, backend.owner)
    engine = Engine(me, options.settings, draw=random.random, life=uuid.uuid4().hex)
    return DocumentPart(engine, StateHolder(backend, told=recorder.told), recorder.standing, local)

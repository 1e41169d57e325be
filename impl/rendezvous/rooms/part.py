"""A node's part in a room: a thread that drives its `Member` over one connection to the store's server.

`document_part.py` has the same operations for a rendezvous whose state is a document.

Theory of operation. The thread connects, sends the request that the member wants to send, and waits until a message has
come or the member is to be woken. It uses the member under the lock, and the connection without it. The other threads
of the node request an operation under the lock, wake the thread, and wait on the condition for its result. Nothing is
sent or received under the lock, so `standing` never waits for the store.

Rule: the thread is the only user of the connection. A lost connection is replaced, and the member repeats what was not
answered; a request that is repeated happens once (member.py).

Failures:

- The store is away: connecting, sending or receiving has failed. The thread connects again and again. Operations give
  up after OUTAGE_SECONDS_MAX, a join after its own limit, heartbeats never.
- The server does not answer. The member gives the connection up when its patience ends.
- Any other exception is a mistake in this program. The thread ends, each operation raises the exception, and the node's
  lease ends.
- Another thread interrupts. A join ends with Interrupted; what has begun is finished by `leave` and `end`.
- The process forks. The child has no thread; its handler does nothing (handler.py).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import random
import selectors
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from trystate.model.errors import TrystateError
from trystate.model.rendezvous.vocabulary import Membership
from trystate.model.store.vocabulary import Status

from ...store.client.rooms import RoomConnection
from ...store.tcp import TCPStore
from ..document_part import OUTAGE_SECONDS_MAX, summary
from ..driver import RETRY_SECONDS_MAX, RETRY_SECONDS_MIN, STOP_SECONDS
from ..encoding import decode
from ..engine import HURRY_SECONDS, Standing
from ..errors import Interrupted, RendezvousError, RendezvousStateError, RendezvousTimeoutError
from ..events import Recorder
from ..jobs import others_that_wait
from ..state import Participant, Settings
from ..state_holder import elapsed
from ..store_backend import CONNECT_SECONDS, unreachable
from ..waiting import AGAIN_SECONDS, CHANGE_SECONDS, SEATLESS, Teller, Waits, lasting
from .member import Member, Result
from .messages import Summary

LISTED = {Membership.WAITING: "waiting", Membership.REDUNDANT: "spare"}  # events of a node without a seat

ENDED = "this node's part in the rendezvous was ended while it was under way"

log = logging.getLogger("trystate.rendezvous")


class RoomPart:
    """One node's part. An operation raises a RendezvousError when it fails, and has a limit in seconds."""

    clock = staticmethod(elapsed)

    def __init__(
        self, me: Participant, settings: Settings, store: TCPStore, run_id: str, recorder: Recorder,
        place: str = "", owner: str = "",
    ) -> None:  # fmt: skip
        """`place`: the sentence for an endpoint that other machines cannot reach. `owner`: the job that serves it."""
        self._store, self._run_id, self._recorder, self._place, self._owner = store, run_id, recorder, place, owner
        self.core = Member(me, settings)
        self.joined: Summary | None = None  # the complete round of the last join
        self.waits: Waits | None = None  # the sentences of the last join
        self.listed = False  # True from the start of a join; after a failed one it is unknown, and `leave` reads it
        self._condition = threading.Condition(threading.RLock())  # guards the member and what follows
        self._thread: threading.Thread | None = None
        self._online = self._beating = self._interrupted = self._ended = False
        self._known = Standing.CURRENT
        self._lost: tuple[float, Exception] | None = None  # since when the store is away, and why
        self._mistake: Exception | None = None  # the exception that has ended the thread
        self._text, self._asks = "", -1  # the answer to the last WHY, and the ticket of the next
        self._asked, self._pause = -math.inf, CHANGE_SECONDS
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    @property
    def seen(self) -> Summary | None:
        """The summary that the node has received last."""
        return self.core.seen

    # ---- joining, and the heartbeats

    def join(self, seconds: float, port: int, failed: bool = False, lapsed: bool = False, final: str = "") -> Summary:
        """Become a member of a complete round, which is returned; heartbeats have begun with the join.

        `port`: where this node would serve the store of the round. The other arguments: `Engine.join`.
        """
        self.stop()
        self.listed = True
        waits = self.waits = Waits(self.core.settings, self.clock() + seconds, place=self._place, others=self._others)
        member, ticket, result = self.core, 0, None
        with self._condition:
            self._go()
        while result is None:
            with self._condition:
                self._check()
                now = self.clock()
                if not ticket and self._online:  # the time limit begins when the store has answered
                    member.me = replace(member.me, port=port)
                    self._text, self._asked, self._pause = "", now, CHANGE_SECONDS
                    ticket = member.join(now, seconds, failed=failed, lapsed=lapsed, final=final)
                    self._go()
                if ticket not in member.results:
                    self._condition.wait(CHANGE_SECONDS)  # or until a message has come
                lost, now, result = self._lost, self.clock(), member.results.pop(ticket, None)
                away = lost is not None and now - lost[0] >= seconds
                if ticket and (self._interrupted or away):
                    member.leave()
            if self._interrupted:
                raise Interrupted(ENDED)
            if lost is not None:
                waits.away(lost[0], now)
                if away:
                    raise unreachable(lost[1], self._store, self._run_id, self._owner)
            elif ticket and result is None:
                waits.look(member.seen, now, self._why)
        if member.joined is None:
            waits.look(member.seen, now, str)
            raise member.error or Interrupted("this node has left while it joined")
        with self._condition:
            self.joined, self._known, self._beating = member.joined, Standing.CURRENT, True
            return self.joined

    def _others(self) -> str:
        with contextlib.suppress(TrystateError):
            return others_that_wait(self._store, self._run_id)
        return ""

    def _why(self) -> str:
        """The answer to the last WHY; the next one is sent after a pause, which doubles up to AGAIN_SECONDS."""
        with self._condition:
            now, member = self.clock(), self.core
            if (result := member.results.pop(self._asks, None)) is not None:
                self._text = result.data.decode("utf-8", "replace")
            elif not self._text and member.seen is not None:
                self._text = member.seen.why  # the answer to the JOIN has the first sentence
            if now - self._asked >= self._pause and member.seen is not None:
                self._asked, self._pause = now, min(2 * self._pause, AGAIN_SECONDS)
                self._asks = member.why()
                self._go()
            return self._text

    def standing(self) -> Standing:
        """The standing of this node's round, by the last message and by the clock; never waits, never fails."""
        with self._condition:
            if not self._beating:
                return Standing.CURRENT
            standing, seen = self.core.standing(self.clock()), self.core.seen
            known, self._known = self._known, standing
        if standing is not known:
            self._recorder.standing(standing, seen)
        return standing

    def wait(self, seconds: float, known: Standing) -> None:
        """Return when the standing differs from `known`, or after `seconds`; reads the clock 4 times per interval."""
        ends, look = self.clock() + seconds, self.core.settings.keep_alive_interval / 4
        while self.standing() is known and (left := ends - self.clock()) > 0:
            with self._condition:
                self._condition.wait(min(left, look))

    def unfinished(self) -> str:
        """The sentence for a node whose workers have succeeded while other nodes' workers still run; else empty."""
        return self._why() if (seen := self.seen) is not None and seen.is_done and seen.closed is None else ""

    def stop(self) -> None:
        """End the heartbeats."""
        with self._condition:
            self._beating = False
            self.core.rest()

    # ---- operations

    def look(self, seconds: float) -> Summary | None:
        """Read the state."""
        data = self._do(self.core.look, seconds).data
        return summary(decode(data), self.core.token) if data else None

    def report(self, seconds: float) -> bool:
        """Report that the workers have succeeded; whether the report is then in the state."""
        seen = self._do(self.core.done, seconds, "done").seen
        return seen is not None and seen.is_done

    def step_out(self, failed: bool, lapsed: bool) -> None:
        """Replace the node's round before its health is checked; never fails."""
        self._end_round(lambda: self.core.step_out(failed, self.clock(), lapsed))

    def give_notice(self) -> None:
        """Replace the round before a leaving member stops its workers; never fails."""
        self._end_round(self.core.give_notice)

    def _end_round(self, ask: Callable[[], int]) -> None:
        if self.joined is not None and self.listed:
            with contextlib.suppress(RendezvousError):
                self._do(ask, OUTAGE_SECONDS_MAX)

    def close(self, reason: str, verdict: str, seconds: float, *, anyway: bool) -> bool:
        """Close the rendezvous for everyone; only a member may, unless `anyway`. True if this node did it."""
        return self._do(lambda: self.core.close(reason, verdict, anyway), seconds, "closed").applied

    def leave(self, seconds: float) -> None:
        """Take this node off the lists, if it may be listed; its heartbeats end."""
        self.stop()
        if self.listed:
            self._do(self.core.leave, seconds, "left")
            self.listed = False

    def until_alone(self, seconds: float, hurry: Callable[[], bool] = lambda: False) -> None:
        """Wait until no other node is listed, at most `seconds`, or until `hurry()` is true.

        A node that has left logs the others.
        """
        teller, ends = Teller(), self.clock() + seconds
        while (now := self.clock()) < ends and not hurry():
            others = self._do(partial(self.core.why, left=True), OUTAGE_SECONDS_MAX).data.decode("utf-8", "replace")
            if not others:
                return
            teller.tell(partial(str, others), now, partial("up to {}".format, lasting(ends - now)))
            with self._condition:
                self._condition.wait(min(HURRY_SECONDS, ends - now))

    def _do(self, ask: Callable[[], int], seconds: float, event: str = "") -> Result:
        """Begin an operation of the member and return its result; log the event if it has changed the state."""
        ends = self.clock() + seconds
        with self._condition:
            results, ticket = self.core.results, ask()
            self._go()
            while ticket not in results:
                self._check()
                now, lost = self.clock(), self._lost
                if lost is not None and now - lost[0] >= OUTAGE_SECONDS_MAX:
                    self.core.forget(ticket)
                    raise unreachable(lost[1], self._store, self._run_id, self._owner)
                if now >= ends:
                    raise RendezvousTimeoutError(
                        f"the server of rendezvous {self._run_id!r} has not answered within {seconds:g} s: it is busy "
                        "or hangs; raise close_timeout"
                    )
                self._condition.wait(min(ends - now, OUTAGE_SECONDS_MAX))
            result = results.pop(ticket)
        if result.refused:
            raise RendezvousStateError(f"rendezvous {self._run_id!r}: {result.refused}")
        if event and result.applied:
            self._recorder.said(event, result.seen)
        return result

    # ---- the thread

    def _go(self) -> None:
        """Start the thread, or wake it; called under the lock. Raises Interrupted: the part has ended."""
        self._check()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="trystate room", daemon=True)
            self._thread.start()
        self._wake_up()

    def _check(self) -> None:
        """Raise Interrupted if the part has ended, or the exception that has ended the thread."""
        if self._mistake is not None:
            raise self._mistake
        if self._ended:
            raise Interrupted(ENDED)

    def _wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError):  # enough wakes are in the pipe
            os.write(self._wake, b"\0")

    def _run(self) -> None:
        try:
            self._stay_connected()
        except Exception as mistake:
            log.error("the connection of this node to its room has ended by a mistake of trystate", exc_info=True)
            with self._condition:
                self._mistake = mistake
                self._condition.notify_all()

    def _stay_connected(self) -> None:
        pause = RETRY_SECONDS_MIN
        while not self._ended:
            try:
                with contextlib.closing(RoomConnection.open(self._store, self._run_id, CONNECT_SECONDS)) as opened:
                    self._connected()
                    pause = RETRY_SECONDS_MIN
                    self._serve(opened)
                error: Exception = RendezvousTimeoutError("no answer has come in time")
            except (TrystateError, OSError) as caught:
                error = caught
            with self._condition:
                self._online = False
                if self._lost is None:
                    self._lost = self.clock(), error
                    if not self._ended:
                        log.warning("%s; trying again", unreachable(error, self._store, self._run_id, self._owner))
                self.core.disconnected()
                self._condition.notify_all()
                if not self._ended:
                    self._condition.wait(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, RETRY_SECONDS_MAX)

    def _connected(self) -> None:
        with self._condition:
            self._online, self._lost = True, None
            self.core.connected(self.clock())
            self._condition.notify_all()

    def _serve(self, opened: RoomConnection) -> None:
        """Use a connection until it is lost, the member gives it up, or the part ends."""
        with selectors.DefaultSelector() as selector:
            selector.register(opened, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while not self._ended:
                with self._condition:
                    now, member = self.clock(), self.core
                    data = member.take(now)
                    pause = 0.0 if data is not None else max(0.0, member.wakes(now) - now)
                if data is not None:
                    opened.send(data)
                ready = [key.fileobj for key, _ in selector.select(min(pause, AGAIN_SECONDS))]
                if self._woken in ready:
                    os.read(self._woken, 4096)
                messages = opened.receive() if opened in ready else []
                with self._condition:
                    before, joining, now = member.seen, member.joining, self.clock()
                    for message in messages:
                        self._lost = None
                        if message.status in (Status.OK, Status.NOTICE):
                            member.heard(message.data, message.status is Status.NOTICE, now)
                        else:
                            member.refused(message.data.decode("utf-8", "replace"), now)
                    kept = member.woke(now)
                    if messages or member.joining is not joining:
                        self._condition.notify_all()
                if messages:
                    self._said(before)
                if not kept:
                    return

    def _said(self, before: Summary | None) -> None:
        """Log what the messages have changed for this node."""
        seen = self.core.seen
        self.standing()
        if (
            seen is not None
            and seen.membership in LISTED
            and (before is None or before.membership is not seen.membership)
        ):
            self._recorder.said(LISTED[seen.membership], seen, cause=SEATLESS[seen.membership])

    def interrupt(self) -> None:
        """End the join of another thread."""
        with self._condition:
            self._interrupted = True
            self._condition.notify_all()

    def end(self) -> None:
        """Close the connection; may be called twice."""
        with self._condition:
            if self._ended:
                return
            self._ended, thread = True, self._thread
            self._wake_up()
            self._condition.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(STOP_SECONDS)
            if thread.is_alive():
                return  # it is stuck in the store, and keeps the pipe
        os.close(self._woken)
        os.close(self._wake)

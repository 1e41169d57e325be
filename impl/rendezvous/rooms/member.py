"""A node's half of a room, without I/O: its requests, what it makes of answers, and when it next does something.

Theory of operation. The driver has one connection for a `Member`. It calls `connected`, `heard`, `refused`, `woke` and
`disconnected`, and after each of these and of each operation it sends what `take` returns and waits until `wakes`. One
request is under way at a time. A join is a JOIN, then heartbeats until a notice or an answer has a complete round:

    joining   JOIN; then POKE once in an interval, the first of a first round after two, and after a notice that
              concerns the node, until the join has ended. So each node sends one request for a first round
    joined    BEAT once in an interval, the first in its second half: the token decides when, so the beats are spread

A POKE says that the node still joins: the room applies the join operator again. A BEAT does not.

Rules:

- *A join returns only while no request of the node is under way or waits to be sent.* A JOIN or POKE may be applied
  late, when the round with which the join has returned is replaced. It would then mean "this node has stopped its
  workers, and comes", and the next round would be complete while the workers of this one still run. A LEAVE would take
  a node off the lists whose workers run.
- *The lease counts from the sending of a request* that was answered and whose node is listed.
- *A request without an answer is sent again on a new connection.* The room recognizes repeated ones (room.py).
- *A slow server is not disturbed.* `woke` gives a connection up only after a time that grows with the answers that were
  measured. The driver's connection detects a dead path itself.

Failures: the server loses its contents: the answers have another life, or NO_STATE, and `standing` is EXPELLED. The
server cannot be reached: `standing` is LAPSED at the end of the lease; a join ends GRACE_SECONDS after its deadline.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from zlib import crc32

from trystate.model.rendezvous.vocabulary import Membership

from ..encoding import encode_settings
from ..engine import ALONE, DRIFT_MAX, GRACE_SECONDS, Standing
from ..errors import (
    RendezvousError,
    RendezvousSettingsError,
    RendezvousStateError,
    checked,
    closed_error,
    drained_error,
    late_error,
)
from ..intents import exit_flags
from ..observer import Lease
from ..state import REASON_LENGTH_MAX, Participant, Settings
from . import messages
from .messages import Intent, IntentError, Summary

# Patience with an answer. A node that is not listed yet loses nothing by waiting. A listed node sends heartbeats, also
# while it joins (POKE): it must find out soon that its connection is dead, or the others expel it.
PATIENCE_SECONDS, PATIENCE_SECONDS_MAX = 30.0, 120.0
PATIENCE = 4.0  # times the slowest answer of late
FORGETTING = 0.9  # of the slowest answer, with each faster one
RESULTS_MAX = 64  # a driver takes each result at once
LATE_SECONDS = 1.0  # between two requests of a join after its deadline
JOINING = (messages.JOIN, messages.POKE)
PASSING = (*JOINING, messages.BEAT)  # requests that are made again where they are needed
REPEATED = (messages.DONE, messages.LOOK, messages.WHY)  # requests that their callers make again after an outage
UPON = (Membership.WAITING, Membership.REDUNDANT, Membership.EXPECTED)  # a notice makes such a node send a POKE


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to an intent, or the sentence of its refusal."""

    applied: bool = False  # this request has changed the state; an earlier copy without an answer may have
    seen: Summary | None = None
    data: bytes = b""  # the answer to LOOK or WHY
    refused: str = ""


class Member:
    """One node's half. All times are seconds of its own monotonic clock.

    Raises:
        RendezvousSettingsError: min_nodes is below 1 or above max_nodes.
        RendezvousStateError: a text of the node's listing is too long.
    """

    def __init__(self, me: Participant, settings: Settings) -> None:
        try:
            messages.LISTING.write(me)
            messages.read_token(me.node.token.encode().ljust(messages.TOKEN_BYTES, b"\0"))
        except IntentError as why:
            raise RendezvousStateError(f"the listing of this node cannot be sent: {why}") from None
        self.me, self.settings, self.lease = me, checked(settings), Lease(settings)
        self.seen: Summary | None = None  # the last one; None: the room has no state
        self.joined: Summary | None = None  # the complete round of the last join
        self.since = 0.0  # when this node saw it complete, by its own clock
        self.joining = False
        self.error: RendezvousError | None = None  # how the last join has ended, if not in a round
        self.makes_room = False  # set while workers run: the round is replaced for a newcomer
        self.results: dict[int, Result] = {}  # by ticket; the driver takes them
        self._connection = self._joins = self._tickets = 0
        self._connected = False
        self._request: tuple[int, Intent] | None = None  # under way, with its ticket; 0: it has none
        self._sent = 0.0
        self._wanted: deque[tuple[int, Intent]] = deque()
        self._join = 0, Intent(messages.JOIN, self.token)
        self._seconds = self._deadline = self._late = math.inf  # `_late`: when a join sends again after its deadline
        self._held = False  # the deadline has been moved for scale_up_interval
        self._agreed = False  # the room has the settings: their digest is enough
        self._slowest, self._losses = 0.0, 0  # of the answers of late; connections that were given up in a row
        self._first_beat = math.inf  # when the first heartbeat of a first join or of a round is due; inf: it was sent
        self._rests = False
        self._quiet = -math.inf  # no heartbeat before this time, after one that was refused or did not count

    @property
    def token(self) -> str:
        return self.me.node.token

    # ---- operations: each returns the ticket of its result

    def join(self, now: float, seconds: float, *, failed: bool = False, lapsed: bool = False, final: str = "") -> int:
        """Become a member of a complete round, like `Engine.join`. The join has ended when `joining` is False."""
        assert not self.joining  # next_rendezvous blocks until the last one has ended
        self._joins += 1
        flags = exit_flags(failed, self.lease.holds(now), lapsed)
        intent = Intent(messages.JOIN, self.token, join=self._joins, flags=flags, of=self._of(), me=self.me,
                        reason=final[:REASON_LENGTH_MAX])  # fmt: skip
        self.joined, self.joining, self.error, self.makes_room, self._rests = None, True, None, False, False
        self._seconds, self._deadline, self._held, self._late = seconds, now + seconds, False, -math.inf
        self._first_beat = now + 2 * self.settings.keep_alive_interval if intent.of is None else math.inf
        self._tickets += 1
        self._join = self._tickets, intent
        self._want_join()
        return self._tickets

    def rest(self) -> None:
        """Send no heartbeat until the next join."""
        self._rests = True

    def leave(self) -> int:
        """Take this node off the lists. A join ends without a result; the node may join again."""
        if self.joining:
            self._finish(self._join[0], Result())
        self.joining, self.joined = False, None
        self._forget_join()
        return self._want(Intent(messages.LEAVE, self.token))

    def step_out(self, failed: bool, now: float, lapsed: bool = False) -> int:
        """Replace the node's round before its health is checked. It is expected until it joins or leaves."""
        flags = exit_flags(failed, self.lease.holds(now), lapsed)
        return self._want(Intent(messages.STEP_OUT, self.token, flags=flags, of=self._of()))

    def give_notice(self) -> int:
        """Replace the round before a leaving member stops its workers; this spends a restart."""
        self.makes_room = False
        return self._want(Intent(messages.NOTICE, self.token, of=self._of()))

    def done(self) -> int:
        """Report that the workers have succeeded. It is recorded if `is_done` of the result's summary is true."""
        return self._want(Intent(messages.DONE, self.token, of=self._of()))

    def close(self, reason: str, verdict: str = "", anyway: bool = False) -> int:
        """Close the rendezvous for all nodes; only a member may, unless `anyway`."""
        flags, reason, settings = messages.ANYWAY * anyway, reason[:REASON_LENGTH_MAX], encode_settings(self.settings)
        return self._want(Intent(messages.CLOSE, self.token, flags=flags, by=self.me.node, reason=reason,
                                 verdict=verdict, settings=settings))  # fmt: skip

    def look(self) -> int:
        """The whole state, encoded; empty if there is none."""
        return self._want(Intent(messages.LOOK, self.token))

    def why(self, left: bool = False) -> int:
        """The sentence about what this node waits for; `left`: it has left, and serves the store for others."""
        return self._want(Intent(messages.WHY, self.token, flags=messages.LEFT * left))

    def _of(self) -> tuple[str, int] | None:
        return (self.joined.life, self.joined.round) if self.joined is not None else None

    def _want(self, intent: Intent) -> int:
        self._tickets += 1
        self._wanted.append((self._tickets, intent))
        return self._tickets

    def forget(self, ticket: int) -> None:
        """Do not send a request that its caller repeats later: it would be sent once for each turn of an outage."""
        self._wanted = deque(one for one in self._wanted if one[0] != ticket or one[1].kind not in REPEATED)

    def _forget_join(self) -> None:
        self._wanted = deque(one for one in self._wanted if one[1].kind not in PASSING)

    # ---- the driver's calls

    def connected(self, now: float) -> None:
        """There is a new connection. A request that was under way is sent again, unless a later one replaces it."""
        self._connection, self._connected = self._connection + 1, True
        if self._request is not None:
            if self._request[1].kind not in PASSING:
                self._wanted.appendleft(self._request)
            self._request = None
        if self.joining:
            self._want_join()
        elif self.joined is not None and not self._rests and not self._wanted:
            self._want_beat(messages.BEAT)

    def disconnected(self) -> None:
        """The connection is lost."""
        self._connected = False

    def take(self, now: float) -> bytes | None:
        """The next request to send; None: one is under way, or nothing is wanted."""
        if not self._connected or self._request is not None or not self._wanted:
            return None
        ticket, intent = self._wanted.popleft()
        known = self.seen.mark if self.seen is not None else 0
        intent = replace(intent, connection=self._connection, known=known)
        if intent.kind in JOINING and now >= self._deadline:
            intent.flags |= messages.LATE
            self._late = now + LATE_SECONDS
        elif intent.kind in (messages.POKE, messages.BEAT):
            self._first_beat = math.inf
        if intent.kind == messages.JOIN:
            settings = encode_settings(self.settings)
            intent.digest, intent.settings = messages.digest(settings), b"" if self._agreed else settings
        self._request, self._sent = (ticket, intent), now
        return intent.encode()

    def heard(self, data: bytes, notice: bool, now: float) -> None:
        """Take an answer or a notice. Raises IntentError: it is neither, and the connection is to be given up."""
        if notice:
            return self._look(self._see(messages.read_summary(data)), False, now)
        if self._request is None:
            raise IntentError("the room has sent an answer without a request")
        (ticket, intent), seen = self._request, None
        if intent.kind in (messages.LOOK, messages.WHY):
            self._answered(ticket, Result(data=data), now)
            if self.joining and self.seen is not None:
                self._return(self.seen, now)
            return None
        kind = data[0] if data else 0
        if kind == messages.FULL:
            seen = messages.read_summary(data)
        elif kind not in (messages.SAME, messages.NO_STATE, messages.NEED_SETTINGS):
            raise IntentError(f"an answer of a room begins with {data[:8]!r}")
        self._answered(ticket, Result(seen is not None and seen.applied, seen), now)
        if kind == messages.SAME or (seen is not None and seen.membership is not Membership.OUTSIDE):
            self.lease.confirm(self._sent)
        elif intent.kind == messages.BEAT:
            self._quiet = now + self.settings.keep_alive_interval  # it is not listed; the agent decides what follows
        if seen is not None:
            self._agreed = True
            self._look(self._see(seen), intent.kind in JOINING and intent.join == self._joins, now)
        elif kind == messages.NEED_SETTINGS:
            self._agreed = False
            if self.joining:
                self._want_join()
        elif kind == messages.NO_STATE:
            self.seen = None
            if self.joining and intent.flags & messages.LATE:
                self._end(late_error(self.me.node, self.settings, self._seconds, ALONE))
            elif self.joining:
                self._want_join()
        return None

    def refused(self, text: str, now: float) -> None:
        """The server has refused the request with a sentence."""
        if self._request is None:
            return
        ticket, intent = self._request
        self._answered(ticket, Result(refused=text), now)
        self._quiet = now + self.settings.keep_alive_interval
        if self.joining and intent.kind in JOINING:
            self._end(RendezvousStateError(text))

    def wakes(self, now: float) -> float:
        """When `woke` is to be called."""
        ends = self._deadline + GRACE_SECONDS if self.joining else math.inf
        if self._request is not None:
            return min(ends, self._sent + self._patience()) if self._connected else ends
        if not self._connected or self._wanted:
            return ends
        if self.joining:
            return min(ends, self._next_beat(now), max(self._deadline, self._late))
        return self._next_beat(now)

    def woke(self, now: float) -> bool:
        """Time has passed. False: no answer comes; the connection is to be given up."""
        if self.joining and now >= self._deadline + GRACE_SECONDS:
            # The node gives up while it may still be listed: `leave` takes it off the lists, or it is expelled.
            self._end(late_error(self.me.node, self.settings, self._seconds, ALONE))
        if self._request is not None and self._connected and now >= self._sent + self._patience():
            self._losses += 1
            return False
        if self._connected and self._request is None and not self._wanted:
            if self.joining and now >= max(self._deadline, self._late):
                self._want_join()
            elif now >= self._next_beat(now):
                self._want_beat(messages.POKE if self.joining else messages.BEAT)
        return True

    # ---- answers and notices

    def _answered(self, ticket: int, result: Result, now: float) -> None:
        # A running node would have given a later answer up: this process was stopped, and the server was not slow.
        waited = min(now - self._sent, self._patience())
        self._request, self._losses = None, 0
        self._slowest = max(waited, self._slowest * FORGETTING)
        if ticket:
            self._finish(ticket, result)

    def _finish(self, ticket: int, result: Result) -> None:
        self.results[ticket] = result
        if len(self.results) > RESULTS_MAX:
            del self.results[next(iter(self.results))]

    def _see(self, summary: Summary) -> Summary:
        if self.seen is None or summary.life != self.seen.life or summary.version >= self.seen.version:
            self.seen = summary
        return summary

    def _look(self, s: Summary, answers_join: bool, now: float) -> None:
        """Continue a join; `answers_join`: this is the answer to a request of it, and not a notice."""
        if not self.joining:
            return
        if s.membership is Membership.REDUNDANT:
            self._deadline = math.inf  # a spare waits without a limit
        elif self._deadline == math.inf:
            self._deadline = now + self._seconds
        if s.membership is Membership.WAITING and not self._held:
            # The members let newcomers in only after scale_up_interval, by the clock of the server.
            self._deadline, self._held = self._deadline + self.settings.scale_up_interval * (1 + DRIFT_MAX), True
        if answers_join and s.verdict:
            self._end(self._error(s))
        elif s.closed is not None:
            self._end(closed_error(s.closed))
        elif s.membership is Membership.OUTSIDE:
            self._want_join()
        elif not self._return(s, now) and (s.drained or (not answers_join and s.membership in UPON)):
            self._want_beat(messages.POKE)

    def _return(self, s: Summary, now: float) -> bool:
        """End the join with this round, if it is complete and later than the one that the node has left."""
        of = self._join[1].of
        if (
            s.membership is not Membership.PARTICIPANT
            or not s.complete
            or (of and s.life == of[0] and s.round <= of[1])
        ):
            return False
        if self._request is None and not self._wanted:  # or their answers decide, which are later than this one
            if self.lease.holds(now):
                self.joining, self.joined, self.since = False, s, now
                self._first_beat = now + self.settings.keep_alive_interval * (0.5 + crc32(self.token.encode()) / 2**33)
                self._forget_join()
                self._finish(self._join[0], Result(seen=s))
            else:
                self._want_beat(messages.POKE)
        return True

    def _error(self, s: Summary) -> RendezvousError:
        if s.verdict == messages.TIMED_OUT:
            return late_error(self.me.node, self.settings, self._seconds, s.why)
        if s.verdict == messages.WAS_DRAINED:
            return drained_error(self.me.node, s.why)
        if s.closed is not None:
            return closed_error(s.closed)
        return (RendezvousSettingsError if s.verdict == messages.OTHER_SETTINGS else RendezvousStateError)(s.why)

    def _end(self, error: RendezvousError) -> None:
        self.joining, self.error = False, error
        self._forget_join()
        self._finish(self._join[0], Result(seen=self.seen, refused=str(error)))

    def _want_join(self) -> None:
        if not self._decides() and all(intent.kind != messages.JOIN for _, intent in self._wanted):
            self._forget_join()
            self._wanted.append((0, self._join[1]))

    def _want_beat(self, kind: int) -> None:
        if not self._decides() and all(intent.kind not in PASSING for _, intent in self._wanted):
            flags = messages.MAKES_ROOM * (kind == messages.BEAT and self.makes_room)
            self._wanted.append((0, Intent(kind, self.token, join=self._joins, flags=flags)))

    def _decides(self) -> bool:
        """Whether a request of the join is under way: its answer shows a later state than the notices before it."""
        intent = self._request[1] if self._request is not None else None
        return intent is not None and intent.kind in JOINING and intent.join == self._joins

    def _next_beat(self, now: float) -> float:
        if not self.joining and (self.joined is None or self._rests):
            return math.inf
        due = self.lease.next_beat if math.isinf(self._first_beat) else min(self._first_beat, self.lease.last_beat)
        return max(self._quiet, now if self.joining and not self.lease.holds(now) else due)

    def _patience(self) -> float:
        beats = not self.joining or (self._request is not None and self._request[1].kind == messages.POKE)
        least = min(PATIENCE_SECONDS, self.settings.keep_alive_interval) if beats else PATIENCE_SECONDS
        return min(PATIENCE_SECONDS_MAX, max(least, PATIENCE * self._slowest) * 2.0**self._losses)

    # ---- while the workers run

    def standing(self, now: float) -> Standing:
        """The standing of the node's round, by what has been received and by the clock."""
        j, s = self.joined, self.seen
        assert j is not None  # after a join
        if s is None or s.life != j.life:
            return Standing.EXPELLED
        if s.closed is not None:
            return Standing.CLOSED
        if s.membership is Membership.OUTSIDE:
            return Standing.EXPELLED
        if not self.lease.holds(now):
            return Standing.LAPSED
        if s.round != j.round:
            return Standing.REPLACED
        ripe = now >= self.since + self.settings.scale_up_interval
        return Standing.NEWCOMERS if s.waiting and ripe else Standing.CURRENT

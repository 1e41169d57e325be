"""G17 to G19: the graceful shutdown of RPC."""

from __future__ import annotations

from ...replays import Observation, Say, ScheduleError, judge
from ...torch_store.isolated import Silence
from .. import calls
from ..workers import WAIT_S, Group, Raised

HANG_S = 8.0  # the timeout of a call is 2 s in these groups: whatever raises does so earlier
RPC_TIMEOUT_S = 2.0
TIMEOUT_S, LATE_S = 0.5, 1.5  # of a shutdown, and when it is taken not to have ended


def gone_worker_waited_for(say: Say, *, benign: bool = False) -> Observation:
    """G17. B is killed, and A calls shutdown. Benign: B calls shutdown too."""
    with Group("AB", rpc_timeout_s=RPC_TIMEOUT_S) as group:
        a, b = group.workers
        if benign:
            parting = b.begins(calls.shut_down, 0.0)
        else:
            b.dies()
        say(f"B {'calls shutdown' if benign else 'is killed'}; A calls shutdown")
        outcome = a.ends(a.begins(calls.shut_down, 0.0), WAIT_S if benign else HANG_S)
        if benign and isinstance(b.ends(parting), Silence):
            raise ScheduleError("B's shutdown does not end")
    hangs = isinstance(outcome, Silence)
    say(f"A's shutdown {'has not ended' if hangs else 'has ended'}")
    return judge(hangs, "a graceful shutdown ends when the others are gone", [f"after {HANG_S:g} s: {hangs}"])


def shutdown_timeout_ignored(say: Say, *, benign: bool = False) -> Observation:
    """G18. A calls shutdown with a timeout, B works on. Benign: B calls shutdown too."""
    with Group("AB", rpc_timeout_s=WAIT_S) as group:
        a, b = group.workers
        if benign:
            b.begins(calls.shut_down, WAIT_S)
        timeout = WAIT_S if benign else TIMEOUT_S
        outcome = a.ends(a.begins(calls.shut_down, timeout), WAIT_S if benign else TIMEOUT_S + LATE_S)
    waits = isinstance(outcome, Silence)
    say(f"A's shutdown with a timeout of {timeout:g} s {'waits on' if waits else 'has ended'}")
    return judge(waits, "a shutdown ends at its timeout", [f"{LATE_S:g} s after it, it waits: {waits}"])


def late_call_outlives_shutdown(say: Say, *, benign: bool = False) -> Observation:
    """G19. A's call of B times out, all call shutdown, and the function of the call calls A. Benign: A waits for it."""
    with Group("AB") as group:
        a, b = group.workers
        timeout = WAIT_S if benign else TIMEOUT_S
        call = a.begins(calls.call_back, timeout)
        if not b.shows(calls.is_entered, True):
            raise ScheduleError("the call does not reach B")
        if benign:
            b.does(calls.open_gate)
        first = a.ends(call)
        if isinstance(first, Raised) is benign:
            raise ScheduleError(f"the call ends with {first}")
        parting = [worker.begins(calls.shut_down, 0.0) for worker in (a, b)]
        ended = a.ends(parting[0])
        if isinstance(ended, Silence | Raised):
            raise ScheduleError(f"A's shutdown: {ended}")
        running = not benign and b.does(calls.last_outcome) == ""
        say(f"A's graceful shutdown has returned; the function on B {'runs' if running else 'is over'}")
        if not benign:
            b.does(calls.open_gate)
        b.ends(parting[1])
        said = b.does(calls.last_outcome)
    say(f"the call that the function on B has made: {said}")
    failed = running and said.startswith("raised")
    return judge(failed, "a graceful shutdown leaves no function behind", [f"the function's own call {said}"])

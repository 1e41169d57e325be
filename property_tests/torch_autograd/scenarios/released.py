"""G12: what happens to a worker that has left a context when a call of a failed pass ends."""

from __future__ import annotations

from ...replays import Observation, Say, judge
from ...torch_store.isolated import Silence
from .. import calls
from ..workers import Group

ATTEMPTS_MAX = 10  # two in three crash, each after less than a second
HANGS_S = 20.0
ENDS = {Silence.ENDED: "crashes", Silence.LATE: "hangs"}


def callback_after_release(say: Say, *, benign: bool = False) -> Observation:
    """G12. Passes fail, contexts are left, and then the other calls of those passes fail: A crashes, or hangs.

    Benign: contexts are left when all calls have failed.
    """
    for attempt in range(1, 2 if benign else 1 + ATTEMPTS_MAX):
        with Group("ABC") as group:
            a = group.workers[0]
            ended = ENDS.get(a.ends(a.begins(calls.leave_failed_passes, benign), HANGS_S), "goes on")
        say(f"attempt {attempt}: A {ended}")
        if ended != "goes on":
            break
    return judge(ended != "goes on", "no callback touches a context that is gone", [f"in attempt {attempt} A {ended}"])

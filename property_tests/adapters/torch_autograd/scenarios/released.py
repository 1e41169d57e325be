"""G12: what a call of a failed pass does when it ends after its worker has left the context."""

from __future__ import annotations

from ...replays import Observation, Say, ScheduleError, judge
from ...torch_store.isolated import Silence
from .. import calls
from ..workers import Group, Raised

ATTEMPTS_MAX = 10  # nineteen in twenty show it, each in less than a second
HANGS_S = 20.0
ENDS = {Silence.ENDED: "A crashes", Silence.LATE: "A hangs", "": "the pass of the next context ends well"}


def callback_after_release(say: Say, *, benign: bool = False) -> Observation:
    """G12. A pass fails, its context is left, and then another call of it fails: so does the pass of the next context.

    Benign: the context is left when all calls have failed.
    """
    for attempt in range(1, 2 if benign else 1 + ATTEMPTS_MAX):
        with Group("ABC") as group:
            a = group.workers[0]
            said = a.ends(a.begins(calls.pass_beside_a_late_error, not benign), HANGS_S)
        if isinstance(said, Raised):
            raise ScheduleError(f"the passes of A: {said.text}")
        ended = ENDS.get(said, f"the pass of the next context raises {said!r}")
        say(f"attempt {attempt}: {ended}")
        if said != "":
            break
    return judge(said != "", "no callback touches a context that is gone", [f"in attempt {attempt} {ended}"])

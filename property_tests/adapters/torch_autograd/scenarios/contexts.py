"""G9 to G14: contexts that come back or stay, and their ids."""

from __future__ import annotations

from ...replays import Observation, Say, ScheduleError, judge
from ...torch_store.isolated import Child
from .. import calls
from ..workers import WAIT_S, Group, Worker

SETTLE_S = 1.0  # clean-up takes a few milliseconds
NONE = -1  # torch's id for "no context"


def _ids(number: int) -> tuple[int, int]:
    """The first and the last id of a worker."""
    with Child(calls.ids_of_worker, number) as child:
        heard = child.hear(WAIT_S)
    if not isinstance(heard, tuple):
        raise ScheduleError(f"worker {number} has no context")
    return heard


def negative_ids(say: Say, *, benign: bool = False) -> Observation:
    """G9. The first context of worker 32768. Benign: of worker 32767."""
    number = 32767 if benign else 32768
    first, _ = _ids(number)
    say(f"worker {number}: its first context is {first}, which is of worker {first >> 48}")
    return judge(
        first >> 48 != number, "an id says whose it is, and is not negative", [f"{first} >> 48 = {first >> 48}"]
    )


def id_means_none(say: Say, *, benign: bool = False) -> Observation:
    """G10. The last id of worker 65535. Benign: of worker 65534."""
    number = 65534 if benign else 65535
    _, last = _ids(number)
    say(f"worker {number}: its last id is {last}")
    return judge(last == NONE, "no id of a worker means that there is none", [f"the last id is {last}"])


def _keeps(worker: Worker, benign: bool) -> bool:
    """Whether a worker has contexts for good; where it is to have none it may take its time."""
    return not worker.shows(calls.contexts, 0, WAIT_S if benign else SETTLE_S)


def context_recreated(say: Say, *, benign: bool = False) -> Observation:
    """G11. A calls B, and leaves the context; the clean-up overtakes the call, which is slow to read.

    Benign: A waits for the answer before it leaves.
    """
    with Group("AB") as group:
        a, b = group.workers
        a.does(calls.enter_and_call, "B")
        a.does(calls.enter_and_ask)
        if not b.shows(calls.is_entered, True):
            raise ScheduleError("the call does not reach B")
        for step in (_answer, _leave) if benign else (_leave, _answer):
            step(say, a, b)
        kept = [worker.name for worker in (a, b) if _keeps(worker, benign)]
    say(f"a context stays on {' and '.join(kept) or 'no worker'}")
    return judge(bool(kept), "no context is created again after its release", [f"it stays on: {' '.join(kept)}"])


def _leave(say: Say, a: Worker, b: Worker) -> None:
    """Out of the context, and of an older one, by which one sees that clean-up comes to B."""
    a.does(calls.leave)
    a.does(calls.leave)
    if not b.shows(calls.contexts, 0):
        raise ScheduleError("clean-up does not come to B")
    say(f"A leaves the context; A keeps {a.does(calls.contexts)}, B {b.does(calls.contexts)}")


def _answer(say: Say, a: Worker, b: Worker) -> None:
    b.does(calls.open_gate)
    a.does(calls.take_in)
    say("B reads the call and answers, A takes in the answer")


def creator_dies(say: Say, *, benign: bool = False) -> Observation:
    """G13. A has called B in a context, and is killed. Benign: A leaves the context."""
    return _stays(say, "AB", None if benign else "A", "a context ends with the worker that created it")


def clean_up_cut_off(say: Say, *, benign: bool = False) -> Observation:
    """G14. A has called B, which called C; B is killed, and A leaves the context. Benign: B is not."""
    return _stays(say, "ABC", None if benign else "B", "clean-up reaches every worker that has the context")


def _stays(say: Say, names: str, victim: str | None, claim: str) -> Observation:
    with Group(names) as group:
        workers = dict(zip(names, group.workers, strict=True))
        a, last = group.workers[0], group.workers[-1]
        a.does(calls.enter_and_call, *names[1:])
        if last.does(calls.contexts) != 1:
            raise ScheduleError(f"{last.name} has no context")
        if victim is not None:
            workers[victim].dies()
            say(f"{victim} is killed")
        if victim != "A":
            a.does(calls.leave)
            say("A leaves the context")
        kept = _keeps(last, benign=victim is None)
    say(f"{last.name} keeps {'the context' if kept else 'nothing'}")
    return judge(kept, claim, [f"{last.name} keeps it: {kept}"])

"""R20: a job uses the store that a node of another job serves, and ends when that job does."""

from __future__ import annotations

from contextlib import ExitStack

from ...replays import Observation, Say, ScheduleError, judge
from ...torch_store.isolated import Child
from ..hosting import STEP_SECONDS, free_port, torch_node


def store_of_another_job(say: Say, *, benign: bool = False) -> Observation:
    """R20. Job 0 serves the endpoint, job 1 finds the port taken, job 0 succeeds. Benign: two ports."""
    with ExitStack() as stack:
        port = free_port()
        first = stack.enter_context(Child(torch_node, 0, port))
        _ask(first, "begin")
        say("job 0 begins, and its node serves the endpoint")
        second = stack.enter_context(Child(torch_node, 1, free_port() if benign else port))
        _ask(second, "begin")
        say("job 1 begins, and its node is connected" + (" to a store of its own" if benign else " to that store"))
        before = _ask(second, "look")
        _ask(first, "succeed")
        say("job 0 succeeds, and its node ends")
        after = _ask(second, "look")
        say(f"the store of job 1 {'answers' if after else 'is gone'}")
    if before is not True:
        raise ScheduleError("job 1 did not connect")
    facts = [f"the store of job 1 {'answers' if seen else 'does not answer'} {when} the end of job 0"
             for seen, when in ((before, "before"), (after, "after"))]  # fmt: skip
    return judge(not after, "a job that ends in order takes the store from no other job", facts)


def _ask(node: Child, step: str) -> object:
    node.tell(step)
    answer = node.hear(STEP_SECONDS)
    if not isinstance(answer, str | bool):
        raise ScheduleError(f"a node did not end the step {step}: {answer}")
    return answer

"""G1 to G8: one backward pass, or two of one context, over workers A, B and C."""

from __future__ import annotations

from ...replays import Observation, Say, ScheduleError, judge
from ...torch_store.isolated import Silence
from .. import calls
from ..workers import WAIT_S, Group

SETTLE_S = 1.0  # a clean-up, if there is one, takes a few milliseconds
RPC_TIMEOUT_S = 1.0
HANGS_S = 3.0  # longer than the RPC timeout by a good deal


def old_task_fed(say: Say, *, benign: bool = False) -> Observation:
    """G1. A pass fails on C while B waits for a second gradient; the same pass again, with nothing wrong, fails.

    About one time in two hundred it neither ends nor raises. Benign: nothing is wrong the first time either.
    """
    with Group("ABC") as group:
        a, _, c = group.workers
        if benign:
            c.does(calls.open_gate)
        try:
            first, second, _ = a.does(calls.fail_and_retry, True)
        except ScheduleError:
            first, second = a.does(calls.first_error), f"it does not return within {WAIT_S:g} s"
            if not first:
                raise
    say(f"the first pass: {first or 'ends well'}")
    say(f"the second pass: {second or 'ends well'}")
    return judge(bool(second), "a pass that nothing disturbs succeeds after one that failed", [f"the retry: {second}"])


def failed_pass_accumulates(say: Say, *, benign: bool = False) -> Observation:
    """G2. A pass fails on C when B has accumulated; the same pass again succeeds. Benign: the first time already."""
    with Group("ABC") as group:
        a, _, c = group.workers
        if benign:
            c.does(calls.open_gate)
        first, second, found = a.does(calls.fail_and_sum)
    if second or bool(first) == benign:
        raise ScheduleError(f"the passes: {first or 'ends well'}; {second or 'ends well'}")
    say(f"the first pass: {first or 'ends well, and is the only one'}")
    say(f"the gradient of B's parameter: {found:g}, locally {calls.INPUT:g}")
    return judge(
        found != calls.INPUT,
        "a failed pass leaves no gradients",
        [f"accumulated: {found:g} instead of {calls.INPUT:g}"],
    )


def graph_kept_after_error(say: Say, *, benign: bool = False) -> Observation:
    """G4. A pass fails on C while B waits for a second gradient; A is told, and leaves the context. B waits on.

    Benign: nothing is wrong.
    """
    with Group("ABC") as group:
        a, b, c = group.workers
        if benign:
            c.does(calls.open_gate)
        first, _, _ = a.does(calls.fail_and_retry, False)
        say(f"the pass: {first or 'ends well'}; A leaves the context")
        kept = not b.shows(calls.passes, 0, WAIT_S if benign else SETTLE_S)
        say(f"passes that run on B: {b.does(calls.passes)}")
    return judge(kept, "after an error nothing of the pass stays on any worker", [f"B waits for a gradient: {kept}"])


def duplicate_gradient(say: Say, *, benign: bool = False) -> Observation:
    """G3. The gradient of a call is sent to B twice, as by a network that repeats. Benign: once."""
    with Group("AB") as group:
        found = group.workers[0].does(calls.backward_with_duplicate, 0 if benign else 1)
    right = calls.INPUT
    say(f"the gradient of B's parameter: {found:g}, locally {right:g}")
    return judge(
        found != right, "a gradient is delivered at most once", [f"accumulated: {found:g} instead of {right:g}"]
    )


def second_pass_asserts(say: Say, *, benign: bool = False) -> Observation:
    """G5. A second pass on a context whose first is running. Benign: when the first has ended."""
    with Group("AB") as group:
        a, b = group.workers
        a.does(calls.keep_two_passes_ready)
        if benign:
            b.does(calls.open_gate)
        first = a.begins(calls.run_a_pass)
        if not b.shows(calls.is_entered, True):
            raise ScheduleError("the first pass does not reach B")
        if benign:
            a.ends(first)
        said = a.does(calls.run_a_pass)
        b.does(calls.open_gate)
    said = said.partition(' at "')[0]  # where torch was built
    say(f"the second pass: {said or 'ends well'}")
    return judge("INTERNAL ASSERT" in said, "a second pass is refused with an error of its own", [f"it raised: {said}"])


def unused_call_hangs(say: Say, *, benign: bool = False) -> Observation:
    """G6. The loss does not depend on what a call returned; the RPC timeout is 1 s. Benign: it does."""
    with Group("AB", rpc_timeout_s=RPC_TIMEOUT_S) as group:
        a = group.workers[0]
        asked = a.begins(calls.backward_beside_an_unused_call, benign)
        if not a.shows(calls.is_entered, True):
            raise ScheduleError("the call does not return")
        said = a.ends(asked, WAIT_S if benign else HANGS_S)
    hangs = said is Silence.LATE
    came = f"not back after {HANGS_S:g} s" if hangs else "returned"
    say(f"backward with an RPC timeout of {RPC_TIMEOUT_S:g} s: {came}")
    return judge(hangs, "a backward pass ends", [f"still waiting after {HANGS_S:g} s: {hangs}"])


def zeros_shipped(say: Say, *, benign: bool = False) -> Observation:
    """G7. Of the two results of a call one is used: the parameter behind the other has a gradient. Benign: both are."""
    with Group("AB") as group:
        found = group.workers[0].does(calls.use_results, 2 if benign else 1)
    say(f"the gradient of the parameter behind the second result: {found or 'none'}")
    return judge(found == [0.0], "what no loss depends on gets no gradient", [f"in the context: {found or 'nothing'}"])


def hooks_not_called(say: Say, *, benign: bool = False) -> Observation:
    """G8. A hook that is to run after a gradient was accumulated, in a distributed pass. Benign: in a local one."""
    with Group("A") as group:
        called = group.workers[0].does(calls.hook_calls, not benign)
    say(f"the hook was called {called} times")
    return judge(called == 0, "hooks run as in a local backward", [f"calls: {called} instead of 1"])

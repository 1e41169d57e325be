"""G15, G16: distributed optimizers."""

from __future__ import annotations

from ...replays import Observation, Say, judge
from .. import calls
from ..workers import Group


def stale_gradient_stepped(say: Say, *, benign: bool = False) -> Observation:
    """G15. A step in whose context a parameter has no gradient, by a Python optimizer. Benign: by a scripted one."""
    with Group("A") as group:
        gone = group.workers[0].does(calls.step_without_gradient, benign)
    say(f"a step with a gradient of 1, and one without: the parameter has gone {gone:g}")
    return judge(gone != 1, "a step applies the gradients of its context alone", [f"applied: {gone:g} times"])


def scripted_steps_interleave(say: Say, *, benign: bool = False) -> Observation:
    """G16. Two scripted optimizers step at the same time. Benign: Python ones."""
    with Group("A") as group:
        values = group.workers[0].does(calls.step_together, not benign)
    say(f"two steps from 0 to -0.75: elements of the parameter are {', '.join(f'{value:g}' for value in values[:4])}")
    return judge(values != [-0.75], "the steps of one worker do not interleave", [f"elements: {values[:4]}"])

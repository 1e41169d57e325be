"""The findings about torch.distributed.autograd, replayed on the torch that is installed.

Rule: workers are processes in which torch runs unmodified; a scenario decides only what they call, who is held and who
dies, and computes from what the workers say whether the property was violated. `CONTROLS` runs the same code on a
schedule that does no harm.
"""

from __future__ import annotations

from ...replays import Catalogue
from .contexts import clean_up_cut_off, context_recreated, creator_dies, id_means_none, negative_ids
from .meetings import gone_worker_waited_for, late_call_outlives_shutdown, shutdown_timeout_ignored
from .optimizers import scripted_steps_interleave, stale_gradient_stepped
from .passes import (
    duplicate_gradient,
    failed_pass_accumulates,
    graph_kept_after_error,
    hooks_not_called,
    old_task_fed,
    second_pass_asserts,
    unused_call_hangs,
    zeros_shipped,
)
from .released import callback_after_release

__all__ = ["CONTROLS", "SCENARIOS"]

# fmt: off
_CATALOGUE = Catalogue.of((
    ("G1", "old-task-fed", old_task_fed, "A correct pass fails, because an earlier one failed."),
    ("G2", "failed-pass-accumulates", failed_pass_accumulates, "After a retry a gradient is twice what it should be."),
    ("G3", "duplicate-gradient", duplicate_gradient, "A gradient that arrives twice counts twice."),
    ("G4", "graph-kept-after-error", graph_kept_after_error, "A failed pass goes on, on a worker that is not told."),
    ("G5", "second-pass-asserts", second_pass_asserts, "A second pass at a time is an internal assertion."),
    ("G6", "unused-call-hangs", unused_call_hangs, "A loss beside an unused call: backward never returns."),
    ("G7", "zeros-shipped", zeros_shipped, "A parameter that no loss depends on gets a gradient of zero."),
    ("G8", "hooks-not-called", hooks_not_called, "A post-accumulate-grad hook is not called."),
    ("G9", "negative-ids", negative_ids, "The ids of worker 32768 are negative, and name another worker."),
    ("G10", "id-means-none", id_means_none, "The last id of worker 65535 says that there is no context."),
    ("G11", "context-recreated", context_recreated, "An answer brings back a context that was left, for good."),
    ("G12", "callback-after-release", callback_after_release, "A late error fails the pass of another context."),
    ("G13", "creator-dies", creator_dies, "The context of a worker that was killed stays on the others."),
    ("G14", "clean-up-cut-off", clean_up_cut_off, "Behind a worker that was killed a context stays."),
    ("G15", "stale-gradient-stepped", stale_gradient_stepped, "A step applies a gradient of the context before."),
    ("G16", "scripted-steps-interleave", scripted_steps_interleave, "Two steps at a time lose a part of each other."),
    ("G17", "gone-worker-waited-for", gone_worker_waited_for, "A worker dies: the shutdown of the other never ends."),
    ("G18", "shutdown-timeout-ignored", shutdown_timeout_ignored, "A shutdown waits on when its timeout has passed."),
    ("G19", "late-call-outlives-shutdown", late_call_outlives_shutdown, "A function outlives its graceful shutdown."),
))
# fmt: on

SCENARIOS = _CATALOGUE.scenarios
CONTROLS = _CATALOGUE.controls

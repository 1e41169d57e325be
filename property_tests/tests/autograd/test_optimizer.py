"""Distributed optimizers: the violations of each edition, and the runtime edge by edge.

Each property is checked on a model of ours that is wrong in one place. Each rule of the runtime is broken once, and
a replay of the model's edges detects it.
"""

from __future__ import annotations

from trystate.impl.autograd import optimizer as runtime
from trystate.model.autograd.optimizer import Optimizers, Ours
from trystate.model.autograd.vocabulary import Edition
from trystate.model.language import any_, not_
from trystate.property_tests.adapters.our_autograd.conformance import Slice
from trystate.property_tests.support.mutants import altered, detected, wrong
from trystate.property_tests.support.pinned import Asked, model_tests

TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
STALE = "only_its_own_gradients_are_applied grad_is_what_it_was"
# fmt: off
ASKED = (
    Asked(Optimizers, TORCH, "steps=1", 5125, STALE),
    Asked(Optimizers, TORCH, "steps=1 scripted=1", 6241, "steps_do_not_interleave"),
    Asked(Optimizers, TORCH, "optimizer=2 owner=1", 25438, STALE, ("error", "timeout", "crash")),
    Asked(Optimizers, TRYSTATE, "owner=1 steps=1", 153),
    Asked(Optimizers, TRYSTATE, "", 18025),
    Asked(Optimizers, TRYSTATE, "owner=1", 22522, "", ("error", "slow", "timeout", "crash")),
)
# fmt: on


# A step enters while another is inside.
TakesNoLock = wrong("TakesNoLock", Ours, may_enter=lambda self, s, owner: not_(False))


# fmt: off
MUTANTS = (
    ("applied_at_most_once", altered("AppliesAgain", Ours, "leaves", "= Part.NONE", "= Part.WAITING"),
     "owner=1 steps=1", ()),
    ("only_its_own_gradients_are_applied", TakesNoLock, "owner=1 steps=1", ()),
    ("grad_is_what_it_was", altered("LeavesGrad", Ours, "leaves", "s.grad[owner] = 0", "pass"), "owner=1 steps=1", ()),
    ("steps_do_not_interleave", TakesNoLock, "owner=1 steps=1", ()),
    ("returned_means_applied", wrong("ReturnsEarly", Ours,
     may_return=lambda self, s, optimizer: any_(s.done[optimizer, w] for w in s.owner)), "steps=1", ()),
    ("a_step_that_failed_raises", wrong("ForgetsErrors", Ours,
     may_return=lambda self, s, optimizer: ~any_(~(s.done[optimizer, w] | s.failed[optimizer, w]) for w in s.owner)),
     "owner=1 steps=1", ("error",)),
    ("a_step_ends", wrong("AnswersNever", Ours, answer={"fair": False}), "owner=1 steps=1", ()),
    ("deadlock_freedom", wrong("NoticesNothing", Ours, notice=None), "owner=1 steps=1", ("crash",)),
)
# fmt: on


TestModel = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 1_000])


# ---- the runtime


ONE, FAILING = (Slice(Optimizers, {"steps": 1, "owner": 1}, faults) for faults in ((), ("error",)))
STEP = runtime.LocalOptimizer.step
# fmt: off
test_a_rule_that_the_runtime_breaks_is_a_disagreement = detected({
    "leaves .grad": (ONE, STEP, "borrowed(self._params)", "borrowed(())"),
    # Like torch: a parameter without a gradient keeps its `.grad`.
    "only those with gradients": (ONE, STEP, "borrowed(self._params):\n            for param in self._params:",
                                  "borrowed(()):\n            for param in gradients:"),
    "without the lock": (ONE, STEP, "not _steps.acquire(timeout=LOCK_SECONDS)", "False"),
    "twice": (ONE, STEP, "self._optimizer.step()", "self._optimizer.step(); self._optimizer.step()"),
    "keeps the lock": (FAILING, STEP, "_steps.release()", "pass"),
    "waits for the first owner only": (Slice(Optimizers, {"steps": 1}), runtime._all, "in futures", "in futures[:1]"),
    "raises no errors": (FAILING, runtime._all, "if errors", "if False"),
})
# fmt: on

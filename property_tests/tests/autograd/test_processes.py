"""Distributed autograd in three real processes; distributed optimizers; and the program of the design note.

Each property of the optimizers' model is checked on a model that is wrong in one place. Each rule of
the runtime's optimizers is broken once, and a test detects it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from trystate.impl.autograd import optimizer as runtime
from trystate.model.autograd.optimizer import Optimizers, Ours
from trystate.model.autograd.vocabulary import Edition
from trystate.model.language import any_, not_
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.mutants import altered, rewritten, survivors, wrong
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import Asked, model_tests

pytest.importorskip("torch", reason="it is about torch's autograd")

import torch

from trystate.property_tests.adapters.worlds import World
from trystate.property_tests.support.autograd import tasks
from trystate.property_tests.support.autograd.running import join, leave

SECONDS = 120.0  # limit of one task, on a busy machine
SIZE = 3
Do = Callable[..., Any]


@pytest.fixture(scope="module")
def do(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Do]:
    """A function that runs a task on worker 0 and returns its result."""
    with World(SIZE) as world:
        world.do(join, SIZE, ("ours",), str(tmp_path_factory.mktemp("meeting")), seconds=SECONDS)
        yield lambda task, *arguments: world.do(tasks.tasks_of_one, task, *arguments, seconds=SECONDS)[0]
        world.do(leave, ("ours",), seconds=SECONDS)


def test_an_error_anywhere_reaches_the_root_and_leaves_nothing(do: Do) -> None:
    found = do(tasks.an_error_on_another_worker, SIZE)
    kind, text = found["error"]
    assert kind == "PassError"
    assert text.startswith("Error on Node 2: ValueError: planted")
    assert "in fail_once" in text, "the traceback of the worker"
    assert found["parts"] == [0, 0, 0]
    assert found["after"] == [None, 0], "gradients of a failed pass"
    assert torch.equal(found["again"], torch.full((2, 2), 2.0)), "a retry counts once"
    assert found["quiet"]


def test_a_gradient_that_is_not_sent_is_an_error_at_once(do: Do) -> None:
    (kind, text), parts = do(tasks.a_gradient_that_is_not_sent, SIZE)
    assert kind == "PassError"
    assert "the tensors of one frame have 16 bytes, the limit is 8" in text
    assert parts == [0] * SIZE


@pytest.mark.parametrize(("mode", "round_trips"), [("fast", 1), ("smart", 2)])
def test_a_call_costs_one_round_trip_of_gradients_and_one_of_marks(do: Do, mode: str, round_trips: int) -> None:
    assert do(tasks.the_frames_of_a_pass, mode) == ((round_trips, round_trips), True)


def test_a_call_does_not_wait_for_hooks_of_the_other_worker(do: Do) -> None:
    assert do(tasks.the_frames_of_a_pass_with_a_hook) == ((2, 2), True)


def test_a_worker_that_dies_in_a_pass_fails_it_and_its_contexts_end(tmp_path: Path) -> None:
    with World(SIZE) as world:
        world.do(join, SIZE, ("ours",), str(tmp_path), seconds=SECONDS)
        said = world.tell(tasks.tasks_of_one, tasks.a_worker_that_dies, seconds=SECONDS)
    (kind, text), contexts = said[0]
    assert kind == "PassPeerLostError", text
    assert contexts == 0


# ---- the optimizer


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


STEP = runtime.LocalOptimizer.step


def the_rules_of_a_step() -> None:
    """A step applies each gradient of its context once, and no other gradient, while it has the lock."""
    given, other = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    other.grad = before = torch.ones(1)
    locked: list[bool] = []
    references: Any = [SimpleNamespace(local_value=lambda value=value: value) for value in (given, other)]
    local = runtime.LocalOptimizer(torch.optim.SGD, references, (), {"lr": 1.0})
    local._optimizer.register_step_pre_hook(lambda *_: locked.append(lock.locked()))
    lock = threading.Lock()
    gradients = {given: torch.ones(1)}
    with mock.patch.multiple(runtime, get_gradients=lambda _: gradients, _steps=lock, LOCK_SECONDS=0.01):
        local.step(1)
        assert locked == [True] and not lock.locked()
        assert (given.item(), other.item()) == (-1, 0) and given.grad is None and other.grad is before
        with lock, pytest.raises(TimeoutError, match="no step was made: try again"):
            local.step(1)
        local._optimizer.register_step_pre_hook(mock.Mock(side_effect=ZeroDivisionError))
        with pytest.raises(ZeroDivisionError):
            local.step(1)
    assert not lock.locked() and given.item() == -1 and given.grad is None

    late = mock.Mock()
    with pytest.raises(ZeroDivisionError):
        runtime._all([mock.Mock(wait=lambda: 1 / 0), late])
    late.wait.assert_called_once_with()


def test_a_step_of_an_optimizer_follows_the_rules() -> None:
    assert not survivors({
        "leaves .grad": rewritten(STEP, "borrowed(self._params)", "borrowed(())"),
        # Like torch: a parameter without a gradient keeps its `.grad`.
        "only those with gradients": rewritten(STEP, "for param in self._params:", "for param in gradients:"),
        "without the lock": rewritten(STEP, "not _steps.acquire(timeout=LOCK_SECONDS)", "False"),
        "twice": rewritten(STEP, "self._optimizer.step()", "self._optimizer.step(); self._optimizer.step()"),
        "keeps the lock": rewritten(STEP, "_steps.release()", "pass"),
        "waits for the first owner only": rewritten(runtime._all, "in futures", "in futures[:1]"),
        "raises no errors": rewritten(runtime._all, "if errors", "if False"),
    }, the_rules_of_a_step)  # fmt: skip


# ---- the example of the design note


PROGRAM = Path(__file__).resolve().parents[3] / "docs" / "examples" / "dist_autograd_simple.py"
RATE, ELEMENTS = 0.05, 9
ROUNDED = 1.5e-4  # both values are printed with four digits
LINE = re.compile(r"worker(\d): rref(\d) on worker(\d): (.*)")
SIDES = ("ours", "torch")
needs_clone = pytest.mark.skipif(not PROGRAM.is_file(), reason="needs a clone: a wheel holds packages only")


def printed(whose: str) -> list[str]:
    """The lines of the program."""
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM), whose],
        env=environment, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return [line for line in done.stdout.splitlines() if LINE.fullmatch(line)]


@needs_clone
@pytest.mark.parametrize("whose", SIDES if NIGHTLY else SIDES[:1])  # torch's takes 12 s to start processes
def test_each_worker_steps_the_parameters_of_the_other_once(whose: str) -> None:
    """Each line is about a parameter of the other worker, and each element has changed by one step of the rate."""
    lines = [LINE.fullmatch(line).groups() for line in printed(whose)]  # type: ignore[union-attr]
    assert sorted((worker, number) for worker, number, *_ in lines) == [(w, n) for w in "01" for n in "12"]
    for worker, _, owner, pairs in lines:
        values = [[float(value) for value in pair.split(">")] for pair in pairs.split()]
        assert worker != owner and len(values) == ELEMENTS
        assert all(abs(before - after - RATE) <= ROUNDED for before, after in values)

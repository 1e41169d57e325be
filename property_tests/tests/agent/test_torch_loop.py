"""torch's own agent loop takes every step of the edition TORCH, and refuses the others. A changed loop disagrees.

Rule: the loop is torch's, with its launcher; only the rendezvous and the workers below it are values.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch.distributed.elastic.agent.server.api as api
import torch.distributed.launcher.api as launcher
from hypothesis import settings

from trystate.impl.torch_release import is_before
from trystate.model.agent import Edition
from trystate.model.agent.examples import WALKS
from trystate.model.checker.walks import Walk
from trystate.property_tests.adapters.our_agent.conformance import Slice
from trystate.property_tests.adapters.torch_agent import loop
from trystate.property_tests.adapters.torch_agent.conformance import CHECKS, FAULTS, SIGNAL, compare
from trystate.property_tests.adapters.torch_agent.loop import TorchLoop
from trystate.property_tests.support.mutants import Mutant, rewritten, survives
from trystate.property_tests.support.nightly import NIGHTLY, by_verify, examples
from trystate.property_tests.support.runs import replay
from trystate.testing import state_machine

Agent = api.SimpleElasticAgent


@by_verify
def test_torchs_loop_does_what_the_model_says() -> None:
    outcome = CHECKS[0].run(lambda _: None, sample=not NIGHTLY)
    assert not outcome.disagreements
    assert outcome.compared > (5_000 if NIGHTLY else 300)


@pytest.mark.skipif(not NIGHTLY, reason="15,127 edges: under HYPOTHESIS_PROFILE=nightly")
def test_so_it_does_with_two_faults() -> None:
    assert not compare((Slice("2 1:2", ("worker_failure", "outage")),), lambda _: None).disagreements


BOTH = Slice("2 1:2", FAULTS).build(Edition.TORCH)


@pytest.mark.skipif(is_before("2.8"), reason="as TorchLoop says")
class TestSteps(state_machine(BOTH, lambda: TorchLoop(BOTH)).TestCase):  # type: ignore[misc]
    settings = settings(max_examples=examples(10), stateful_step_count=30)


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)
def test_the_steps_of_the_articles_pictures_are_those_of_torchs_loop(walk: Walk) -> None:
    with ExitStack() as stack:
        assert replay(walk, lambda system: stack.enter_context(TorchLoop(system))) > len(walk.steps)


# ---- mutants

FAILING, SIGNALLED = Slice("2 2:2", ("worker_failure",)), Slice("2 2:2", SIGNAL)
BROKEN: dict[str, tuple[Slice, Mutant]] = {
    "restarts without end": (FAILING, rewritten(Agent._invoke_run, "self._remaining_restarts -= 1", "pass")),
    "overlooks a node that waits": (
        Slice("2 1:2"),
        rewritten(Agent._invoke_run, "num_nodes_waiting > 0", "num_nodes_waiting > 9"),
    ),
    "a spare that ends is an error": (
        Slice("3 2:2"),
        rewritten(Agent.run, "except RendezvousGracefulExitError as e:", "except ZeroDivisionError as e:"),
    ),
    "acts while it is stopped": (
        Slice("2 1:1", ("stall",)),
        rewritten(loop.TorchLoop._ask, "node.pace is not Pace.GOES_ON or ", ""),
    ),
}
if SIGNAL:
    BROKEN |= {
        "a signal closes": (SIGNALLED, rewritten(launcher.launch_agent, "shutdown_rdzv = False", "pass")),
        "a signal in the barrier is lost": (
            SIGNALLED,
            rewritten(Agent._exit_barrier, "e.sigval)\n        raise", "e.sigval)"),
        ),
    }


@pytest.mark.parametrize("name", BROKEN)
def test_another_loop_is_a_disagreement(name: str) -> None:
    one, mutant = BROKEN[name]

    def agrees() -> None:
        assert not compare((one,), lambda _: None, edges_max=400).disagreements

    assert not survives(mutant, agrees)


def test_a_step_that_torchs_loop_does_not_take_changes_nothing() -> None:
    """The workers have failed: torch's loop restarts them whichever step is requested, and the subject is rebuilt."""
    with TorchLoop(FAILING.build(Edition.TORCH)) as subject:
        for step, node in (("start_agent", 0), ("start_agent", 1), ("join", 0), ("join", 1)):
            subject.perform(step, (node,))
        for step in ("return_with_a_round", "start_workers", "worker_fails"):
            subject.perform(step, (0,))
        before = dict(subject.observe())
        with pytest.raises(Exception, match="torch's loop does find_failure"):
            subject.perform("enter_barrier", (0,))
        assert subject.observe() == before
        subject.perform("find_failure", (0,))
        assert subject.observe() != before

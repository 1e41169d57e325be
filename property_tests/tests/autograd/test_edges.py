"""The runtime takes every step of its models, and refuses what they forbid."""

from __future__ import annotations

import pytest
from hypothesis import settings

from trystate.impl.autograd.container import Container
from trystate.impl.autograd.deficit import Deficit
from trystate.impl.autograd.local_pass import LocalPass
from trystate.model.autograd.backward import Backward
from trystate.model.autograd.examples import small_graphs
from trystate.model.autograd.findings import ALL
from trystate.model.autograd.vocabulary import Edition, Mode
from trystate.model.language.transitions import Rule
from trystate.property_tests.adapters.our_autograd.conformance import (
    CHECKS,
    LONG,
    Slice,
    a_pass,
    compare,
    examples,
    small,
)
from trystate.property_tests.adapters.our_autograd.edges import PassSteps
from trystate.property_tests.harness.checks import Check
from trystate.property_tests.support import nightly
from trystate.property_tests.support.mutants import detected
from trystate.property_tests.support.nightly import by_verify
from trystate.testing import state_machine

OURS = (Edition.TRYSTATE, Mode.SMART)
EDGES = {
    "our references": 15_383 + 50_181 + 35_382,
    "our workers that meet and part": 938 + 3978 + 2934 + 1548 + 955,
}


@by_verify
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_runtime_does_what_its_models_say(check: Check) -> None:
    outcome = check.run(lambda _: None)
    assert not outcome.disagreements
    assert outcome.compared == outcome.of == EDGES.get(check.name, outcome.of)
    assert outcome.compared > 100


@pytest.mark.skipif(not nightly.NIGHTLY, reason="millions of edges: under HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize("one", LONG)
def test_so_it_does_in_larger_ones(one: Slice) -> None:
    assert not one.replay().disagreements


@pytest.mark.skipif(not nightly.NIGHTLY, reason="300 systems: under HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize("edition", OURS)
@pytest.mark.parametrize("size", [(2, 1), (3, 0)], ids=str)
def test_so_it_does_on_all_larger_graphs(size: tuple[int, int], edition: Edition | Mode) -> None:
    assert not compare(small(edition, small_graphs(*size)), lambda _: None).disagreements


def test_every_fault_of_the_model_is_in_a_slice() -> None:
    known = {rule.fault for rule in Backward.all_declarations().values() if isinstance(rule, Rule) and rule.fault}
    assert {fault for one in examples(Edition.TRYSTATE) for fault in one.faults} == known


# Random runs with all faults, of each mode.
FAST, SMART = (a_pass("crossed", ALL, 2, edition).build() for edition in OURS)
TestFast = state_machine(FAST, lambda: PassSteps(FAST)).TestCase
TestSteps = state_machine(SMART, lambda: PassSteps(SMART)).TestCase
TestFast.settings = TestSteps.settings = settings(max_examples=nightly.examples(15), stateful_step_count=60)


# ---- planted mistakes


CHAIN, NESTED, IN_SMART = a_pass("chain-3", ("die",)), a_pass("nested"), a_pass("chain-3", ("die",), 1, Mode.SMART)
TWO_PASSES = a_pass("note", ("die",), 2)
# fmt: off
test_a_mutant_of_a_part_is_a_disagreement = detected({
    # A source is discarded when its gradient arrives instead of after its work ran (S4).
    "finishes on arrival": (CHAIN, LocalPass.arrive, "*self._put(Arrived(send, gradients))",
                            "*self._put(Arrived(send, gradients)), *(AnswerPeer(due, Done(self.deficit.report()).pack()"
                            ") for due in self.deficit.disengage()[:1] if due)"),
    # A part continues when a request that it has sent fails (L2).
    "ignores failures": (CHAIN, LocalPass.answered, "unsignalled -= 1",
                         "unsignalled -= 1; answer = answer if isinstance(answer, bytes) and "
                         "isinstance(messages.unpack_outcome(answer), Done) else Done().pack()"),
    # A gradient that comes twice is added twice (S8).
    "takes twice": (a_pass("note", ("copy",), 2), LocalPass.arrive, "return []", "return [] if self.is_over else "
                    "[AnswerPeer(asker, Done().pack()), *self._put(Arrived(self.counted[message], gradients))]"),
    # The gradients of a failed part stay (S7).
    "keeps gradients": (TWO_PASSES, LocalPass.fail, "self.gradients, self.dependencies, self.visited = {}, None",
                        "self.dependencies, self.visited = None"),
    # The root sends no CANCEL (L3).
    "tells nobody": (CHAIN, LocalPass.__init__, "self._others = others", "self._others = ()"),
    "drops what an answer carries": (NESTED, LocalPass._take_piggybacked, "if told is None", "if True"),
    # Messages that were held back, and that one signal cannot carry, are dropped.
    "keeps what it cannot carry": (a_pass("served"), Deficit.release, "= self.held, []", "= [], []"),
    # A wave of marks ends at the first worker that it comes to.
    "marks once": (IN_SMART, LocalPass.spread, "self.is_over", "self.is_over or self.roots is None"),
    # Another pass may begin before all workers have answered CANCEL.
    "ends before they answer": (TWO_PASSES, vars(LocalPass)["is_settled"].fget, " and not self._cancels", ""),
    # A message of a pass that is over begins the pass again (S1).
    "has no fence": (CHAIN, Container.local_pass_for, "number <= context.ended.get(root, -1)", "False"),
})
# fmt: on

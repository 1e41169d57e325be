"""Contexts, their ids and their tombstones: the violations of each edition, and the properties each repair protects.

Each ablation undoes one of our repairs. It violates exactly the properties that the repair protects. The runtime's
containers and ids take every step of the models; each rule that they keep is broken once, and a replay detects it.
"""

from __future__ import annotations

import pytest

from trystate.impl.autograd import tombstones as runtime
from trystate.impl.autograd.container import Container
from trystate.impl.autograd.ids import Ids as RuntimeIds
from trystate.impl.autograd.local_pass import LocalPass
from trystate.model.autograd import contexts, ids, tombstones
from trystate.model.autograd.contexts import Contexts
from trystate.model.autograd.findings import FINDINGS, PLAN
from trystate.model.autograd.ids import Ids
from trystate.model.autograd.tombstones import Tombstones
from trystate.model.autograd.vocabulary import CleanUp, Edition
from trystate.model.checker.interpret import Interpreter
from trystate.model.language import System, ite, not_, ord_
from trystate.property_tests.adapters.our_autograd.conformance import CONTEXTS, LOSSES, Slice
from trystate.property_tests.adapters.our_autograd.conformance import contexts as a_slice
from trystate.property_tests.harness.paths import explore_graph
from trystate.property_tests.support.mutants import altered, detected, wrong
from trystate.property_tests.support.pinned import model_tests, of_plan

TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
TWO, THREE = "worker=2 passes=0", "worker=3 passes=0"
PAIR = "worker=2"
WAITS = "outlives=0"
STAYS = "after_exit_and_quiet_nobody_has_it clean_up_reaches_everybody"
BACK = f"released_is_for_good {STAYS}"
ASKED = of_plan(Contexts, Tombstones, Ids, most=60_000)


def test_our_editions_have_no_findings() -> None:
    assert not any(run.findings for run in PLAN if run.edition is not TORCH)


def test_every_finding_is_shown_but_what_is_no_matter_of_states() -> None:
    shown = {name for run in PLAN for names in run.findings.values() for name in names}
    assert {*FINDINGS} - shown == {"second-pass-asserts", "zeros-shipped", "hooks-not-called"}


# ---- ablations: our repairs, undone one by one


# fmt: off
ABLATIONS: tuple[tuple[type[System], str, tuple[str, ...], str], ...] = (
    (wrong("RemembersNothing", contexts.Ours, creates=lambda self, s, worker: not_(False)), THREE, (), BACK),
    (wrong("AnswersAtOnce", contexts.Ours, taken=lambda self, state, first: CleanUp.NONE), f"{THREE} {WAITS}",
     ("crash",), STAYS),
    (wrong("AnswersEverybodyLast", contexts.Ours, taken=lambda self, state, first: CleanUp.PASSING_ON),
     f"{THREE} calls=4", (), "deadlock_freedom"),
    (wrong("TellsNotTheCreator", contexts.Ours,
     tells_the_rest=lambda self, worker, other, missing: missing & (ord_(worker) == 0)),
     f"worker=4 passes=0 calls=3 {WAITS}", ("crash",), STAYS),
    (wrong("ForgetsTheLost", contexts.Ours,
     loses_creator=lambda self, s, worker, when: self.releases(s, worker, when & s.has[worker])), THREE,
     ("creator_crash", "crash"), STAYS),
    (wrong("NeverRepeats", contexts.Ours, repeat=None), f"{TWO} {WAITS}", ("lose",),
     "deadlock_freedom clean_up_reaches_everybody"),
    (wrong("LeavesItsThread", contexts.Ours, ends_request=lambda self, s, worker: None), TWO, (),
     "no_thread_stays_in_a_context"),
    (wrong("WritesToTheContext", contexts.Ours,
     calls_back=lambda self, s, failed: self.writes_to_the_context(s, failed)), PAIR, ("error",),
     "no_callback_touches_what_is_gone"),
    (altered("UsesItOn", contexts.Ours,  # a part of a pass continues in a context that is released (G4)
             "stops_using", "and_(when, s.shipped[worker] == Shipped.RUNNING)", "False"), PAIR, (),
     "what_is_released_is_not_in_use"),
    (wrong("ForgetsNothing", tombstones.Ours, read_mark=lambda self, s, carried: ite(carried > 0, 0, 0)), "context=2",
     (), "nothing_is_remembered_for_ever"),
    (wrong("MarksTheNext", tombstones.Ours, low=lambda self, s: s.opened + 0), "context=2", (),
     "what_is_open_is_not_over"),
    (wrong("MarksOnly", tombstones.Ours, is_over=lambda self, s, peer, context: ord_(context) < s.mark[peer]),
     "context=2", (), "released_is_for_good after_exit_and_quiet_nobody_has_it nothing_is_remembered_for_ever"),
    (wrong("HearsNothing", tombstones.Ours, take_clean_up=None), "context=2", (), "deadlock_freedom"),
    (wrong("KeepsSigned", ids.Ours, kept_number=lambda self, worker: ord_(worker) - ite(ord_(worker) < 2, 0, 4)), "",
     (), "an_id_says_whose_it_is no_id_means_none"),
    (wrong("KeepsTheLast", ids.Ours, available=lambda self: ids.Ours.available(self) - 1), "", (),
     "every_id_is_given_out"),
    (wrong("LosesABit", ids.Ours, kept_number=lambda self, worker: ord_(worker) - ite(ord_(worker) < 2, 0, 2)), "",
     (), "an_id_says_whose_it_is ids_are_unique"),
    (wrong("SaysNothing", ids.Ours, refuse=None), "", (), "deadlock_freedom"),
)
# fmt: on


MUTANTS = [(name, cls, sizes, faults) for cls, sizes, faults, broken in ABLATIONS for name in broken.split()]
TestModel = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 250])


# ---- the runtime, edge by edge


@pytest.mark.parametrize("system", [Contexts, Tombstones, Ids])
def test_every_step_is_taken_in_some_slice(system: type[System]) -> None:
    faults = (*LOSSES, "error") if system is Contexts else ()
    steps = {t.name for t in system(edition=TRYSTATE, faults=faults).transitions}
    taken = set[str]()
    for model in [one.build() for one in CONTEXTS if one.system is system]:
        instances = Interpreter(model).kernel.instances
        taken |= {instances[number].transition.name for number in set(explore_graph(model).graph.number.tolist())}
    assert taken == steps


# ---- planted mistakes


# fmt: off
CRASH, IDS = a_slice(3, 2, 0, "crash"), Slice(Ids)
STONES, CHAIN = Slice(Tombstones, {"peer": 1}), Slice(Tombstones, {"context": 2})
PASS, FAILING = a_slice(2, 2, 1, passes=1), a_slice(2, 2, 1, "error", passes=1)
test_a_mutant_is_a_disagreement = detected({
    "forgets that it is over": (a_slice(2, 2, 1), Container.heard, "number not in self.dead and ", ""),
    "remembers what it had": (a_slice(2, 2, 1), Container.clean, "not self._believes(clean.context, asker.peer)",
                              "clean.context not in self.contexts"),
    "passes nothing on": (a_slice(3, 2, 1), Container._tell, "dict.fromkeys(peers)",
                          "dict.fromkeys(peers if telling.asker is None else ())"),
    "creator does not answer": (CRASH, Container.clean, '*self._tell_all(clean.context, asker), AnswerPeer(asker, b"")',
                                "*self._tell_all(clean.context, asker)"),
    "tells only whom it knows": (CRASH, Container._bury, "context.known & self._gone", "False"),
    "keeps contexts of the lost": (a_slice(2, 2, 0, "creator_crash"), Container.lost,
                                   "worker_of(context.number) == peer", "False"),
    "notes whom it answers": (a_slice(2, 2, 0), Container.sent, "if call and peer", "if peer"),
    # A pass in a context.
    "runs on in what is over": (PASS, Container._bury, "effects += local_pass.fail(error)", "pass"),
    "takes gradients of the over": (PASS, Container.local_pass_for, "self.contexts.get(context_number)",
                                    "self.contexts.get(context_number) or self._open(context_number)"),
    "hides failures": (FAILING, LocalPass.fail, "messages.failed(error.through(self.me))", "Done().pack()"),
    # The memory of contexts that are over.
    "tells nobody who lags": (STONES, Container._behind, "if rises", "if False"),
    "marks the next": (STONES, Container._low_water, "if oldest is None else oldest", ""),
    "sends no KEPT": (CHAIN, Container.clean, "more > ranges", "False"),
    "remembers nothing": (STONES, runtime.Tombstones.bury,
                          "self._add(worker_of(context), count_of(context), count_of(context))", "pass"),
    "gives an id twice": (IDS, RuntimeIds.take, "self._next = count + 1",
                          "self._next = count + (count != LAST_COUNT - 1)"),
    # The worker's number is a signed number of 16 bits.
    "keeps signed": (IDS, RuntimeIds.take, "self._worker << COUNTER_BITS | count",
                     "(self._worker << COUNTER_BITS | count) - (self._worker >> 15 << 64)"),
})
# fmt: on

"""References to a remote value: each property can be violated, and the runtime's tables follow the model.

Each rule of the protocol is broken once in the model, where it violates a property, and once in the runtime, where the
replay of the model's edges detects it.
"""

from __future__ import annotations

from trystate.impl.rpc.references import References
from trystate.model.autograd.references import Ours
from trystate.model.autograd.references import References as Model
from trystate.model.language import not_
from trystate.property_tests.adapters.our_autograd.conformance import Slice
from trystate.property_tests.support.mutants import detected, wrong
from trystate.property_tests.support.pinned import model_tests, of_plan

THREE = "worker=3"


# fmt: off
MUTANTS = (
    ("all_have_a_value_if_nobody_died", wrong("KeepsNothing", Ours, keeps_its_own=lambda self: False), THREE, ()),
    ("no_handle_fails_if_nobody_died", wrong("RefusesBeforeItIsMade", Ours,
     has_value=lambda self, s: ~s.gone & s.made), THREE, ()),
    ("the_confirmed_have_a_value", wrong("AlwaysConfirms", Ours, has_value=lambda self, s: not_(False)), THREE,
     ("crash",)),
    ("nothing_is_left", wrong("ForgetsNothing", Ours, collects=lambda self, s: None), THREE, ()),
    ("it_is_forgotten", wrong("LosesDeleted", Ours, forget={"fair": False}), THREE, ()),
    ("a_handle_is_confirmed_or_fails", wrong("LosesForked", Ours, register={"fair": False}), THREE, ()),
    ("nobody_keeps_a_handle_for_ever", wrong("LosesAccepted", Ours, accept={"fair": False}), THREE, ()),
    ("deadlock_freedom", wrong("HearsNothing", Ours, hear=None), THREE, ()),
    ("nobody_waits_for_an_owner_that_is_lost", wrong("WaitsForTheLost", Ours,
     hears_of_the_owner=lambda self, s, worker, when: None), THREE, ("owner_crash",)),
)
# fmt: on


ASKED = of_plan(Model)
TestModel = model_tests(ASKED, MUTANTS, ASKED[:1])


# ---- the runtime


NO_FAULT, CRASH, OWNER_CRASH = (Slice(Model, {}, faults) for faults in ((), ("crash",), ("owner_crash",)))
# fmt: off
test_a_rule_that_the_runtime_breaks_is_a_disagreement = detected({
    "keeps no handle that it passes on": (NO_FAULT, References.fork, "self._passed[fork] = ref, to", "pass"),
    # A worker that gets a handle from another user treats it as confirmed by the owner.
    "tells nobody": (NO_FAULT, References.join, "held.confirmed = peer == fork.owner", "held.confirmed = True"),
    # The owner does not accept a handle that arrives after the value was deleted, so its sender keeps the handle.
    "keeps for good": (CRASH, References.join, "me = self.agent.me",
                       "me = self.agent.me; fork.owner == me and self.owned(fork.reference)"),
    "drops silently": (NO_FAULT, References.dropped, "partial(self._tell, owner, Happened.DELETED, reference, fork)",
                       "int"),
    "keeps for the lost": (CRASH, References._peer_lost, "holder == peer", "False"),
    # A handle that the owner has not confirmed stays unchanged when the owner is lost.
    "waits for an owner that is lost": (OWNER_CRASH, References._known_there, "held.failed = result", "return"),
    # A thread takes the id of its reference early: another thread's call with a larger id is sent before its own.
    "takes ids beforehand": (NO_FAULT, References.making, "Fork(self.new_id(),",
                             "Fork((self.agent.me, (1 << 20) - self.new_id()[1]),"),
    # The owner treats a value that is not made yet as one that was deleted.
    "keeps no place": (NO_FAULT, References.owned, "if number <= self._latest.get(maker, -1)", "if True"),
})
# fmt: on

"""Workers that meet, call and part: each property can be violated, and the runtime takes the model's steps.

Each rule is broken once in the model, where it violates a property, and once in the runtime, where the replay of the
model's edges detects it.
"""

from __future__ import annotations

from trystate.impl.rpc import directory, termination
from trystate.impl.rpc.agent import Agent
from trystate.model.autograd.meeting import Meetings, Ours
from trystate.model.autograd.vocabulary import WorkerState
from trystate.model.language import not_
from trystate.property_tests.adapters.our_autograd.conformance import LONG_MEETINGS, Slice, compare
from trystate.property_tests.support.mutants import altered, detected, wrong
from trystate.property_tests.support.nightly import by_night
from trystate.property_tests.support.pinned import model_tests, of_plan

TWO = "worker=2"
ASKED = of_plan(Meetings, most=60_000)


# fmt: off
MUTANTS = (
    ("those_who_serve_know_each_other", wrong("TakesAnybody", Ours,
     answers=lambda self, s, worker, other: s.phase[other].isin((WorkerState.CONNECTING, WorkerState.SERVING))), TWO,
     ("crash", "again")),
    ("no_name_is_there_twice", wrong("TakesTwins", Ours, refuses_names=lambda self, s: not_(True)), TWO, ("twin",)),
    ("a_call_runs_at_most_once", altered("AsksAgain", Ours, "call_times_out", "self.ends_call(s, worker)",
     "s.when(s.call[worker] != Call.SENT); s.call[worker] = Call.SENT"), TWO, ("timeout",)),
    ("a_call_ends_once", altered("EndsTwice", Ours,  # a late answer ends its call once more
     "hear", "self.ends_call(s, worker)", "s.ends[worker] = s.ends[worker] + 1; s.waits[worker] = False"), TWO,
     ("timeout",)),
    ("a_graceful_end_leaves_no_call", wrong("CountsNoFunctions", Ours,
     is_idle=lambda self, s, worker: ~s.waits[worker]), TWO, ("timeout",)),
    ("a_graceful_end_is_one_of_all", wrong("WaitsForNobody", Ours,
     has_shown=lambda self, s, other, worker: not_(False), is_over=lambda self, s, worker: not_(False)), TWO, ()),
    ("a_timeout_ends_the_wait",
     altered("WaitsOn", Ours, "expires", "self.closes(s, worker, Worker.RAISED)", "pass"), TWO, ("late",)),
    ("init_ends", wrong("ComesForEver", Ours, meeting_times_out={"fair": False}), TWO, ("crash",)),
    ("every_call_ends", wrong("NoticesNothing", Ours, lose={"fair": False}), TWO, ("crash",)),
    ("shutdown_ends", wrong("MissesNobody", Ours, miss_one={"fair": False}), TWO, ("crash",)),
    ("deadlock_freedom", wrong("NeverRaises", Ours, miss_one=None), TWO, ("crash",)),
)
# fmt: on

TestModel = model_tests(ASKED, MUTANTS, (ASKED[1], ASKED[7]))


# ---- the runtime

LONG_EDGES = 34_092 + 39_102 + 25_560 + 4672


def test_a_sample_of_two_faults_at_a_time_agrees_and_all_of_it_by_night() -> None:
    found = compare(LONG_MEETINGS, lambda _: None, by_night("edges of workers that meet, each of two faults", 300))
    assert not found.disagreements
    assert found.of == LONG_EDGES


NO_FAULT, CRASH, TIMEOUT, IMPATIENT = (
    Slice(Meetings, {}, faults) for faults in ((), ("crash",), ("timeout",), ("impatient",))
)
# fmt: off
test_a_rule_that_the_runtime_breaks_is_a_disagreement = detected({
    "a call stays open when its deadline has passed": (TIMEOUT, Agent._expired, "self._requests.pop(number, None)",
                                                       "self._requests.get(number)"),
    "the loss of a worker ends no call to it": (CRASH, Agent._over, "if self.closed is not None", "if True"),
    "no worker is lost": (CRASH, Agent.loss, "if connection.lost is not None", "if False"),
    "the calls of a worker do not end when it does": (IMPATIENT, Agent.close, "in list(self._requests)", "in ()"),
    "one round is enough": (NO_FAULT, termination.all_done, "now == before and", "True or"),
    "nobody is waited for": (NO_FAULT, termination.all_done, "_idle(agent,", "return _idle(agent,"),
    "calls that wait are not waited for": (NO_FAULT, termination._idle, "agent.busy != (0, 0)", "agent.busy[1] != 0"),
    "an entry stays": (NO_FAULT, directory.withdraw, 'store.set(f"worker/{rank}", why.decode())', "pass"),
})
# fmt: on

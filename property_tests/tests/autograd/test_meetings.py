"""Workers that meet, call and part: each property can be violated, and the runtime does what the model says.

Each rule is broken once in the model, where a property is violated, and once in the runtime, where the replay of the
model's edges notices it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from trystate.impl.rpc import termination
from trystate.impl.rpc.agent import Agent
from trystate.model.autograd.meeting import Meetings, Ours
from trystate.model.autograd.vocabulary import Delivery, Edition, WorkerState
from trystate.model.language import Expr, SymbolicState, fault, not_
from trystate.property_tests.adapters.our_autograd.conformance import CHECKS, LONG_MEETINGS, meetings
from trystate.property_tests.adapters.our_autograd.meeting_edges import MeetingSteps
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.support.marks import by_verify
from trystate.property_tests.support.nightly import by_night
from trystate.property_tests.support.pinned import Asked, model_tests

S = SymbolicState
TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
TWO, THREE = "worker=2", "worker=3"
G17 = "shutdown_ends deadlock_freedom"
LOSSES = ("crash", "timeout", "late", "impatient")
ASKED = (
    Asked(Meetings, TORCH, TWO, 204),
    Asked(Meetings, TORCH, TWO, 550, "a_graceful_end_leaves_no_call", ("timeout",)),
    Asked(Meetings, TORCH, TWO, 664, "a_timeout_ends_the_wait", ("late",)),
    Asked(Meetings, TORCH, TWO, 339, G17, ("impatient",)),
    Asked(Meetings, TORCH, TWO, 673, G17, ("crash",)),
    Asked(Meetings, TORCH, TWO, 4355, G17, ("crash", "again")),
    Asked(Meetings, TORCH, TWO, 213, "", ("twin",)),
    Asked(Meetings, TRYSTATE, TWO, 526),
    Asked(Meetings, TRYSTATE, TWO, 49950, "", LOSSES),
    Asked(Meetings, TRYSTATE, TWO, 13688, "", ("crash", "again")),
    Asked(Meetings, TRYSTATE, TWO, 538, "", ("twin",)),
)


class TakesAnybody(Ours):
    """A worker is connected to whatever life of another is there."""

    def answers(self, s: S, worker: Expr, other: Expr) -> Any:
        return s.phase[other].isin((WorkerState.CONNECTING, WorkerState.SERVING))


class TakesTwins(Ours):
    """A name may be there twice."""

    def refuses_names(self, s: S) -> Any:
        return not_(True)


class AsksAgain(Ours):
    """A call that times out is sent once more."""

    @fault("timeout", each="worker")
    def call_times_out(self, s: S, worker: Expr) -> None:
        """The deadline of a call passes."""
        s.when(s.waits[worker], s.call[worker] != Delivery.SENT)
        s.call[worker] = Delivery.SENT


class EndsTwice(Ours):
    """A late answer ends its call once more."""

    def ends_call(self, s: S, worker: Expr) -> None:
        s.ends[worker] = s.ends[worker] + 1
        s.waits[worker] = False

    def closes(self, s: S, worker: Expr, phase: WorkerState) -> None:
        s.phase[worker] = phase


class CountsNoFunctions(Ours):
    """A worker is idle while a function runs there."""

    def is_idle(self, s: S, worker: Expr) -> Any:
        return ~s.waits[worker]


class ComparesNoSums(Ours):
    """Two equal rounds are enough."""

    def all_arrived(self, s: S) -> Any:
        return not_(False)


class CountsOnce(Ours):
    """One round is enough."""

    def are_equal(self, s: S, worker: Expr) -> Any:
        return not_(False)


class WaitsForNobody(Ours):
    """The numbers of workers that have not come are not waited for."""

    def has_shown(self, s: S, other: Expr, worker: Expr) -> Any:
        return not_(False)

    def is_over(self, s: S, worker: Expr) -> Any:
        return not_(False)


class WaitsOn(Ours):
    """A shutdown goes on when its time is over."""

    def expires(self, s: S, worker: Expr) -> None:
        s.expired[worker] = True


class ComesForEver(Ours):
    """init_rpc has no timeout."""

    meeting_times_out = replace(Ours.meeting_times_out, fair=False)


class NoticesNothing(Ours):
    """The end of a connection is not noticed."""

    lose = replace(Ours.lose, fair=False)


class MissesNobody(Ours):
    """A lost worker is waited for."""

    miss_one = replace(Ours.miss_one, fair=False)


class NeverRaises(Ours):
    """A shutdown has no errors."""

    miss_one = None  # type: ignore[assignment]


# fmt: off
MUTANTS = (
    ("those_who_serve_know_each_other", TakesAnybody, TWO, ("crash", "again")),
    ("no_name_is_there_twice", TakesTwins, TWO, ("twin",)),
    ("a_call_runs_at_most_once", AsksAgain, TWO, ("timeout",)),
    ("a_call_ends_once", EndsTwice, TWO, ("timeout",)),
    ("a_graceful_end_leaves_no_call", CountsNoFunctions, TWO, ("timeout",)),
    ("a_graceful_end_leaves_no_call", ComparesNoSums, TWO, ("timeout",)),
    ("a_graceful_end_leaves_no_call", CountsOnce, TWO, ("timeout",)),
    ("a_graceful_end_is_one_of_all", WaitsForNobody, TWO, ()),
    ("a_timeout_ends_the_wait", WaitsOn, TWO, ("late",)),
    ("init_ends", ComesForEver, TWO, ("crash",)),
    ("every_call_ends", NoticesNothing, TWO, ("crash",)),
    ("shutdown_ends", MissesNobody, TWO, ("crash",)),
    ("deadlock_freedom", NeverRaises, TWO, ("crash",)),
)
# fmt: on

(
    test_the_counts_and_the_findings_are_pinned,
    test_every_step_is_taken_and_every_claimed_move_is_made,
    test_the_engines_agree,
    test_a_mutant_is_caught_by_the_property_that_is_about_it,
    test_every_property_is_violated_by_a_mutant,
) = model_tests(ASKED, MUTANTS, (ASKED[1], ASKED[7]))


# ---- the runtime

EDGES = 938 + 3978 + 2934 + 1548 + 955
LONG_EDGES = 34_092 + 39_102 + 25_560 + 4672


@by_verify
def test_the_runtime_does_what_the_model_says() -> None:
    check = next(check for check in CHECKS if check.name == "our workers that meet and part")
    found = check.run(lambda _: None)
    assert not found.disagreements
    assert found.compared == found.of == EDGES


def test_a_sample_of_two_faults_at_a_time_agrees_and_all_of_it_by_night() -> None:
    found = meetings(LONG_MEETINGS, lambda _: None, by_night("edges of workers that meet, each of two faults", 300))
    assert not found.disagreements
    assert found.of == LONG_EDGES


class StaysOpen(Agent):
    """A call whose deadline has passed stays open."""

    def _expired(self, number: int) -> None:
        entry = self._requests.get(number)
        super()._expired(number)
        if entry is not None:
            self._requests[number] = entry


class FailsNoCalls(Agent):
    """The loss of a worker ends no call to it."""

    def _over(self, connection: Any, why: str) -> None:
        pass


class KnowsNoLoss(Agent):
    """No worker is lost."""

    def loss(self, peer: int) -> str | None:
        return None


class ForgetsItsCalls(Agent):
    """The calls of a worker do not end when it does."""

    def close(self, why: str) -> None:
        self.closed = why
        for connection in self._all:
            connection.close(why)


def _ends_after_one_round(agent: Agent, store: Any, seconds: float) -> None:
    """One round is enough."""
    termination._idle(agent, seconds, seconds)
    sent, received = agent.traffic
    store.set(f"done/0/{agent.me}", f"{sent} {received}")
    for rank in agent.workers:
        termination._of(agent, store, f"done/0/{rank}", seconds, seconds)


def _ends_at_once(agent: Agent, store: Any, seconds: float) -> None:
    """Nobody is waited for."""
    termination._idle(agent, seconds, seconds)


def _is_idle_while_it_waits(agent: Agent, store: Any, seconds: float) -> None:
    """Calls that wait are not waited for."""
    termination.all_done(Waiting(agent), store, seconds)  # type: ignore[arg-type]


class Waiting:
    """An agent whose open calls are not counted."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    @property
    def busy(self) -> tuple[int, int]:
        return 0, self._agent.busy[1]


def _keeps_its_entry(store: Any, rank: int) -> None:
    """An entry stays."""


BROKEN: Sequence[tuple[str, dict[str, Any], tuple[str, ...]]] = (
    ("stays-open", {"build": StaysOpen}, ("timeout",)),
    ("fails-no-calls", {"build": FailsNoCalls}, ("crash",)),
    ("knows-no-loss", {"build": KnowsNoLoss}, ("crash",)),
    ("forgets-its-calls", {"build": ForgetsItsCalls}, ("impatient",)),
    ("ends-after-one-round", {"all_done": _ends_after_one_round}, ()),
    ("ends-at-once", {"all_done": _ends_at_once}, ()),
    ("is-idle-while-it-waits", {"all_done": _is_idle_while_it_waits}, ()),
    ("keeps-its-entry", {"withdraw": _keeps_its_entry}, ()),
)


@pytest.mark.parametrize(("name", "replaced", "faults"), BROKEN, ids=[name for name, _, _ in BROKEN])
def test_a_rule_that_the_runtime_breaks_is_a_disagreement(
    name: str, replaced: dict[str, Any], faults: tuple[str, ...]
) -> None:
    model = Meetings(edition=TRYSTATE, faults=faults)
    with MeetingSteps(model, **replaced) as subject:
        assert replay_every_edge(model, subject, refusals=True, repeats=False, stop_after=1).disagreements

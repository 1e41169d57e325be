"""Reports of a check of 10,000 states that is stopped early, is reduced by symmetry, or reports its progress."""

from __future__ import annotations

import pytest

from trystate.model.checker import estimate, scenarios
from trystate.model.checker.check import check
from trystate.model.checker.engine import Progress
from trystate.model.checker.kernel import Limits
from trystate.model.checker.verdicts import Status
from trystate.model.errors import UsageError
from trystate.model.language import System
from trystate.property_tests.support.runs import AVAILABLE
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.support.systems.engine_samples import Odometer
from trystate.property_tests.support.systems.lock import Waltz

LIMITS = [
    (Limits(memory_bytes=1), "MiB (limit 0 MiB; raise it with --max-memory)"),
    (Limits(seconds=0.0), "s (limit 0 s; raise it with --max-seconds)"),
    (Limits(states=200), "states (limit 200; raise it with --max-states)"),  # only for engines that hold each state
]


@pytest.mark.parametrize(
    ("engine", "limits", "words"),
    [(engine, *limit) for engine in AVAILABLE for limit in LIMITS[: 2 if engine == "symbolic" else 3]],
)
def test_a_limit_leaves_undecided_what_it_cut_off_and_says_which_it_was(
    engine: str, limits: Limits, words: str
) -> None:
    report = check(Odometer(), engine=engine, limits=limits)
    assert not report.exploration.complete
    assert report.exploration.distinct < 10_000
    assert report.exploration.stopped.startswith("stopped a")
    assert report.exploration.stopped.endswith(words)
    undecided = {v.property.name: v for v in report.undecided}
    assert {"all_nines", "in_range", "turns", "deadlock_freedom"} <= set(undecided)
    small = report.verdict("small")
    assert (small.status is Status.VIOLATED) is (limits.states == 200), "a violation before the limit counts"
    assert small.run is None or len(small.run.path.steps) == 3
    assert {v.reason for v in undecided.values()} == {report.exploration.stopped}
    assert {v.status.value for v in undecided.values()} == {"not decided"}
    assert (report.never_fired, report.unreached) == ([], []), "what was not seen may still come"


def test_symmetry_never_decides_liveness_and_says_so() -> None:
    report = check(Odometer(), engine="explicit", symmetry=True)
    verdict = report.verdict("turns")
    assert verdict.status is Status.NOT_DECIDED
    assert verdict.reason == "liveness is never decided under symmetry: run without it"
    assert [v.property.name for v in report.undecided] == ["turns"]
    assert report.exploration.distinct == 715, "multisets of 4 digits out of 10"


def test_an_unknown_engine_is_a_usage_error_that_lists_them() -> None:
    with pytest.raises(UsageError, match="no engine 'tlc': choose one of auto, interpret, explicit, symbolic"):
        check(Odometer(), engine="tlc")


def test_the_choice_of_an_engine_is_explained() -> None:
    assert check(Waltz()).choice == "explicit: 3 states"
    assert check(Odometer(), symmetry=True).choice == "explicit: symmetry was requested"
    assert check(Waltz(), engine="interpret").choice == "interpret, as requested"


# The explicit engine reports at intervals, and finishes before the first.
@pytest.mark.parametrize("engine", [e for e in AVAILABLE if e != "explicit"])
def test_progress_never_goes_back(engine: str) -> None:
    seen: list[Progress] = []
    check(Odometer(), engine=engine, limits=Limits(states=5_000), on_progress=seen.append)
    exploring = [(p.distinct, p.depth, p.seconds) for p in seen if p.phase == "exploring"]
    assert len(exploring) > 1
    assert exploring == sorted(exploring)


Wide = declared(
    "node = index(40)\nx = flag(per='node', initial=ANY)\nlocked = flag()\n"
    "@transition()\ndef lock(self, s): 'Once.'; s.when(~s.locked); s.locked = True\n"
    "@eventually()\ndef it_is_open(self, s): 'At once.'; return ~s.locked\n"
    "@scenario\ndef it_locks(self, run): run('lock')\n",
    System,
)
Long = declared(
    "x = integer(0, 1_999, initial=ANY)\non = flag()\n"
    "@transition()\ndef switch(self, s): 'For ever.'; s.on = ~s.on\n"
    "@eventually(within=5_000_000)\ndef it_ends(self, s): 'Never.'; return s.x > 1_999 - 1\n",
    System,
)


def test_more_initial_states_than_can_be_listed_hang_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "STATES_MAX", 1_000)
    report = check(Wide(), limits=Limits(seconds=20), properties=("it_is_open", "it_locks"))
    assert report.verdict("it_is_open").status is Status.HOLDS
    assert report.verdict("it_locks").reason == "there are more than 1,000 initial states"
    one = declared("@initial\ndef few(self, s): return count(s.x[j] for j in s.node) == 1", Wide)
    assert check(one(), properties=("it_is_open",)).choice.startswith("explicit: ")
    # A condition may leave many of them too: while they are not all found, as many are possible as without it.
    assert [estimate.Guess(0, 1 << 40, Limits()).stop_reason(9, sizes, 24.0) for sizes in ([9], [1, 8])] == [
        "about 1e+12 states", ""
    ]  # fmt: skip
    assert len(declared("node = index(1200)\n@initial\ndef most(self, s): return any_(s.x)", Wide)().cells) == 1201


def test_the_search_of_a_graph_ends_at_the_limit_of_seconds() -> None:
    # Exploring takes a hundredth of the limit; the search of the graph would take minutes.
    verdict = check(Long(), engine="explicit", limits=Limits(seconds=2), properties=("it_ends",)).verdict("it_ends")
    assert verdict.status is Status.NOT_DECIDED
    assert verdict.reason.startswith("the search of the graph stopped after")

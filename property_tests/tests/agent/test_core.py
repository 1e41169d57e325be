"""The agent decides as this table says, in every view; and every mutant of it is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

pytest.importorskip("torch", reason="the agent is torch's")

from torch.distributed.elastic.agent.server.api import WorkerState as W

from trystate.impl.agent import core
from trystate.impl.agent.core import Order, View, ending, may_finish
from trystate.impl.rendezvous.engine import Standing
from trystate.impl.rendezvous.state import Closed
from trystate.property_tests.support.mutants import generated, survivors

TABLE = """
             CURRENT   NEWCOMERS   REPLACED   EXPELLED   LAPSED    CLOSED
HEALTHY      GO_ON     GO_ON       REJOIN     REJOIN     REJOIN    END
SUCCEEDED    REPORT    REPORT      REJOIN     REJOIN     REPORT    END
FAILED       RESTART   RESTART     REJOIN     REJOIN     REJOIN    END
UNHEALTHY    LEAVE     LEAVE       REJOIN     REJOIN     LEAVE     END
UNKNOWN      LEAVE     LEAVE       REJOIN     REJOIN     LEAVE     END
INIT         LEAVE     LEAVE       REJOIN     REJOIN     LEAVE     END
STOPPED      LEAVE     LEAVE       REJOIN     REJOIN     LEAVE     END
"""
FLAGS = ("signalled", "reported", "cut_off", "killed", "final")
# Which flag makes which entry another one; the first that applies counts.
BUT: tuple[tuple[str, Callable[[View], bool], Order], ...] = (
    ("signalled", lambda v: True, Order.LEAVE),
    ("cut_off", lambda v: v.workers is W.SUCCEEDED and v.standing is Standing.LAPSED, Order.GIVE_UP),
    ("killed", lambda v: tabled(v) is Order.RESTART, Order.REJOIN),
    ("final", lambda v: tabled(v) is Order.RESTART, Order.FAIL),
    ("reported", lambda v: tabled(v) is Order.REPORT, Order.GO_ON),
)
VERDICTS = [
    (None, W.FAILED),
    (Closed("a", "over", "succeeded"), W.SUCCEEDED),
    (Closed("a", "over", "failed"), W.FAILED),
    (Closed("a", "somebody ended"), W.FAILED),
]


def tabled(view: View) -> Order:
    head, *rows = (line.split() for line in TABLE.strip().splitlines())
    row = next(row for row in rows if row[0] == view.workers.name)
    return Order[row[1 + head.index(view.standing.name)]]


def expected(view: View) -> Order:
    return next((order for flag, so, order in BUT if getattr(view, flag) and so(view)), tabled(view))


def views() -> Iterator[View]:
    for workers, standing in product(W, Standing):
        for flags in product((False, True), repeat=len(FLAGS)):
            yield View(workers, standing, **dict(zip(FLAGS, flags, strict=True)))


def wrong() -> list[Any]:
    """Where the module decides otherwise than the table."""
    found: list[Any] = [view for view in views() if core.decide(view) is not expected(view)]
    found += [closed for closed, state in VERDICTS if core.ending(closed) is not state]
    at_once = {Standing.LAPSED, Standing.EXPELLED}
    return found + [standing for standing in Standing if core.may_finish(standing) is (standing in at_once)]


def test_it_decides_as_the_table_says_in_every_view() -> None:
    assert len(list(views())) == 7 * 6 * 32
    assert wrong() == []


FUNCTIONS = (core.decide, core._after_success, ending, may_finish)
MUTANTS = {
    **{name: mutant for f in FUNCTIONS for name, mutant in generated(f, ("Order.GO_ON", "Order.END")).items()},
    **generated(ending, ("WorkerState.FAILED", "WorkerState.SUCCEEDED")),
    **generated(may_finish, ("Standing.CURRENT", "Standing.LAPSED")),
}


def test_every_mutant_is_noticed() -> None:
    assert survivors(MUTANTS, test_it_decides_as_the_table_says_in_every_view) == []
    assert len(MUTANTS) > 50


# ---- what the table means: claims that hold whatever it says


def test_no_worker_runs_on_in_a_round_that_may_be_over() -> None:
    over = (Standing.REPLACED, Standing.EXPELLED, Standing.LAPSED, Standing.CLOSED)
    assert not [v for v in views() if v.standing in over and v.workers is W.HEALTHY and core.decide(v) is Order.GO_ON]


def test_a_restart_is_spent_and_the_job_fails_only_by_a_failure_in_a_round_that_is_not_over() -> None:
    for order in (Order.RESTART, Order.FAIL):
        deciding = {(v.workers, v.standing) for v in views() if core.decide(v) is order}
        assert deciding == {(W.FAILED, s) for s in (Standing.CURRENT, Standing.NEWCOMERS)}
    assert {v.final for v in views() if core.decide(v) is Order.RESTART} == {False}


def test_nobody_waits_without_an_end() -> None:
    """An agent that goes on has running workers, or hears from the others; a verdict or a signal ends everything."""
    waits = [v for v in views() if core.decide(v) is Order.GO_ON]
    assert waits
    assert not [v for v in waits if v.standing is Standing.CLOSED or v.signalled]
    assert not [v for v in waits if v.standing is Standing.LAPSED and v.cut_off]
    assert {v.workers for v in waits} == {W.HEALTHY, W.SUCCEEDED}

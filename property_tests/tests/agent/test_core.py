"""The agent decides in every view like this table, and every mutant of the core is detected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from torch.distributed.elastic.agent.server.api import WorkerState

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
# The flags that change an entry of the table; the first that applies counts.
BUT: tuple[tuple[str, Callable[[View], bool], Order], ...] = (
    ("signalled", lambda v: True, Order.LEAVE),
    ("cut_off", lambda v: v.workers is WorkerState.SUCCEEDED and v.standing is Standing.LAPSED, Order.GIVE_UP),
    ("killed", lambda v: tabled(v) is Order.RESTART, Order.REJOIN),
    ("final", lambda v: tabled(v) is Order.RESTART, Order.FAIL),
    ("reported", lambda v: tabled(v) is Order.REPORT, Order.GO_ON),
)
VERDICTS = [
    (None, WorkerState.FAILED),
    (Closed("a", "over", "succeeded"), WorkerState.SUCCEEDED),
    (Closed("a", "over", "failed"), WorkerState.FAILED),
    (Closed("a", "an agent ended"), WorkerState.FAILED),
]


def tabled(view: View) -> Order:
    head, *rows = (line.split() for line in TABLE.strip().splitlines())
    row = next(row for row in rows if row[0] == view.workers.name)
    return Order[row[1 + head.index(view.standing.name)]]


def expected(view: View) -> Order:
    return next((order for flag, so, order in BUT if getattr(view, flag) and so(view)), tabled(view))


def views() -> Iterator[View]:
    for workers, standing in product(WorkerState, Standing):
        for flags in product((False, True), repeat=len(FLAGS)):
            yield View(workers, standing, **dict(zip(FLAGS, flags, strict=True)))


def wrong() -> list[Any]:
    """The views in which the module differs from the table."""
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

"""Jobs at one endpoint: none of ours takes the store from another, and nodes do what the model says.

Every property is violated by a model that is wrong in one place, and the replay notices a node that is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("torch", reason="nodes are torch's")
from trystate.impl.rendezvous import hosting as runtime
from trystate.model.language import Expr, SymbolicState, arc, transition
from trystate.model.rendezvous import hosting
from trystate.model.rendezvous.hosting import SharedEndpoints, Tenant
from trystate.model.rendezvous.vocabulary import Edition
from trystate.property_tests.adapters.our_rendezvous.hosting import every_edge, our_node
from trystate.property_tests.adapters.torch_rendezvous.hosting import compare
from trystate.property_tests.support.marks import by_verify
from trystate.property_tests.support.pinned import Asked, model_tests

S = SymbolicState
TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
T = Tenant
ASKED = (
    Asked(SharedEndpoints, TORCH, "job=2", 14, "no_job_ends_another"),
    Asked(SharedEndpoints, TORCH, "job=3", 167, "no_job_ends_another", ("kill",)),
    Asked(SharedEndpoints, TRYSTATE, "job=2", 14),
    Asked(SharedEndpoints, TRYSTATE, "job=3", 236, "", ("kill", "long_job")),
)


class NeverServesOthers(hosting.Ours):
    """The node ends with its job, as torch's does."""

    def stays(self, s: S, job: Expr) -> Any:
        return False


class LooksOnce(hosting.Ours):
    """The node ends although another job uses the store."""

    @transition(each="job", moves=[arc(T.SERVING, T.SUCCEEDED)])
    def others_have_left(self, s: S, job: Expr) -> None:
        """It ends."""
        s.when(s.phase[job] == T.SERVING)
        s.phase[job] = T.SUCCEEDED
        self.stop_serving(s, job, True)


class ServesForEver(hosting.Ours):
    """The node does not look whether the others have left."""

    others_have_left = replace(hosting.Ours.others_have_left, fair=False)


class LeavesItsServer(hosting.Ours):
    """The server runs when its node has ended."""

    def stop_serving(self, s: S, job: Expr, when: Any, *, by_fault: Any = False) -> None:
        s.connected[job] = False


class SharesThePort(hosting.Ours):
    """Each node serves."""

    def is_taken(self, s: S) -> Any:
        return False


class IsStuck(hosting.Ours):
    """The node that serves other jobs does nothing more."""

    others_have_left = None  # type: ignore[assignment]


MUTANTS = (
    ("no_job_ends_another", NeverServesOthers, "job=2", ()),
    ("no_job_ends_another", LooksOnce, "job=2", ()),
    ("nodes_end", ServesForEver, "job=2", ()),
    ("the_server_ends_with_its_node", LeavesItsServer, "job=2", ()),
    ("one_serves", SharesThePort, "job=2", ()),
    ("deadlock_freedom", IsStuck, "job=2", ()),
)

TestModel = model_tests(ASKED, MUTANTS, ASKED)


@by_verify
def test_our_nodes_do_what_the_model_says() -> None:
    outcome = every_edge(lambda _: None)
    assert (outcome.disagreements, outcome.compared) == ((), 46)


def ends_with_its_job(line: Connection, job: int, port: int) -> None:
    """A node as ours was: it does not look for other jobs."""
    with mock.patch.object(runtime, "serve", lambda *_: True):
        our_node(line, job, port)


def serves_for_ever(line: Connection, job: int, port: int) -> None:
    """A node that takes each job that was there for one that is there."""
    with mock.patch.object(runtime, "serve", lambda *_: False):
        our_node(line, job, port)


@pytest.mark.parametrize("node", [ends_with_its_job, serves_for_ever])
def test_a_node_that_breaks_a_rule_is_a_disagreement(node: Callable[[Connection, int, int], None]) -> None:
    system = SharedEndpoints(edition=Edition.TRYSTATE)
    assert compare(system, node, lambda _: None, stop_after=1).disagreements

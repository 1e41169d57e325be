"""Jobs at one endpoint: no job of ours takes the store from another one, and nodes follow the model.

Every property is violated by a model that is wrong in one place, and the replay detects a wrong node.
"""

from __future__ import annotations

from functools import partial
from multiprocessing.connection import Connection
from unittest import mock

import pytest

pytest.importorskip("torch", reason="nodes are torch's")
from trystate.impl.rendezvous import hosting as runtime
from trystate.model.rendezvous import hosting
from trystate.model.rendezvous.hosting import SharedEndpoints
from trystate.model.rendezvous.vocabulary import Edition
from trystate.property_tests.adapters.our_rendezvous.hosting import every_edge, our_node
from trystate.property_tests.adapters.torch_rendezvous.hosting import compare
from trystate.property_tests.support.mutants import wrong
from trystate.property_tests.support.nightly import by_verify
from trystate.property_tests.support.pinned import model_tests, of_plan

# fmt: off
MUTANTS = (
    ("no_job_ends_another", wrong("NeverServesOthers", hosting.Ours, stays=lambda self, s, job: False), "job=2", ()),
    ("nodes_end", wrong("ServesForEver", hosting.Ours, others_have_left={"fair": False}), "job=2", ()),
    ("the_server_ends_with_its_node", wrong("LeavesItsServer", hosting.Ours,
     stop_serving=lambda self, s, job, when, by_fault=False: s.connected.__setitem__(job, False)), "job=2", ()),
    ("one_serves", wrong("SharesThePort", hosting.Ours, is_taken=lambda self, s: False), "job=2", ()),
    ("deadlock_freedom", wrong("IsStuck", hosting.Ours, others_have_left=None), "job=2", ()),
)
# fmt: on

TestModel = model_tests(of_plan(SharedEndpoints), MUTANTS, of_plan(SharedEndpoints))


@by_verify
def test_our_nodes_do_what_the_model_says() -> None:
    outcome = every_edge(lambda _: None)
    assert (outcome.disagreements, outcome.compared) == ((), 46)


def broken(unused: bool, line: Connection, job: int, port: int) -> None:
    """A node that reports about the other jobs without reading their states."""
    with mock.patch.object(runtime, "serve", lambda *_: unused):
        our_node(line, job, port)


@pytest.mark.parametrize("unused", [True, False], ids=["ends with its job", "serves for ever"])
def test_a_node_that_breaks_a_rule_is_a_disagreement(unused: bool) -> None:
    system = SharedEndpoints(edition=Edition.TRYSTATE)
    assert compare(system, partial(broken, unused), lambda _: None, stop_after=1).disagreements

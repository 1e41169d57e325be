"""All orders of messages of a room and two members; each rule that the search has found has its counterexample."""

from __future__ import annotations

import pytest

from trystate.impl.rendezvous.rooms.member import Member
from trystate.impl.rendezvous.rooms.room import Room
from trystate.property_tests.adapters.rooms.orders import Budget, search
from trystate.property_tests.support.mutants import Mutant, planted, replaced, rewritten

# fmt: off
# The number of states by min_nodes (max_nodes is 2) and by what happens; changed only with a reason.
STATES = {
    (1, Budget(breaks=1, failures=1, leaves=1)): 9_855,
    (1, Budget(breaks=1, restarts=1)): 992,
    (1, Budget(breaks=1, drains=1)): 1_285,
    (2, Budget(breaks=1, failures=1)): 983,
}
RETURNS = "if self._request is None and not self._wanted:"
# A rule that is undone: the mutant, what happens, the property, and the shortest run. There "request 0" is the arrival
# of the next request of node 0 at the room, and "answer 0" the arrival of the next answer or notice at node 0.
UNDONE: dict[str, tuple[Mutant, Budget, str, str]] = {
    "a join returns only while no request is under way": (
        rewritten(Member._return, RETURNS, "if True:"), Budget(leaves=1), "two groups",
        # Node 0 leaves and joins again. The notice of its old round comes, and the LEAVE arrives after that.
        "request 0, answer 0, leave 0, request 0, answer 0, request 1, answer 1"),
    "a join returns only while no request waits to be sent": (
        rewritten(Member._return, RETURNS, "if self._request is None:"), Budget(breaks=1, leaves=1), "two groups",
        # A BEAT is under way on a new connection when node 0 leaves and joins again; its answer has the old round.
        "request 0, answer 0, break 0, leave 0, request 1, request 0, answer 0, request 0" + 3 * ", answer 1"),
    "a join that has ended is remembered": (
        replaced(Room, "_has_ended", lambda self, token, join: False), Budget(breaks=1, drains=1),
        "an ended join lists its node",
        # Node 0 is drained; the answer to the request that takes it off the lists is lost, and the JOIN comes again.
        "request 0, drain 0, break 0, request 0, answer 0, request 0"),
}
# fmt: on


@pytest.mark.parametrize(("low", "budget"), STATES, ids=str)
def test_all_orders_of_two_nodes_keep_the_properties(low: int, budget: Budget) -> None:
    found = search(2, low, 2, budget)
    assert (found.broken, found.states) == ("", STATES[low, budget])


@pytest.mark.parametrize("rule", UNDONE)
def test_a_rule_that_is_undone_has_its_shortest_counterexample(rule: str) -> None:
    mutant, budget, broken, path = UNDONE[rule]
    with planted(mutant):
        found = search(2, 1, 2, budget)
    assert broken in found.broken and ", ".join(" ".join(map(str, action)) for action in found.path) == path

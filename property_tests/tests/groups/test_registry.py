"""The system of the registry: what each edition violates, and that each edge is one of torch's own module."""

from __future__ import annotations

from typing import Any

import pytest

from trystate.model.groups import registry
from trystate.model.groups.registry import Registry
from trystate.model.groups.vocabulary import Edition, Entry
from trystate.model.language import Expr, SymbolicState, arc, environment
from trystate.property_tests.harness.paths import explore_graph, replay_every_edge
from trystate.property_tests.support.pinned import Asked, model_tests, report

S = SymbolicState
TORCH, LOCAL = Edition.TORCH, Edition.LOCAL
# fmt: off
ASKED = (
    Asked(Registry, LOCAL, "group=2", 32, "a_name_is_given_once a_group_can_be_made"),
    Asked(Registry, LOCAL, "group=3", 236, "a_name_is_given_once a_group_can_be_made"),
    Asked(Registry, TORCH, "group=2", 38),
    Asked(Registry, TORCH, "group=3", 120),
)
# fmt: on
EDGES = {TORCH: (102, 9), LOCAL: (90, 8)}  # and the depth of the graph


class CountsDown(registry.Torch):
    """A group that is destroyed gives its name back."""

    @environment(each="group", moves=[arc(Entry.ENTERED, Entry.ABSENT)])
    def destroy(self, s: S, group: Expr) -> None:
        """The count falls."""
        registry.Torch.destroy.body(self, s, group)
        s.named = s.named - 1


class LooksNothingUp(registry.Torch):
    """new_group takes any name; the first group is named over and over."""

    def is_taken(self, s: S, number: Any) -> Any:
        return False

    def next_count(self, s: S) -> Any:
        return s.named


class ForgetsTheRanks(registry.Torch):
    """destroy_process_group leaves the ranks of a group."""

    def leave(self, s: S, group: Expr) -> None:
        s.entry[group] = Entry.ABSENT
        s.mapped[group] = False
        s.called[group] = 0


class KeepsTheCount(registry.Torch):
    """The count goes on after all groups were destroyed."""

    @environment(moves=[arc(Entry.ENTERED, Entry.ABSENT, of="others")])
    def end(self, s: S) -> None:
        """All but the count."""
        named = s.fork().named
        registry.Torch.end.body(self, s)
        s.named = named


class NeverBegins(registry.Torch):
    """There is no default group."""

    begin = None  # type: ignore[assignment]


# fmt: off
MUTANTS = (
    ("tables_agree", ForgetsTheRanks, "group=2", ()),
    ("names_are_unique", LooksNothingUp, "group=2", ()),
    ("a_name_is_given_once", CountsDown, "group=2", ()),
    ("a_group_can_be_made", CountsDown, "group=2", ()),
    ("the_end_clears_all", KeepsTheCount, "group=2", ()),
    ("deadlock_freedom", NeverBegins, "group=2", ()),
)
# fmt: on

(
    test_an_edition_violates_what_is_known_of_it_and_no_more,
    test_every_step_is_taken_and_every_claimed_move_is_made,
    test_the_engines_agree,
    test_a_mutant_is_caught_by_the_property_that_is_about_it,
    test_every_property_is_violated_by_a_mutant,
) = model_tests(ASKED, MUTANTS, ASKED)


@pytest.mark.parametrize("edition", EDGES)
def test_the_graph_is_of_this_size(edition: Edition) -> None:
    found = report(Asked(Registry, edition, "group=2", 0)).exploration
    assert (found.edges, found.depth) == EDGES[edition]


@pytest.mark.parametrize("edition", EDGES)
def test_every_edge_is_one_of_torchs_module(edition: Edition) -> None:
    pytest.importorskip("torch", reason="the tables are torch's")
    from trystate.property_tests.adapters.torch_groups.registry import TorchRegistry

    system = Registry(edition=edition)
    with TorchRegistry(system) as subject:
        seen = replay_every_edge(system, subject)
    assert seen.disagreements == ()
    assert seen.edges == seen.edges_of_all == EDGES[edition][0]


@pytest.mark.parametrize("edition", EDGES)
def test_the_tables_of_the_other_edition_are_noticed(edition: Edition) -> None:
    pytest.importorskip("torch", reason="the tables are torch's")
    from trystate.property_tests.adapters.torch_groups.registry import TorchRegistry

    system = Registry(edition=edition)
    with TorchRegistry(system, local=edition is TORCH) as subject:
        assert replay_every_edge(system, subject, stop_after=1).disagreements


@pytest.mark.parametrize("mutant", [CountsDown, KeepsTheCount])
def test_a_mutant_of_the_model_is_told_from_torch(mutant: type[Registry]) -> None:
    pytest.importorskip("torch", reason="the tables are torch's")
    from trystate.property_tests.adapters.torch_groups.registry import TorchRegistry

    system = mutant(edition=TORCH)
    with TorchRegistry(system) as subject:
        assert replay_every_edge(system, subject, stop_after=1, explored=explore_graph(system)).disagreements

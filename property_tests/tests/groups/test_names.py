"""The names and counters of the model agree with torch's own new_group, along every edge."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the names are torch's")

from trystate.model.groups.creation import Groups
from trystate.model.groups.vocabulary import Edition
from trystate.property_tests.adapters.torch_groups.names import TorchNames
from trystate.property_tests.harness.paths import replay_every_edge

# edition, sizes, faults: number of edges
EDGES = {
    (Edition.TORCH, 3, 1, ("skip",)): 408,
    (Edition.TORCH, 2, 0, ("threads",)): 222,
    (Edition.TORCH, 2, 0, ("again", "restart")): 1190,
    (Edition.LOCAL, 3, 1, ("skip",)): 396,
}


@pytest.mark.parametrize(("edition", "processes", "outsiders", "faults"), EDGES, ids=str)
def test_torch_gives_the_names_of_the_model(
    edition: Edition, processes: int, outsiders: int, faults: tuple[str, ...]
) -> None:
    system = Groups(edition=edition, faults=faults, process=processes, group=2, outsiders=outsiders)
    with TorchNames(system) as subject:
        seen = replay_every_edge(system, subject, repeats=False)
    assert seen.disagreements == ()
    assert seen.edges == seen.edges_of_all == EDGES[edition, processes, outsiders, faults]


@pytest.mark.parametrize("edition", [Edition.TORCH, Edition.LOCAL], ids=str)
def test_names_of_the_other_edition_are_noticed(edition: Edition) -> None:
    system = Groups(edition=edition, process=3, group=2, outsiders=1)
    with TorchNames(system, local=edition is Edition.TORCH) as subject:
        assert replay_every_edge(system, subject, repeats=False).disagreements

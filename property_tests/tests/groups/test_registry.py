"""The system of the registry: the violations of each edition, and each edge compared with torch's own module."""

from __future__ import annotations

from typing import Any

import pytest

from trystate.model.groups import registry
from trystate.model.groups.registry import Registry
from trystate.model.groups.vocabulary import Edition
from trystate.property_tests.harness.paths import Replayed, replay_every_edge
from trystate.property_tests.support.mutants import altered, wrong
from trystate.property_tests.support.pinned import model_tests, of_plan

TORCH, LOCAL = Edition.TORCH, Edition.LOCAL
ASKED = of_plan(Registry)[::-1]  # the mutants are of the last edition, TORCH
EDGES = {TORCH: 102, LOCAL: 90}


# A destroyed group frees its name.
CountsDown = altered(
    "CountsDown", registry.Torch, "destroy", "self.leave(s, group)", "self.leave(s, group); s.named = s.named - 1"
)
# The count continues after all groups were destroyed.
KeepsTheCount = altered("KeepsTheCount", registry.Torch, "end", "s.named = 0", "pass")
# destroy_process_group keeps the ranks of a group.
ForgetsTheRanks = altered("ForgetsTheRanks", registry.Torch, "leave", ", s.ranked", "")
# fmt: off
MUTANTS = (
    ("tables_agree", ForgetsTheRanks, "group=2", ()),
    ("names_are_unique", wrong("LooksNothingUp", registry.Torch, is_taken=lambda self, s, number: False,
     next_count=lambda self, s: s.named), "group=2", ()),
    ("a_name_is_given_once", CountsDown, "group=2", ()),
    ("a_group_can_be_made", CountsDown, "group=2", ()),
    ("the_end_clears_all", KeepsTheCount, "group=2", ()),
    ("deadlock_freedom", wrong("NeverBegins", registry.Torch, begin=None), "group=2", ()),
)
# fmt: on

TestModel = model_tests(ASKED, MUTANTS, ASKED)


def replayed(system: Registry, local: bool | None = None, **options: Any) -> Replayed:
    """Replay the edges of a system on torch's module; by default `local` follows from its edition."""
    pytest.importorskip("torch", reason="the tables are torch's")
    from trystate.property_tests.adapters.torch_groups.names import TorchRegistry

    with TorchRegistry(system, local) as subject:
        return replay_every_edge(system, subject, **options)


@pytest.mark.parametrize("edition", EDGES)
def test_every_edge_is_one_of_torchs_module(edition: Edition) -> None:
    seen = replayed(Registry(edition=edition))
    assert seen.disagreements == ()
    assert seen.edges == seen.edges_of_all == EDGES[edition]


@pytest.mark.parametrize("edition", EDGES)
def test_the_tables_of_the_other_edition_are_noticed(edition: Edition) -> None:
    assert replayed(Registry(edition=edition), local=edition is TORCH, stop_after=1).disagreements

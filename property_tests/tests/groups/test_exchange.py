"""The exchange of symmetric memory: the violations of each edition, and each edge compared with torch's class."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from trystate.model.groups import exchange
from trystate.model.groups.exchange import Exchanges
from trystate.model.groups.vocabulary import Counting
from trystate.property_tests.harness.paths import Replayed, replay_every_edge
from trystate.property_tests.support.mutants import wrong
from trystate.property_tests.support.pinned import assert_in_table, model_tests, of_plan

TORCH, SCOPED, MENDED = Counting.TORCH, Counting.SCOPED, Counting.MENDED
TRIO, PAIR = "process=3 number=3 outsiders=1", "process=2 number=4 outsiders=0"
ASKED = of_plan(Exchanges)

# One count for all groups.
CountsAll = wrong("CountsAll", exchange.Mended, counts=exchange.Torch.counts)
# The keys of both lives have one prefix.
SharesItsKeys = wrong("SharesItsKeys", exchange.Mended, sees=Exchanges.sees)
# A member does not notice that another has raised.
WaitsForTheDead = wrong("WaitsForTheDead", exchange.Mended, time_out=None)
# fmt: off
MUTANTS = (
    ("values_are_of_one_exchange", SharesItsKeys, PAIR, ("again",)),
    ("exchanges_end", CountsAll, TRIO, ()),
    ("deadlock_freedom", WaitsForTheDead, PAIR, ("retry",)),
)
# fmt: on

TestModel = model_tests(ASKED, MUTANTS, [asked for asked in ASKED if asked.states < 50])

# ---- torch's own class

needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "c++")) is None, reason="a C++ compiler builds the class of torch's header"
)
SYSTEMS: tuple[tuple[Counting, dict[str, int], tuple[str, ...]], ...] = (
    (TORCH, {"process": 3, "number": 2}, ()),
    (SCOPED, {"process": 3, "number": 2}, ()),
    (TORCH, {"process": 2, "number": 3, "outsiders": 0}, ("retry",)),
    (TORCH, {"process": 2, "number": 4, "outsiders": 0}, ("again", "restart")),
    (SCOPED, {"process": 2, "number": 2, "outsiders": 0}, ("again", "restart")),
)


def replayed(system: Exchanges, change: Callable[[Any], Any] = lambda made: made, **options: Any) -> Replayed:
    """Replay the edges of a system on torch's class; `change` makes another class of it."""
    pytest.importorskip("torch", reason="the class is torch's")
    from trystate.property_tests.adapters.torch_groups.exchange import TorchExchange
    from trystate.property_tests.replays.exchanges import store_exchange

    with closing(TorchExchange(system, change(store_exchange()))) as subject:
        return replay_every_edge(system, subject, repeats=False, **options)


@needs_compiler
@pytest.mark.parametrize(("edition", "sizes", "faults"), SYSTEMS)
def test_every_edge_is_one_of_torchs_store_exchange(
    edition: Counting, sizes: dict[str, int], faults: tuple[str, ...]
) -> None:
    assert_in_table("groups.md", replayed(Exchanges(edition=edition, faults=faults, **sizes)))


def takes_its_own(made: Any) -> Any:
    class TakesItsOwn(made):  # type: ignore[misc]
        def all_gather(self, store: Any, rank: int, size: int, value: int) -> Any:
            return [super().all_gather(store, rank, size, value)[rank]] * size

    return TakesItsOwn


@needs_compiler
def test_a_mutant_of_the_class_disagrees_with_the_model() -> None:
    system = Exchanges(edition=TORCH, process=2, number=2, outsiders=0)
    assert replayed(system, takes_its_own, stop_after=1).disagreements

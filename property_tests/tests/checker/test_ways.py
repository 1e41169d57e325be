"""Each way of the explicit engine gives the answers of one thread in memory, to the last step of a run.

Chunks, ranges, blocks and batches are tiny, so small systems have many of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trystate.model.checker.check import check
from trystate.model.checker.explicit import fused
from trystate.model.checker.explicit.codes import CODE_BITS, Coded
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.explicit.partitioned import PartitionedEngine
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.language import System
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.published.agreement import Voting
from trystate.property_tests.support.ranks import answers as found_by
from trystate.property_tests.support.ranks import together
from trystate.property_tests.support.runs import MANY, assert_runs_show_what_they_claim, facts
from trystate.property_tests.support.systems.engine_samples import ThreeWords
from trystate.property_tests.support.systems.random_systems import Declaration, declarations, system
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.property_tests.tests.checker import searches
from trystate.property_tests.tests.checker.devices import COMPILER, DEVICES, WITH_KERNELS, on
from trystate.property_tests.tests.checker.searches import answers, coded, narrow, patched, small
from trystate.search import device
from trystate.search.cores import Cores
from trystate.search.spill import Spill

Make = Callable[[], System]
ROOM = (0, 200, 2_000)  # bytes of memory for states: none, room for a few, room for some levels


def cores(make: Make, limits: Limits, **options: Any) -> Iterator[Any]:
    for count in (2, 3):
        yield answers(make(), count, limits, **options)


def codes(make: Make, limits: Limits, **options: Any) -> Iterator[Any]:
    """With 14 bits, two phase commit has two sets of codes one after the other, and then no codes."""
    for bits in (32, 14):
        with coded(bits):
            yield from (answers(make(), count, limits, **options) for count in (1, 2))


def files(make: Make, limits: Limits, **options: Any) -> Iterator[Any]:
    for room in ROOM:
        with small(16, 50), TemporaryDirectory() as folder, Spill(f"{folder}/kept", room) as place:
            yield answers(make(), 1 + (room == 200), limits, storage=place, **options)


def tensors(make: Make, limits: Limits, *, kernels: bool = False, **options: Any) -> Iterator[Any]:
    for name in WITH_KERNELS if kernels else DEVICES:
        yield answers(make(), on(name, kernels), limits, **options)


def kernels(make: Make, limits: Limits, **options: Any) -> Iterator[Any]:
    if COMPILER is None:
        pytest.skip("needs g++")
    with patched((fused, "STEPS_MAX", 5)):
        yield from tensors(make, limits, kernels=True, **options)


def ranks(make: Make, limits: Limits, **options: Any) -> Iterator[Any]:
    for count in (1, 2, 3):
        yield from together(
            count, lambda mine: found_by(PartitionedEngine(Kernel(make()), limits, ranks=mine, **options))
        )


WAYS = {"cores": cores, "codes": codes, "files": files, "tensors": tensors, "kernels": kernels, "ranks": ranks}
every_way = pytest.mark.parametrize("way", WAYS)
SYSTEMS: dict[str, tuple[Make, dict[str, Any]]] = {
    **{name: (make, {}) for name, make in searches.SYSTEMS.items()},
    "symmetry": (lambda: TwoPhaseCommit(rm=6), {"symmetry": True}),
    "renamings": (lambda: Voting(ballot=2), {"symmetry": ("acceptor", "value")}),
}  # fmt: skip


@contextmanager
def tiny(way: str, make: Make = ThreeWords) -> Iterator[None]:
    """Several ranks have the finds of one rank if a level is one chunk. Codes are for states of many words."""
    chunk, words = (1 << 15 if way == "ranks" else 16), narrow(make) if way == "codes" else nullcontext()
    larger = (device, "LEVEL_MIN", 4), (device.TensorLayout, "chunks", property(lambda layout: 3))
    with searches.tiny(chunk), words, patched(*larger):
        yield


def assert_alike(way: str, make: Make, limits: Limits = MANY, **options: Any) -> None:
    with tiny(way, make):
        expected = answers(make(), 1, limits, **options)
        for found in WAYS[way](make, limits, **options):
            assert found == {part: expected[part] for part in found}


def test_a_search_goes_on_without_codes_where_they_do_not_fit() -> None:
    for bits in (CODE_BITS, 14):
        with coded(bits), narrow(lambda: TwoPhaseCommit(rm=4)):
            engine = ExplicitEngine(Kernel(TwoPhaseCommit(rm=4)), MANY)
            engine.explore([])
            assert isinstance(engine.visited, Coded) is (bits == CODE_BITS)


@every_way
@pytest.mark.parametrize("name", SYSTEMS)
def test_states_of_any_width_have_the_same_answers(way: str, name: str) -> None:
    make, options = SYSTEMS[name]
    assert_alike(way, make, **options)


@every_way
@settings(max_examples=examples(5))
@given(declared=declarations())
def test_random_systems_have_the_same_answers(way: str, declared: Declaration) -> None:
    assert_alike(way, lambda: system(declared))


@pytest.mark.parametrize("way", ["cores", "codes", "files"])
@pytest.mark.parametrize("states", [1, 7, 100, 287, 288])
def test_a_limit_of_states_stops_at_the_same_state(way: str, states: int) -> None:
    assert_alike(way, lambda: TwoPhaseCommit(rm=3), replace(MANY, states=states))


@pytest.mark.parametrize("way", [way for way in WAYS if way != "files"])  # a search in files keeps within the memory
@pytest.mark.parametrize("limits", [replace(MANY, memory_bytes=1 << 9), replace(MANY, seconds=0.0)])
def test_memory_and_seconds_stop_a_search(way: str, limits: Limits) -> None:
    with tiny(way):
        for found in WAYS[way](lambda: TwoPhaseCommit(rm=5), limits):
            assert ("MiB (limit 0 MiB" if limits.seconds else "s (limit 0 s") in found["graph"][-1]


@settings(max_examples=examples(5))
@given(declared=declarations(), room=st.sampled_from(ROOM))
def test_reports_of_random_systems_are_those_of_the_interpreter(declared: Declaration, room: int) -> None:
    """Liveness is compared too, for states on cores, on a device, in files or with ranks."""
    expected = facts(check(system(declared), engine="interpret"))
    with tiny("cores"), small(16, 50), TemporaryDirectory() as folder, Spill(f"{folder}/kept", room) as place:
        for ways in ({"workers": Cores(2)}, {"workers": on(DEVICES[-1])}, {"storage": place}):
            report = check(system(declared), engine="explicit", **ways)
            assert facts(report) == expected
            assert_runs_show_what_they_claim(report)
    first, *_ = together(3, lambda mine: check(system(declared), engine="explicit", ranks=mine))
    assert facts(first) == expected
    assert_runs_show_what_they_claim(first)

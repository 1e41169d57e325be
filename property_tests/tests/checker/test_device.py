"""The explicit engine on torch tensors gives the answers on NumPy's arrays, to the last step of each run.

Without a GPU the tensors are in main memory, and kernels are compiled for the processor; with one, each test runs
there as well. Levels of one state move to the device, chunks have a few states, and a chunk there is as large as
several of NumPy's.
"""

from __future__ import annotations

import importlib.util
import re
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the tensors are torch's")
import torch
from hypothesis import given, settings

from trystate.model.checker import engine as checker_engine
from trystate.model.checker.check import check
from trystate.model.checker.explicit import engine as explicit
from trystate.model.checker.explicit import visited
from trystate.model.checker.explicit.workers import Workers
from trystate.model.checker.kernel import Limits
from trystate.model.errors import DeclarationError, UnavailableError, UsageError
from trystate.model.language import System
from trystate.property_tests.support.mutants import Mutant, replaced, wrapped
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.runs import MANY, facts
from trystate.property_tests.support.systems.random_systems import Declaration, system
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.property_tests.support.systems.wide_systems import wide_declarations
from trystate.property_tests.tests.checker.devices import DEVICES, on
from trystate.property_tests.tests.checker.searches import answers, patched
from trystate.search import device
from trystate.search.device import Device, TensorLayout
from trystate.search.machine import SearchOptions

on_each_device = pytest.mark.parametrize("name", DEVICES)


def tiny(chunks: int = 3) -> AbstractContextManager[pytest.MonkeyPatch]:
    """Chunks of three states, `chunks` times larger on a device, which searches each level."""
    several = property(lambda layout: chunks)
    return patched((explicit, "CHUNK", 3), (visited, "PENDING_MIN", 8), (device, "LEVEL_MIN", 1),
                   (TensorLayout, "chunks", several))  # fmt: skip


def assert_alike(of: System, limits: Limits = MANY) -> None:
    expected = answers(of, 1, limits)
    for name in DEVICES:
        assert answers(of, on(name), limits) == expected


@given(wide_declarations())
@settings(max_examples=examples(5))
def test_numbers_beyond_int64_are_exact_on_a_device(declared: Declaration) -> None:
    def decided(workers: Workers | None) -> Any:
        try:
            report = check(system(declared), engine="explicit", limits=replace(MANY, states=500), workers=workers)
        except (DeclarationError, UsageError) as refused:
            return str(refused)
        return facts(report) if report.exploration.complete else None

    with tiny():
        expected = decided(None)
        assert [decided(on(name)) for name in DEVICES] == [expected] * len(DEVICES)


def test_levels_leave_a_device_that_is_crowded_and_runs_may_be_short() -> None:
    with tiny() as patch:
        patch.setattr(Device, "crowded", property(lambda of: True))
        patch.setattr(device, "RUN_MAX", 100)
        assert_alike(TwoPhaseCommit(rm=4))


@pytest.mark.parametrize("states", [1, 100, 1_567])
def test_a_limit_of_states_stops_where_smaller_chunks_would(states: int) -> None:
    with tiny(chunks=1):
        assert_alike(TwoPhaseCommit(rm=4), replace(MANY, states=states))


def test_liveness_after_a_search_on_a_gpu_has_the_memory_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    small, found = replace(MANY, memory_bytes=1 << 9), Device("torch-cpu")
    assert found.afterwards(small) == small
    monkeypatch.setattr(found, "_measured", True)
    monkeypatch.setattr("trystate.search.device.available_bytes", lambda: 1 << 30)
    assert found.afterwards(small) == replace(small, memory_bytes=3 << 28)


def fails_after_40(right: Any) -> Any:
    calls = iter(range(40))

    def find(of: TensorLayout, *keys: Any) -> Any:
        if next(calls, None) is None:
            raise torch.OutOfMemoryError("planted")
        return right(of, *keys)

    return find


@on_each_device
@pytest.mark.parametrize("limit", [wrapped(TensorLayout, "find", fails_after_40), replaced(device, "SORT_MAX", 100)])
def test_memory_that_ends_and_more_keys_than_torch_sorts_are_limits(name: str, limit: Mutant) -> None:
    with tiny() as patch:
        limit(patch)
        distinct, _, _, stopped = answers(TwoPhaseCommit(rm=4), on(name))["graph"]
    assert stopped.startswith("stopped since no memory could be allocated") and 0 < distinct < 1_568


@on_each_device
def test_ctrl_c_ends_a_search_on_a_device(name: str) -> None:
    def pressed(_: Any) -> None:
        raise KeyboardInterrupt

    with tiny() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checker_engine, "REPORT_SECONDS", 0.0)
        check(TwoPhaseCommit(rm=4), engine="explicit", workers=on(name), on_progress=pressed)


# ---- refusals


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1234", "torch", "", "cpu"])
def test_a_device_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(
        UsageError, match=re.escape(f"device is {name!r}: give cpu (NumPy), cuda, cuda:N, or torch-cpu")
    ):
        Device(name)


def test_cuda_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"device cuda: torch .* finds no CUDA device; install a driver, and a torch"):
        Device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UsageError, match="device cuda:2: there are 2, so give cuda:0 to cuda:1"):
        Device("cuda:2")


def test_a_device_without_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *at: None if name == "torch" else right(name, *at))
    with pytest.raises(UnavailableError, match=r"device cuda needs torch: pip install 'trystate\[torch\]'"):
        SearchOptions("explicit", device="cuda", cores=1).workers()

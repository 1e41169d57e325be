"""Distributed autograd in three real processes, which are started once: errors, deadlines, threads, contexts, hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="it is about torch's autograd")

import torch

from trystate.property_tests.adapters.worlds import World
from trystate.property_tests.support.autograd import tasks
from trystate.property_tests.support.autograd.running import join, leave

SECONDS = 120.0  # limit of one task, on a busy machine
SIZE = 3
Do = Callable[..., Any]


@pytest.fixture(scope="module")
def do(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Do]:
    """A function that runs a task on worker 0 and returns its result."""
    with World(SIZE) as world:
        world.do(join, SIZE, ("ours",), str(tmp_path_factory.mktemp("meeting")), seconds=SECONDS)
        yield lambda task, *arguments: world.do(tasks.tasks_of_one, task, *arguments, seconds=SECONDS)[0]
        world.do(leave, ("ours",), seconds=SECONDS)


def test_an_error_anywhere_reaches_the_root_and_leaves_nothing(do: Do) -> None:
    found = do(tasks.an_error_on_another_worker, SIZE)
    kind, text = found["error"]
    assert kind == "PassError"
    assert text.startswith("Error on Node 2: ValueError: planted")
    assert "in fail_once" in text, "the traceback of the worker"
    assert found["parts"] == [0, 0, 0]
    assert found["after"] == [None, 0], "gradients of a failed pass"
    assert torch.equal(found["again"], torch.full((2, 2), 2.0)), "a retry counts once"
    assert found["quiet"]


def test_a_gradient_that_is_not_sent_is_an_error_at_once(do: Do) -> None:
    (kind, text), parts = do(tasks.a_gradient_that_is_not_sent, SIZE)
    assert kind == "PassError"
    assert "the tensors of one frame have 16 bytes, the limit is 8" in text
    assert parts == [0] * SIZE


@pytest.mark.parametrize(("mode", "round_trips"), [("fast", 1), ("smart", 2)])
def test_a_call_costs_one_round_trip_of_gradients_and_one_of_marks(do: Do, mode: str, round_trips: int) -> None:
    assert do(tasks.the_frames_of_a_pass, mode) == ((round_trips, round_trips), True)


def test_a_call_does_not_wait_for_hooks_of_the_other_worker(do: Do) -> None:
    assert do(tasks.the_frames_of_a_pass_with_a_hook, "fast") == ((2, 2), True)


def test_a_worker_that_dies_in_a_pass_fails_it_and_its_contexts_end(tmp_path: Path) -> None:
    with World(SIZE) as world:
        world.do(join, SIZE, ("ours",), str(tmp_path), seconds=SECONDS)
        said = world.tell(tasks.tasks_of_one, tasks.a_worker_that_dies, seconds=SECONDS)
    (kind, text), contexts = said[0]
    assert kind == "PassPeerLostError", text
    assert contexts == 0

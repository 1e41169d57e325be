"""Distributed autograd in three real processes, which are started once: errors, deadlines, threads, contexts, hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="it is about torch's autograd")

import torch

from trystate.property_tests.support.autograd import tasks
from trystate.property_tests.support.autograd.running import join, leave
from trystate.property_tests.support.autograd.worlds import World

SECONDS = 120.0  # for a task, on a busy machine
SIZE = 3
Do = Callable[..., Any]


@pytest.fixture(scope="module")
def do(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Do]:
    """Have worker 0 do a task; what it returns."""
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


def test_fast_names_the_call_that_is_not_used_and_smart_does_not_mind(do: Do) -> None:
    kind, text = do(tasks.a_call_that_is_not_used, "fast")
    assert kind == "UnusedSendError"
    assert "tasks:through on worker2" in text
    assert 'use mode="smart"' in text
    assert do(tasks.a_call_that_is_not_used, "smart") == ("", "")


def test_a_deadline_holds_while_a_node_runs_elsewhere(do: Do) -> None:
    (kind, text), seconds = do(tasks.a_deadline, 0.5)
    assert kind == "PassTimeoutError", text
    assert seconds >= 0.5


def test_contexts_of_several_threads_do_not_mix(do: Do) -> None:
    assert do(tasks.several_at_once, 6, 5) == []


def test_a_call_that_outlives_its_context_brings_nothing_back(do: Do) -> None:
    assert do(tasks.a_context_left_early, SIZE) == (False, True)


def test_a_second_pass_over_a_freed_graph_is_refused(do: Do) -> None:
    kind, text = do(tasks.the_graph_is_freed)
    assert kind in ("GraphFreedError", "PassError", "FreedError")
    assert "retain_graph=True" in text


def test_a_gradient_that_is_not_sent_is_an_error_at_once(do: Do) -> None:
    (kind, text), parts = do(tasks.a_gradient_that_is_not_sent, SIZE)
    assert kind == "PassError"
    assert "tensors of 16 bytes in one frame > 8" in text
    assert parts == [0] * SIZE


@pytest.mark.parametrize("rows", [2, 2_000], ids=["by socket", "in shared memory"])
@pytest.mark.parametrize("layout", ["", "turned", "spread", "gaps", "channels_last"])
def test_a_tensor_arrives_with_the_strides_of_its_clone(do: Do, layout: str, rows: int) -> None:
    strides, there, back, is_same = do(tasks.strides_there_and_back, layout, rows)
    assert strides == there == back
    assert is_same


def test_observers_are_told_of_a_request_that_goes_with_an_answer(do: Do) -> None:
    seen = do(tasks.the_requests_of_a_pass)
    assert seen["root"] == [("told", 1, False), ("answered", 1, None), ("heard", 1, None)]
    assert seen["other"] == [("heard", 0, None), ("told", 0, True)]


@pytest.mark.parametrize(("mode", "round_trips"), [("fast", 1), ("smart", 2)])
def test_a_call_costs_its_backward_pass_one_round_trip_and_its_marks_another(
    do: Do, mode: str, round_trips: int
) -> None:
    assert do(tasks.the_frames_of_a_pass, mode) == ((round_trips, round_trips), True)


def test_a_call_does_not_wait_for_hooks_of_the_other_worker(do: Do) -> None:
    assert do(tasks.the_frames_of_a_pass_with_a_hook, "fast") == ((2, 2), True)


def test_steps_of_two_optimizers_take_turns(do: Do) -> None:
    assert torch.equal(do(tasks.two_optimizers, 10), torch.full((2, 2), 1.0 - 20))


def test_a_hook_may_call_another_worker(do: Do) -> None:
    assert torch.equal(do(tasks.a_hook_that_calls), torch.full((2, 2), 2.0))


def test_a_worker_that_dies_in_a_pass_fails_it_and_its_contexts_end(tmp_path: Path) -> None:
    with World(SIZE) as world:
        world.do(join, SIZE, ("ours",), str(tmp_path), seconds=SECONDS)
        said = world.tell(tasks.tasks_of_one, tasks.a_worker_that_dies, seconds=SECONDS)
    (kind, text), contexts = said[0]
    assert kind == "PassPeerLostError", text
    assert contexts == 0

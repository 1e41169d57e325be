"""Three workers with real connections: each takes of a context and of a pass only what its sender may send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="it is about torch's autograd")

import torch

from trystate.impl.autograd.contexts import Context
from trystate.impl.autograd.driver import Driver
from trystate.impl.autograd.messages import BACKWARD, CANCEL, CLEAN, MARK, Backward, Cancel, Clean, Forward, Mark
from trystate.impl.rpc.invocations import Invocations
from trystate.impl.rpc.requests import Answer
from trystate.model.autograd.vocabulary import Mode
from trystate.property_tests.support.rpc import functions as f
from trystate.property_tests.support.rpc.worlds import PATIENCE_SECONDS, eventually, world

A, B, C = range(3)


class Three:
    """Workers A, B and C, each with its distributed autograd, in this process."""

    def __init__(self, calls: list[Invocations]) -> None:
        self.calls = calls
        self.drivers = [Driver(one.agent) for one in calls]

    def enter(self) -> Context:
        """This thread enters a context of A."""
        context = self.drivers[A].container.create()
        self.drivers[A].current.number = context.number
        return context

    def call(self, *path: int) -> None:
        """A calls the first of the path, which calls the second."""
        self.calls[A].sync(path[0], f.bounce, (path[0], path[-1], len(path) - 1), None, None)

    def leave(self, context: Context) -> None:
        self.drivers[A].current.number = None
        with self.drivers[A].locked() as effects:
            effects += self.drivers[A].container.release(context.number)

    def sends(self, source: int, to: int, kind: int, message: Any) -> Answer | BaseException:
        """A message of distributed autograd goes from one worker to another over their connection; its answer."""
        answers: list[Answer | BaseException] = []
        request = self.calls[source].agent.request
        request(to, kind, message.pack(), (), PATIENCE_SECONDS, answers.append)
        assert eventually(lambda: bool(answers))
        return answers[0]

    def has(self, worker: int, context: Context) -> bool:
        return context.number in self.drivers[worker].container.contexts


@pytest.fixture
def three() -> Iterator[Three]:
    with world(3) as calls:
        here = Three(calls)
        yield here
        for driver in here.drivers:
            driver.close()


@pytest.mark.parametrize("called_first", [True, False])
def test_a_worker_without_a_part_in_a_context_does_not_end_it(three: Three, called_first: bool) -> None:
    context = three.enter()
    if called_first:
        three.call(B)
    assert not isinstance(three.sends(C, B, CLEAN, Clean(context.number, context.number + 1)), BaseException)
    three.call(B)
    assert three.has(B, context) and three.has(A, context)
    three.leave(context)
    assert eventually(lambda: not three.has(B, context))


def test_a_worker_ends_a_context_that_it_has_brought(three: Three) -> None:
    context = three.enter()
    three.call(B, C)
    assert three.has(C, context)
    three.sends(B, C, CLEAN, Clean(context.number, 0))
    assert not three.has(C, context)


def test_an_end_that_overtakes_its_call_ends_the_context_for_that_call(three: Three) -> None:
    context = three.enter()
    three.sends(B, C, CLEAN, Clean(context.number, 0))
    three.call(B, C)
    assert three.has(B, context) and not three.has(C, context)
    three.call(C)
    assert three.has(C, context), "A has not ended it"
    three.leave(context)
    assert eventually(lambda: not three.has(B, context) and not three.has(C, context))


def test_all_workers_forget_a_context_when_the_one_between_is_lost(three: Three) -> None:
    """B does not pass CLEAN on: its connection to C has ended. A sends it to C."""
    context = three.enter()
    three.call(B, C)
    three.calls[B].agent._connections[C].close("a fault")
    assert eventually(lambda: C in three.drivers[B].container._gone)
    assert three.has(C, context)
    three.leave(context)
    assert eventually(lambda: not three.has(C, context))


def test_a_worker_behind_another_learns_that_the_mark_has_risen(three: Three) -> None:
    """The creator never calls C; B calls it in every second context, while an older one is open."""
    for driver in three.drivers:
        driver.container._kept_each = 1
    at_c = three.drivers[C].container
    oldest = three.enter()
    for number in range(6):
        context = three.enter()
        three.call(B, *[C] * (number % 2))
        three.leave(context)
        assert eventually(lambda context=context: not three.has(C, context))  # type: ignore[misc]
    assert len(at_c.dead) == 3, "the oldest is open"
    three.leave(oldest)
    assert eventually(lambda: len(at_c.dead) == 1 and oldest.number in at_c.dead)


def test_the_end_of_a_context_of_no_worker_is_refused(three: Three) -> None:
    assert "no worker is the creator" in str(three.sends(C, B, CLEAN, Clean(9 << 48, 0)))


def test_a_pass_is_cancelled_by_its_root_alone(three: Three) -> None:
    context = three.enter()
    three.call(B)
    at_b = three.drivers[B].container
    started, _ = at_b.local_pass_for(7, context.number, Mode.FAST, False, 10.0)
    cancel = Cancel(context.number, 7, False, "why")
    assert "whose root is worker 0" in str(three.sends(C, B, CANCEL, cancel))
    assert at_b.contexts[context.number].local_pass is started and not started.is_over
    assert not isinstance(three.sends(A, B, CANCEL, cancel), BaseException)
    assert started.is_over


@pytest.mark.parametrize("make", [
    lambda context, message: (BACKWARD, Backward(context, 7, message, 9.0, False, False)),
    lambda context, message: (MARK, Mark(context, 7, 9.0, False, (message,))),
])  # fmt: skip
def test_a_worker_sends_gradients_only_for_what_it_got(three: Three, make: Callable[..., tuple[int, Any]]) -> None:
    context = three.enter()
    three.calls[A].sync(B, f.given_back, (torch.ones(2, requires_grad=True),), None, None)
    (send,) = context.sends
    for message in (send, send + 1):
        assert "is not its to send" in str(three.sends(C, A, *make(context.number, message)))
    assert context.local_pass is None and send in context.sends


def test_a_worker_gives_no_id_of_another_to_its_tensors(three: Three) -> None:
    context = three.enter()
    three.call(B)
    forged = Forward(context.number, (A << 48) + 5, (True,)).pack()
    with pytest.raises(Exception, match="which gives out no such id"):
        three.drivers[B].incoming(C, forged, [torch.ones(1)])
    with pytest.raises(Exception, match="worker 2 was not called"):
        three.drivers[A].answered(C, Forward(context.number, (C << 48) + 5, (True,)).pack(), [torch.ones(1)])
    assert not context.recvs and not three.drivers[B].container.contexts[context.number].recvs

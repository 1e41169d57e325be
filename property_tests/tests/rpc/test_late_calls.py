"""The text of a timeout names the worker at the end of a chain of calls, and reports whether that worker answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from trystate.impl.rpc import inquiries as module
from trystate.impl.rpc.frames import Kind
from trystate.impl.rpc.inquiries import Inquiries
from trystate.impl.rpc.invocations import Invocations
from trystate.property_tests.support.rpc import functions as f
from trystate.property_tests.support.rpc.worlds import WORLD, world
from trystate.rpc import RpcTimeout

STILL = "which does not answer: see whether its process hangs"
RUNS = "where it still runs: see what it does there"


@pytest.fixture
def three() -> Iterator[list[Invocations]]:
    with world(3) as calls, f.closed_gate():
        yield calls


def text(caller: Invocations, to: int, seconds: float, function: Any, *args: object) -> str:
    with pytest.raises(RpcTimeout) as caught:
        caller.sync(to, function, args, None, seconds)
    return str(caught.value)


def on_the_way(me: int, path: list[int], how: str) -> Any:
    """Each worker of a path calls the next; the last one waits."""
    if not path:
        return f.wait_for_gate()
    made = getattr(WORLD[me], how)(path[0], on_the_way, (path[0], path[1:], how), None, None)
    return made if how == "sync" else made.then(lambda over: over.value()) if how == "begin" else made.to_here()


@pytest.mark.parametrize("how", ["sync", "begin", "remote"])
def test_the_worker_at_the_end_of_a_chain_of_calls_is_named(three: list[Invocations], how: str) -> None:
    for what in (RUNS, STILL):
        said = text(three[0], 1, 0.5, on_the_way, 1, [2], how)
        assert "on worker 'B' was not answered within 0.5 s: it waits for" in said and f"on worker 'C', {what}" in said
        assert f"worker 'C', {what}" in text(three[0], 2, 0.5, f.wait_for_gate)
        three[2].agent.serve(Kind.INQUIRY, lambda incoming: None)  # like a stopped process
    future = three[0].begin(1, on_the_way, (1, [2], how), None, 0.5)
    with pytest.raises(RpcTimeout, match=f"on worker 'C', {STILL}"):
        future.wait()


def test_a_caller_that_learns_nothing_says_no_more_than_before() -> None:
    """Its peer is of another version, or sends something that is not an answer."""
    for answer in (b"", b"[]", b'{"runs": true}', b'{"runs": true, "waits": [["x", "y", "z"]]}'):
        with world(2) as calls:
            calls[1].agent.serve(Kind.INQUIRY, lambda incoming, said=answer: incoming.answer(said))  # type: ignore[misc]
            said = text(calls[0], 1, 0.4, f.sleep, 0.6)
            assert "not answered within 0.4 s" in said and RUNS not in said


def around(me: int, other: int, left: int) -> None:
    """The two workers call each other, `left` calls in all, and each call waits for the next."""
    if left:
        WORLD[me].sync(other, around, (other, me, left - 1), None, None)
    else:
        time.sleep(1.0)


def test_an_inquiry_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Mock(side_effect=Inquiries._asked)
    monkeypatch.setattr(Inquiries, "_asked", lambda self, incoming: asked(self, incoming))
    monkeypatch.setattr(module, "QUESTIONS_MAX", 5)
    with world(2) as calls:
        assert "not answered within" in text(calls[0], 1, 0.5, around, 1, 0, 12)
    assert asked.call_count == 5

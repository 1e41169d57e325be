"""The text of a timeout: it names the worker at the end of a chain of calls, and says whether that worker answers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from trystate import rpc
from trystate.impl.rpc import inquiries as module
from trystate.impl.rpc.frames import Kind
from trystate.impl.rpc.inquiries import Inquiries
from trystate.impl.rpc.invocations import Invocations
from trystate.property_tests.adapters.torch_store.server import freeze
from trystate.property_tests.support.rpc import functions as f
from trystate.property_tests.support.rpc.worlds import PATIENCE_SECONDS, WORLD, Worker, processes, world
from trystate.rpc import Options, RpcTimeout

SECONDS = 2.0  # of the caller; the calls between have the options' timeout, which is longer
STILL = "which answers nothing: see whether its process stands still"
RUNS = "where it still runs: see what it does there"


# Steps of workers in processes of their own: the way ends at a worker of the given name.


def through(way: list[str]) -> int:
    return os.getpid() if not way else rpc.rpc_sync(way[0], through, (way[1:],))


def later_through(way: list[str]) -> Any:
    """The same by a call that waits for no answer on a thread."""
    return os.getpid() if not way else rpc.rpc_async(way[0], later_through, (way[1:],)).then(lambda made: made.value())


def by_reference(way: list[str]) -> int:
    """The same by an RRef: the function that makes its value is the one that waits."""
    return rpc.remote(way[0], through, (way[1:],)).to_here()


def went(way: list[str], how: Callable[[list[str]], Any], seconds: float) -> int | str:
    """The process at the end of the way, or the text of the timeout."""
    try:
        return rpc.rpc_sync(way[0], how, (way[1:],), timeout=seconds)  # type: ignore[no-any-return]
    except RpcTimeout as error:
        return str(error)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Worker]]:
    with processes(tmp_path_factory.mktemp("four"), 4) as workers:
        yield workers


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    freeze(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("how", [through, later_through, by_reference])
def test_the_worker_that_stands_still_is_named_through_a_chain_of_calls(four: list[Worker], how: Any) -> None:
    way, last = ["w1", "w2", "w3"], four[3].does(os.getpid)
    assert four[0].does(went, way, how, PATIENCE_SECONDS) == last
    with stopped(last):
        said = four[0].does(went, way, how, SECONDS)
    assert "on worker 'w1' was not answered within 2 s: it waits for" in said
    assert f"on worker 'w3', {STILL}" in said


def test_the_callee_itself_may_stand_still(four: list[Worker]) -> None:
    with stopped(four[1].does(os.getpid)):
        said = four[0].does(went, ["w1"], through, SECONDS)
    assert f"on worker 'w1' was not answered within 2 s: worker 'w1', {STILL}" in said


def sleeps_at_the_end(me: int, path: list[int], seconds: float) -> None:
    if path:
        WORLD[me].sync(path[0], sleeps_at_the_end, (path[0], path[1:], seconds), None, None)
    else:
        time.sleep(seconds)


def text(caller: Invocations, to: int, seconds: float, function: Any, *args: object) -> str:
    with pytest.raises(RpcTimeout) as caught:
        caller.sync(to, function, args, None, seconds)
    return str(caught.value)


def test_a_function_that_still_runs_is_named_where_it_runs() -> None:
    with world(3) as calls:
        said = text(calls[0], 1, 0.5, sleeps_at_the_end, 1, [2], 1.0)
        assert f"it waits for {__name__}:sleeps_at_the_end on worker 'C', {RUNS}" in said
        assert f"worker 'B', {RUNS}" in text(calls[0], 1, 0.5, f.sleep, 1.0)


def test_an_asynchronous_call_is_told_the_same() -> None:
    with world(3) as calls:
        future = calls[0].begin(1, sleeps_at_the_end, (1, [2], 1.0), None, 0.5)
        with pytest.raises(RpcTimeout, match=f"on worker 'C', {RUNS}"):
            future.wait()


def test_a_caller_that_learns_nothing_says_no_more_than_before() -> None:
    """Its peer is of another version, or says what is no answer."""
    for answer in (b"", b"[]", b'{"runs": true}', b'{"runs": true, "waits": [["x", "y", "z"]]}'):
        with world(2) as calls:
            calls[1].agent.serve(Kind.INQUIRY, lambda incoming, said=answer: incoming.answer(said))  # type: ignore[misc]
            said = text(calls[0], 1, 0.4, f.sleep, 0.6)
            assert "not answered within 0.4 s" in said and RUNS not in said


def waits_twice(me: int) -> None:
    """For two calls of one function on one worker."""
    for call in [WORLD[me].begin(2, f.sleep, (1.0,), None, None) for _ in range(2)]:
        call.wait()


def test_two_equal_calls_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    with world(3) as calls:
        assert f"on worker 'C', {RUNS}" in text(calls[0], 1, 0.5, waits_twice, 1)
    assert reported == []


def around(me: int, other: int, left: list[int]) -> None:
    """Each worker calls the other, until `left` is over: many calls, each of which waits for the next."""
    if left:
        WORLD[me].sync(other, around, (other, me, left[1:]), None, None)
    else:
        time.sleep(1.0)


def test_an_inquiry_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    answer = Inquiries._asked

    def counted(self: Inquiries, incoming: Any) -> None:
        asked.append(incoming.peer)
        answer(self, incoming)

    monkeypatch.setattr(Inquiries, "_asked", counted)
    monkeypatch.setattr(module, "QUESTIONS_MAX", 5)
    with world(2) as calls:
        assert "not answered within" in text(calls[0], 1, 0.5, around, 1, 0, [0] * 12)
    assert len(asked) == 5


def test_an_answered_call_is_not_inquired_after_and_nothing_of_it_is_kept() -> None:
    with world(2, Options(timeout=PATIENCE_SECONDS, arena_bytes=0)) as calls:
        asked: list[object] = []
        calls[1].agent.serve(Kind.INQUIRY, asked.append)
        for _ in range(20):
            calls[0].sync(1, f.nothing, (), None, None)
            with suppress(Exception):
                calls[0].sync(1, f.raise_value, ("so",), None, None)
            calls[0].remote(1, f.given_back, (1,), None, None).to_here()
        assert asked == []
        assert not calls[1].inquiries._running

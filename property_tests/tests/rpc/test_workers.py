"""Calls among workers of one process: results, exceptions, nesting, threads, deadlines and refusals."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from math import inf
from queue import SimpleQueue
from typing import Any

import pytest
import torch

from trystate.impl.rpc import agent, arena, deadline_timer, futures, pool
from trystate.impl.rpc.connection import Connection
from trystate.impl.rpc.deadline_timer import DeadlineTimer
from trystate.impl.rpc.events import OneShotEvent
from trystate.impl.rpc.frames import Kind
from trystate.impl.rpc.futures import RpcFuture
from trystate.impl.rpc.invocations import Invocations
from trystate.impl.rpc.requests import Answer, Incoming
from trystate.impl.rpc.termination import all_done
from trystate.model.errors import UsageError
from trystate.property_tests.support.mutants import rewritten, survivors
from trystate.property_tests.support.rpc import functions as f
from trystate.property_tests.support.rpc.worlds import PATIENCE_SECONDS, eventually, world
from trystate.rpc import (
    LimitExceeded,
    Limits,
    NotAllowed,
    Options,
    PeerLost,
    RemoteError,
    RpcError,
    RpcTimeout,
)
from trystate.store import HashStore

A, B, C = range(3)
ECHO = 64  # a kind that RPC does not use


def test_shared_memory_of_a_call_that_was_not_sent_is_free() -> None:
    options = Options(timeout=PATIENCE_SECONDS, arena_bytes=1 << 20, limits=Limits(unsent_bytes=1 << 20))
    with world(2, options) as calls:
        sent = calls[A].agent._connections[B].arena
        assert sent is not None
        with not_reading(calls[B].agent._connections[A]):
            waiting = calls[A].begin(B, f.given_back, (bytes(1 << 24),), None, None)  # more than its socket takes
            with pytest.raises(LimitExceeded, match="does not read"):
                calls[A].sync(B, f.nothing, (torch.ones(1 << 16),), None, None)
            assert sent.lay(torch.ones(1 << 18)) is not None, "all of it is free"
        assert len(waiting.wait()) == 1 << 24


def test_a_small_answer_is_sent_over_the_limit() -> None:
    with world(2, Options(timeout=PATIENCE_SECONDS, arena_bytes=0, limits=Limits(unsent_bytes=1 << 20))) as calls:
        with not_reading(calls[B].agent._connections[A]):
            waiting = calls[A].begin(B, f.given_back, (bytes(1 << 24),), None, None)  # more than its socket takes
            rref = calls[B].remote(A, f.both, (1,), None, None)
        assert len(waiting.wait()) == 1 << 24 and rref.to_here() == (1, None)


def test_shared_memory_that_was_used_once_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(arena, "KEPT_BYTES", 1 << 16)
    with world(2) as calls:
        sent = calls[A].agent._connections[B].arena
        assert sent is not None
        calls[A].sync(B, f.nothing, (torch.ones(1 << 18),), None, None)
        assert eventually(lambda: not sent.has_more and not sent.is_looked_at)


def test_a_handler_of_a_signal_may_call_while_its_thread_waits(three: list[Invocations]) -> None:
    """The handler interrupts the only thread that reads the connection."""
    link, said = three[A].agent._connections[B], list[Any]()

    def handle(*_: object) -> None:
        said.append(three[A].sync(B, f.both, (len(said),), None, None))

    def served(number: int) -> bool:
        return len(said) == number

    def interrupt() -> None:
        for number in range(1, 4):
            assert eventually(lambda: link._reading.locked() and link._is_polling)
            os.kill(os.getpid(), signal.SIGUSR1)
            assert eventually(partial(served, number))
        f.GATE.set()

    f.GATE.clear()
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with ThreadPoolExecutor(1) as thread:
            interrupts = thread.submit(interrupt)
            assert three[A].sync(B, f.wait_for_gate, (), None, None) and interrupts.result() is None
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert said == [(0, None), (1, None), (2, None)]


def test_a_handler_of_a_signal_in_the_middle_of_a_frame_is_told_so(
    three: list[Invocations], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = three[A].agent._connections[B]
    for role, error, held in (("_writer", LimitExceeded, nullcontext()), ("_reader", RpcError, not_reading(link))):
        with held, monkeypatch.context() as patch, pytest.raises(error, match="have the handler set a flag"):
            patch.setattr(link, role, threading.get_ident())
            three[A].sync(B, f.nothing, (), None, None)


def test_one_thread_cannot_read_and_run() -> None:
    with pytest.raises(UsageError, match="threads is 1: give 2 or more"):
        Limits(threads=1)
    with world(2, Options(timeout=PATIENCE_SECONDS, limits=Limits(threads=2), arena_bytes=0)) as two:
        assert two[A].sync(B, f.both, (1,), None, None) == (1, None)


def test_a_worker_answers_only_what_was_sent_to_it() -> None:
    with world(3, Options(timeout=PATIENCE_SECONDS, arena_bytes=0)) as calls:
        with f.closed_gate():
            waiting = calls[A].begin(B, f.wait_for_gate, (), None, None)
            (number,) = calls[A].agent._requests
            calls[C].agent.transmit(calls[C].agent._connections[A], Kind.ANSWER, number, b"", (), b"", 2)
            assert eventually(lambda: calls[A].agent.loss(C) is not None)
            assert "was not sent to it" in str(calls[A].agent.loss(C)) and not waiting.done()
        assert waiting.wait() is True


@contextmanager
def not_reading(connection: Connection) -> Iterator[None]:
    """A peer that is too busy to read."""
    assert connection._reading.acquire(timeout=PATIENCE_SECONDS)
    yield
    connection._reading.release()
    connection._pool.arm(connection._fd)


def arrive_as_given() -> None:
    """Tensors arrive unchanged although they are overwritten right after the call and the peer reads later."""
    found: list[torch.Tensor] = []
    with world(2) as calls:
        for start in (0, 40):  # the first tensors are still held when the rest arrive
            numbers = range(start, start + 40)  # more tensors than the arena and the socket hold
            tensors = [torch.full((100_000,), float(number)) for number in numbers]
            with not_reading(calls[B].agent._connections[A]):
                futures = [calls[A].begin(B, f.given_back, (tensor,), None, None) for tensor in tensors]
                for tensor in tensors:
                    tensor.fill_(-1)
            found += [future.wait() for future in futures]
        assert all(bool((tensor == number).all()) for number, tensor in enumerate(found))


MEMORY = {
    "what is not sent is not copied": rewritten(Connection._queue, "bytes(data[sent:])", "data[sent:]"),
    "a slot is free before its tensor is gone": rewritten(
        arena.Window.tensor, "copied_in_fork(self)", "copied_in_fork(self); self._map[slot] = 0"
    ),
}


def test_the_arguments_of_a_call_arrive() -> None:
    assert survivors(MEMORY, arrive_as_given) == []


def test_tensors_are_not_made_in_a_mode_of_the_thread_that_reads(three: list[Invocations]) -> None:
    """A thread that waits for its own answer reads what other threads and served calls receive."""

    def waits() -> Any:
        with torch.inference_mode(), torch.device("meta"):
            return three[A].sync(B, f.wait_for_gate, (), None, None)

    with ThreadPoolExecutor(1) as thread:
        with f.closed_gate():
            waiting = thread.submit(waits)
            assert eventually(three[A].agent._connections[B]._reading.locked)
            for tensor in (torch.ones(3), torch.ones(40_000), torch.eye(3).to_sparse()):
                found = three[A].begin(B, f.given_back, (tensor,), None, None).wait()
                served = three[B].sync(A, f.applied, (f.given_back, tensor), None, None)
                for each in (found, served):
                    assert each.device.type == "cpu" and not each.is_inference()
                    assert torch.equal(each.to_dense(), tensor.to_dense())
        assert waiting.result(PATIENCE_SECONDS)


def test_remote_exceptions_are_of_their_own_type_with_their_traceback(three: list[Invocations]) -> None:
    with pytest.raises(ValueError, match="on worker 'B': ValueError: some text") as caught:
        three[A].sync(B, f.relay, (B, [], "some text"), None, None)
    error = caught.value
    assert isinstance(error, RemoteError) and error.original == "builtins:ValueError" and error.workers == ("B",)
    assert "raise ValueError(text)" in error.remote_traceback
    with pytest.raises(KeyError, match="'a key'"):
        three[A].begin(B, f.raise_key, (), None, None).wait()
    with pytest.raises(f.OddError, match="1 and 2"):
        three[A].sync(B, f.raise_odd, (), None, None)
    with pytest.raises(RemoteError, match="SystemExit") as caught_exit:
        three[A].sync(B, f.leave, (), None, None)
    assert not isinstance(caught_exit.value, SystemExit)
    with pytest.raises(ValueError, match="far") as caught_far:
        three[A].sync(B, f.relay, (B, [C, A], "far"), None, None)
    assert isinstance(caught_far.value, RemoteError) and caught_far.value.workers == ("A", "C", "B")


def test_the_thread_state_of_a_call_is_not_seen_by_the_next(three: list[Invocations]) -> None:
    assert all(three[A].sync(B, f.grad_mode_before_it_is_left_off, (), None, None) for _ in range(20))
    for _ in range(5):
        assert three[A].sync(B, f.mode_before_one_is_left_on, (), None, None) == "cpu"
        assert not three[A].sync(B, f.is_inference, (torch.ones(2),), None, None)
        assert not three[A].sync(B, f.given_back, (torch.ones(2),), None, None).is_inference()


def test_a_timeout_holds_and_its_late_answer_disturbs_nothing(three: list[Invocations]) -> None:
    with f.closed_gate():
        with pytest.raises(RpcTimeout, match=r"wait_for_gate on worker 'B' was not answered within 0.05 s"):
            three[A].sync(B, f.wait_for_gate, (), None, 0.05)
        with pytest.raises(TimeoutError):
            three[A].begin(B, f.wait_for_gate, (), None, 0.05).wait()
    assert three[A].sync(B, f.both, (1,), None, None) == (1, None)
    with pytest.raises(UsageError, match="give seconds above 0"):
        three[A].sync(B, f.nothing, (), None, -2)
    assert three[A].sync(B, f.nothing, (), None, 0) is None  # torch's value for no timeout


def test_no_wait_for_a_future_is_without_end(three: list[Invocations], monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait ends even if no thread will ever set the future."""
    monkeypatch.setattr(futures, "DELIVERY_SECONDS", 0.01)
    future = RpcFuture(three[A], B, 0.01, (None, [], b""))
    found: list[BaseException] = []

    def wait() -> None:
        try:
            future.wait()
        except RpcTimeout as error:
            found.append(error)

    waits = threading.Thread(target=wait, daemon=True)
    waits.start()
    waits.join(PATIENCE_SECONDS)
    assert not waits.is_alive() and found
    future.arrived(Answer(b"", []))  # too late
    with pytest.raises(RpcTimeout):
        future.value()


def test_requests_of_other_kinds_are_handled_in_order(three: list[Invocations]) -> None:
    seen: list[bytes] = []

    def handler(incoming: Incoming) -> None:
        seen.append(incoming.body)
        if incoming.body == b"bad":
            incoming.fail(ValueError("bad"))
        else:
            three[B].agent.later(lambda: incoming.answer(incoming.body[::-1], incoming.tensors))

    three[B].agent.handle(ECHO, handler)
    sent = [b"%d" % number * (1 if number % 5 else 50_000) for number in range(50)]  # more than the socket holds
    answers = [Future[Any]() for _ in sent]
    with not_reading(three[B].agent._connections[A]):
        for body, answer in zip(sent, answers, strict=True):
            three[A].agent.request(B, ECHO, body, [torch.ones(1), None], PATIENCE_SECONDS, answer.set_result)
    found = [answer.result(PATIENCE_SECONDS) for answer in answers]
    assert seen == sent
    assert [answer.body for answer in found] == [body[::-1] for body in sent]
    assert all(answer.tensors[1] is None for answer in found)
    with pytest.raises(ValueError, match="bad"):
        three[A].agent.ask(B, ECHO, b"bad", (), PATIENCE_SECONDS)
    with pytest.raises(RpcError, match="takes no requests of kind 99"):
        three[A].agent.ask(B, 99, b"", (), PATIENCE_SECONDS)
    with pytest.raises(UsageError, match="kind 3 is not free"):
        three[B].agent.handle(3, handler)


def test_a_function_that_is_not_there_is_refused_by_name(three: list[Invocations]) -> None:
    with pytest.raises(NotAllowed, match="start all workers with the same code"):
        three[A].sync(B, f"{f.__name__}:no_such_function", (), None, None)
    with pytest.raises(LimitExceeded, match="name"):
        three[A].sync(B, "math:" + "x" * 2000, (), None, None)


def test_a_backward_pass_needs_a_tensor_and_distributed_autograd(three: list[Invocations]) -> None:
    for value, text in ((1, "refers to a int"), (torch.ones(1), "start RPC with init_rpc")):
        with pytest.raises(RpcError, match=text):
            three[A].backward_from(value, 0, False)


def test_the_number_of_threads_is_bounded_and_nothing_hangs_at_the_bound() -> None:
    with world(2, Options(timeout=PATIENCE_SECONDS, limits=Limits(threads=6), arena_bytes=0)) as two:
        with pytest.raises(LimitExceeded, match="6 calls are running on worker"):
            two[A].sync(B, f.bounce, (B, A, 50), None, None)
        assert two[A].sync(B, f.bounce, (B, A, 3), None, None) == 3


def test_calls_beyond_the_threads_wait_and_beyond_the_queue_are_refused() -> None:
    options = Options(timeout=PATIENCE_SECONDS, limits=Limits(threads=4, queued=20), arena_bytes=0)
    with world(2, options) as two, f.closed_gate():
        gated = [two[A].begin(B, f.wait_for_gate, (), None, None) for _ in range(3)]
        assert eventually(lambda: two[B].agent.pool._working == 3)
        queued = [two[A].begin(B, f.both, (number,), None, None) for number in range(20)]
        assert eventually(lambda: len(two[B].agent.pool._kept) == 20)
        with pytest.raises(LimitExceeded, match="and 20 more wait for a thread: send fewer at once, or raise"):
            two[A].sync(B, f.nothing, (), None, None)
        # A nested call is not kept, because B's function waits for it.
        with pytest.raises(LimitExceeded, match="or nest calls less deeply"):
            two[B].sync(A, f.relay, (A, [B], ""), None, None)
        f.GATE.set()
        assert [each.wait() for each in gated + queued] == [True] * 3 + [(number, None) for number in range(20)]
        assert eventually(lambda: two[B].agent.busy == (0, 0))


def test_the_end_waits_for_what_ending_works_begin() -> None:
    """A thread that is still inside torch when the process ends would abort the process."""
    with world(1) as (alone,):
        agent, begun = alone.agent, threading.Event()
        over: list[bool] = []

        def first() -> None:
            begun.set()
            assert eventually(lambda: agent.pool._ended)
            agent.later(second)

        def second() -> None:
            time.sleep(0.1)
            over.append(True)

        agent.later(first)
        assert begun.wait(PATIENCE_SECONDS)
        agent.close("the end")
        assert over


def test_the_end_waits_once_for_all_threads_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits = [100.0], list[float]()

    class Stuck(threading.Thread):
        def join(self, seconds: float | None = None) -> None:
            waits.append(seconds or 0.0)
            now[0] += pool.JOIN_SECONDS + 1

    monkeypatch.setattr(pool, "monotonic", lambda: now[0])
    ending = pool.Pool("stuck", 2, 0)
    ending._threads |= {Stuck(), Stuck()}
    ending.close()
    assert waits == [pool.JOIN_SECONDS, 0.0]


def test_a_request_expires_at_its_deadline_and_not_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline_timer, "monotonic", lambda: 100.0)
    expired = SimpleQueue[int]()
    timer = DeadlineTimer("timer", lambda number: False, expired.put)
    timer.add(7, 100.0)
    assert expired.get(timeout=PATIENCE_SECONDS) == 7
    timer.close()


def test_an_interrupt_where_a_frame_is_taken_reaches_who_waits_there() -> None:
    """A signal's handler can raise it anywhere in the main thread. Then the frame's action is not done."""
    main, flags = threading.main_thread(), [OneShotEvent()]

    def done(_: object) -> None:
        if threading.current_thread() is main:
            raise KeyboardInterrupt
        flags[-1].set()  # another thread was faster

    def late(answer: Any) -> None:
        time.sleep(0.1)
        answer(b"")

    with world(2) as calls:
        asking, asked = (each.agent for each in calls)
        asked.handle(ECHO, lambda incoming: asked.later(partial(late, incoming.answer)))
        with pytest.raises(KeyboardInterrupt):
            for _ in range(50):
                asking.request(B, ECHO, b"", [], PATIENCE_SECONDS, done)
                assert asking.wait(flags[-1], PATIENCE_SECONDS, B)
                flags.append(OneShotEvent())
        assert "interrupted" in str(asking.loss(B))
        assert eventually(lambda: asked.loss(A))


def test_the_end_reports_a_store_that_fails() -> None:
    with world(1) as calls, HashStore() as store:
        store.close()
        with pytest.raises(RpcError, match="and the store fails"):
            all_done(calls[A].agent, store, 1.0)


@pytest.mark.parametrize(("broken", "seconds", "error"), [(True, inf, PeerLost), (False, 0.5, RpcTimeout)])
def test_the_end_does_not_wait_for_what_was_lost_on_the_way(broken: bool, seconds: float, error: Any) -> None:
    with world(2) as calls, HashStore() as store, ThreadPoolExecutor() as threads:
        agents = [each.agent for each in calls]
        connection = agents[A]._connections[B]
        connection.frames_sent += 1  # it never arrives
        if broken:
            connection.close("it broke")
            assert eventually(lambda: agents[B].loss(A))
        for ending in [threads.submit(all_done, agent, store, seconds) for agent in agents]:
            with pytest.raises(error):
                ending.result(PATIENCE_SECONDS)

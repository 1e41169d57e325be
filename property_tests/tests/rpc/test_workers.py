"""Calls among workers of one process: results, exceptions, nesting, threads, deadlines and what is let through."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trystate.impl.rpc import agent, arena, invocations
from trystate.impl.rpc.connection import Connection
from trystate.impl.rpc.deadline_timer import DeadlineTimer
from trystate.impl.rpc.events import OneShotEvent
from trystate.impl.rpc.frames import Kind
from trystate.impl.rpc.invocations import Invocations, RpcFuture
from trystate.impl.rpc.requests import Answer, Incoming
from trystate.impl.rpc.termination import all_done
from trystate.model.errors import UsageError
from trystate.property_tests.support.rpc import functions as f
from trystate.property_tests.support.rpc.worlds import PATIENCE_SECONDS, eventually, world
from trystate.rpc import (
    LimitExceeded,
    Limits,
    NotAllowed,
    Options,
    PeerLost,
    Pickles,
    RemoteError,
    RpcError,
    RpcTimeout,
)
from trystate.store import HashStore

A, B, C = range(3)
ECHO = 64  # a kind of our own


@pytest.fixture(scope="module")
def three() -> Iterator[list[Invocations]]:
    with world(3) as calls:
        yield calls


@pytest.mark.parametrize("to", [A, B])
def test_tensors_of_every_kind_arrive_as_they_were(three: list[Invocations], to: int) -> None:
    for tensor in f.shapes():
        back, again = three[A].sync(to, f.both, ([tensor],), {"twice": tensor}, None)
        assert back[0] is again
        for found in (back[0], three[A].sync(to, f.given_back, (tensor,), None, None)):
            assert (found.dtype, found.shape, found.layout) == (tensor.dtype, tensor.shape, tensor.layout)
            assert torch.equal(found.to_dense(), tensor.to_dense()) and not found.requires_grad


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


def test_shared_memory_that_was_used_once_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(arena, "KEPT_BYTES", 1 << 16)
    with world(2) as calls:
        sent = calls[A].agent._connections[B].arena
        assert sent is not None
        calls[A].sync(B, f.nothing, (torch.ones(1 << 18),), None, None)
        assert eventually(lambda: not sent.has_more and not sent.is_looked_at)


def test_a_handler_of_a_signal_may_call_while_its_thread_waits(three: list[Invocations]) -> None:
    """It interrupts the thread that reads the connection, and that thread alone reads it."""
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


def test_a_handler_of_a_signal_in_the_middle_of_a_frame_is_told_so(three: list[Invocations]) -> None:
    link = three[A].agent._connections[B]
    link._writer = threading.get_ident()
    try:
        with pytest.raises(LimitExceeded, match="have the handler set a flag"):
            three[A].sync(B, f.nothing, (), None, None)
    finally:
        link._writer = 0
    assert link._reading.acquire(timeout=PATIENCE_SECONDS)
    link._reader = threading.get_ident()
    try:
        with pytest.raises(RpcError, match="have the handler set a flag"):
            three[A].sync(B, f.nothing, (), None, None)
    finally:
        link._reader = 0
        link._reading.release()
        link._pool.arm(link._fd)


def test_an_interrupt_while_a_call_is_sent_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream of the connection cannot go on, so that another thread ends the call by PeerLost meanwhile."""
    with world(2) as calls:
        here = calls[A].agent

        def interrupted(*_: object, **__: object) -> None:
            here._connections[B].close("its stream cannot go on")
            raise KeyboardInterrupt

        monkeypatch.setattr(here, "transmit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            calls[A].sync(B, f.nothing, (), None, None)


def test_one_thread_cannot_read_and_run() -> None:
    with pytest.raises(UsageError, match="threads is 1: give 2 or more"):
        Limits(threads=1)
    with world(2, Options(timeout=PATIENCE_SECONDS, limits=Limits(threads=2), arena_bytes=0)) as two:
        assert two[A].sync(B, f.both, (1,), None, None) == (1, None)


def test_a_worker_answers_only_what_was_sent_to_it() -> None:
    f.GATE.clear()
    with world(3, Options(timeout=PATIENCE_SECONDS, arena_bytes=0)) as calls:
        try:
            waiting = calls[A].begin(B, f.wait_for_gate, (), None, None)
            (number,) = calls[A].agent._requests
            calls[C].agent.transmit(calls[C].agent._connections[A], Kind.ANSWER, number, b"", (), b"", 2)
            assert eventually(lambda: calls[A].agent.loss(C) is not None)
            assert "was not sent to it" in str(calls[A].agent.loss(C)) and not waiting.done()
        finally:
            f.GATE.set()
        assert waiting.wait() is True


def test_a_tensor_that_is_given_twice_arrives_as_one(three: list[Invocations]) -> None:
    one, other = torch.ones(3), torch.zeros(3)
    for args in ((one, one), (one, other, one)):
        assert three[A].sync(B, f.same_as_first, args, None, None) == [each is one for each in args]
    assert three[A].sync(B, f.same_as_first, (one, one.clone()), None, None) == [True, False]


def test_plain_data_arrives_as_it_was(three: list[Invocations]) -> None:
    for value in (None, 3, "text", b"bytes", [1, (2, {3: 4.5})], {1, 2}, 1j, slice(2), torch.float32, torch.Size([2])):
        assert three[A].sync(B, f.both, (value,), {"twice": value}, None) == (value, value)
    found = three[A].sync(B, f.given_back, (torch.nn.Parameter(torch.ones(2)),), None, None)
    assert torch.equal(found, torch.ones(2))
    assert three[A].sync(B, torch.add, (torch.ones(2), 1), {"alpha": 2}, None).tolist() == [3, 3]
    assert three[A].sync(B, f.nothing, (), None, None) is None


class Refusing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """As FakeTensorMode, which takes long to import: no operation makes an ordinary tensor."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{function} ran in the mode of a thread that waits")


MODES = {"inference": torch.inference_mode, "dispatch": Refusing, "device": lambda: torch.device("meta")}


@pytest.mark.parametrize("mode", MODES)
def test_tensors_are_not_made_in_a_mode_of_the_thread_that_reads(three: list[Invocations], mode: str) -> None:
    """A thread that waits for its own answer reads what other threads and served calls receive."""
    f.GATE.clear()

    def waits() -> Any:
        with MODES[mode]():  # type: ignore[operator]
            return three[A].sync(B, f.wait_for_gate, (), None, None)

    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(waits)
        try:
            assert eventually(three[A].agent._connections[B]._reading.locked)
            for tensor in (torch.ones(3), torch.ones(40_000), torch.eye(3).to_sparse()):
                found = three[A].begin(B, f.given_back, (tensor,), None, None).wait()
                served = three[B].sync(A, f.applied, (f.given_back, tensor), None, None)
                for each in (found, served):
                    assert type(each) is torch.Tensor and each.device.type == "cpu" and not each.is_inference()
                    assert torch.equal(each.to_dense(), tensor.to_dense())
                assert not three[B].sync(A, f.is_inference, (tensor,), None, None)
        finally:
            f.GATE.set()
        assert waiting.result(PATIENCE_SECONDS)


@contextmanager
def not_reading(connection: Connection) -> Iterator[None]:
    """A peer that is too busy to read."""
    assert connection._reading.acquire(timeout=PATIENCE_SECONDS)
    yield
    connection._reading.release()
    connection._pool.arm(connection._fd)


def test_large_tensors_of_any_type_wait_in_the_outbox(three: list[Invocations]) -> None:
    some = [
        torch.randn(400_000, dtype=torch.complex64),
        torch.tensor(1.5),
        torch.randn(500, 500).to(torch.bfloat16).t(),
    ]
    some += [torch.ones(2 << 20, dtype=torch.bool), torch.randn(30, 40).to_sparse(), torch.empty(0, 2)]
    with not_reading(three[B].agent._connections[A]):
        future = three[A].begin(B, f.both, (some,), None, None)
    assert all(torch.equal(one.to_dense(), two.to_dense()) for one, two in zip(some, future.wait()[0], strict=True))


def arrives_as_given(calls: list[Invocations]) -> bool:
    """Whether it does though its tensors are changed as soon as they are under way, and the peer reads later."""
    found: list[torch.Tensor] = []
    for start in (0, 20):  # the first tensors are still held when the rest comes
        tensors = [torch.full((100_000,), float(start + number)) for number in range(20)]  # more than the arena holds
        with not_reading(calls[B].agent._connections[A]):
            futures = [calls[A].begin(B, f.given_back, (tensor,), None, None) for tensor in tensors]
            for tensor in tensors:
                tensor.fill_(-1)
        found += [future.wait() for future in futures]
    return all(bool((tensor == number).all()) for number, tensor in enumerate(found))


def test_what_a_call_was_given_is_what_arrives(three: list[Invocations]) -> None:
    assert arrives_as_given(three)


@pytest.mark.parametrize("mutant", ["what is not sent is not copied", "a slot is free before its tensor is gone"])
def test_mutants_of_memory_are_seen(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_copied(self: Connection, pieces: list[Any], sent: int) -> None:
        for piece in pieces:
            data = memoryview(piece).cast("B")
            self._outbox.append(data[sent:])
            sent = max(sent - len(data), 0)

    lease = arena.Window.tensor

    def freed(self: arena.Window, slot: int, *where: Any) -> torch.Tensor:
        tensor = lease(self, slot, *where)
        self._map[slot] = 0
        return tensor

    if mutant.startswith("what"):
        monkeypatch.setattr(Connection, "_queue", not_copied)
    else:
        monkeypatch.setattr(arena.Window, "tensor", freed)
    with world(2) as two:
        assert not arrives_as_given(two)


def test_remote_exceptions_are_of_their_own_type_with_their_traceback(three: list[Invocations]) -> None:
    with pytest.raises(ValueError, match="on worker 'B': ValueError: some text") as caught:
        three[A].sync(B, f.raise_value, ("some text",), None, None)
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


def test_an_exception_with_attributes_of_its_own_is_told_like_any_other(three: list[Invocations]) -> None:
    with pytest.raises(f.OwnTextError, match="warm"):
        three[A].sync(B, f.raise_own, (False,), None, None)
    with pytest.raises(RemoteError, match="FrozenError: cold"):
        three[A].begin(B, f.raise_own, (True,), None, None).wait()
    assert three[A].sync(B, f.both, (1,), None, None) == (1, None)  # the connection lives


def test_what_a_function_leaves_in_its_thread_is_not_the_next_ones(three: list[Invocations]) -> None:
    assert all(three[A].sync(B, f.grad_mode_before_it_is_left_off, (), None, None) for _ in range(20))
    for _ in range(5):
        assert three[A].sync(B, f.mode_before_one_is_left_on, (), None, None) == "cpu"
        assert not three[A].sync(B, f.is_inference, (torch.ones(2),), None, None)
        assert not three[A].sync(B, f.given_back, (torch.ones(2),), None, None).is_inference()


def test_functions_are_arguments_too(three: list[Invocations]) -> None:
    ones = torch.ones(2)
    assert three[A].sync(B, f.applied, (torch.add, ones, ones), None, -1.0).tolist() == [2, 2]
    assert three[A].sync(B, f.given_back, ([f.Counter.add],), None, None) == [f.Counter.add]


def test_calls_nest_deeper_than_any_fixed_pool(three: list[Invocations]) -> None:
    assert three[A].sync(B, f.bounce, (B, A, 60), None, None) == 60
    assert eventually(lambda: three[A].agent.busy == (0, 0))


def test_functions_that_return_a_future_keep_no_thread(three: list[Invocations]) -> None:
    futures = [three[A].begin(B, f.doubled_later, (torch.ones(2),), None, None) for _ in range(8)]
    assert all(future.wait().tolist() == [2, 2] for future in futures)


def test_threads_share_a_connection(three: list[Invocations]) -> None:
    def some(number: int) -> bool:
        tensor = torch.full((3, 3), float(number))
        return all(torch.equal(three[A].sync(B, f.add, (tensor, tensor), None, None), 2 * tensor) for _ in range(40))

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(some, range(6)))


def test_two_workers_that_both_send_more_than_the_sockets_hold(three: list[Invocations]) -> None:
    """Neither reads before it has sent, if a send waits for the peer."""
    big = torch.ones(3 << 20)  # beyond the arena
    futures = [three[me].begin(B - me, f.given_back, (big,), None, None) for me in (A, B) for _ in range(3)]
    assert all(future.wait().sum().item() == big.numel() for future in futures)


def test_a_timeout_holds_and_its_late_answer_disturbs_nothing(three: list[Invocations]) -> None:
    f.GATE.clear()
    try:
        with pytest.raises(RpcTimeout, match=r"wait_for_gate on worker 'B' was not answered within 0.05 s"):
            three[A].sync(B, f.wait_for_gate, (), None, 0.05)
        with pytest.raises(TimeoutError):
            three[A].begin(B, f.wait_for_gate, (), None, 0.05).wait()
    finally:
        f.GATE.set()
    assert three[A].sync(B, f.both, (1,), None, None) == (1, None)
    with pytest.raises(UsageError, match="no wait is for ever"):
        three[A].sync(B, f.nothing, (), None, -2)
    assert three[A].sync(B, f.nothing, (), None, 0) is None  # torch's word for no end


def all_end(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    return not any(thread.is_alive() for thread in threads)


def test_any_number_of_threads_waits_for_one_future(three: list[Invocations]) -> None:
    f.GATE.clear()
    future = three[A].begin(B, f.wait_for_gate, (), None, 2 * PATIENCE_SECONDS)
    waits = [threading.Thread(target=future.wait, daemon=True) for _ in range(4)]
    for thread in waits:
        thread.start()
    time.sleep(0.05)  # all sleep by then; if not, they see the result without being woken
    f.GATE.set()
    assert all_end(waits)


def test_no_wait_for_a_future_is_without_end(three: list[Invocations], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even when nobody will ever set it."""
    monkeypatch.setattr(invocations, "DELIVERY_SECONDS", 0.01)
    future = RpcFuture(three[A], B, 0.01, (None, [], b""))
    found: list[BaseException] = []

    def wait() -> None:
        try:
            future.wait()
        except RpcTimeout as error:
            found.append(error)

    waits = threading.Thread(target=wait, daemon=True)
    waits.start()
    assert all_end([waits]) and found
    future.arrived(Answer(b"", []))  # too late
    with pytest.raises(RpcTimeout):
        future.value()


def test_a_deadline_that_fails_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    expired: list[int] = []

    def fail(number: int) -> None:
        expired.append(number)
        raise ValueError(number)

    deadlines = DeadlineTimer("deadlines", lambda number: False, fail)
    for number in range(2):
        deadlines.add(number, 0.0)
    assert eventually(lambda: len(told) == 2) and expired == [0, 1]
    deadlines.close()


def test_who_waits_for_a_peer_hears_another_thread(three: list[Invocations]) -> None:
    """Though the peer is silent, and the one who waits reads its connection."""
    flag = OneShotEvent()
    waits = threading.Thread(target=three[A].agent.wait, args=(flag, 1000.0, B), daemon=True)
    waits.start()
    assert eventually(three[A].agent._connections[B]._reading.locked)
    time.sleep(0.05)  # it sleeps in its poll by then; if not, it sees the flag without being woken
    flag.set()
    assert all_end([waits])


def test_requests_of_other_kinds_are_handled_in_order(three: list[Invocations]) -> None:
    seen: list[bytes] = []

    def handler(incoming: Incoming) -> None:
        seen.append(incoming.body)
        if incoming.body == b"bad":
            incoming.fail(ValueError("bad"))
        else:
            three[B].agent.later(lambda: incoming.answer(incoming.body[::-1], incoming.tensors))

    three[B].agent.handle(ECHO, handler)
    found: list[Answer | BaseException] = []
    sent = [b"%d" % number * (1 if number % 5 else 50_000) for number in range(50)]  # more than the socket holds
    flags = [OneShotEvent() for _ in sent]
    with not_reading(three[B].agent._connections[A]):
        for body, flag in zip(sent, flags, strict=True):

            def done(result: Answer | BaseException, flag: OneShotEvent = flag) -> None:
                found.append(result)
                flag.set()

            three[A].agent.request(B, ECHO, body, [torch.ones(1), None], PATIENCE_SECONDS, done)
    assert all(three[A].agent.wait(flag, PATIENCE_SECONDS, B) for flag in flags)
    assert seen == sent
    assert sorted(answer.body for answer in found if isinstance(answer, Answer)) == sorted(body[::-1] for body in seen)
    assert all(isinstance(answer, Answer) and answer.tensors[1] is None for answer in found)
    with pytest.raises(ValueError, match="bad"):
        three[A].agent.ask(B, ECHO, b"bad", (), PATIENCE_SECONDS)
    with pytest.raises(RpcError, match="takes no requests of kind 99"):
        three[A].agent.ask(B, 99, b"", (), PATIENCE_SECONDS)
    with pytest.raises(UsageError, match="kind 3 is not free"):
        three[B].agent.handle(3, handler)


def test_a_worker_is_limited_in_the_requests_that_all_its_peers_together_have_not_answered() -> None:
    with world(3, Options(timeout=PATIENCE_SECONDS, limits=Limits(unanswered=2), arena_bytes=0)) as calls:
        asking, kept = calls[A].agent, list[Incoming]()
        for peer in (B, C):
            calls[peer].agent.handle(ECHO, kept.append)
            asking.request(peer, ECHO, b"", (), PATIENCE_SECONDS, lambda result: None)
        for peer in (B, C):
            with pytest.raises(LimitExceeded, match="2 requests of this worker are not answered"):
                asking.ask(peer, ECHO, b"", (), PATIENCE_SECONDS)
        assert eventually(lambda: len(kept) == 2)
        kept[0].answer(b"")
        assert eventually(lambda: asking.busy[0] == 1)


class Recorder:
    """An interceptor that adds one to what arrives, and notes in which scope what happened."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def outgoing(self, to: int, tensors: Sequence[torch.Tensor], what: str) -> bytes:
        self.seen.append(f"call {what.rpartition(':')[2]} to {to} with {len(tensors)}")
        return b"some" if tensors else b""

    def incoming(self, peer: int, metadata: bytes, tensors: list[torch.Tensor]) -> Any:
        self.seen.append(f"{metadata!r} from {peer}")
        tensors[:] = [tensor + 1 for tensor in tensors]
        recorder = self

        class Scopes:
            def __enter__(self) -> None:
                recorder.seen.append("enter")

            def __exit__(self, *_: object) -> None:
                recorder.seen.append("leave")

        return Scopes()

    def answer_metadata(self, to: int, tensors: Sequence[torch.Tensor], what: str) -> bytes:
        self.seen.append(f"answer to {to} with {len(tensors)}")
        return b"more"

    def answered(self, peer: int, metadata: bytes, tensors: list[torch.Tensor]) -> None:
        self.seen.append(f"{metadata!r} from {peer}")
        tensors[:] = [tensor * 10 for tensor in tensors]

    def unsent(self, metadata: bytes) -> None:
        self.seen.append(f"{metadata!r} was not sent")

    def peer_lost(self, peer: int, reason: str) -> None:
        self.seen.append(f"lost {peer}")


def test_an_interceptor_sees_calls_where_they_leave_and_arrive() -> None:
    with world(2) as two:
        here, there = Recorder(), Recorder()
        two[A].agent.interceptor, two[B].agent.interceptor = here, there
        assert two[A].sync(B, f.add, (torch.ones(1), torch.ones(1)), None, None).tolist() == [40]
        assert here.seen == [f"call add to {B} with 2", f"b'more' from {B}"]
        arrived = [f"b'some' from {A}", "enter", f"answer to {A} with 1", "leave"]
        assert eventually(lambda: there.seen == arrived)
        there.seen.clear()
        assert two[A].begin(B, f.doubled_later, (torch.ones(1),), None, None).wait().tolist() == [40]
        assert eventually(lambda: there.seen == [arrived[0], "enter", "leave", *arrived[1:]])
        here.seen.clear()
        rref = two[A].remote(B, f.given_back, (torch.ones(1),), None, None)
        assert rref.to_here().tolist() == [20]
        assert here.seen[0] == f"call given_back to {B} with 1" and here.seen[-1] == f"b'more' from {B}"
        two[B].agent._connections[A].close("a fault")
        assert eventually(lambda: here.seen[-1] == f"lost {B}")


def test_what_cannot_be_called_is_refused_by_name(three: list[Invocations]) -> None:
    refused = ((lambda: 1, "not to be found by its name"), (f.Counter().add, "Counter is not sent"))
    for function, why in refused:
        with pytest.raises(NotAllowed, match=why):
            three[A].sync(B, function, (), None, None)
    with pytest.raises(NotAllowed, match="see that all workers have the same code"):
        three[A].sync(B, f"{f.__name__}:no_such_function", (), None, None)
    with pytest.raises(LimitExceeded, match="name"):
        three[A].sync(B, "math:" + "x" * 2000, (), None, None)
    with pytest.raises(NotAllowed, match="cannot be sent"):
        three[A].sync(B, f.given_back, (torch.ones(2, device="meta"),), None, None)


def test_the_number_of_threads_is_bounded_and_nothing_hangs_at_the_bound() -> None:
    with world(2, Options(timeout=PATIENCE_SECONDS, limits=Limits(threads=6), arena_bytes=0)) as two:
        with pytest.raises(LimitExceeded, match="6 calls are running on worker"):
            two[A].sync(B, f.bounce, (B, A, 50), None, None)
        assert two[A].sync(B, f.bounce, (B, A, 3), None, None) == 3


def test_calls_beyond_the_threads_wait_and_beyond_the_queue_are_refused() -> None:
    f.GATE.clear()
    limits = Limits(threads=4, queued=20)
    with world(2, Options(timeout=PATIENCE_SECONDS, limits=limits, arena_bytes=0)) as two:
        gated = [two[A].begin(B, f.wait_for_gate, (), None, None) for _ in range(3)]
        assert eventually(lambda: two[B].agent.pool._working == 3)
        queued = [two[A].begin(B, f.both, (number,), None, None) for number in range(20)]
        assert eventually(lambda: len(two[B].agent.pool._kept) == 20)
        with pytest.raises(LimitExceeded, match="and 20 more wait for a thread: send fewer at once, or raise"):
            two[A].sync(B, f.nothing, (), None, None)
        with pytest.raises(
            LimitExceeded, match="or nest calls less deeply"
        ):  # it is not kept: B's function waits for it
            two[B].sync(A, f.relay, (A, [B], ""), None, None)
        f.GATE.set()
        assert [each.wait() for each in gated + queued] == [True] * 3 + [(number, None) for number in range(20)]
        assert eventually(lambda: two[B].agent.busy == (0, 0))


def test_a_close_refuses_the_calls_that_wait_for_a_thread() -> None:
    f.GATE.clear()
    with world(1, Options(timeout=PATIENCE_SECONDS, limits=Limits(threads=2), arena_bytes=0)) as (alone,):
        refused: list[int] = []
        pool = alone.agent.pool
        pool.later(f.wait_for_gate, partial(refused.append, 0), True)
        assert eventually(lambda: pool._working == 1)
        for number in (1, 2):
            pool.later(partial(refused.append, -number), partial(refused.append, number), True)
        assert eventually(lambda: len(pool._kept) == 2)
        pool._ended = True  # as `close`, which the gate lets end at once
        f.GATE.set()
        pool.close()
        assert sorted(refused) == [1, 2]


def test_modules_and_pickles_are_restricted_as_the_options_say() -> None:
    here = f.__name__
    with world(2, Options(timeout=PATIENCE_SECONDS, modules=(here,), allowed=(f.Counter,), arena_bytes=0)) as two:
        assert two[A].sync(B, f.both, (f.Counter(3),), None, None)[0].count == 3
        with pytest.raises(NotAllowed, match="may not be called here"):
            two[A].sync(B, torch.add, (torch.ones(1), torch.ones(1)), None, None)
    with world(2, Options(timeout=PATIENCE_SECONDS, pickles=Pickles.ANY, arena_bytes=0)) as two:
        module = torch.nn.Linear(2, 3)
        back = two[A].sync(B, f.given_back, ([module],), None, None)[0]
        assert torch.equal(back.weight, module.weight) and isinstance(back.weight, torch.nn.Parameter)
        assert back.weight.requires_grad


def test_the_end_waits_for_what_ending_works_begin() -> None:
    """A thread that is left inside of torch when the process ends aborts it."""
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


def test_an_interrupt_where_a_frame_is_taken_reaches_who_waits_there() -> None:
    """A signal's handler raises it in the main thread, wherever that is; what the frame was to do is then not done."""
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


def test_a_peer_that_closes_fails_all_that_was_asked_of_it() -> None:
    f.GATE.clear()
    with world(3) as calls:
        lost: list[tuple[int, str]] = []
        told = threading.Event()

        def on_lost(peer: int, reason: str) -> None:
            lost.append((peer, reason))
            told.set()

        calls[A].agent.on_peer_lost(on_lost)
        futures = [calls[A].begin(B, f.wait_for_gate, (), None, None) for _ in range(3)]
        other = calls[A].begin(C, f.wait_for_gate, (), None, None)
        calls[B].agent._connections[A].close("a fault")
        for future in futures:
            with pytest.raises(PeerLost, match="worker 'B' is lost: it closed the connection"):
                future.wait()
        with pytest.raises(PeerLost):
            calls[A].sync(B, f.nothing, (), None, None)
        assert told.wait(PATIENCE_SECONDS) and [peer for peer, _ in lost] == [B]
        f.GATE.set()
        assert other.wait() is True

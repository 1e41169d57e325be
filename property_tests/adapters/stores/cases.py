"""The decision tables of the operations, compared with a real store: every case of every operation.

Rule: a row that no case reaches is a disagreement too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack
from datetime import timedelta
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trystate.impl.store.errors import OutcomeUnknown
from trystate.impl.store.hash import HashStore
from trystate.impl.store.tcp import TCPStore
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.impl.torch_release import METHODS, lacks
from trystate.model.store import reference as ref
from trystate.model.store.operations import OPERATIONS
from trystate.model.store.reference import Contents, Operation, Refusal
from trystate.model.store.vocabulary import Edition

from ...harness.checks import Check, Outcome
from ...harness.stores.deviations import Deviation
from ...harness.stores.handles import PROMPT_SECONDS, Handle, c10d, refusal
from ..torch_store.server import TorchServer
from .kept import Serving
from .proxies import Losing

KEY, OTHER = "k", "other"
VALUES = (None, b"", b"v", b"7", b"-1", b"9223372036854775807", b"9223372036854775808", b" 12abc", b"+3")
QUEUES = ((), (b"q",))
BRIEF = timedelta(milliseconds=10)
PROMPT = timedelta(seconds=PROMPT_SECONDS)  # limit for an operation that does not block
SENT_SECONDS = (0.2, 2.0, 20.0)  # in which a request reaches the server, on a new connection
REPEATED_SECONDS = 60.0  # limit for a read that is sent again after its answer was lost
WRONG_MAX = 20  # then a comparison ends, because an operation that blocks by mistake takes its whole timeout
SETTLES = frozenset({Deviation.WRITES_ARE_NOT_ACKNOWLEDGED})


def contents() -> Iterator[Contents]:
    """Every small store: one key with a value or none, and a queue of that name with an element or none."""
    for value, queue in product(VALUES, QUEUES):
        yield Contents({} if value is None else {KEY: value}, {KEY: queue} if queue else {})


def operations(edition: Edition) -> Iterator[Operation]:
    """Every operation that the edition has, with arguments for each of its cases."""
    known = OPERATIONS[edition]
    yield from (ref.Set(KEY, b"new"), ref.Append(KEY, b"x"), ref.DeleteKey(KEY), ref.Get(KEY), ref.Check((KEY,)))
    yield from (ref.Wait((KEY,)), ref.NumKeys(), ref.ListKeys(), ref.QueuePush(KEY, b"p"), ref.QueueLen(KEY))
    yield from (ref.AddTo(KEY, amount) for amount in (1, -1))
    yield from (ref.CompareAndSet(KEY, expected, b"new") for expected in (b"", b"v", b"7"))
    yield from (ref.MultiSet((KEY,), (b"new",)), ref.MultiSet((KEY, OTHER), (b"new",)), ref.MultiGet((KEY,)))
    yield from (ref.QueuePop(KEY, block) for block in (False, True))
    yield from (ref.Barrier(KEY, world_size) for world_size in (1, 2))
    if "take" in known:
        yield ref.Take(KEY)


def compare(edition: Edition, open_store: Callable[[], Any], *, lacking: Container[str] = ()) -> Outcome:
    """Do every operation on every small store; compare the result and the contents after it.

    It ends after `WRONG_MAX` disagreements. Operations that the store lacks (`lacking`) are left out. So are queues,
    if the store cannot fill a queue.
    """
    started = time.perf_counter()
    tables, wrong, compared = OPERATIONS[edition], list[str](), 0
    hit, left_out = set[tuple[str, int]](), set[tuple[str, int]]()
    handle = Handle(open_store(), SETTLES)
    for before, operation in product(contents(), operations(edition)):
        name = operation.table
        row = name, tables[name].winner(operation.look(before)) if name in tables else 0
        if name in lacking or (before.queues and "queue_push" in lacking):
            left_out.add(row)
            continue
        _arrange(handle, before, lacking)
        after, expected = ref.apply(before, operation, edition)
        late = expected.result is Refusal.TIMED_OUT
        said = handle.perform(operation, BRIEF if late else PROMPT)
        if expected.result is Refusal.CLOSED:
            handle = Handle(open_store(), SETTLES)
        found = _look(handle, lacking)
        if said != expected.result or found != after:
            wrong.append(f"{operation} on {before}: expected {expected.result!r} and {after}, got {said!r} and {found}")
        hit.add(row)
        compared += 1
        if len(wrong) >= WRONG_MAX:
            return Outcome(compared, "cases", tuple(wrong), time.perf_counter() - started)
    for name, table in tables.items():
        missing = [k for k in range(len(table.rows)) if (name, k) not in hit | left_out]
        wrong += [f"{name}: row {k + 1} was never compared" for k in missing]
    return Outcome(compared, "cases", tuple(wrong), time.perf_counter() - started)


def _arrange(handle: Handle, wanted: Contents, lacking: Container[str]) -> None:
    """Bring a store from any state into the wanted state."""
    for name in _look(handle, lacking).values:
        handle.perform(ref.DeleteKey(name))
    for key, value in wanted.values.items():
        handle.perform(ref.Set(key, value))
    for key, queue in wanted.queues.items():
        for element in queue:
            handle.perform(ref.QueuePush(key, element))


def _look(handle: Handle, lacking: Container[str]) -> Contents:
    """The contents of a store; the elements of its queue are popped."""
    queue: list[Any] = []
    while "queue_len" not in lacking and handle.perform(ref.QueueLen(KEY)):
        queue.append(handle.perform(ref.QueuePop(KEY, block=False)))
    if "list_keys" in lacking:  # only these keys are written, and the queue that `check` counts is empty
        names: Any = tuple(key for key in (KEY, OTHER) if handle.perform(ref.Check((key,))))
    else:
        names = handle.perform(ref.ListKeys())
    values: Any = handle.perform(ref.MultiGet(names))
    return Contents(dict(zip(names, values, strict=True)), {KEY: tuple(queue)} if queue else {})


def compare_unanswered(open_store: Callable[[], Any], proxy: Losing) -> Outcome:
    """Do every operation on a few small stores, and lose its answer, on an idle connection and on a new one.

    Left out are reads that time out, and operations that our client refuses before they are sent.
    """
    started, wrong, compared = time.perf_counter(), list[str](), 0
    handle = Handle(open_store(), frozenset())
    few = [each for each in contents() if each.values.get(KEY, b"7") == b"7"]
    for before, operation, idle in product(few, operations(Edition.TRYSTATE), (True, False)):
        after, expected = ref.apply_unanswered(before, operation)
        result = ref.apply(before, operation)[1].result
        if Refusal.ARGUMENT is result or Refusal.TIMED_OUT is expected:
            continue
        # A busy machine may take longer to send a request than the operation waits: then the operation waits longer.
        for seconds in SENT_SECONDS if result is Refusal.TIMED_OUT else (REPEATED_SECONDS,):
            _arrange(handle, before, ())
            if not idle:
                handle.store.close()
                handle = Handle(open_store(), frozenset())
                handle.store._client._close_idle()
            proxy.loses.set()
            said = _unanswered(handle, operation, timedelta(seconds=seconds))
            lost, found = not proxy.loses.is_set(), _look(handle, ())
            proxy.loses.clear()
            if said == expected and found == after and lost:
                break
        if said != expected or found != after or not lost:
            where = "an idle connection" if idle else "a new connection"
            wrong.append(f"{operation} on {before}, its answer lost on {where}: expected {expected!r} and {after}, "
                         f"got {said!r} and {found}")  # fmt: skip
        compared += 1
        if len(wrong) >= WRONG_MAX:
            break
    return Outcome(compared, "cases", tuple(wrong), time.perf_counter() - started)


def _unanswered(handle: Handle, operation: Operation, timeout: timedelta) -> Any:
    try:
        return handle.call(operation, timeout)
    except OutcomeUnknown:
        return Refusal.UNKNOWN
    except Exception as error:  # the store's exception is the observation
        return refusal(operation, error)


def _on_torch(report: Callable[[str], None]) -> Outcome:
    with TorchServer() as server:
        lacking = [method for method in METHODS if lacks(c10d.TCPStore, method)]
        return compare(Edition.TORCH, server.client, lacking=lacking)


def _on_ours(report: Callable[[str], None]) -> Outcome:
    with TCPStoreServer() as server, ExitStack() as stack:
        return compare(Edition.TRYSTATE, lambda: stack.enter_context(TCPStore(server.host, server.port)))


def _in_memory(report: Callable[[str], None]) -> Outcome:
    return compare(Edition.TRYSTATE, HashStore)


def _answers_are_lost(report: Callable[[str], None]) -> Outcome:
    with TemporaryDirectory() as folder, ExitStack() as stack:
        server = stack.enter_context(Serving(Path(folder) / "data"))
        proxy = stack.enter_context(Losing(server.port))
        return compare_unanswered(lambda: stack.enter_context(TCPStore("127.0.0.1", proxy.port)), proxy)


CHECKS = (
    Check("store operations: torch's client and server", _on_torch),
    Check("store operations: our client and server", _on_ours),
    Check("store operations: our HashStore", _in_memory),
    Check("store operations: our kept server, and answers that are lost", _answers_are_lost),
)

"""The shortest sequences of operations that show how torch's stores differ: each is done again, on the real store.

Rule: a sequence shows its deviation with its last operation, and nothing before that.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from trystate.impl.store.tcp import TCPStore
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.model.store import reference as ref
from trystate.model.store.reference import Contents, Operation, Refusal, Result

from ...harness.stores.deviations import (
    OURS_ON_LEGACY,
    OURS_ON_LIBUV,
    TORCH_FILE,
    TORCH_HASH,
    TORCH_LEGACY,
    TORCH_LIBUV,
    TORCHS_ON_OURS,
    Deviation,
    torch_prefix,
)
from ...harness.stores.handles import AMPLE, Handle, c10d
from ..torch_store.server import TorchServer
from .servers import emptied, torch_client

D = Deviation
BRIEF = timedelta(milliseconds=20)
STORES: Mapping[str, frozenset[Deviation]] = {
    "torch's TCPStore, libuv": TORCH_LIBUV,
    "torch's TCPStore, legacy": TORCH_LEGACY,
    "torch's HashStore": TORCH_HASH,
    "torch's FileStore": TORCH_FILE,
    "torch's PrefixStore over HashStore": torch_prefix(TORCH_HASH),
    "our client on libuv": OURS_ON_LIBUV,
    "our client on legacy": OURS_ON_LEGACY,
    "torch's client on our server": TORCHS_ON_OURS,
    "our client on libuv before 2.8": OURS_ON_LIBUV
    | {D.LACKS_QUEUES, D.LACKS_LIST_KEYS, D.LACKS_BARRIER, D.UNKNOWN_REQUESTS_CLOSE},
}
LARGE = b"9223372036854775808"

# Where it is shown, and with what.
SHORTEST: Mapping[Deviation, tuple[str, tuple[Operation, ...]]] = {
    D.ADD_WRAPS: ("torch's TCPStore, libuv", (ref.AddTo("a", ref.INT64_MAX), ref.AddTo("a", 1))),
    D.ADD_READS_A_LEADING_NUMBER: ("torch's TCPStore, libuv", (ref.Set("a", b" 12abc"), ref.AddTo("a", 1))),
    D.ADD_CLOSES_THE_CONNECTION: ("torch's TCPStore, libuv", (ref.Set("a", b"v"), ref.AddTo("a", 1))),
    D.ADD_TO_A_LARGE_NUMBER_CLOSES: ("our client on libuv", (ref.Set("a", LARGE), ref.AddTo("a", 1))),
    D.ADD_IS_REFUSED_BY_CLOSING: ("torch's client on our server", (ref.Set("a", b"v"), ref.AddTo("a", 1))),
    D.ADD_RESTARTS_AT_AN_EMPTY_VALUE: ("torch's HashStore", (ref.Set("a", b""), ref.AddTo("a", 1))),
    D.ADD_RAISES_INDEX_ERROR: ("torch's HashStore", (ref.Set("a", LARGE), ref.AddTo("a", 1))),
    D.APPEND_DROPS_THE_SAME_VALUE: ("torch's FileStore", (ref.Set("a", b"v"), ref.Append("a", b"v"), ref.Get("a"))),
    D.GET_OF_A_QUEUE_IS_EMPTY: ("torch's TCPStore, libuv", (ref.QueuePush("a", b"v"), ref.Get("a"))),
    D.POP_TAKES_A_VALUE_FOR_AN_ITEM: ("torch's TCPStore, libuv", (ref.Set("a", b"v"), ref.QueuePop("a", block=True))),
    D.DELETE_PRETENDS: ("torch's FileStore", (ref.DeleteKey("a"),)),
    D.MULTI_SET_IGNORES_SURPLUS: ("torch's HashStore", (ref.MultiSet((), (b"v",)),)),
    D.COUNTS_WHAT_LIES_BESIDE: ("torch's FileStore", (ref.NumKeys(),)),
    D.LISTS_WHAT_LIES_BESIDE: ("torch's FileStore", (ref.ListKeys(),)),
    D.BARRIER_COUNTS_IN_THE_KEY: ("torch's TCPStore, libuv", (ref.Barrier("a", 1), ref.Check(("a",)))),
    D.BARRIER_COUNTS_IN_TWO_KEYS: ("torch's HashStore", (ref.Barrier("a", 1), ref.ListKeys())),
}

# The others take time, or two who meet: in words, and done by the test that claims the contrary.
MEETINGS: Mapping[Deviation, str] = {
    D.LACKS_QUEUES: "queue_len(a) raises NotImplementedError",
    D.LACKS_TAKE: "take(a) raises NotSupported",
    D.LACKS_WATCH_KEY: "watch_key(a, callback) raises NotSupported",
    D.LACKS_LIST_KEYS: "list_keys() raises NotImplementedError",
    D.LACKS_BARRIER: "barrier(a, 2) raises ConnectionLost",
    D.UNKNOWN_REQUESTS_CLOSE: "list_keys() raises ConnectionLost",
    D.ZERO_WAITS_FOR_EVER: "wait([a]) with timeout 0 goes on",
    D.ZERO_DOES_NOT_LOOK: "set(a); wait([a]) with timeout 0, again and again: some raise",
    D.NEGATIVE_WAITS_FOR_EVER: "wait([a]) with timeout -1 s goes on",
    D.NEGATIVE_TIMES_OUT: "wait([a]) with timeout -1 s times out at once",
    D.TIMEOUTS_ARE_WHOLE_SECONDS: "wait([a]) with timeout 120 ms takes 1 s",
    D.TIMEOUT_IS_A_RUNTIME_ERROR: "wait([a]) raises RuntimeError",
    D.CLONE_SHARES_THE_TIMEOUT: "set_timeout(7 s); set_timeout(9 s) on a clone: the original's is 9 s",
    D.CLONE_FORGETS_THE_TIMEOUT: "set_timeout(7 s); the timeout of a clone is 5 min",
    D.EMPTY_VALUES_ARE_SLOW: "set(a, b''); get(a) takes 0.2 s",
    D.COMPARE_SET_WAKES_NOBODY: "A: wait([a]); B: compare_set(a, b'', v); A goes on waiting",
    D.FAILING_COMPARE_SET_WAKES: "A: get(a); B: compare_set(a, x, y); A returns b''",
    D.ADD_WAKES_NOBODY: "A: wait([a]); B: add(a, 7); A goes on waiting",
    D.WAIT_COUNTS_KEYS: "A: wait([a, b]); B: set(a), delete_key(a), set(b); A returns",
    D.WAIT_FORGETS_QUEUES: "queue_push(q); A: wait([q, a]); B: set(a); A goes on waiting",
    D.PUSH_WAKES_ONE: "A: wait([other]); B: queue_pop(q); queue_push(q); B goes on waiting",
    D.ONE_CALL_AT_A_TIME: "one thread: wait([a]); another, same object: add(n, 1) goes on waiting",
    D.GET_RACES_WITH_DELETE: "A: get(a); B: set(a, v), delete_key(a); A returns b'', or loses its connection",
    D.MULTI_SET_IN_PIECES: "A: multi_set(a, b); B: multi_get(a, b) returns one old value and one new",
    D.WAIT_HOLDS_AN_ITEM: "queue_push(q); A: wait([q]); B: queue_len(q) is 0 until A's next request, or for a second",
    D.POP_RACES_WITH_POP: "A: queue_pop(q), woken by a push; B: queue_pop(q) takes it; A raises QueueEmptyError",
    D.WRITES_ARE_NOT_ACKNOWLEDGED: "A: set(a) returns; B: check([a]) is False",
    D.LOST_FOR_GOOD: "set(a, b''); add(a, 1); any other operation raises DistNetworkError",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """One sequence: each operation, what the reference says, and what the store says."""

    deviation: Deviation
    store: str
    steps: tuple[tuple[Operation, Result, Result | str], ...]


def shown() -> Iterator[Shown]:
    """Every sequence, done on a new store each."""
    with _stores() as openers:
        for deviation, (name, operations) in SHORTEST.items():
            yield Shown(deviation, name, tuple(_steps(Handle(openers[name](), STORES[name]), operations)))


def _steps(handle: Handle, operations: tuple[Operation, ...]) -> Iterator[tuple[Operation, Result, Result | str]]:
    contents = Contents()
    for operation in operations:
        contents, outcome = ref.apply(contents, operation)
        late = outcome.result is Refusal.TIMED_OUT
        yield operation, outcome.result, handle.perform(operation, BRIEF if late else AMPLE)


@contextmanager
def _stores() -> Iterator[Mapping[str, Callable[[], Any]]]:
    """How a new store of each kind that is shown is made; all of them are gone afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        libuv = stack.enter_context(TorchServer())
        server = stack.enter_context(TCPStoreServer())
        yield {
            "torch's TCPStore, libuv": lambda: emptied(torch_client(libuv.port)),
            "torch's HashStore": c10d.HashStore,
            "torch's FileStore": lambda: c10d.FileStore(tempfile.mktemp(dir=folder), 1),
            "our client on libuv": lambda: emptied(stack.enter_context(TCPStore("127.0.0.1", libuv.port))),
            "torch's client on our server": lambda: emptied(torch_client(server.port)),
        }

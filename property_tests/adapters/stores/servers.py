"""torch's stores for a suite, on every release; and the shortest sequences that show the deviations of torch's stores.

Each sequence is run on the real store. Rule: only its last operation shows the deviation.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from trystate.impl.store.tcp import TCPStore
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.impl.torch_release import lacks
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
from ...harness.stores.handles import AMPLE, Handle, Store, c10d
from ...harness.stores.sequences import KEYS
from ..torch_store.server import TorchServer


def torch_client(port: int, *, libuv: bool = True) -> Store:
    """torch's client; `libuv`: whether the server is torch's libuv server, which has queues."""
    return c10d.TCPStore("127.0.0.1", port, wait_for_workers=False, timeout=AMPLE, use_libuv=libuv)


def missing() -> frozenset[Deviation]:
    """The deviations of the installed torch's stores, which lack operations of later releases."""
    since = {
        "queue_push": Deviation.LACKS_QUEUES, "list_keys": Deviation.LACKS_LIST_KEYS,
        "barrier": Deviation.LACKS_BARRIER,
    }  # fmt: skip
    found = frozenset(deviation for method, deviation in since.items() if lacks(c10d.TCPStore, method))
    return found | {Deviation.UNKNOWN_REQUESTS_CLOSE} if found else found


def cloned(store: Any) -> Any:
    """`store.clone()`; before torch 2.8, which introduced the method, a store with the same data."""
    if not lacks(store, "clone"):
        return store.clone()
    if isinstance(store, c10d.PrefixStore):  # torch does not return the prefix, which is P in each suite
        return c10d.PrefixStore("P", cloned(store.underlying_store))
    if isinstance(store, c10d.FileStore):
        return c10d.FileStore(store.path, 1)
    if isinstance(store, c10d.TCPStore):
        other = torch_client(store.port, libuv=store.libuvBackend)
        other.set_timeout(store.timeout)
        return other
    return store


def emptied(store: Any, prefix: str = "") -> Any:
    """A store that many tests share, without its keys and without the items of the suite's queues."""
    for key in store.list_keys():
        store.delete_key(key)
    with suppress(NotImplementedError):
        for key in ("p", "q", *KEYS):
            while store.queue_len(prefix + key):
                store.queue_pop(prefix + key, False)
    return store


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
    | {Deviation.LACKS_QUEUES, Deviation.LACKS_LIST_KEYS, Deviation.LACKS_BARRIER, Deviation.UNKNOWN_REQUESTS_CLOSE},
}
LARGE = b"9223372036854775808"

# Deviation -> the store that shows it, and the operations.
SHORTEST: Mapping[Deviation, tuple[str, tuple[Operation, ...]]] = {
    Deviation.ADD_WRAPS: ("torch's TCPStore, libuv", (ref.AddTo("a", ref.INT64_MAX), ref.AddTo("a", 1))),
    Deviation.ADD_READS_A_LEADING_NUMBER: ("torch's TCPStore, libuv", (ref.Set("a", b" 12abc"), ref.AddTo("a", 1))),
    Deviation.ADD_CLOSES_THE_CONNECTION: ("torch's TCPStore, libuv", (ref.Set("a", b"v"), ref.AddTo("a", 1))),
    Deviation.ADD_TO_A_LARGE_NUMBER_CLOSES: ("our client on libuv", (ref.Set("a", LARGE), ref.AddTo("a", 1))),
    Deviation.ADD_IS_REFUSED_BY_CLOSING: ("torch's client on our server", (ref.Set("a", b"v"), ref.AddTo("a", 1))),
    Deviation.ADD_RESTARTS_AT_AN_EMPTY_VALUE: ("torch's HashStore", (ref.Set("a", b""), ref.AddTo("a", 1))),
    Deviation.ADD_RAISES_INDEX_ERROR: ("torch's HashStore", (ref.Set("a", LARGE), ref.AddTo("a", 1))),
    Deviation.APPEND_DROPS_THE_SAME_VALUE: (
        "torch's FileStore",
        (ref.Set("a", b"v"), ref.Append("a", b"v"), ref.Get("a")),
    ),
    Deviation.GET_OF_A_QUEUE_IS_EMPTY: ("torch's TCPStore, libuv", (ref.QueuePush("a", b"v"), ref.Get("a"))),
    Deviation.POP_TAKES_A_VALUE_FOR_AN_ITEM: (
        "torch's TCPStore, libuv",
        (ref.Set("a", b"v"), ref.QueuePop("a", block=True)),
    ),
    Deviation.DELETE_PRETENDS: ("torch's FileStore", (ref.DeleteKey("a"),)),
    Deviation.MULTI_SET_IGNORES_SURPLUS: ("torch's HashStore", (ref.MultiSet((), (b"v",)),)),
    Deviation.COUNTS_WHAT_LIES_BESIDE: ("torch's FileStore", (ref.NumKeys(),)),
    Deviation.LISTS_WHAT_LIES_BESIDE: ("torch's FileStore", (ref.ListKeys(),)),
    Deviation.BARRIER_COUNTS_IN_THE_KEY: ("torch's TCPStore, libuv", (ref.Barrier("a", 1), ref.Check(("a",)))),
    Deviation.BARRIER_COUNTS_IN_TWO_KEYS: ("torch's HashStore", (ref.Barrier("a", 1), ref.ListKeys())),
}

# The other deviations need time or two clients. A test of the suite claims the contrary of each text.
MEETINGS: Mapping[Deviation, str] = {
    Deviation.LACKS_QUEUES: "queue_len(a) raises NotImplementedError",
    Deviation.LACKS_TAKE: "take(a) raises NotSupported",
    Deviation.LACKS_WATCH_KEY: "watch_key(a, callback) raises NotSupported",
    Deviation.LACKS_LIST_KEYS: "list_keys() raises NotImplementedError",
    Deviation.LACKS_BARRIER: "barrier(a, 2) raises ConnectionLost",
    Deviation.UNKNOWN_REQUESTS_CLOSE: "list_keys() raises ConnectionLost",
    Deviation.ZERO_WAITS_FOR_EVER: "wait([a]) with timeout 0 continues",
    Deviation.ZERO_DOES_NOT_LOOK: "set(a); wait([a]) with timeout 0, again and again: some raise",
    Deviation.NEGATIVE_WAITS_FOR_EVER: "wait([a]) with timeout -1 s continues",
    Deviation.NEGATIVE_TIMES_OUT: "wait([a]) with timeout -1 s times out at once",
    Deviation.TIMEOUTS_ARE_WHOLE_SECONDS: "wait([a]) with timeout 120 ms takes 1 s",
    Deviation.TIMEOUT_IS_A_RUNTIME_ERROR: "wait([a]) raises RuntimeError",
    Deviation.CLONE_SHARES_THE_TIMEOUT: "set_timeout(7 s); set_timeout(9 s) on a clone: the original's is 9 s",
    Deviation.CLONE_FORGETS_THE_TIMEOUT: "set_timeout(7 s); the timeout of a clone is 5 min",
    Deviation.EMPTY_VALUES_ARE_SLOW: "set(a, b''); get(a) takes 0.2 s",
    Deviation.COMPARE_SET_WAKES_NOBODY: "A: wait([a]); B: compare_set(a, b'', v); A continues to wait",
    Deviation.FAILING_COMPARE_SET_WAKES: "A: get(a); B: compare_set(a, x, y); A returns b''",
    Deviation.ADD_WAKES_NOBODY: "A: wait([a]); B: add(a, 7); A continues to wait",
    Deviation.WAIT_COUNTS_KEYS: "A: wait([a, b]); B: set(a), delete_key(a), set(b); A returns",
    Deviation.WAIT_FORGETS_QUEUES: "queue_push(q); A: wait([q, a]); B: set(a); A continues to wait",
    Deviation.PUSH_WAKES_ONE: "A: wait([other]); B: queue_pop(q); queue_push(q); B continues to wait",
    Deviation.ONE_CALL_AT_A_TIME: "one thread: wait([a]); another, same object: add(n, 1) continues to wait",
    Deviation.GET_RACES_WITH_DELETE: "A: get(a); B: set(a, v), delete_key(a); A returns b'', or loses its connection",
    Deviation.MULTI_SET_IN_PIECES: "A: multi_set(a, b); B: multi_get(a, b) returns one old value and one new",
    Deviation.WAIT_HOLDS_AN_ITEM: (
        "queue_push(q); A: wait([q]); B: queue_len(q) is 0 until A's next request, or for a second"
    ),
    Deviation.POP_RACES_WITH_POP: (
        "A: queue_pop(q), woken by a push; B: queue_pop(q) takes it; A raises QueueEmptyError"
    ),
    Deviation.WRITES_ARE_NOT_ACKNOWLEDGED: "A: set(a) returns; B: check([a]) is False",
    Deviation.LOST_FOR_GOOD: "set(a, b''); add(a, 1); any other operation raises DistNetworkError",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """One sequence: each operation, the reference's result, and the store's result."""

    deviation: Deviation
    store: str
    steps: tuple[tuple[Operation, Result, Result | str], ...]


def shown() -> Iterator[Shown]:
    """Run each sequence on a new store."""
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
    """For each kind of store, a function that makes a new store; all stores are closed afterwards."""
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

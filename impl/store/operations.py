"""The operations of a store, each written once: its request, its bytes in both protocols, and its effect.

Theory of operation. An operation is a value: a call with checked arguments, keys and values as bytes. Its `SPEC`
contains its name, its request in each protocol, and the form of the result. `apply` is its meaning: its effect on the
contents of a store, in one step. The rest follows from these two:

- the public method (`base`) checks the arguments and makes the value;
- `PrefixStore` and `TCPStore` put their prefix before its keys (`under`);
- `HashStore` applies it under a lock;
- the client encodes it by its `SPEC`, and decodes the result (`client/calls`, `client/torch_calls`);
- the server's handler of a plain operation is compiled from `SPEC` and the method of `Contents` that `apply` calls, and
  makes no value (`server/fast_path`); handlers of operations that block are written by hand (`server/promises`,
  `server/extended`).

An operation that blocks waits for its keys as `reads` and `takes` define, and is applied at the moment when they are
present. A barrier waits for callers and not for keys. It has its own table (`contents/barriers`) and is not applied.

Failures:

- `apply` refuses (`Refused`): nothing has changed.
- The wait ends before the keys are present: the result is None, and nothing has changed.
- The connection breaks: if `SPEC.writes` the outcome is unknown.

A new operation also needs:

- a query number in `model/store/vocabulary`, a method of `Contents`, a public method in `base`, and a place in
  `OPERATIONS`;
- if it writes, its record in `durable/records` and `durable/contents`;
- if it blocks, a handler in `server/extended`;
- for records of a store, its lines in `server/recording`, `record/passage`, `monitor/keys` and `monitor/histories`;
- for the tests, its table in `model/store/operations`, its meaning in `model/store/reference`, its arguments in
  `harness/stores/sequences` and `harness/stores/handles`, and its cases in `adapters/stores/cases`;
- its row in docs/store-semantics.md.

This module uses no socket, no lock and no clock. Any thread may make a value, and values never change.

Sources: torch 2.13, TCPStoreBackend.hpp (QueryType), TCPStore.cpp and TCPStoreLibUvBackend.cpp.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

from trystate.model.store.vocabulary import Extension, Query

from .contents.contents import Contents

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Field(enum.IntEnum):
    """A part of a request's body."""

    KEY = enum.auto()
    VALUE = enum.auto()
    INTEGER = enum.auto()  # i64
    WORD = enum.auto()  # u32
    KEYS = enum.auto()  # u64 count, then the keys
    PAIRS = enum.auto()  # u64 count, then keys and values in turn


class Result(enum.IntEnum):
    """The form of a result in a reply. Our server sends a status byte before it."""

    NOTHING = enum.auto()
    READY = enum.auto()  # u8: 0 for yes, 1 for no
    FLAG = enum.auto()  # u8: 0 for no, 1 for yes
    NUMBER = enum.auto()  # i64
    BLOB = enum.auto()
    OPTIONAL_BLOB = enum.auto()  # u8: 0 if the blob is absent, then the blob (empty if absent)
    BLOBS = enum.auto()  # one blob for each key of the request
    COUNTED_BLOBS = enum.auto()  # i64 count, then the blobs
    POPPED = enum.auto()  # i64 length of the queue before, then the blob if there was one


KEY, VALUE, INTEGER, WORD, KEYS, PAIRS = Field
NOTHING, READY, FLAG, NUMBER, BLOB, OPTIONAL_BLOB, BLOBS, COUNTED_BLOBS, POPPED = Result


@dataclass(frozen=True, slots=True)
class Request:
    """The request of an operation in one protocol: its number, its body, and the form of the reply."""

    number: Query | Extension
    body: tuple[Field, ...]
    result: Result


@dataclass(frozen=True, slots=True)
class Spec:
    """The specification of an operation.

    Args:
        name: the name of the public method, for the texts of errors.
        body: the fields of the value, in their order.
        torch: the request of torch's protocol; None if that has no such request.
        ours: the request of the extensions. If the operation blocks, its body begins with the milliseconds to wait.
        writes: after a lost connection the operation may have happened.
        blocks: the caller waits until the operation can be done.
    """

    name: str
    body: tuple[Field, ...]
    torch: Request | None
    ours: Request
    writes: bool = False
    blocks: bool = False


def _spec(
    name: str,
    body: tuple[Field, ...],
    torch: tuple[Query, Result] | None,
    ours: tuple[Extension, Result],
    *,
    torch_body: tuple[Field, ...] | None = None,
    writes: bool = False,
    blocks: bool = False,
) -> Spec:
    """A specification. The bodies of both requests follow from `body`, except for a given `torch_body`."""
    plain = None if torch is None else Request(torch[0], body if torch_body is None else torch_body, torch[1])
    extended = Request(ours[0], (INTEGER, *body) if blocks else body, ours[1])
    return Spec(name, body, plain, extended, writes, blocks)


class Operation(Generic[T_co]):
    """A call with its arguments. A subclass is a dataclass with the fields of `SPEC.body`, in that order."""

    __slots__ = ()
    SPEC: ClassVar[Spec]
    reads: ClassVar[bool] = False  # it waits for values, so a queue does not count
    takes: ClassVar[bool] = False  # it waits for an element of the queue of its only key

    MEANING: ClassVar[Callable[..., Any]]  # the method of `Contents` that `apply` calls; else `apply` is overridden

    def apply(self, contents: Contents) -> T_co:
        """Do the operation in one step, and return the result. Raises `Refused`; then nothing has changed."""
        result: T_co = getattr(contents, self.MEANING.__name__)(*self.fields)
        return result

    def changes(self, contents: Contents) -> bool:
        """Whether `apply` may change anything now."""
        return self.SPEC.writes

    @property
    def fields(self) -> list[Any]:
        """The arguments, in the order of `SPEC.body`."""
        names: Sequence[str] = type(self).__slots__
        return [getattr(self, name) for name in names]

    @property
    def keys(self) -> Sequence[bytes]:
        """The keys of the operation: the first field, if it has one."""
        return tuple(self.fields[:1])  # operations on several keys override this

    def guarded(self) -> Sequence[bytes]:
        """The keys that the operation changes. None of them may be the counter of the workers."""
        return self.keys if self.SPEC.writes and not self.SPEC.blocks else ()

    def under(self, prefix: bytes) -> Self:
        """The same operation with `prefix` before each key."""
        if not self.SPEC.body:
            return self
        first, *rest = self.fields
        kind: Any = type(self)  # operations on several keys override this
        return kind(prefix + first, *rest)  # type: ignore[no-any-return]

    def above(self, result: T, prefix: bytes) -> T:
        """The result of `under(prefix)` without the prefix."""
        return result


@dataclass(frozen=True, slots=True)
class OfKeys(Operation[T]):
    """An operation whose only argument is a list of keys."""

    names: Sequence[bytes]

    @property
    def fields(self) -> list[Any]:
        return [self.names]

    @property
    def keys(self) -> Sequence[bytes]:
        return self.names

    def under(self, prefix: bytes) -> Self:
        return type(self)([prefix + key for key in self.names])


@dataclass(frozen=True, slots=True)
class Set(Operation[None]):
    """Give a key a value."""

    key: bytes
    value: bytes
    SPEC = _spec("set", (KEY, VALUE), (Query.SET, NOTHING), (Extension.SET, NOTHING), writes=True)

    MEANING = staticmethod(Contents.set)


@dataclass(frozen=True, slots=True)
class MultiSet(Operation[None]):
    """Give keys their values, all at one moment; `pairs` is key, value, key, value, ..."""

    pairs: Sequence[bytes]

    @property
    def keys(self) -> Sequence[bytes]:
        return self.pairs[::2]

    SPEC = _spec("multi_set", (PAIRS,), (Query.MULTI_SET, NOTHING), (Extension.MULTI_SET, NOTHING), writes=True)

    def under(self, prefix: bytes) -> Self:
        pairs = [*self.pairs]
        pairs[::2] = [prefix + key for key in pairs[::2]]
        return type(self)(pairs)

    MEANING = staticmethod(Contents.multi_set)


@dataclass(frozen=True, slots=True)
class Append(Operation[None]):
    """Put a value at the end of a key's value."""

    key: bytes
    value: bytes
    SPEC = _spec("append", (KEY, VALUE), (Query.APPEND, NOTHING), (Extension.APPEND, NOTHING), writes=True)

    MEANING = staticmethod(Contents.append)


@dataclass(frozen=True, slots=True)
class Add(Operation[int]):
    """Add to the decimal number that a key holds; returns the sum."""

    key: bytes
    amount: int
    SPEC = _spec("add", (KEY, INTEGER), (Query.ADD, NUMBER), (Extension.ADD, NUMBER), writes=True)

    MEANING = staticmethod(Contents.add)

    def guarded(self) -> Sequence[bytes]:
        return () if self.amount in (0, 1) else (self.key,)  # a worker counts itself in, or reads the count


@dataclass(frozen=True, slots=True)
class CompareSet(Operation[bytes]):
    """Set a key if it has the expected value; returns its value afterwards."""

    key: bytes
    expected: bytes
    desired: bytes
    SPEC = _spec(
        "compare_set", (KEY, VALUE, VALUE), (Query.COMPARE_SET, BLOB), (Extension.COMPARE_SET, BLOB), writes=True
    )

    MEANING = staticmethod(Contents.compare_set)

    def changes(self, contents: Contents) -> bool:
        return contents.values.get(self.key, b"") == self.expected


@dataclass(frozen=True, slots=True)
class DeleteKey(Operation[bool]):
    """Delete a key's value; returns whether it had one."""

    key: bytes
    SPEC = _spec("delete_key", (KEY,), (Query.DELETE_KEY, NUMBER), (Extension.DELETE, FLAG), writes=True)

    MEANING = staticmethod(Contents.delete)

    def changes(self, contents: Contents) -> bool:
        return self.key in contents.values


@dataclass(frozen=True, slots=True)
class Take(Operation[bytes | None]):
    """Delete a key's value; returns the value, or None if it had none."""

    key: bytes
    SPEC = _spec("take", (KEY,), None, (Extension.TAKE, OPTIONAL_BLOB), writes=True)

    MEANING = staticmethod(Contents.take)

    def changes(self, contents: Contents) -> bool:
        return self.key in contents.values


@dataclass(frozen=True, slots=True)
class Check(OfKeys[bool]):
    """Whether all keys are present now."""

    SPEC = _spec("check", (KEYS,), (Query.CHECK, READY), (Extension.CHECK, FLAG))

    MEANING = staticmethod(Contents.all_present)


@dataclass(frozen=True, slots=True)
class NumKeys(Operation[int]):
    """The number of keys that have a value."""

    SPEC = _spec("num_keys", (), (Query.GETNUMKEYS, NUMBER), (Extension.NUM_KEYS, NUMBER))

    MEANING = staticmethod(Contents.count)


@dataclass(frozen=True, slots=True)
class ListKeys(Operation[list[bytes]]):
    """The keys that have a value and begin with `prefix`, in no order."""

    prefix: bytes = b""
    SPEC = _spec(
        "list_keys", (KEY,), (Query.LIST_KEYS, COUNTED_BLOBS), (Extension.LIST_KEYS, COUNTED_BLOBS), torch_body=()
    )

    MEANING = staticmethod(Contents.keys)

    def above(self, result: Any, prefix: bytes) -> Any:
        return [key.removeprefix(prefix) for key in result]


@dataclass(frozen=True, slots=True)
class QueuePush(Operation[int]):
    """Put a value at the end of a queue; returns the queue's length with it."""

    key: bytes
    value: bytes
    SPEC = _spec("queue_push", (KEY, VALUE), (Query.QUEUE_PUSH, NOTHING), (Extension.QUEUE_PUSH, NUMBER), writes=True)

    MEANING = staticmethod(Contents.push)


@dataclass(frozen=True, slots=True)
class QueueLen(Operation[int]):
    """The number of values in a queue."""

    key: bytes
    SPEC = _spec("queue_len", (KEY,), (Query.QUEUE_LEN, NUMBER), (Extension.QUEUE_LEN, NUMBER))

    MEANING = staticmethod(Contents.length)


# Operations that block.


@dataclass(frozen=True, slots=True)
class Get(OfKeys[list[bytes]]):
    """The values that all keys have at one moment. torch's client sends WAIT, and then GET or MULTI_GET."""

    SPEC = _spec("get", (KEYS,), (Query.MULTI_GET, BLOBS), (Extension.GET, BLOBS), blocks=True)
    reads = True

    def apply(self, contents: Contents) -> list[bytes]:
        values = contents.values
        return [values[key] for key in self.names]


@dataclass(frozen=True, slots=True)
class Wait(OfKeys[bool]):
    """True when all keys are present together."""

    SPEC = _spec("wait", (KEYS,), (Query.WAIT, NOTHING), (Extension.WAIT, NOTHING), blocks=True)

    def apply(self, contents: Contents) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class QueuePop(Operation[bytes | None]):
    """Take the first value of a queue; None if the queue is empty. torch's client sends WAIT before."""

    key: bytes
    SPEC = _spec(
        "queue_pop", (KEY,), (Query.QUEUE_POP, POPPED), (Extension.QUEUE_POP, POPPED), writes=True, blocks=True
    )
    takes = True

    MEANING = staticmethod(Contents.pop)


@dataclass(frozen=True, slots=True)
class Barrier(Operation[bool]):
    """True when `world_size` callers have arrived. An earlier arrival with the same `token` is withdrawn."""

    key: bytes
    world_size: int
    token: bytes = b""
    SPEC = _spec(
        "barrier",
        (KEY, INTEGER, VALUE),
        (Query.BARRIER, NOTHING),
        (Extension.BARRIER, NOTHING),
        torch_body=(KEY, INTEGER),
        writes=True,
        blocks=True,
    )

    def apply(self, contents: Contents) -> bool:
        raise NotImplementedError("a barrier waits for callers, not for keys: see contents/barriers")


OPERATIONS: tuple[type[Operation[Any]], ...] = (
    Set, MultiSet, Append, Add, CompareSet, DeleteKey, Take, Check, NumKeys, ListKeys, QueuePush, QueueLen,
    Get, Wait, QueuePop, Barrier,
)  # fmt: skip

# The requests about a connection, not about the contents.
OTHER_BODIES: dict[int, tuple[Field, ...]] = {
    Query.VALIDATE:    (WORD,),
    Query.PING:        (WORD,),
    Query.CANCEL_WAIT: (),
    Query.GET:         (KEY,),  # the second half of a get by torch's client, after its WAIT
    Extension.HELLO:   (WORD,),
    Extension.PROVE:   (VALUE, VALUE),
    Extension.WATCH:   (KEY,),
    Extension.UNWATCH: (KEY,),
    Extension.ROOM:    (KEY, VALUE),  # a run id, and a request of `rendezvous/rooms/messages`
}  # fmt: skip

# The requests of each operation, in both protocols.
REQUESTS: dict[int, tuple[type[Operation[Any]], Request]] = {
    int(request.number): (operation, request)
    for operation in OPERATIONS
    for request in (operation.SPEC.torch, operation.SPEC.ours)
    if request is not None
}
BODIES = OTHER_BODIES | {number: request.body for number, (_, request) in REQUESTS.items()}

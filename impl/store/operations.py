"""The operations of a store, each written once: its request, its bytes in both protocols, and its effect.

Theory of operation. An operation is a value: a call with checked arguments, keys and values as bytes. Its `SPEC` says
how it is called, how each protocol asks for it, and how the result travels. `apply` is its meaning: its effect on the
contents of a store, in one step. The rest follows from these two:

- the public method (`base`) checks the arguments and makes the value;
- `PrefixStore` and `TCPStore` put their prefix before its keys (`under`);
- `HashStore` applies it under a lock; `FileStore` appends it to the file, and each process applies it;
- the client encodes it by its `SPEC`, and decodes the result (`client/calls`, `client/torch_calls`);
- the server's handler of a plain operation is compiled from `SPEC` and the method of `Contents` that `apply` calls, and
  makes no value (`server/fast_path`); handlers of those that block are written out (`server/promises`,
  `server/extended`).

An operation that blocks waits for its keys, in the sense of `reads` and `takes`, and is applied at the moment when they
are there. A barrier waits for callers and not for keys: it has a table of its own (`contents/barriers`), and is not
applied.

Three things can go wrong. `apply` refuses (`Refused`): then nothing has changed. The wait is over before the keys are
there: the result is None, and nothing has changed. The connection breaks: if `SPEC.writes` the outcome is unknown.

A new operation also needs: a query number in `model/store/vocabulary`, a method of `Contents`, a public method in
`base`, a place in `OPERATIONS`; if it writes, its record in `file/records` and `file/replica`; if it blocks, a handler
in `server/extended`; for the tests, its meaning in `model/store/reference` and its arguments in
`harness/stores/operations`; and its row in docs/store-semantics.md.

Nothing here knows of a socket, a lock or a clock. Values are made by any thread, and never change.

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
    """How a result travels. Our server sends a status byte before it."""

    NOTHING = enum.auto()
    READY = enum.auto()  # u8: 0 for yes, 1 for no
    FLAG = enum.auto()  # u8: 0 for no, 1 for yes
    NUMBER = enum.auto()  # i64
    BLOB = enum.auto()
    OPTIONAL_BLOB = enum.auto()  # u8 whether there is one, then the blob (empty if not)
    BLOBS = enum.auto()  # as many as keys were named
    COUNTED_BLOBS = enum.auto()  # i64 count, then the blobs
    POPPED = enum.auto()  # i64 length of the queue before, then the blob if there was one


KEY, VALUE, INTEGER, WORD, KEYS, PAIRS = Field


@dataclass(frozen=True, slots=True)
class Request:
    """How one protocol asks for an operation: the number of the request, its body, and the form of the reply."""

    number: Query | Extension
    body: tuple[Field, ...]
    result: Result


@dataclass(frozen=True, slots=True)
class Spec:
    """The specification of an operation.

    Args:
        name: of the public method, for the texts of errors.
        body: the fields of the value, in their order.
        torch: the request of torch's protocol; None if it has none.
        ours: the request of the extensions. If the operation blocks its body begins with the milliseconds to wait.
        writes: after a lost connection the operation may have happened.
        blocks: the caller waits until it can be done.
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
    """A specification of which the bodies of both requests follow from the body, as nearly always."""
    plain = None if torch is None else Request(torch[0], body if torch_body is None else torch_body, torch[1])
    extended = Request(ours[0], (INTEGER, *body) if blocks else body, ours[1])
    return Spec(name, body, plain, extended, writes, blocks)


class Operation(Generic[T_co]):
    """A call with its arguments; a subclass is a dataclass whose fields are those of `SPEC.body`, in that order."""

    __slots__ = ()
    SPEC: ClassVar[Spec]
    reads: ClassVar[bool] = False  # it waits for values, which a queue is not
    takes: ClassVar[bool] = False  # it waits for an element of the queue of its only key

    MEANING: ClassVar[Callable[..., Any]]  # the method of `Contents` that does it; else `apply` is written out

    def apply(self, contents: Contents) -> T_co:
        """Do it, in one step, and return the result. Raises `Refused`, and has then changed nothing."""
        result: T_co = getattr(contents, self.MEANING.__name__)(*self.fields)
        return result

    def changes(self, contents: Contents) -> bool:
        """Whether `apply` may change anything now; if not it need not be recorded."""
        return self.SPEC.writes

    @property
    def fields(self) -> list[Any]:
        """The arguments, in the order of `SPEC.body`."""
        names: Sequence[str] = type(self).__slots__
        return [getattr(self, name) for name in names]

    @property
    def keys(self) -> Sequence[bytes]:
        """The keys that it names; they are the first field, if there are any."""
        return tuple(self.fields[:1])  # the operations of several keys have a property of their own

    def guarded(self) -> Sequence[bytes]:
        """The keys that it changes, none of which may be the counter of the workers."""
        return self.keys if self.SPEC.writes and not self.SPEC.blocks else ()

    def under(self, prefix: bytes) -> Self:
        """The same operation on the keys that begin with `prefix`."""
        if not self.SPEC.body:
            return self
        first, *rest = self.fields
        kind: Any = type(self)  # the operations of several keys have a method of their own
        return kind(prefix + first, *rest)  # type: ignore[no-any-return]

    def above(self, result: T, prefix: bytes) -> T:
        """The result of `under(prefix)`, as it is without the prefix."""
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
    SPEC = _spec("set", (KEY, VALUE), (Query.SET, Result.NOTHING), (Extension.SET, Result.NOTHING), writes=True)

    MEANING = staticmethod(Contents.set)


@dataclass(frozen=True, slots=True)
class MultiSet(Operation[None]):
    """Give keys their values, all at one moment; `pairs` is key, value, key, value, ..."""

    pairs: Sequence[bytes]

    @property
    def keys(self) -> Sequence[bytes]:
        return self.pairs[::2]

    SPEC = _spec(
        "multi_set", (PAIRS,), (Query.MULTI_SET, Result.NOTHING), (Extension.MULTI_SET, Result.NOTHING), writes=True
    )

    @property
    def fields(self) -> list[Any]:
        return [self.pairs]

    def under(self, prefix: bytes) -> Self:
        pairs = [*self.pairs]
        pairs[::2] = [prefix + key for key in pairs[::2]]
        return type(self)(pairs)

    MEANING = staticmethod(Contents.multi_set)

    def changes(self, contents: Contents) -> bool:
        return bool(self.pairs)


@dataclass(frozen=True, slots=True)
class Append(Operation[None]):
    """Put a value at the end of what a key holds."""

    key: bytes
    value: bytes
    SPEC = _spec(
        "append", (KEY, VALUE), (Query.APPEND, Result.NOTHING), (Extension.APPEND, Result.NOTHING), writes=True
    )

    MEANING = staticmethod(Contents.append)


@dataclass(frozen=True, slots=True)
class Add(Operation[int]):
    """Add to the decimal number that a key holds; the sum."""

    key: bytes
    amount: int
    SPEC = _spec("add", (KEY, INTEGER), (Query.ADD, Result.NUMBER), (Extension.ADD, Result.NUMBER), writes=True)

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
        "compare_set",
        (KEY, VALUE, VALUE),
        (Query.COMPARE_SET, Result.BLOB),
        (Extension.COMPARE_SET, Result.BLOB),
        writes=True,
    )

    MEANING = staticmethod(Contents.compare_set)

    def changes(self, contents: Contents) -> bool:
        return contents.values.get(self.key, b"") == self.expected


@dataclass(frozen=True, slots=True)
class DeleteKey(Operation[bool]):
    """Take a key's value away; whether it had one."""

    key: bytes
    SPEC = _spec("delete_key", (KEY,), (Query.DELETE_KEY, Result.NUMBER), (Extension.DELETE, Result.FLAG), writes=True)

    MEANING = staticmethod(Contents.delete)

    def changes(self, contents: Contents) -> bool:
        return self.key in contents.values


@dataclass(frozen=True, slots=True)
class Take(Operation[bytes | None]):
    """Take a key's value away; the value, None if it had none."""

    key: bytes
    SPEC = _spec("take", (KEY,), None, (Extension.TAKE, Result.OPTIONAL_BLOB), writes=True)

    MEANING = staticmethod(Contents.take)

    def changes(self, contents: Contents) -> bool:
        return self.key in contents.values


@dataclass(frozen=True, slots=True)
class Check(OfKeys[bool]):
    """Whether all keys are present now."""

    SPEC = _spec("check", (KEYS,), (Query.CHECK, Result.READY), (Extension.CHECK, Result.FLAG))

    MEANING = staticmethod(Contents.all_present)


@dataclass(frozen=True, slots=True)
class NumKeys(Operation[int]):
    """How many keys have a value."""

    SPEC = _spec("num_keys", (), (Query.GETNUMKEYS, Result.NUMBER), (Extension.NUM_KEYS, Result.NUMBER))

    MEANING = staticmethod(Contents.count)


@dataclass(frozen=True, slots=True)
class ListKeys(Operation[list[bytes]]):
    """The keys that have a value and begin with `prefix`, in no order."""

    prefix: bytes = b""
    SPEC = _spec(
        "list_keys",
        (KEY,),
        (Query.LIST_KEYS, Result.COUNTED_BLOBS),
        (Extension.LIST_KEYS, Result.COUNTED_BLOBS),
        torch_body=(),
    )

    MEANING = staticmethod(Contents.keys)

    def above(self, result: Any, prefix: bytes) -> Any:
        return [key.removeprefix(prefix) for key in result]


@dataclass(frozen=True, slots=True)
class QueuePush(Operation[int]):
    """Put a value at the end of a queue; the queue's length with it."""

    key: bytes
    value: bytes
    SPEC = _spec(
        "queue_push",
        (KEY, VALUE),
        (Query.QUEUE_PUSH, Result.NOTHING),
        (Extension.QUEUE_PUSH, Result.NUMBER),
        writes=True,
    )

    MEANING = staticmethod(Contents.push)


@dataclass(frozen=True, slots=True)
class QueueLen(Operation[int]):
    """How many values a queue holds."""

    key: bytes
    SPEC = _spec("queue_len", (KEY,), (Query.QUEUE_LEN, Result.NUMBER), (Extension.QUEUE_LEN, Result.NUMBER))

    MEANING = staticmethod(Contents.length)


# Operations that block.


@dataclass(frozen=True, slots=True)
class Get(OfKeys[list[bytes]]):
    """The values that all keys have at one moment. torch's client asks with WAIT, and then with GET or MULTI_GET."""

    SPEC = _spec("get", (KEYS,), (Query.MULTI_GET, Result.BLOBS), (Extension.GET, Result.BLOBS), blocks=True)
    reads = True

    def apply(self, contents: Contents) -> list[bytes]:
        values = contents.values
        return [values[key] for key in self.names]


@dataclass(frozen=True, slots=True)
class Wait(OfKeys[bool]):
    """True when all keys are present together."""

    SPEC = _spec("wait", (KEYS,), (Query.WAIT, Result.NOTHING), (Extension.WAIT, Result.NOTHING), blocks=True)

    def apply(self, contents: Contents) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class QueuePop(Operation[bytes | None]):
    """The first value of a queue, which leaves it; None if it is empty. torch's client asks with WAIT before."""

    key: bytes
    SPEC = _spec(
        "queue_pop",
        (KEY,),
        (Query.QUEUE_POP, Result.POPPED),
        (Extension.QUEUE_POP, Result.POPPED),
        writes=True,
        blocks=True,
    )
    takes = True

    MEANING = staticmethod(Contents.pop)

    def changes(self, contents: Contents) -> bool:
        return self.key in contents.queues


@dataclass(frozen=True, slots=True)
class Barrier(Operation[bool]):
    """True when `world_size` callers have arrived. An earlier arrival with the same `token` is withdrawn."""

    key: bytes
    world_size: int
    token: bytes = b""
    SPEC = _spec(
        "barrier",
        (KEY, INTEGER, VALUE),
        (Query.BARRIER, Result.NOTHING),
        (Extension.BARRIER, Result.NOTHING),
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

# The requests that are about a connection and not about the contents.
OTHER_BODIES: dict[int, tuple[Field, ...]] = {
    Query.VALIDATE:    (WORD,),
    Query.PING:        (WORD,),
    Query.CANCEL_WAIT: (),
    Query.GET:         (KEY,),  # the second half of a get by torch's client, after its WAIT
    Extension.HELLO:   (WORD,),
    Extension.PROVE:   (VALUE, VALUE),
    Extension.WATCH:   (KEY,),
    Extension.UNWATCH: (KEY,),
}  # fmt: skip

BODIES: dict[int, tuple[Field, ...]] = OTHER_BODIES | {
    int(request.number): request.body
    for operation in OPERATIONS
    for request in (operation.SPEC.torch, operation.SPEC.ours)
    if request is not None
}

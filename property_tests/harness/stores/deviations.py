"""The differences between known stores and the reference: each has a name and a reason.

A difference in operations that follow one another is a list of rows, which are tried before the rows of the operation's
table (`trystate.model.store.operations`). Any other difference names a claim of the suite that does not hold. Rule: the
suite fails for a difference that is not listed, and for a listed difference that does not show.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trystate.model.language import Row, row
from trystate.model.store.operations import Add, Count, Delete, Gather, Pop, Read, Several, Write


@dataclass(frozen=True, eq=False)
class Difference:
    """A deviation of a store: a sentence, the rows of a table, and the operations that the store lacks."""

    doc: str
    table: str = ""
    rows: tuple[Row, ...] = ()
    lacks: tuple[str, ...] = ()


class Deviation(enum.Enum):
    """The named differences."""

    # Results of operations, one after the other.
    ADD_WRAPS = Difference(
        "the sum of an add wraps around at 64 bits and becomes negative",
        "add", (row(Add.WRAP, leading=True, in_range=True, fits=False),),
    )  # fmt: skip
    ADD_READS_A_LEADING_NUMBER = Difference(
        "add takes ' 12abc' for 12: std::stoll skips blanks, and ignores what follows the digits",
        "add", (row(Add.SUM, leading=True, whole=False, in_range=True, fits=True),),
    )  # fmt: skip
    ADD_CLOSES_THE_CONNECTION = Difference(
        "add to a value that is not a number raises in the server, which closes the connection",
        "add", (row(Add.CLOSE, present=True, leading=False), row(Add.CLOSE, leading=True, in_range=False)),
    )  # fmt: skip
    ADD_TO_A_LARGE_NUMBER_CLOSES = Difference(
        "add to a number of more than 64 bits closes the connection, and our client cannot find out why",
        "add", (row(Add.CLOSE, leading=True, in_range=False),),
    )  # fmt: skip
    ADD_IS_REFUSED_BY_CLOSING = Difference(
        "the protocol has no error for add: the server refuses by closing the connection",
        "add", (
            row(Add.CLOSE, present=True, whole=False),
            row(Add.CLOSE, present=True, in_range=False),
            row(Add.CLOSE, present=True, fits=False),
        ),
    )  # fmt: skip
    ADD_RESTARTS_AT_AN_EMPTY_VALUE = Difference(
        "add takes the empty value for 0", "add", (row(Add.RESTART, blank=True),)
    )
    ADD_RAISES_INDEX_ERROR = Difference(
        "add to a number of more than 64 bits raises std::out_of_range, in Python IndexError",
        "add", (row(Add.OUT_OF_RANGE, leading=True, in_range=False),),
    )  # fmt: skip
    APPEND_DROPS_THE_SAME_VALUE = Difference(
        "append of exactly the key's value does nothing: Store::append takes it for its own first compare_set",
        "append", (row(Write.SKIP, present=True, same=True),),
    )  # fmt: skip
    GET_OF_A_QUEUE_IS_EMPTY = Difference(
        "get waits for the key, then requests the value: a queue ends the wait, and its missing value is b''",
        "get", (row(Read.BLANKS, ready=True, values=False),),
    )  # fmt: skip
    POP_TAKES_A_VALUE_FOR_AN_ITEM = Difference(
        "a blocking queue_pop waits for the key, which a value satisfies, and then finds the queue empty",
        "queue_pop", (row(Pop.EMPTY, queued=False, blocking=True, present=True),),
    )  # fmt: skip
    DELETE_PRETENDS = Difference(
        "delete_key of a missing key returns True", "delete_key", (row(Delete.PRETEND, present=False),)
    )
    MULTI_SET_IGNORES_SURPLUS = Difference(
        "multi_set never compares the lengths of its lists (and reads out of bounds if there are fewer values)",
        "multi_set", (row(Several.TRUNCATE, matched=False),),
    )  # fmt: skip
    COUNTS_WHAT_LIES_BESIDE = Difference(
        "num_keys counts keys that the user never set: the store's own keys, or keys of other prefixes",
        "num_keys", (row(Count.ALL),),
    )  # fmt: skip
    LISTS_WHAT_LIES_BESIDE = Difference(
        "list_keys lists keys that the user never set, without their first characters",
        "list_keys", (row(Count.ALL),),
    )  # fmt: skip
    BARRIER_COUNTS_IN_THE_KEY = Difference(
        "a barrier is a counter in the key of its name, which is never decreased: a second try after a timeout "
        "counts twice, a used barrier releases every client, and a write of the key releases the waiting clients",
        "barrier", (
            row(Gather.CLOSE, present=True, in_range=False),
            row(Gather.COUNT_AND_RELEASE, enough=True),
            row(Gather.COUNT_AND_TIME_OUT),
        ),
    )  # fmt: skip
    BARRIER_COUNTS_IN_TWO_KEYS = Difference(
        "a barrier is a counter in key/num_members and a key/last_member; neither is ever reset",
        "barrier", (row(Gather.COUNT_ASIDE_AND_RELEASE, enough_aside=True), row(Gather.COUNT_ASIDE_AND_TIME_OUT)),
    )  # fmt: skip
    LACKS_QUEUES = Difference("there are no queues", lacks=("queue_push", "queue_pop", "queue_len"))
    LACKS_TAKE = Difference("take is refused", lacks=("take",))
    LACKS_WATCH_KEY = Difference("watch_key is refused", lacks=("watch_key",))
    LACKS_LIST_KEYS = Difference("list_keys is not implemented", lacks=("list_keys",))
    LACKS_BARRIER = Difference("there is no barrier", lacks=("barrier",))
    UNKNOWN_REQUESTS_CLOSE = Difference("a server that lacks an operation may close the connection that requests it")

    # Time.
    ZERO_WAITS_FOR_EVER = Difference("a timeout of 0 means none")
    ZERO_DOES_NOT_LOOK = Difference("a timeout of 0 expires before the answer can arrive, even if the key is there")
    NEGATIVE_WAITS_FOR_EVER = Difference("a negative timeout means none")
    NEGATIVE_TIMES_OUT = Difference("a negative timeout counts as expired")
    TIMEOUTS_ARE_WHOLE_SECONDS = Difference("timeouts are rounded up to the next whole second, and may take another")
    TIMEOUT_IS_A_RUNTIME_ERROR = Difference("a timeout raises RuntimeError, which a handler of DistStoreError misses")
    CLONE_SHARES_THE_TIMEOUT = Difference("set_timeout on a clone changes the timeout of the original")
    CLONE_FORGETS_THE_TIMEOUT = Difference("a clone begins with the default timeout of five minutes")

    EMPTY_VALUES_ARE_SLOW = Difference("reading an empty value takes 0.2 s; the suite seldom does so")

    # Waking.
    COMPARE_SET_WAKES_NOBODY = Difference("compare_set creates a key and does not wake the clients that wait for it")
    FAILING_COMPARE_SET_WAKES = Difference("a compare_set that stores nothing ends a get of the key, with b''")
    ADD_WAKES_NOBODY = Difference("add wakes no client: a waiting client sleeps until its timeout, then finds the key")
    WAIT_COUNTS_KEYS = Difference("a wait counts the keys that appear, even if they are deleted meanwhile")
    WAIT_FORGETS_QUEUES = Difference("a wait for a queue that is not empty and for a missing key never ends")
    PUSH_WAKES_ONE = Difference("queue_push wakes one waiting client, even if it waits for another key")

    # Many at once.
    ONE_CALL_AT_A_TIME = Difference("a wait in one thread holds up every other thread that uses the same object")
    GET_RACES_WITH_DELETE = Difference(
        "get is two requests: between them a delete makes the value b'', or closes the connection"
    )
    MULTI_SET_IN_PIECES = Difference("multi_set is one set after the other, and other clients see half of it")
    WAIT_HOLDS_AN_ITEM = Difference(
        "a wait for just a queue may be the first half of torch's queue_pop: the server holds the first item back for "
        "that client, until its next request or for a second; the suite makes one"
    )
    POP_RACES_WITH_POP = Difference("a blocking queue_pop is two requests: between them another pop makes it raise")
    WRITES_ARE_NOT_ACKNOWLEDGED = Difference(
        "set, append, multi_set and queue_push return before the server has done them; the suite then requests num_keys"
    )
    LOST_FOR_GOOD = Difference("an object whose connection was closed cannot be used any more; the suite makes another")

    @property
    def doc(self) -> str:
        return self.value.doc


def rows_above(deviations: Iterable[Deviation]) -> Mapping[str, tuple[Row, ...]]:
    """The argument of `reference.apply`: the name of a table -> the rows that are tried before its own rows."""
    above: dict[str, tuple[Row, ...]] = {}
    for one in sorted(deviations, key=lambda d: d.name):
        if one.value.table:
            above[one.value.table] = (*above.get(one.value.table, ()), *one.value.rows)
    return above


def lacking(deviations: Iterable[Deviation]) -> frozenset[str]:
    """The operations that a store does not have."""
    return frozenset(name for one in deviations for name in one.value.lacks)


_READS_WITH_STOLL = frozenset({Deviation.ADD_WRAPS, Deviation.ADD_READS_A_LEADING_NUMBER})
_WIRE_CLIENT = frozenset({
    Deviation.ADD_CLOSES_THE_CONNECTION, Deviation.LOST_FOR_GOOD, Deviation.BARRIER_COUNTS_IN_THE_KEY,
    Deviation.ZERO_DOES_NOT_LOOK, Deviation.NEGATIVE_WAITS_FOR_EVER, Deviation.WAIT_COUNTS_KEYS,
    Deviation.ONE_CALL_AT_A_TIME, Deviation.GET_RACES_WITH_DELETE, Deviation.WRITES_ARE_NOT_ACKNOWLEDGED,
})  # fmt: skip

TORCH_LIBUV = _READS_WITH_STOLL | _WIRE_CLIENT | {
    Deviation.GET_OF_A_QUEUE_IS_EMPTY, Deviation.POP_TAKES_A_VALUE_FOR_AN_ITEM, Deviation.FAILING_COMPARE_SET_WAKES,
    Deviation.WAIT_FORGETS_QUEUES, Deviation.POP_RACES_WITH_POP,
}  # fmt: skip
"""torch.distributed.TCPStore on its own server, libuv (the default)."""

TORCH_LEGACY = (
    _READS_WITH_STOLL
    | _WIRE_CLIENT
    | {Deviation.LACKS_QUEUES, Deviation.COMPARE_SET_WAKES_NOBODY, Deviation.EMPTY_VALUES_ARE_SLOW}
)
"""torch.distributed.TCPStore on its own server, use_libuv=False."""

_IN_PROCESS = _READS_WITH_STOLL | {
    Deviation.ADD_RESTARTS_AT_AN_EMPTY_VALUE, Deviation.ADD_RAISES_INDEX_ERROR, Deviation.MULTI_SET_IGNORES_SURPLUS,
    Deviation.BARRIER_COUNTS_IN_TWO_KEYS, Deviation.ZERO_WAITS_FOR_EVER, Deviation.NEGATIVE_TIMES_OUT,
}  # fmt: skip

TORCH_HASH = _IN_PROCESS | {
    Deviation.POP_TAKES_A_VALUE_FOR_AN_ITEM, Deviation.ADD_WAKES_NOBODY, Deviation.PUSH_WAKES_ONE,
    Deviation.CLONE_SHARES_THE_TIMEOUT,
}  # fmt: skip
"""torch.distributed.HashStore."""

TORCH_FILE = _IN_PROCESS | {
    Deviation.LACKS_QUEUES, Deviation.DELETE_PRETENDS, Deviation.COUNTS_WHAT_LIES_BESIDE,
    Deviation.LISTS_WHAT_LIES_BESIDE, Deviation.TIMEOUTS_ARE_WHOLE_SECONDS, Deviation.TIMEOUT_IS_A_RUNTIME_ERROR,
    Deviation.APPEND_DROPS_THE_SAME_VALUE, Deviation.CLONE_FORGETS_THE_TIMEOUT, Deviation.MULTI_SET_IN_PIECES,
}  # fmt: skip
"""torch.distributed.FileStore."""

_PREFIX = frozenset(
    {Deviation.BARRIER_COUNTS_IN_TWO_KEYS, Deviation.COUNTS_WHAT_LIES_BESIDE, Deviation.LISTS_WHAT_LIES_BESIDE}
)


_THEIR_SERVER = frozenset({
    Deviation.ADD_TO_A_LARGE_NUMBER_CLOSES, Deviation.BARRIER_COUNTS_IN_THE_KEY, Deviation.GET_RACES_WITH_DELETE,
    Deviation.LACKS_TAKE, Deviation.LACKS_WATCH_KEY,
})  # fmt: skip

OURS_ON_LIBUV = _READS_WITH_STOLL | _THEIR_SERVER | {
    Deviation.GET_OF_A_QUEUE_IS_EMPTY, Deviation.WAIT_FORGETS_QUEUES,
}  # fmt: skip
"""trystate.store.TCPStore on torch's server, libuv."""

OURS_ON_LEGACY = _READS_WITH_STOLL | _THEIR_SERVER | {
    Deviation.LACKS_QUEUES, Deviation.COMPARE_SET_WAKES_NOBODY, Deviation.EMPTY_VALUES_ARE_SLOW,
}  # fmt: skip
"""trystate.store.TCPStore on torch's server, use_libuv=False."""

TORCHS_ON_OURS = frozenset({
    Deviation.ADD_IS_REFUSED_BY_CLOSING, Deviation.LOST_FOR_GOOD, Deviation.GET_OF_A_QUEUE_IS_EMPTY,
    Deviation.POP_TAKES_A_VALUE_FOR_AN_ITEM, Deviation.ZERO_DOES_NOT_LOOK, Deviation.NEGATIVE_WAITS_FOR_EVER,
    Deviation.ONE_CALL_AT_A_TIME, Deviation.WRITES_ARE_NOT_ACKNOWLEDGED, Deviation.WAIT_HOLDS_AN_ITEM,
})  # fmt: skip
"""torch.distributed.TCPStore on our server: the deviations of its client and of its protocol."""


def torch_prefix(under: frozenset[Deviation]) -> frozenset[Deviation]:
    """torch.distributed.PrefixStore over a store with these deviations."""
    return (under - {Deviation.BARRIER_COUNTS_IN_THE_KEY}) | _PREFIX

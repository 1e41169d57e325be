"""Hypothesis strategies for the operations of a store: few keys, so they collide, and values that have broken stores.

Rule: the simplest argument comes first in every strategy, since hypothesis shrinks towards it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from trystate.model.store.reference import (
    INT64_MAX,
    INT64_MIN,
    AddTo,
    Append,
    Barrier,
    Check,
    CompareAndSet,
    DeleteKey,
    Get,
    ListKeys,
    MultiGet,
    MultiSet,
    NumKeys,
    Operation,
    QueueLen,
    QueuePop,
    QueuePush,
    Set,
    Take,
    Wait,
)

KEYS = ("a", "b", "a/b", "", "é\0")
VALUES = (
    b"", b"v", b"0", b"7", b"-1", b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808", b" 12abc",
    b"+3", b"007", b"v\0w", b"\xff\x00\x80", "ü".encode(), b"1" * 5000, b"x" * 2000,
)  # fmt: skip
AMOUNTS = (1, 0, -1, 10, INT64_MAX, INT64_MIN)

keys = st.sampled_from(("a", "a", *KEYS))  # one key is frequent, so operations often find what others have left
values = st.one_of(st.sampled_from(VALUES), st.binary(max_size=2))
amounts = st.one_of(st.sampled_from(AMOUNTS), st.integers(INT64_MIN, INT64_MAX))
several_keys = st.lists(keys, max_size=3).map(tuple)


def pairs(surplus: int) -> st.SearchStrategy[tuple[tuple[str, ...], tuple[bytes, ...]]]:
    """Keys, and as many values or up to `surplus` more. Never fewer values: these have crashed processes."""

    def cut(drawn: tuple[list[tuple[str, bytes]], list[bytes]]) -> tuple[tuple[str, ...], tuple[bytes, ...]]:
        both, more = drawn
        return tuple(k for k, _ in both), (*(v for _, v in both), *more)

    return st.tuples(st.lists(st.tuples(keys, values), max_size=3), st.lists(values, max_size=surplus)).map(cut)


# The name of a store's method -> the class of the operation, and the strategies of its arguments.
ARGUMENTS: Mapping[str, tuple[type[Operation], Mapping[str, st.SearchStrategy[Any]]]] = {
    "set": (Set, {"key": keys, "value": values}),
    "get": (Get, {"key": keys}),
    "add": (AddTo, {"key": keys, "amount": amounts}),
    "compare_set": (CompareAndSet, {"key": keys, "expected": values, "desired": values}),
    "append": (Append, {"key": keys, "value": values}),
    "delete_key": (DeleteKey, {"key": keys}),
    "take": (Take, {"key": keys}),
    "multi_set": (MultiSet, {"pairs": pairs(1)}),
    "multi_get": (MultiGet, {"keys": several_keys}),
    "check": (Check, {"keys": several_keys}),
    "wait": (Wait, {"keys": several_keys}),
    "num_keys": (NumKeys, {}),
    "list_keys": (ListKeys, {}),
    "queue_push": (QueuePush, {"key": keys, "value": values}),
    "queue_pop": (QueuePop, {"key": keys, "block": st.booleans()}),
    "queue_len": (QueueLen, {"key": keys}),
    "barrier": (Barrier, {"key": keys, "world_size": st.integers(1, 2)}),
}
BLOCKING = ("get", "multi_get", "wait", "queue_pop", "barrier")  # operations that take a timeout


def operation(name: str, arguments: Mapping[str, Any]) -> Operation:
    """The operation of a rule with this name; `pairs` are the two lists of multi_set."""
    made, _ = ARGUMENTS[name]
    if name == "multi_set":
        return MultiSet(*arguments["pairs"])
    return made(**arguments)

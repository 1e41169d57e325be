"""The names that requests have in a record, and the keys that they name."""

from __future__ import annotations

from typing import Any

from trystate.model.store.vocabulary import Extension, Query

from ..operations import BODIES, KEY, KEYS, OPERATIONS, PAIRS

TIMED = frozenset(int(kind.SPEC.ours.number) for kind in OPERATIONS if kind.SPEC.blocks)  # the time to wait comes first
KINDS: dict[int, str] = {
    int(request.number): kind.SPEC.name.removesuffix("_key")
    for kind in OPERATIONS
    for request in (kind.SPEC.torch, kind.SPEC.ours)
    if request is not None
} | {
    Query.GET: "get",
    Query.MULTI_GET: "multi_get",
    Extension.WATCH: "watch",
    Extension.UNWATCH: "unwatch",
}  # all but those of a handshake, PING and CANCEL_WAIT


def keys_of(operation: int, fields: list[Any]) -> list[bytes]:
    """The keys that a request names, each once."""
    for field, value in zip(BODIES[operation], fields, strict=True):
        if field is KEY:
            return [value]
        if field is KEYS:
            return [*dict.fromkeys(value)]
        if field is PAIRS:
            return [*dict.fromkeys(value[::2])]
    return []

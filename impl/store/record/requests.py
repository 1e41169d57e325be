"""The names of requests in a record, and the keys that a request names."""

from __future__ import annotations

from typing import Any

from trystate.model.store.vocabulary import Extension, Query

from ..operations import BODIES, KEY, KEYS, OPERATIONS, PAIRS, REQUESTS

TIMED = frozenset(int(kind.SPEC.ours.number) for kind in OPERATIONS if kind.SPEC.blocks)  # the time to wait comes first
KINDS: dict[int, str] = {number: kind.SPEC.name.removesuffix("_key") for number, (kind, _) in REQUESTS.items()} | {
    Query.GET: "get",
    Query.MULTI_GET: "multi_get",
    Extension.WATCH: "watch",
    Extension.UNWATCH: "unwatch",
}  # all requests but handshakes, PING and CANCEL_WAIT


def keys_of(operation: int, fields: list[Any]) -> list[bytes]:
    """The keys of a request, each once."""
    for field, value in zip(BODIES[operation], fields, strict=True):
        if field is KEY:
            return [value]
        if field is KEYS:
            return [*dict.fromkeys(value)]
        if field is PAIRS:
            return [*dict.fromkeys(value[::2])]
    return []

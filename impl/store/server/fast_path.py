"""The fast paths: a small request that arrived completely is read directly, not by a frame.

Theory of operation. Two functions are compiled for each request when this module is imported, from its body, the
meaning of its operation and the form of its result in `operations`:

- its *handler*, if the operation does not block. The handler gets the fields, calls the method of the contents, and
  answers. The handlers of all other requests are written by hand (`requests`, `extended`).
- its *fast path*, which reads the fields from the bytes and then does the same as the handler. `Service.take` calls the
  fast path of the first byte of a request when the session is ready. The fast path returns the place of the next
  request. It returns 0 if it has done nothing, because a part of the request is missing or a field exceeds its limit. A
  frame then reads the request: it waits for the missing part, or reports the limit.

The compiled functions have no loops and make no objects. A generic loop over the fields would take a tenth of a round
trip on one machine, and an object for the operation another tenth.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

from trystate.model.store.vocabulary import Extension, Status

from ..contents.contents import Contents, Refused
from ..contents.rooms import FORMAT
from ..operations import BODIES, KEY, KEYS, PAIRS, REQUESTS, VALUE, WORD, Field, Operation, Request, Result
from ..wire import COUNTER_KEY, I64, U32, U64, shown
from . import extended, requests
from .parsing import OUTSIDE, blobs_at, keys_at
from .unread import BULK_BYTES

if TYPE_CHECKING:
    from .service import Service
    from .session import Session

FastPath = Callable[["Service", "Session", bytes, int, int], int]


def guard(contents: Contents, operation: Operation[Any]) -> None:
    """Raise `Refused` if an operation changes a guarded key, except by adding 1 to the workers, or 0 to read them."""
    if COUNTER_KEY in operation.guarded():
        reason = f"{shown(COUNTER_KEY)} counts the workers and may only be changed by adding 1; choose another key"
        raise Refused(Status.REFUSED, reason)
    for key in contents.guarded.intersection(operation.keys) - {COUNTER_KEY}:
        if not operation.changes(contents) or operation.fields[1:] == [FORMAT, FORMAT]:  # a compare_set that reads
            continue
        raise Refused(Status.REFUSED, f"{shown(key)} belongs to a rendezvous that this server applies itself, as a "
                      "room; run one release of trystate on all nodes, or give the job another --rdzv-id")  # fmt: skip


# The code that reads each field from `at`. {n} is the field's number, {field} the name of its variable.
_BLOB = """\
(size{n},) = u64(data, at)
from{n} = at + 8
at = from{n} + size{n}
if at > end or size{n} > limits.{limit}:
    return 0
{field} = data[from{n}:at]
"""
_READ: dict[Field, str] = {
    KEY: _BLOB.replace("{limit}", "key_bytes"),
    VALUE: _BLOB.replace("{limit}", "value_bytes"),
    Field.INTEGER: "({field},) = i64(data, at)\nat += 8\n",
    WORD: "({field},) = u32(data, at)\nat += 4\n",
    KEYS: """\
count, size = two_u64(data, at)
if count == 1:
    begin = at + 16
    at = begin + size
    if at > end or size > limits.key_bytes:
        return 0
    {field} = [data[begin:at]]
else:
    found = keys_at(service.lists, limits, data, at, end)
    if found is None:
        return 0
    at, {field} = found
""",
    PAIRS: """\
found = blobs_at(limits, data, at, end, 2)
if found is None:
    return 0
at, {field} = found
""",
}

# The code that answers with each result. {ok} is the status of an extension, and empty in torch's protocol.
_ANSWER: dict[Result, str] = {
    Result.NOTHING: "session.outgoing.append({ok})",
    Result.FLAG: "session.outgoing.append({ok} + (YES if result else NO))",
    Result.NUMBER: "session.outgoing.append({ok} + pack_i64(result))",
    Result.BLOB: """\
if len(result) < BULK_BYTES:
    session.outgoing.append({ok} + pack_u64(len(result)) + result)
else:
    service.replies.values(session, {ok}, [result])
""",
    Result.OPTIONAL_BLOB: 'service.replies.values(session, {ok} + (NO if result is None else YES), [result or b""])',
    Result.COUNTED_BLOBS: "service.replies.values(session, {ok} + pack_i64(len(result)), result)",
}

_SOURCE = """
def handle(service, session{parameters}):
{meaning}

def fast_path(service, session, data, position, end):
    limits = service.limits
    at = position + 1
    try:
{read}
    except OUTSIDE:
        return 0
{do}
    return at
"""
_REFUSING = """\
try:
{do}
except Refused as refusal:
    service.replies.refuse(session, refusal)
"""
_NAMES = {
    "BULK_BYTES": BULK_BYTES,
    "NO": b"\x00",
    "OK": extended.OK,
    "OUTSIDE": OUTSIDE,
    "Refused": Refused,
    "YES": b"\x01",
    "blobs_at": blobs_at,
    "guard": guard,
    "i64": I64.unpack_from,
    "keys_at": keys_at,
    "pack_i64": I64.pack,
    "pack_u64": U64.pack,
    "two_u64": Struct("<QQ").unpack_from,
    "u32": U32.unpack_from,
    "u64": U64.unpack_from,
}


def _indented(text: str, levels: int = 1) -> str:
    return textwrap.indent(text.rstrip("\n"), levels * "    ")


def _meaning(kind: type[Operation[Any]], request: Request, fields: str) -> str:
    """The lines that do an operation that does not block, and answer."""
    ok = "OK" if request.number in EXTENDED else ""
    lines = []
    if kind.SPEC.writes:
        several = request.body[0] is PAIRS
        named = "not service.guarded.isdisjoint(field0[::2])" if several else "field0 in service.guarded"
        lines += [f"if {named}:", f"    guard(service.contents, kind({fields}))"]
    lines.append(f"result = service.contents.{kind.MEANING.__name__}({fields})")
    if ok or request.result is not Result.NOTHING:
        answer = _ANSWER[request.result]
        lines.append(answer.replace("{ok} + ", "OK + " if ok else "").replace("{ok}", ok or 'b""'))
    return "\n".join(lines)


def compiled(number: int, kind: type[Operation[Any]] | None, request: Request | None) -> tuple[Any, FastPath]:
    """The handler and the fast path of a request: of an operation that does not block, or of a handler in WRITTEN."""
    body = BODIES[number]
    fields = ", ".join(f"field{n}" for n in range(len(body)))
    parameters = f", {fields}" if fields else ""
    if kind is not None and request is not None:
        meaning = do = _meaning(kind, request, fields)
    else:
        meaning, do = "pass", f"written(service, session{parameters})"
    if number in EXTENDED:
        do = _REFUSING.format(do=_indented(do))
    read = "".join(_READ[field].format(n=n, field=f"field{n}") for n, field in enumerate(body))
    source = _SOURCE.format(
        parameters=parameters, meaning=_indented(meaning), read=_indented(read or "pass", 2), do=_indented(do)
    )
    names: dict[str, Any] = {**_NAMES, "kind": kind, "written": WRITTEN.get(number)}
    exec(compile(source, f"<request {number}>", "exec"), names)
    return names["written"] or names["handle"], names["fast_path"]


def by_frame(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    """The path of a request that has no fast path: it does nothing, so a frame reads the request."""
    return 0


EXTENDED = frozenset(map(int, Extension))
WRITTEN = requests.HANDLERS | extended.HANDLERS
_MEANINGS = {n: (kind, asked) for n, (kind, asked) in REQUESTS.items() if not kind.SPEC.blocks and n not in WRITTEN}
_COMPILED = {number: compiled(number, *_MEANINGS.get(number, (None, None))) for number in BODIES}

HANDLERS: dict[int, Callable[..., None]] = {number: handle for number, (handle, _) in _COMPILED.items()}
# A path for each possible first byte: a test whether one exists would take longer.
FAST_PATHS: dict[int, FastPath] = dict.fromkeys(range(256), by_frame)
FAST_PATHS |= {number: fast_path for number, (_, fast_path) in _COMPILED.items()}

"""Fast paths for the most common operations of a job, on an idle connection to our server that answers at once.

Most methods are compiled from the specification of their operation (`_fast_path`), once, when this module is imported.
`get` has a timeout and `check` takes a list, so these two are written by hand.

Rule: each method is only a shorter path to the method of the same name in `Store`. It calls that method for any unusual
case before anything is sent: no idle connection, a wrong or large argument, torch's server. If a case turns out unusual
later, the connection and the client finish it as usual.

On one machine a round trip of torch's client and server takes hardly longer than one write and one read in Python, so
every Python call counts here. This makes three system calls; a socket with a timeout makes four. The kernel's own
timeout (SO_RCVTIMEO) would save one more, but it starts again at each signal, so a frozen server could hold a caller
forever. This uses no clock, no generator and no lock, and reads the store's timeout only if the operation needs it.
"""

from __future__ import annotations

import inspect
import os
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum
from time import monotonic
from typing import Any, Final, Literal, TypeVar

from torch.distributed import Store as TorchStore  # type: ignore[attr-defined]

from trystate.model.store.vocabulary import Extension, Query

from ..base import Store
from ..errors import ConnectionLost
from ..group_ranks import BELOW_PREFIXES
from ..operations import Add, Append, Check, CompareSet, DeleteKey, Field, Get, Operation, QueueLen, QueuePush, Set
from ..wire import I64, U64
from . import codec
from .calls import ExtendedCalls, answer_seconds, server_ms
from .client import IDLE_CONNECTIONS_MAX, LOOK_SECONDS, CallText, Client, Kind
from .codec import Reply
from .connection import FIRST_POLL_MS, SMALL_REQUEST_BYTES, Connection
from .torch_calls import TorchCalls

T = TypeVar("T")

REPLY_BYTES = 4096  # the size of the first read; to allocate a larger buffer takes longer

_CHECK = bytes([Query.CHECK]) + U64.pack(1)  # `ExtendedCalls.do` gives the reason for torch's request
_GET = struct.Struct("<BqQ")

_VALUE = codec.in_time(codec.a_blob)

_pack_name_size = struct.Struct("<QB").pack  # a key's size, and the "/" before it
_pack_size, _pack_number = U64.pack, I64.pack
_timeout: Callable[[TorchStore], timedelta] = TorchStore.timeout.fget  # type: ignore[attr-defined]
_write, _read = os.write, os.read

_WRONG = (AttributeError, TypeError, UnicodeEncodeError, struct.error)  # raised here by a wrong argument


class _Unsent(Enum):
    UNSENT = "nothing was sent"


UNSENT: Final = _Unsent.UNSENT
_NO_CONNECTIONS: deque[Connection] = deque()


class FastPaths(Store):
    """The fast paths. A subclass calls `_use_fast_paths` after it has connected to its server."""

    _client: Client
    _calls: ExtendedCalls | TorchCalls
    _idle = _NO_CONNECTIONS  # without a connection there is no fast path
    _kept = False  # the server's store is kept across its restarts
    _request_bytes_max = 0  # the largest request that is within every limit and is sent at once
    _get_head: tuple[timedelta | None, bytes] = None, b""  # a timeout and the first bytes of a request with it

    def _use_fast_paths(self) -> None:
        terms = self._client.terms
        if self._client.kind is Kind.EXTENDED and self._client.direct:
            self._idle, self._kept = self._client.idle, terms.kept
            self._request_bytes_max = min(SMALL_REQUEST_BYTES, terms.key_bytes, terms.value_bytes)

    def _timeout_seconds(self, operation: str) -> float:
        """The store's timeout in seconds, last set by C++ or Python."""
        raise NotImplementedError

    def get(self, key: str) -> bytes:
        timeout = _timeout(self)
        known, head = self._get_head
        if timeout != known:
            head = _GET.pack(Extension.GET, server_ms(self._timeout_seconds("get")), 1)
            self._get_head = timeout, head
        began = monotonic() if self._kept else 0.0
        try:
            value = self._ask("get", head, key, b"", codec.decode_blob, _VALUE)
        except ConnectionLost:  # a server whose store is kept is waited for, in the rest of the time
            if not self._client.comes_back(deadline := began + self._timeout_seconds("get")):
                raise
            values = self._await(Get([key.encode()]), max(deadline - monotonic(), 0.001))
            value = values[0] if values is not None else None
        if value is None:
            raise self._late("get", [key.encode()], self._timeout_seconds("get"))
        return super().get(key) if value is UNSENT else value

    def check(self, keys: Sequence[str]) -> bool:
        if type(keys) is not list or len(keys) != 1:
            return super().check(keys)
        ready = self._ask("check", _CHECK, keys[0], b"", codec.decode_ready, codec.ready)
        return super().check(keys) if ready is UNSENT else ready

    def _ask(
        self,
        operation: str,
        head: bytes,
        key: str,
        tail: bytes,
        decode: Callable[[bytes], T | None],
        reply: Callable[[], Reply[T]],
    ) -> T | Literal[_Unsent.UNSENT]:
        """Send `head`, a key and `tail`, and return the reply. `decode` may decode a small reply directly."""
        try:
            name = key.encode()
            request = head + _pack_name_size(len(name) + 1, 0x2F) + name + tail
            if len(request) > self._request_bytes_max:
                return UNSENT
            connection = self._idle.pop()
        except (*_WRONG, IndexError):
            return UNSENT
        client, data, result = self._client, None, None
        if self._kept and connection.stale:
            client.give(connection)
            return UNSENT  # the method of `Store` connects again
        began = monotonic() if self._kept else 0.0
        try:
            sent = _write(connection.fd, request)
            if sent < len(request):  # a socket with hardly a buffer
                connection.send(request[sent:], self._within() or LOOK_SECONDS)
            if connection.answered(FIRST_POLL_MS):
                data = _read(connection.fd, REPLY_BYTES)
                result = decode(data)
            if not (usual := result is not None):
                seconds = self._within()
                within = answer_seconds(seconds) if operation == "get" else seconds or LOOK_SECONDS
                result = connection.finish(data, reply, within if data else within - FIRST_POLL_MS / 1000)
        except BaseException as error:
            call = CallText(operation, (b"/" + name,), self._within(), operation not in _READS)
            raised = client.after(connection, call, error)
            if self._kept and operation in _AGAIN and isinstance(raised, ConnectionLost):
                # A server whose store is kept was restarted: the read is sent again, in the rest of the time.
                deadline = began + (self._within() or LOOK_SECONDS)
                if client.comes_back(deadline):
                    return self._calls.do(_AGAIN[operation](b"/" + name), max(deadline - monotonic(), 0.001))
            raise raised from None
        if not usual:
            client.give(connection)
            return result
        # After the `try`: from here on another thread may use the connection. An exception (Ctrl-C) must not close it.
        client.idle.append(connection)
        if client.closed or client.wanting or len(client.idle) > IDLE_CONNECTIONS_MAX:
            client.tidy()
        return result

    def _within(self) -> float:
        """The store's timeout in seconds. A negative one (C++ may set it) counts as 0: the request is sent already."""
        return min(max(_timeout(self).total_seconds(), 0.0), threading.TIMEOUT_MAX)


# The fast paths that follow from a specification: a key, then values or a number, and a reply with a direct decoder.
COMPILED: tuple[type[Operation[Any]], ...] = (Set, Append, Add, CompareSet, DeleteKey, QueuePush, QueueLen)

_SOURCE = """
def {name}({arguments}):
    try:
        {values}
        tail = {tail}
        if {unusual}:
            return Store.{name}({arguments})
    except WRONG:
        return Store.{name}({arguments})
    result = self._ask({name!r}, HEAD, {key}, tail, DECODE, REPLY)
    return Store.{name}({arguments}) if result is UNSENT else {returned}
"""
_VALUE_SOURCE = "{value} = {value} if type({value}) is bytes else {value}.encode()"
_TAILS = {Field.VALUE: "pack_size(len({value})) + {value}", Field.INTEGER: "pack_number({value})"}


def _fast_path(kind: type[Operation[Any]]) -> Callable[..., Any]:
    """The public method of an operation, compiled from its specification."""
    spec = kind.SPEC
    name, public = spec.name, getattr(Store, spec.name)
    arguments = [*inspect.signature(public).parameters]
    fields = [*zip(arguments[2:], spec.body[1:], strict=True)]
    text = [_VALUE_SOURCE.format(value=value) for value, field in fields if field is Field.VALUE]
    source = _SOURCE.format(
        name=name,
        arguments=", ".join(arguments),
        key=arguments[1],
        values="\n        ".join(text) or "pass",
        tail=" + ".join(_TAILS[field].format(value=value) for value, field in fields) or 'b""',
        unusual=f"{BELOW_PREFIXES!r} in {arguments[1]}" if kind is Set else "False",
        returned="None" if inspect.signature(public).return_annotation == "None" else "result",
    )
    known = {
        "HEAD": bytes((spec.ours.number,)),
        "DECODE": codec.DECODERS[spec.ours.result],
        "REPLY": codec.GRANTED[spec.ours.result],
        "Store": Store,
        "UNSENT": UNSENT,
        "WRONG": _WRONG,
        "pack_number": _pack_number,
        "pack_size": _pack_size,
    }
    exec(compile(source, f"<the fast path of {name}>", "exec"), known)
    method: Callable[..., Any] = known[name]  # type: ignore[assignment]
    method.__doc__, method.__qualname__ = public.__doc__, f"{FastPaths.__name__}.{name}"
    return method


for _kind in COMPILED:
    setattr(FastPaths, _kind.SPEC.name, _fast_path(_kind))
_AGAIN: dict[str, Callable[[bytes], Operation[Any]]] = {"check": lambda name: Check([name]), "queue_len": QueueLen}
_READS = frozenset({"check", "get", *(kind.SPEC.name for kind in COMPILED if not kind.SPEC.writes)})

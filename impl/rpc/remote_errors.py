"""Exceptions on the wire: the caller raises them again, with their original type if possible, and with their origin.

Rule: no code of an exception runs: its type is looked up among the loaded classes, and its arguments are not sent.
"""

from __future__ import annotations

import functools
import json
import sys
import traceback
from typing import Any

from .errors import RpcError

TEXT_MAX = 1 << 14  # characters of an exception's text
TRACE_MAX = 1 << 16  # characters of its traceback, from the end
WORKERS_MAX = 64


class RemoteError(RpcError):
    """An exception of a function on another worker. If possible, it also has the type that was raised there.

    `workers` are the names of the workers that it came through, beginning with the worker that raised it. `original` is
    the qualified name of its type there, and `remote_traceback` is the traceback that was printed there.
    """

    workers: tuple[str, ...] = ()
    original: str = ""
    remote_traceback: str = ""
    said: str = ""  # its text where it was raised
    text: str = ""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
        self.text = text

    def __str__(self) -> str:  # the original type's may use fields that were never set
        return self.text

    def __reduce__(self) -> tuple[Any, ...]:  # its class may be made by `_class`, which pickle cannot find
        return made, (self.original, self.said, self.remote_traceback, self.workers)


def encoded(error: BaseException, worker: str) -> bytes:
    """An exception of this worker as bytes."""
    trace = "".join(traceback.format_exception(error))
    kind = type(error)
    original, text = f"{kind.__module__}:{kind.__qualname__}", text_of(error)
    workers: tuple[str, ...] = (worker,)
    if isinstance(error, RemoteError):
        original, workers = error.original, (*error.workers, worker)
        text = error.said
    said = {
        "original": original, "text": text[:TEXT_MAX], "traceback": trace[-TRACE_MAX:],
        "workers": workers[-WORKERS_MAX:],
    }  # fmt: skip
    return json.dumps(said).encode()


def text_of(error: BaseException) -> str:
    """The text of an exception, even if its `str()` raises."""
    try:
        return str(error)
    except Exception as fault:
        return f"(its text cannot be had: {type(fault).__name__})"


def decoded(data: bytes, worker: str) -> RemoteError:
    """The exception to raise here for an answer of `worker`."""
    try:
        said = json.loads(data)
        workers = tuple(str(name) for name in said["workers"])
        return made(str(said["original"]), str(said["text"]), str(said["traceback"]), workers)
    except Exception:  # the caller must get an error in any case
        return made("", "the error that it answered cannot be read", "", (worker,))


def made(original: str, text: str, trace: str, workers: tuple[str, ...]) -> RemoteError:
    """The exception, of its original type if that can be constructed from a text and filled in."""
    try:
        return _filled(_class(original), original, text, trace, workers)
    except Exception:  # the type has another constructor, or read-only attributes
        return _filled(RemoteError, original, text, trace, workers)


def _filled(kind: type[RemoteError], original: str, text: str, trace: str, workers: tuple[str, ...]) -> RemoteError:
    said = f"{original.rpartition(':')[2]}: {text}"
    error = kind(f"on worker {workers[0]!r}: {said}\n\nOriginal exception on remote side was:\n{trace}")
    error.original, error.remote_traceback, error.workers, error.said = original, trace, workers, text
    return error


def fresh(error: BaseException) -> BaseException:
    """A copy of the error, to be raised again: a stored error must not keep the frames that it was raised in."""
    if isinstance(error, RemoteError):
        return made(error.original, error.said, error.remote_traceback, error.workers)
    return type(error)(*error.args) if isinstance(error, RpcError) else error


@functools.lru_cache(maxsize=1024)
def _class(original: str) -> type[RemoteError]:
    """RemoteError, combined with the original type if this process has it and Python can combine the two."""
    home, _, path = original.partition(":")
    found: object = sys.modules.get(home)
    for step in path.split("."):
        found = getattr(found, "__dict__", {}).get(step)  # a module's own `__getattr__` would run code
    if not isinstance(found, type) or not issubclass(found, Exception) or issubclass(RemoteError, found):
        return RemoteError
    try:
        return type(f"Remote{found.__name__}", (RemoteError, found), {"__module__": __name__})
    except TypeError:  # their memory layouts conflict
        return RemoteError

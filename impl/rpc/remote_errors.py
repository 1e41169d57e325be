"""Exceptions on the wire: raised again at the caller, of their own type where that is possible, with their origin.

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
TRACE_MAX = 1 << 16  # of its traceback: the end of it
WORKERS_MAX = 64


class RemoteError(RpcError):
    """A function raised on another worker; where that can be, it is of the type that was raised there as well.

    `workers`: the names of those it came through, the one where it was raised last; `original`: the qualified name of
    its type there; `remote_traceback`: as it was printed there.
    """

    workers: tuple[str, ...] = ()
    original: str = ""
    remote_traceback: str = ""
    said: str = ""  # its text there
    text: str = ""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
        self.text = text

    def __str__(self) -> str:  # not that of the original type, which may show fields that were never set
        return self.text

    def __reduce__(self) -> tuple[Any, ...]:  # the class may be one that was made for it
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
    """The text of an exception, also of one whose `str()` raises."""
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
    except Exception:  # of any kind: the caller gets an error in any case
        return made("", "it answered with an error that cannot be read", "", (worker,))


def made(original: str, text: str, trace: str, workers: tuple[str, ...]) -> RemoteError:
    """The exception, of its own type if that lets itself be made and filled in like this."""
    try:
        return _filled(_class(original), original, text, trace, workers)
    except Exception:  # its constructor or its attributes are of its own making
        return _filled(RemoteError, original, text, trace, workers)


def _filled(kind: type[RemoteError], original: str, text: str, trace: str, workers: tuple[str, ...]) -> RemoteError:
    said = f"{original.rpartition(':')[2]}: {text}"
    error = kind(f"on worker {workers[0]!r}: {said}\n\nOriginal exception on remote side was:\n{trace}")
    error.original, error.remote_traceback, error.workers, error.said = original, trace, workers, text
    return error


def fresh(error: BaseException) -> BaseException:
    """The same error, to be raised once more: one that is kept must not also keep the frames that it was raised in."""
    if isinstance(error, RemoteError):
        return made(error.original, error.said, error.remote_traceback, error.workers)
    return type(error)(*error.args) if isinstance(error, RpcError) else error


@functools.lru_cache(maxsize=1024)
def _class(original: str) -> type[RemoteError]:
    """RemoteError, and the original type too if this process has it and the two go together."""
    home, _, path = original.partition(":")
    found: object = sys.modules.get(home)
    for step in path.split("."):
        found = getattr(found, step, None)
    if not isinstance(found, type) or not issubclass(found, Exception) or issubclass(RemoteError, found):
        return RemoteError
    try:
        return type(f"Remote{found.__name__}", (RemoteError, found), {"__module__": __name__})
    except TypeError:  # their memory has not one layout
        return RemoteError

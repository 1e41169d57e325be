"""The events of this process's agents, as lines of JSON in the file that TRYSTATE_RECORD names.

Theory of operation. `begin` is called by `trystate run`, and by torch for every torchrun that can import this package
(`plugin`), whatever its backend: so torch's own agents are recorded by a variable alone. It puts a handler into torch's
table of handlers, for the events of the rendezvous and of the agent, unless the table has another handler there. Our
own rendezvous calls `tell`. A line is one write to the end of the file, so the agents of a machine may share it. A
thread writes: an agent never waits for a disk. Lines that cannot be written in time are counted, and nothing more is
written beyond FILE_BYTES_MAX.

Each line has `wall` and `monotonic` (seconds, on this host's clocks), `host`, `pid`, `source`, `run`, `event`, and

    source "torch.rendezvous"   `node` (as torch names it; null before it has a name), `state`, `message`, `rank`,
                                `endpoint`, `error`
    source "torch.agent"        `metadata`, as torch's event has it: role, ranks, restarts, errors
    source "trystate"           `node`, and the fields of our own log line: life, round, version, writer, digest ...

torch inspects the whole stack for each event of its rendezvous, which takes some 40 ms, but only if a handler listens.

Rule: a failure here never reaches the job. Only torch's table and its loggers are changed, and nothing is read.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from trystate.model.errors import UsageError

from ..store.server.log import Log

VARIABLE = "TRYSTATE_RECORD"
FILE_BYTES_MAX = 64 << 20  # an event has some 500 bytes, and a round a few events a node
OURS = "trystate.rendezvous:"  # our rendezvous's events for torch's handlers; its own lines have more fields

_log: Log | None = None


def begin(path: str | None = None) -> bool:
    """Record from now on in this process if the variable or `path` names a file; returns whether it does.

    Raises UsageError if the file cannot be written.
    """
    global _log
    path = path or os.environ.get(VARIABLE)
    if not path or _log is not None:
        return _log is not None
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"{VARIABLE}={path}: {error.strerror}; name a file that can be written") from error
    _log = Log(_writer(fd), str)
    atexit.register(_log.close)
    with contextlib.suppress(ImportError, AttributeError):  # a torch without these tables
        _listen()
    return True


def recording() -> bool:
    """Whether events are recorded in this process."""
    return _log is not None


def tell(fields: dict[str, Any]) -> None:
    """Record a line of our own rendezvous's log."""
    known = ("run_id", "monotonic_s", "wall_s")
    more = {name: value for name, value in fields.items() if name not in known}
    _say("trystate", fields["run_id"], **more)


def _say(source: str, run: str, **fields: Any) -> None:
    if _log is not None:
        line = {
            "wall": round(time.time(), 6), "monotonic": round(time.monotonic(), 6), "host": socket.gethostname(),
            "pid": os.getpid(), "source": source, "run": run,
        }  # fmt: skip
        _log(json.dumps(line | fields))


def _writer(fd: int) -> Callable[[str], object]:
    """A function that appends a line; it is called in a thread, and may raise."""

    def write(line: str) -> None:
        if os.fstat(fd).st_size >= FILE_BYTES_MAX or not line.startswith("{"):  # a sentence of the log itself
            return
        data = line.encode() + b"\n"
        if (written := os.write(fd, data)) < len(data):  # a full disk takes a part of a line, which is taken back
            os.ftruncate(fd, os.lseek(fd, 0, os.SEEK_CUR) - written)

    return write


class _Handler(logging.Handler):
    """The handler of torch's events; each event is the message of a logging record."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):  # another torch may have other events
            told = json.loads(record.getMessage())
            if "node_state" in told:
                self._rendezvous(told)
            else:
                metadata = told.get("metadata", {})
                _say("torch.agent", metadata.get("run_id", ""), event=told["name"], metadata=metadata)

    def _rendezvous(self, told: dict[str, Any]) -> None:
        if not told["name"].startswith(OURS):
            local = told["local_id"]
            node = None if local is None else f"{told['hostname']}_{told['pid']}_{local}"
            _say(
                "torch.rendezvous", told["run_id"], event=told["name"], node=node, state=told["node_state"],
                message=told["message"], rank=told["rank"], endpoint=told["master_endpoint"],
                error=told["error_trace"],
            )  # fmt: skip


def _listen() -> None:
    """Put the handler into torch's table, unless it already has another one."""
    from torch.distributed.elastic import events
    from torch.distributed.elastic.events import handlers

    table: dict[str, logging.Handler] = handlers._log_handlers
    for destination in ("dynamic_rendezvous", "null"):
        if type(table.get(destination)) is logging.NullHandler:
            table[destination] = _Handler()
            logger = events._get_or_create_logger(destination)
            if not any(isinstance(each, _Handler) for each in logger.handlers):
                logger.addHandler(table[destination])  # torch had made it before
            logger.setLevel(logging.INFO)  # LOGLEVEL is about what is shown to people

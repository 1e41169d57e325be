"""A record of the passes at one worker: each event of the observer as a line of JSON, for `trystate explain`.

Theory of operation. A `Recorder` is an observer. It is called under the lock of the protocol, so it only makes a line
and writes it to the operating system. A crash of the worker cuts off one line at most. A line has no tensor and no
value. Nodes of the graph are numbers, which are given out when their pass counts them and forgotten when it is over.

| `op` | fields in addition to `t` (s since the epoch), `context` and `pass` |
| --- | --- |
| `header` | `format`, `by` ("autograd"), `worker`, `host`, `pid` |
| `state` | `state`: of the model's vocabulary `Part` |
| `counted` | `nodes`: [number, name, dependencies] of each |
| `ran` | `nodes`: numbers |
| `told` | `message` (its kind), `sends`, `to`, `answers`: whether an answer carries it |
| `heard` | `message`, `sends`, `peer` |
| `answered` | `message`, `sends`, `peer`, `outcome`: DONE, FAILED or LOST, `change` of sends without a gradient |
| `full` | no fields: the record has reached its limit, and nothing more is written |

Failures, which do not disturb a pass:

- *The file cannot be written.* This is printed once, and nothing more is recorded.
- *The file grows to `bytes_max`.* The record ends with `full`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, time
from typing import Any, TextIO

from trystate.model.autograd.vocabulary import Part
from trystate.model.errors import UsageError

from . import messages
from .messages import Backward, Cancel, Clean, Done, Kept, Mark
from .observer import Event

VARIABLE = "TRYSTATE_AUTOGRAD_RECORD"  # a folder: each worker writes worker-N.jsonl there
FORMAT = 1
BYTES_MAX = 1 << 28  # about a million events
OVER = (Part.DONE, Part.CANCELLED)
KINDS: dict[type, str] = {Backward: "BACKWARD", Mark: "MARK", Cancel: "CANCEL", Clean: "CLEAN", Kept: "KEPT"}


class Recorder:
    """An observer that writes a record.

    Args:
        worker: the number of this worker.
        bytes_max: the largest size of the record in bytes.

    Raises:
        UsageError: the file cannot be written.
    """

    def __init__(self, path: str | Path, worker: int, bytes_max: int = BYTES_MAX) -> None:
        try:
            self._file: TextIO | None = open(path, "w", encoding="utf-8", buffering=1)  # noqa: SIM115  # `close` does
        except OSError as error:
            raise UsageError(f"the record {path} cannot be written: {error.strerror}; name another file") from None
        self._left, self._start = bytes_max, time() - monotonic()
        self._numbers: dict[int, dict[Any, int]] = {}  # the numbers of nodes, by pass
        host, pid = socket.gethostname(), os.getpid()
        self._write({"op": "header", "t": time(), "format": FORMAT, "by": "autograd", "worker": worker,
                     "host": host, "pid": pid})  # fmt: skip

    def __call__(self, event: Event) -> None:
        """Write the line of an event."""
        said = {"op": event.kind, "t": self._start + event.time, "context": event.context, "pass": event.number}
        self._write(said | dict(self._fields(event)))
        if event.number is not None and event.detail.get("state") in OVER:
            self._numbers.pop(event.number, None)

    def close(self) -> None:
        """End the record."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _fields(self, event: Event) -> Iterator[tuple[str, Any]]:
        detail = event.detail
        match event.kind:
            case "state":
                yield "state", detail["state"].name
            case "counted":
                numbers = self._numbers.setdefault(event.number or 0, {})
                counts = detail["counts"].items()
                yield "nodes", [[numbers.setdefault(n, len(numbers)), _name(n), count] for n, count in counts]
            case "ran":
                numbers = self._numbers.get(event.number or 0, {})
                yield "nodes", [numbers.get(node, -1) for node in detail["nodes"]]
            case _:
                yield from _message(detail["message"])
                yield from ((name, detail[name]) for name in ("to", "answers", "peer") if name in detail)
                if event.kind == "answered":
                    yield from _outcome(detail["message"], detail["outcome"])

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        text = json.dumps(line, separators=(",", ":")) + "\n"
        self._left -= len(text)
        full = self._left < 0
        try:
            self._file.write('{"op":"full"}\n' if full else text)
        except OSError as error:
            print(f"trystate: the record of passes ends here: {error.strerror}", file=sys.stderr)
            full = True
        if full:
            self.close()


def _name(node: Any) -> str:
    return str(node.name()).removeprefix("torch::autograd::").removesuffix("Backward")


def _message(message: Any) -> Iterator[tuple[str, Any]]:
    yield "message", KINDS[type(message)]
    if isinstance(message, Backward | Mark):
        yield "sends", list(message.sends)


def _outcome(message: Any, outcome: bytes | BaseException) -> Iterator[tuple[str, Any]]:
    if isinstance(outcome, BaseException):
        yield "outcome", "LOST"
        return
    done = messages.unpack_outcome(outcome) if isinstance(message, Backward | Mark) else Done()
    yield "outcome", "DONE" if isinstance(done, Done) else "FAILED"
    if isinstance(done, Done):
        yield "change", done.change

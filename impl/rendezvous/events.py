"""The log of a node, in lines that a program can follow: one JSON object each, and torch's events.

Rule: a line identifies its state (life, round, version), so the lines of all nodes can be put into one order and
checked against the model.
"""

from __future__ import annotations

import json
import logging
import os
import time
import traceback
from typing import Any

from torch.distributed.elastic.events import record_rdzv_event
from torch.distributed.elastic.events.api import NodeState, RdzvEvent
from torch.distributed.elastic.events.handlers import get_logging_handler

from . import event_file, waiting
from .decisions import EVENTS
from .document_part import summary
from .engine import Standing, Write
from .rooms.messages import Summary
from .spans import Spans
from .state import Node

log = logging.getLogger("trystate.rendezvous")
STATES = {
    "joined": NodeState.RUNNING,
    "closed": NodeState.SUCCEEDED,
    "unused": NodeState.SUCCEEDED,
    "drained": NodeState.SUCCEEDED,
    "failed": NodeState.FAILED,
}


def log_to_stderr() -> None:
    """Send the logs of agent and rendezvous to stderr; LOGLEVEL sets the lowest level, as for torch's own loggers.

    Without LOGLEVEL the sentences of `waiting` are sent as well, which are at INFO. A program with its own handlers
    gets the records there.
    """
    package = logging.getLogger("trystate")
    package.setLevel(os.environ.get("LOGLEVEL", "WARNING"))
    waiting.log.setLevel(os.environ.get("LOGLEVEL", "INFO"))
    if not package.hasHandlers():
        said = logging.StreamHandler()
        said.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        package.addHandler(said)


class Recorder:
    """The events of one node; nothing is computed unless a log or a handler listens."""

    def __init__(self, run_id: str, node: Node) -> None:
        self._run_id, self._node = run_id, node
        self._spans = Spans(run_id, str(node))

    def told(self, write: Write, won: bool) -> None:
        """Log a write of this node and, if it was won, its decisions."""
        listened = log.isEnabledFor(logging.DEBUG) or event_file.recording()
        decisions = write.decisions if won else ()
        if not (listened or decisions):
            return
        seen = summary(write.state, self._node.token)
        if listened:
            self._line(logging.DEBUG, "won" if won else "lost", seen, action=write.action.name)
        for decision in decisions:
            self.said(decision.event, seen, **decision.details)

    def standing(self, standing: Standing, seen: Summary | None) -> None:
        """Log the standing of this node's round, with the cause where another node is the cause."""
        closed = seen.closed if seen is not None else None
        if standing is Standing.CLOSED and closed is not None:
            cause = str(closed)
        else:
            cause = seen.cause if standing is Standing.REPLACED and seen is not None else standing.value
        self.said("standing", seen, standing=standing.name, cause=cause)

    def said(self, event: str, seen: Summary | None = None, *, rank: int | None = None, **more: Any) -> None:
        """Log one of the EVENTS, at INFO: each happens at most once per round."""
        assert event in EVENTS
        about = {} if seen is None else {"round": seen.round, "version": seen.version}
        self._spans.said(event, about | ({} if rank is None else {"rank": rank}) | more)
        if log.isEnabledFor(logging.INFO) or event_file.recording():
            self._line(logging.INFO, event, seen, **({} if rank is None else {"rank": rank}), **more)
        # torch's `construct_and_record_rdzv_event` inspects the whole stack for its caller's file; this call does not.
        if not isinstance(get_logging_handler("dynamic_rendezvous"), logging.NullHandler):
            self._record(event, about, seen, rank, more)

    def failed(self, error: Exception, seen: Summary | None) -> None:
        """Log the error that the caller receives."""
        self.said("failed", seen, error=f"{type(error).__name__}: {error}")

    def _line(self, level: int, event: str, seen: Summary | None, **more: Any) -> None:
        fields: dict[str, Any] = {
            "event": event, "run_id": self._run_id, "node": str(self._node), "token": self._node.token,
            "monotonic_s": time.monotonic(), "wall_s": time.time(),
        }  # fmt: skip
        if seen is not None:
            fields |= {"life": seen.life, "round": seen.round, "version": seen.version}
        if event_file.recording():
            event_file.tell(fields | more)
        if log.isEnabledFor(level):
            log.log(level, "%s", json.dumps(fields | more))

    def _record(
        self, event: str, about: dict[str, Any], seen: Summary | None, rank: int | None, more: dict[str, Any]
    ) -> None:
        node_state = STATES.get(event, NodeState.INIT)
        master = seen.master if seen is not None else None
        record_rdzv_event(
            RdzvEvent(
                name=f"trystate.rendezvous:{event}",
                run_id=self._run_id,
                message=f"{event} {json.dumps(about | more)}",
                hostname=self._node.address,
                pid=self._node.pid,
                node_state=node_state,
                master_endpoint=str(master) if master is not None else "",
                rank=rank,
                local_id=self._node.local_id,
                error_trace=traceback.format_exc() if node_state is NodeState.FAILED else "",
            )
        )

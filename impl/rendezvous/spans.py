"""The rounds of a node as spans of OpenTelemetry, if its API is installed; else nothing.

Theory of operation. A node has one span at a time: `trystate.join`, from its call until it is a member of a complete
round or has failed, and then `trystate.round`, until it looks for the next one or has ended. The lines that
the node logs meanwhile (`decisions.EVENTS`) are the events of the span. The program chooses the provider: without one
the API drops the spans.

Rule: a failure here never reaches the job.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

try:
    from opentelemetry import trace
except ImportError:  # the extra `otel`
    trace = None  # type: ignore[assignment]

JOIN, ROUND = "trystate.join", "trystate.round"
BEGINS = {"joining": JOIN, "joined": ROUND}
ENDS = ("broken", "failed", "drained", "left", "closed", "unused")
PLAIN = (str, bool, int, float)


class Spans:
    """The spans of one node. The heartbeat thread and the joining thread both add events."""

    def __init__(self, run_id: str, node: str) -> None:
        self._attributes = {"trystate.run_id": run_id, "trystate.node": node}
        self._lock = threading.Lock()
        self._span: Any = None

    def said(self, event: str, fields: Mapping[str, Any]) -> None:
        """Add an event of the node, with its fields."""
        if trace is None:
            return
        with contextlib.suppress(Exception), self._lock:
            about = {f"trystate.{name}": _plain(value) for name, value in fields.items()}
            if event in BEGINS:
                self._end()
                tracer = trace.get_tracer("trystate")
                self._span = tracer.start_span(BEGINS[event], attributes=self._attributes | about)
            elif self._span is not None:
                self._span.add_event(event, about)
                if event == "failed":
                    self._span.set_status(trace.Status(trace.StatusCode.ERROR, str(about.get("trystate.error", ""))))
                if event in ENDS:
                    self._end()

    def _end(self) -> None:
        if self._span is not None:
            self._span.end()
            self._span = None


def _plain(value: Any) -> Any:
    return value if isinstance(value, PLAIN) else str(value)

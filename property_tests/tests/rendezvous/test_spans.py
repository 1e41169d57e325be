"""A node's rounds are OpenTelemetry spans with its events; a missing or broken API does no harm."""

from __future__ import annotations

from typing import Any

import pytest

from trystate.impl.rendezvous import spans
from trystate.impl.rendezvous.events import Recorder
from trystate.impl.rendezvous.spans import JOIN, ROUND
from trystate.impl.rendezvous.state import Node

NODE = Node("host", 7, 0, "token")


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The finished spans, in memory."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    return exporter.get_finished_spans


def test_a_join_and_a_round_are_spans_with_the_events_of_the_node(ended: Any) -> None:
    recorder = Recorder("job", NODE)
    recorder.said("joining")
    recorder.said("waiting", cause="the round is complete")
    recorder.said("joined", rank=1, world_size=2)
    recorder.said("expelled", nodes=["a", "b"])
    recorder.said("left")
    recorder.said("closed")  # another node does it later
    join, round_ = ended()
    assert (join.name, round_.name) == (JOIN, ROUND)
    assert [event.name for event in join.events] == ["waiting"]
    assert [event.name for event in round_.events] == ["expelled", "left"]
    assert join.attributes == {"trystate.run_id": "job", "trystate.node": str(NODE)}
    assert round_.attributes["trystate.world_size"] == 2
    assert round_.attributes["trystate.rank"] == 1
    assert round_.events[0].attributes["trystate.nodes"] == "['a', 'b']"


def test_a_join_that_fails_is_an_error(ended: Any) -> None:
    recorder = Recorder("job", NODE)
    recorder.said("joining")
    recorder.failed(TimeoutError("no store"), None)
    (join,) = ended()
    assert not join.status.is_ok
    assert join.status.description == "TimeoutError: no store"


class Broken:
    """An API that raises."""

    def get_tracer(self, name: str) -> Any:
        raise RuntimeError(name)


@pytest.mark.parametrize("api", [None, Broken()])
def test_without_the_api_or_with_a_broken_one_nothing_happens(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "trace", api)
    recorder = Recorder("job", NODE)
    for event in ("joining", "joined", "left"):
        recorder.said(event)

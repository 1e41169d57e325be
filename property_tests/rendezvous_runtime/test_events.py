"""What a node says of itself: lines that a program can follow, and torch's own events."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from torch.distributed.elastic.events import handlers as torch_handlers
from trystate.impl.rendezvous.events import Recorder
from trystate.impl.store import HashStore

from .nodes import handler, handlers, participant, state, together


def lines(caplog: Any) -> list[dict[str, Any]]:
    texts = [record.getMessage() for record in caplog.records if record.name == "trystate.rendezvous"]
    return [json.loads(text) for text in texts if text.startswith("{")]


def test_every_write_is_a_line_about_a_state_that_all_nodes_name_alike(caplog: Any) -> None:
    with caplog.at_level(logging.DEBUG, "trystate.rendezvous"), HashStore() as store, handlers(2, store, 2, 2) as found:
        together([h.next_rendezvous for h in found])
        said = lines(caplog)
    won = [one for one in said if one["event"] == "won"]
    assert [one["version"] for one in won] == sorted({one["version"] for one in won})
    assert {one["action"] for one in won} >= {"ADD_TO_PARTICIPANTS"}
    joined = [one for one in said if one["event"] == "joined"]
    assert sorted(one["rank"] for one in joined) == [0, 1]
    assert len({one["digest"] for one in joined}) == 1
    for one in said:
        assert {"event", "run_id", "node", "token", "monotonic_s", "wall_s"} <= set(one)


def test_a_failure_is_said_with_its_reason(caplog: Any) -> None:
    level = caplog.at_level(logging.INFO, "trystate.rendezvous")
    with level, HashStore() as store, handler(store, 2, 2, join_timeout=0.2) as alone:
        together([alone.next_rendezvous])
    assert [one["event"] for one in lines(caplog)] == ["joining", "failed"]
    assert "RendezvousTimeoutError" in lines(caplog)[-1]["error"]


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def test_torchs_consumers_get_torchs_events(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.elastic import events

    kept = Kept()
    monkeypatch.setitem(torch_handlers._log_handlers, "dynamic_rendezvous", kept)
    monkeypatch.setattr(events, "_events_loggers", {})
    logger = logging.getLogger("torchelastic-events-dynamic_rendezvous")
    before = list(logger.handlers)
    try:
        Recorder("job", participant().node).said("joined", state(round=3, version=17), rank=1)
    finally:
        logger.handlers[:] = before
    (event,) = [json.loads(text) for text in kept.texts]
    assert (event["run_id"], event["rank"], event["node_state"]) == ("job", 1, "RUNNING")
    assert '"round": 3' in event["message"] and '"version": 17' in event["message"]


def test_without_a_listener_nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    logging.getLogger("trystate.rendezvous").setLevel(logging.WARNING)
    monkeypatch.setattr("trystate.impl.rendezvous.events.encode", lambda state: pytest.fail("a digest was computed"))
    try:
        Recorder("job", participant().node).said("joined", state())
    finally:
        logging.getLogger("trystate.rendezvous").setLevel(logging.NOTSET)

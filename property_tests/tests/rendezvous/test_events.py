"""A node's log: lines that a program can follow, torch's own events, and the spans of OpenTelemetry."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr
from torch._C._distributed_c10d import HashStore as TorchHashStore
from torch.distributed.elastic.events import handlers as torch_handlers
from torch.distributed.elastic.events.api import RdzvEvent
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

from trystate.impl.rendezvous import event_file, spans
from trystate.impl.rendezvous.bootstrap import Meeting
from trystate.impl.rendezvous.decisions import EVENTS
from trystate.impl.rendezvous.engine import Standing, Write
from trystate.impl.rendezvous.errors import RendezvousDrained
from trystate.impl.rendezvous.events import Recorder
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.outsider import Outsider
from trystate.impl.rendezvous.plugin import creator
from trystate.impl.rendezvous.spans import JOIN, ROUND
from trystate.impl.rendezvous.state import Node, State
from trystate.model.errors import UsageError
from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.jobs import be
from trystate.property_tests.adapters.our_rendezvous.parts import settings
from trystate.property_tests.support.rendezvous.nodes import (
    Meanwhile,
    agreed,
    handler,
    handlers,
    together,
    until,
)
from trystate.store import HashStore


def lines(caplog: Any) -> list[dict[str, Any]]:
    texts = [record.getMessage() for record in caplog.records if record.name == "trystate.rendezvous"]
    return [json.loads(text) for text in texts if text.startswith("{")]


def test_every_write_is_a_line_about_a_state_that_all_nodes_name_alike(caplog: Any) -> None:
    with caplog.at_level(logging.DEBUG, "trystate.rendezvous"), HashStore() as store, handlers(2, store, 2, 2) as found:
        together([h.next_rendezvous for h in found])
        said = lines(caplog)
    # The lines are sorted by version, because two threads may log in another order.
    won = sorted((one for one in said if one["event"] == "won"), key=lambda one: int(one["version"]))
    assert [one["version"] for one in won] == sorted({one["version"] for one in won})
    assert {one["action"] for one in won} >= {"ADD_TO_PARTICIPANTS"}
    joined = [one for one in said if one["event"] == "joined"]
    assert sorted(one["rank"] for one in joined) == [0, 1]
    assert len({(one["life"], one["round"]) for one in joined}) == 1
    for one in said:
        assert {"event", "run_id", "node", "token", "monotonic_s", "wall_s"} <= set(one)


# ---- each decision is logged once, with its node and its reason


def told(caplog: Any, event: str) -> list[dict[str, Any]]:
    return [one for one in lines(caplog) if one["event"] == event]


def node_of(made: DynamicRendezvousHandler) -> str:
    return str(made._part.core.me.node)


@pytest.fixture
def heard(caplog: Any) -> Any:
    caplog.set_level(logging.INFO, "trystate.rendezvous")
    return caplog


def test_a_failure_and_the_end_of_its_round_have_their_reasons(heard: Any) -> None:
    with HashStore() as store, handlers(2, store, 2, 2, max_restarts=3) as (a, b):
        together([a.next_rendezvous, b.next_rendezvous])
        again = Meanwhile(lambda: a.next_rendezvous(failed=True))
        until(lambda: b.standing() is Standing.REPLACED)
        together([b.next_rendezvous])
        again.join()
        why = f"{node_of(a)}: its workers failed"
        (replaced,), (spent,), (standing,) = (told(heard, event) for event in ("replaced", "spent", "standing"))
        assert (replaced["node"], replaced["replaced_round"], replaced["cause"]) == (node_of(a), 0, why)
        assert (spent["node"], spent["restart"], spent["of"], spent["cause"]) == (node_of(a), 1, 3, why)
        assert (standing["node"], standing["standing"], standing["cause"]) == (node_of(b), "REPLACED", why)
        assert [(one["round"], one["cause"]) for one in told(heard, "joined")] == [(0, "")] * 2 + [(1, why)] * 2


def test_a_sync_of_torch_names_the_nodes_that_it_has_removed(caplog: Any) -> None:
    """torch logs their names after the next write; it removes them when it reads the state."""
    caplog.set_level(logging.DEBUG, dr.__name__)
    settings = dr.RendezvousSettings("job", 1, 2, dr.RendezvousTimeout(), timedelta(seconds=5), 3)
    holder = dr._BackendRendezvousStateHolder(C10dRendezvousBackend(TorchHashStore(), "job"), settings)
    silent, other = (dr._NodeDesc(name, 1, 0) for name in ("silent", "other"))
    now = datetime.now(UTC)
    for node, beat in ((silent, now - timedelta(hours=1)), (other, now)):
        holder.state.participants[node], holder.state.last_heartbeats[node] = 0, beat
    for _ in range(2):
        holder.mark_dirty()
        assert holder.sync() is True
        assert [*holder.state.participants] == [other]
    (said,) = [record.getMessage() for record in caplog.records if "sync operation" in record.getMessage()]
    assert "silent_1_0" in said and "other" not in said and "had no heartbeat" in said


def test_a_drained_node_says_so_and_the_others_name_the_operator(heard: Any) -> None:
    with HashStore() as store, handlers(2, store, 1, 2, max_restarts=0) as (a, b):
        together([a.next_rendezvous, b.next_rendezvous])
        with Outsider(store, "job") as operator:
            node, marked = operator.drain(str(b._part.core.me.node))
            assert marked
            assert not operator.drain(str(node))[1], "the mark is written once"
            until(lambda: Standing.REPLACED is a.standing() is b.standing())
            (drained, again) = together([b.next_rendezvous, a.next_rendezvous])
            assert isinstance(drained, RendezvousDrained)
            assert str(node) in str(drained)
            agreed([again], 1)
            (said,) = told(heard, "drained")
            (left,) = told(heard, "left")
            assert said["node"] == left["node"] == node_of(b)
            assert left["member"] is False, "no restart is spent, of which the job has none"
            cause = f"{operator._engine.me.node}: an operator drains {node}"
            assert {one["cause"] for one in told(heard, "standing")} == {cause}
            assert not told(heard, "spent")
            assert not told(heard, "failed")


def test_a_spare_says_that_it_is_one_and_in_the_end_that_it_was_not_needed(heard: Any) -> None:
    with HashStore() as store, handlers(2, store, 1, 1, max_restarts=0) as (a, b):
        together([a.next_rendezvous])
        coming = Meanwhile(b.next_rendezvous)
        until(lambda: told(heard, "spare"))
        a.done()
        coming.join()
        (spare,), (done,), (closed,), (unused,) = (told(heard, e) for e in ("spare", "done", "closed", "unused"))
        assert (spare["node"], spare["cause"]) == (node_of(b), "all seats are taken: max_nodes=1")
        assert (done["node"], done["members_done"], done["of"]) == (node_of(a), 1, 1)
        assert (closed["node"], closed["verdict"]) == (node_of(a), "succeeded")
        assert closed["reason"] == "all workers have succeeded"
        assert (unused["node"], unused["cause"]) == (node_of(b), "max_nodes=1, and 1 other nodes were members")
        (warned,) = [r for r in heard.records if r.levelno == logging.WARNING]
        assert "this node was a spare of the job 'job'" in warned.getMessage()
        until(lambda: told(heard, "standing"))
        assert told(heard, "standing")[0]["cause"] == f"closed by {node_of(a)}: all workers have succeeded"


def test_every_event_has_a_meaning_and_an_unknown_one_is_a_mistake() -> None:
    said = Recorder("job", NODE).said
    with pytest.raises(AssertionError):
        said("gone fishing")
    tested = Path(__file__).read_text(encoding="utf-8")
    assert [event for event in EVENTS if f'"{event}"' not in tested] == []


@contextmanager
def kept_events() -> Iterator[list[dict[str, Any]]]:
    """The events that a handler of torch's destination `dynamic_rendezvous` gets while the block runs."""
    from torch.distributed.elastic import events

    kept, found = BufferingHandler(10_000), list[dict[str, Any]]()
    logger = logging.getLogger("torchelastic-events-dynamic_rendezvous")
    before = list(logger.handlers)
    with (
        mock.patch.dict(torch_handlers._log_handlers, {"dynamic_rendezvous": kept}),
        mock.patch.object(events, "_events_loggers", {}),
    ):
        try:
            yield found
        finally:
            logger.handlers[:] = before
            found += [json.loads(record.getMessage()) for record in kept.buffer]


def test_torchs_consumers_get_the_trace_of_a_failure() -> None:
    with kept_events() as found, HashStore() as store, handler(store, 2, 2, join_timeout=0.2) as alone:
        together([alone.next_rendezvous])
    *before, event = found
    assert event["node_state"] == "FAILED" and "RendezvousTimeoutError" in event["message"]
    assert event["error_trace"].startswith("Traceback") and "RendezvousTimeoutError" in event["error_trace"]
    assert before and not any(one["error_trace"] for one in before)


def test_an_event_has_torchs_fields_and_the_address_of_the_master() -> None:
    """torch's `_record` stores the method and the file of its caller, and leaves master_endpoint empty."""
    timeout = dr.RendezvousTimeout(last_call=timedelta(seconds=1))
    with kept_events() as theirs:
        store = TorchHashStore()
        torch_node = dr.DynamicRendezvousHandler.from_backend(
            "job", store, C10dRendezvousBackend(store, "job"), 1, 1, "127.0.0.1", timeout
        )
        torch_node.next_rendezvous()
        torch_node.shutdown()
    with kept_events() as mine, HashStore() as our_store, handler(our_store, 1, 1) as node:
        (info,) = together([node.next_rendezvous])
        master = info.bootstrap_store_info
        assert node.shutdown()
    always = ("run_id", "hostname", "pid", "node_state", "name", "message")
    for event in (*theirs, *mine):
        assert set(event) == {field.name for field in fields(RdzvEvent)}
        assert all(event[name] for name in always), event
    assert {event["name"].split(":")[0] for event in theirs} == {"dynamic_rendezvous.py"}
    assert {event["name"].split(":")[0] for event in mine} == {"trystate.rendezvous"}
    assert {event["master_endpoint"] for event in theirs} == {""}
    said = {event["name"].split(":")[1]: event["master_endpoint"] for event in mine}
    assert said["joining"] == ""
    assert said["joined"] == said["closed"] == f"{master.master_addr}:{master.master_port}"


def test_without_a_listener_nothing_is_computed(caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trystate.impl.rendezvous.events.summary", lambda *_: pytest.fail("a summary was computed"))
    with caplog.at_level(logging.WARNING, "trystate.rendezvous"):
        Recorder("job", NODE).told(Write(State("life", settings())), True)


def test_a_silent_node_is_expelled_by_one_node_which_says_so(heard: Any) -> None:
    with HashStore() as store, handlers(2, store, 1, 2, max_restarts=3) as (a, b):
        together([a.next_rendezvous, b.next_rendezvous])
        b._part.stop()
        until(lambda: a.standing() is Standing.REPLACED)
        (expelled,), (spent,) = told(heard, "expelled"), told(heard, "spent")
        assert (expelled["node"], expelled["nodes"], expelled["silent_seconds"]) == (node_of(a), [node_of(b)], 1.2)
        assert spent["cause"] == f"{node_of(a)} expelled {node_of(b)}: no heartbeat for 1.2 s"


def test_a_waiting_node_causes_the_next_round_and_spends_nothing(heard: Any) -> None:
    with HashStore() as store, handlers(2, store, 1, 2, max_restarts=3) as (a, b):
        together([a.next_rendezvous])
        a.makes_room = True
        coming = Meanwhile(b.next_rendezvous)
        until(lambda: a.standing() is Standing.REPLACED)
        together([a.next_rendezvous])
        coming.join()
        (waiting,), (replaced,) = told(heard, "waiting"), told(heard, "replaced")
        assert (waiting["node"], waiting["cause"]) == (node_of(b), "round 0 is complete, and has a seat left")
        assert (replaced["node"], replaced["cause"]) == (node_of(a), f"{node_of(b)} waited for a seat")
        assert not told(heard, "spent")
        b.leave()
        (left,) = told(heard, "left")
        assert (left["node"], left["member"]) == (node_of(b), True)
        assert told(heard, "replaced")[1]["cause"] == f"{node_of(b)}: it left"


def test_a_round_that_is_over_before_its_members_have_met_is_told(heard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, ends = Meeting.begin, iter([True])

    def over(self: Meeting, *round_: Any) -> Any:
        info = begin(self, *round_)
        return None if next(ends, False) else info

    monkeypatch.setattr(Meeting, "begin", over)
    with HashStore() as store, handler(store, 1, 1) as alone:
        agreed(together([alone.next_rendezvous]), 1)
    assert [one["standing"] for one in told(heard, "broken")] == ["CURRENT"]


# ---- TRYSTATE_RECORD: the events of an agent and of torch, in real processes


@pytest.mark.parametrize(("backend", "source"), [("c10d", "torch.rendezvous"), ("trystate", "trystate")])
def test_the_events_of_an_agent_are_in_the_file_that_a_variable_names(
    backend: str, source: str, tmp_path: Path
) -> None:
    path, script = tmp_path / "events", tmp_path / "work.py"
    script.write_text("print('worked')\n")
    argv = [
        "--nnodes=1", f"--rdzv-backend={backend}", "--rdzv-id=job", "--rdzv-endpoint=127.0.0.1:0",
        "--rdzv-conf=last_call_timeout=1", "--local-addr=127.0.0.1", "--monitor-interval=0.1", str(script),
    ]  # fmt: skip
    variables = {"TRYSTATE_RECORD": str(path), "LOGLEVEL": "ERROR"}
    program = Program(tmp_path / "log", be, "torchrun", argv, variables=variables)
    assert program.ends() == 0, program.said
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["source"] for line in found} == {source, "torch.agent"}
    assert {line["run"] for line in found} == {"job"} and len({line["pid"] for line in found}) == 1
    clocks = [(line["monotonic"], line["wall"]) for line in found]
    assert clocks == sorted(clocks)
    rendezvous = [line for line in found if line["source"] == source]
    assert len({line["node"] for line in rendezvous if line["node"] is not None}) == 1
    if source == "trystate":
        assert [line["round"] for line in rendezvous if line["event"] == "joined"] == [0]
        assert len({line["life"] for line in rendezvous if "version" in line}) == 1
    else:
        assert any("next_rendezvous" in line["event"] for line in rendezvous)
    ended = [line["metadata"]["state"] for line in found if line["source"] == "torch.agent"]
    assert ended[-2:] == ["SUCCEEDED", "SUCCEEDED"]  # the worker and the agent


def test_a_file_that_cannot_be_written_is_said_and_the_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRYSTATE_RECORD", str(tmp_path / "no" / "events"))
    assert callable(creator())
    said = capsys.readouterr().err
    assert "no events are recorded" in said and "name a file that can be written" in said
    with pytest.raises(UsageError, match="TRYSTATE_RECORD="):
        event_file.begin()
    assert not event_file.recording()


def test_a_part_of_a_line_is_taken_back_from_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two agents of a machine may have one file: the line of the other one remains."""
    path = tmp_path / "events"
    fds = [os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for _ in range(2)]
    real = os.write

    def short(fd: int, data: bytes) -> int:
        real(fds[1], b'{"of": "another agent"}\n')
        return real(fd, data[:3])

    monkeypatch.setattr(os, "write", short)
    event_file._writer(fds[0])('{"event": "joined"}')
    assert path.read_text() == '{"of": "another agent"}\n'
    for fd in fds:
        os.close(fd)


# ---- a join and a round are spans; a missing or broken API does no harm

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


@pytest.mark.parametrize("api", [None, mock.Mock(**{"get_tracer.side_effect": RuntimeError})])
def test_without_the_api_or_with_a_broken_one_nothing_happens(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "trace", api)
    recorder = Recorder("job", NODE)
    for event in ("joining", "joined", "left"):
        recorder.said(event)

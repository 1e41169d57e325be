"""TRYSTATE_RECORD: what agents say of themselves, torch's own too, in real processes."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.events.handlers import get_logging_handler

from trystate.impl.rendezvous import event_file
from trystate.impl.rendezvous.plugin import creator
from trystate.model.errors import UsageError
from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.support.rendezvous.jobs import launch


def of_a_job(folder: Path, backend: str, **variables: str) -> tuple[int | None, str]:
    """The exit code and output of a torchrun of one node."""
    script = folder / "work.py"
    script.write_text("print('worked')\n")
    argv = [
        "--nnodes=1", f"--rdzv-backend={backend}", "--rdzv-id=job", "--rdzv-endpoint=127.0.0.1:0",
        "--rdzv-conf=last_call_timeout=1", "--local-addr=127.0.0.1", "--monitor-interval=0.1", str(script),
    ]  # fmt: skip
    program = Program(folder / "log", launch, "torchrun", argv, variables=variables)
    return program.ends(), program.said


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("backend", "source"), [("c10d", "torch.rendezvous"), ("trystate", "trystate")])
def test_the_events_of_an_agent_are_in_the_file_that_a_variable_names(
    backend: str, source: str, tmp_path: Path
) -> None:
    path = tmp_path / "events"
    code, said = of_a_job(tmp_path, backend, TRYSTATE_RECORD=str(path), LOGLEVEL="ERROR")
    assert code == 0, said
    found = lines(path)
    assert {line["source"] for line in found} == {source, "torch.agent"}
    assert {line["run"] for line in found} == {"job"} and len({line["pid"] for line in found}) == 1
    clocks = [(line["monotonic"], line["wall"]) for line in found]
    assert clocks == sorted(clocks)
    rendezvous = [line for line in found if line["source"] == source]
    assert len({line["node"] for line in rendezvous if line["node"] is not None}) == 1
    if source == "trystate":
        assert [line["round"] for line in rendezvous if line["event"] == "joined"] == [0]
        assert all(len(line["digest"]) == 16 for line in rendezvous if "version" in line)
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


def test_without_the_variable_nothing_is_recorded_and_torchs_table_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TRYSTATE_RECORD", raising=False)
    assert callable(creator()) and not event_file.begin() and not event_file.recording()
    assert type(get_logging_handler("dynamic_rendezvous")) is logging.NullHandler

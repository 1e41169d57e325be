"""The events of torch's agents are merged by run and node. A4, A13 and A14 are named, and so are invalid lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trystate.cli import run
from trystate.monitor.agents import LINE_BYTES_MAX, Agents

STORE_LOST = (
    "File api.py, in num_nodes_waiting\nRendezvousConnectionError: The connection to the C10d store has failed."
)


def agent(pid: int, state: str, *, restarts: int = 0, error: str = "", round_: int = 0, failed: int = 0) -> list[Any]:
    """The events of one of two agents of a job, from its first round to its end."""
    base = {"wall": 1.0, "monotonic": 1.0, "host": "h", "pid": pid, "run": "job"}
    said = {"agent_restarts": restarts, "group_rank": pid - 1, "metadata": json.dumps({"group_world_size": 2})}
    own = base | {"source": "torch.agent", "event": "e"}
    lines: list[Any] = [
        base | {"source": "torch.rendezvous", "message": f"The node 'h_{pid}_0' has joined round {round_} of the ..."},
        own | {"metadata": said | {"state": "START", "worker_id": "7"}},
        *[own | {"metadata": said | {"state": "FAILED", "worker_id": "7"}}] * failed,
    ]
    return [*lines, own | {"metadata": said | {"state": state, "worker_id": None, "raw_error": error}}]


def said_by(*lines: dict[str, Any]) -> Agents:
    found = Agents()
    for number, line in enumerate(lines):
        found.feed(f"events:{number}", json.dumps(line).encode() + b"\n")
    return found


def named(*agents: list[Any]) -> list[str]:
    found = said_by(*(line for lines in agents for line in lines))
    assert not found.flaws
    return [wrong.finding.number for run in found.runs.values() for wrong in run.wrong()]


@pytest.mark.parametrize(
    ("agents", "numbers"),
    [
        ((agent(1, "SUCCEEDED", restarts=1), agent(2, "SUCCEEDED", restarts=2)), []),
        ((agent(1, "FAILED", failed=1), agent(2, "FAILED", failed=1)), []),
        ((agent(1, "SUCCEEDED"), agent(2, "FAILED", error="SignalException: 15")), []),  # it got SIGTERM
        ((agent(1, "SUCCEEDED"), agent(2, "FAILED", failed=1, round_=1)), []),  # the failure was in another round
        ((agent(1, "FAILED", error=STORE_LOST), agent(2, "FAILED", error=STORE_LOST)), ["A4"]),
        ((agent(1, "FAILED", error="TimeoutError"), agent(2, "SUCCEEDED")), []),
        ((agent(1, "SUCCEEDED"), agent(2, "SUCCEEDED", failed=1)), ["A13"]),
        ((agent(1, "FAILED", restarts=1, failed=1), agent(2, "FAILED", restarts=1, error="closed")), ["A14"]),
        ((agent(1, "FAILED", restarts=1, failed=1), agent(2, "FAILED", error="closed")), []),
    ],
)  # fmt: skip
def test_a_finding_is_named_where_agents_say_what_shows_it(agents: tuple[list[Any], ...], numbers: list[str]) -> None:
    assert named(*agents) == numbers


@pytest.mark.parametrize(
    "data",
    [b"\n", b"{\n", b"[]\n", b"[" * 10_000 + b"\n", b'{"source": "other"}\n', b"x" * (LINE_BYTES_MAX + 1), b'{"cut'],
)
def test_a_line_that_is_none_is_named_and_the_rest_is_read(data: bytes) -> None:
    found = Agents()
    found.feed("events:1", data)
    for line in agent(1, "SUCCEEDED"):
        found.feed("events:2", json.dumps(line).encode() + b"\n")
    assert found.flaws == ["events:1"]
    assert found.runs["job"].agents["h_1"].ended == "SUCCEEDED"


def joins(pid: int, round_: int, rank: int) -> dict[str, Any]:
    message = (
        f"The node 'h_{pid}_0' has joined round {round_} of the rendezvous 'job' as rank {rank} in a world of size 2."
    )
    return {"host": "h", "pid": pid, "run": "job", "source": "torch.rendezvous", "message": message}


def ends(pid: int, error: str) -> dict[str, Any]:
    said = {"state": "FAILED", "worker_id": None, "raw_error": error}
    return {"host": "h", "pid": pid, "run": "job", "source": "torch.agent", "metadata": said}


NO_MASTER = "Traceback ...\ntorch.distributed.DistStoreError: wait timeout after 5000ms, keys: {}"
KEY = "/torch.rendezvous.job.1/MASTER_ADDR"
NO_ROLE = NO_MASTER.format("/torch.rendezvous.job.1/torchelastic/role_info/0")


def test_the_events_of_agents_name_a_master_that_was_not_published_again() -> None:
    lines = [ends(2, NO_MASTER.format(KEY)), ends(1, NO_ROLE)]
    (run,) = said_by(joins(1, 0, 0), joins(2, 1, 1), joins(1, 1, 0), *lines).runs.values()
    (wrong,) = run.wrong()
    assert (wrong.finding.number, run.unexplained()) == ("R1", [])
    assert wrong.text == (
        "h_2 waited for the master of round 1 without success: torch.distributed.DistStoreError: wait timeout after "
        f"5000ms, keys: {KEY}; "
        "h_1, its rank 0, was in round 0 before"
    )
    (run,) = said_by(joins(2, 1, 1), joins(1, 1, 0), *lines).runs.values()
    assert not [*run.wrong()], "its rank 0 was in no round before: it may have ended"
    assert [agent.name for agent in run.unexplained()] == ["h_2", "h_1"]


def test_an_error_that_no_finding_explains_is_not_called_right(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "events"
    path.write_text("".join(json.dumps(line) + "\n" for line in [joins(1, 0, 0), ends(1, NO_ROLE)]), encoding="utf-8")
    assert run(["explain", str(path)]) == 3
    out = capsys.readouterr().out
    assert "h_1 ended with an error that no finding explains: torch.distributed.DistStoreError: wait timeout" in out
    assert "not decided: 1 agent ended with an error" in out.splitlines()[-1]


def test_agents_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trystate.monitor.agents.AGENTS_MAX", 1)
    found = said_by(*agent(1, "SUCCEEDED"), *agent(2, "SUCCEEDED"))
    assert (len(found.runs["job"].agents), found.let_go) == (1, len(agent(2, "SUCCEEDED")))
